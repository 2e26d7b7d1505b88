"""Where gemms begin and end at the earliest: after what they wait for, and no later than simulated."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, stationaries

import umm
from umm.schedules.table.details import BARRIER, GEMM
from umm.space.bounds import statement_work
from umm_sim.simulation import simulate

MACHINE = umm.machine("dgx-h100x4")


@settings(max_examples=examples(60), deadline=None)
@given(problems(), stationaries, st.integers(1, 3))
def test_gemms_begin_after_the_gemms_they_wait_for_and_not_after_they_do(problem, stationary, depth):
    schedule = umm.schedule(problem, MACHINE, stationary=stationary, prefetch=depth)
    span, start, least = statement_work.followed(schedule, schedule.seconds)
    started, finished = simulate(schedule)
    gemms, ranks = schedule.kind == GEMM, schedule.ranks
    assert (span >= np.bincount(schedule.rank[gemms], schedule.seconds[gemms], ranks) * (1 - 1e-12)).all()
    barriers = np.flatnonzero(schedule.kind == BARRIER)
    assert len(start) == len(least) == (barriers[0] if len(barriers) else len(schedule))
    assert (start <= started[: len(start)] * (1 + 1e-12)).all()
    assert (span <= finished.max() * (1 + 1e-12)).all()
    for row in np.flatnonzero(gemms[: len(start)]).tolist():
        for before in schedule.after_of(row).tolist():
            takes = schedule.seconds[before] if gemms[before] else 0.0
            assert start[row] >= start[before] + takes
            if np.isfinite(least[before]):
                assert schedule.rank[row] != schedule.rank[before] or least[before] <= schedule.seconds[row]


def test_columns_that_do_not_belong_together_are_refused():
    schedule = umm.schedule(umm.Problem(64, 64, 64, ranks=4), MACHINE)
    with pytest.raises(ValueError, match="do not belong together"):
        statement_work.followed(schedule, schedule.seconds[:1])
