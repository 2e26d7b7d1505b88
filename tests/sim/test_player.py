"""The player against the reference on SimPy: the same start and finish of every action, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs
from strategies import finals, offsets, problems, stationaries

import umm
from umm.errors import ScheduleError
from umm.schedules.table.details import GET
from umm.schedules.table.table import Means
from umm_sim.executor import ReferenceExecutor, SimExecutor
from umm_sim.player import played
from umm_sim.simulation import simulate


def assert_same(schedule):
    assert [x.tobytes() for x in simulate(schedule)] == [x.tobytes() for x in played(schedule)]


@pytest.mark.parametrize("name", ["pvc-12", "pvc-12-planes", "h100-8", "dgx-h100x4", "localhost", "h200-1"])
@settings(max_examples=examples(15))
@given(data=st.data())
def test_the_player_and_the_reference_agree_to_the_last_bit(name, data):
    """Own links, shared links, shared engines, work that transfers slow down."""
    machine = umm.machine(name)
    dtype = data.draw(st.sampled_from(sorted(machine.peaks)))
    schedule = umm.schedule(
        data.draw(problems(max_ranks=min(machine.default_ranks, 16), dtype=dtype)),
        machine,
        stationary=data.draw(stationaries),
        offset=data.draw(offsets),
        final=data.draw(finals),
        prefetch=data.draw(st.integers(0, 3)),
        max_accumulates=data.draw(st.integers(1, 3)),
    )
    assert_same(schedule)


@settings(max_examples=examples(30))
@given(schedule=programs(24))
def test_so_they_do_on_any_program(schedule):
    """Maps, copies within a rank on engines, means, waits and barriers, several ranks on a device."""
    assert_same(schedule)


@pytest.mark.parametrize("algorithm", ["cannon", "summa", "dtensor", "cosma", "ring", "2.5d"])
def test_and_on_algorithms(algorithm):
    problem = umm.Problem(m=96, n=60, k=84, a="2d", b="2d", c="2d", ranks=16)
    schedule = umm.schedule(problem, "dgx-h100x4", algorithm=algorithm)
    assert_same(schedule)
    assert ReferenceExecutor().makespan(schedule) == SimExecutor().makespan(schedule)


def test_means_take_their_own_share():
    """A transfer by another means costs its rank's gemms more than its kind says."""
    problem = umm.Problem(m=512, n=512, k=512, a="row", b="col", c="2d", ranks=8)
    schedule = umm.schedule(problem, "h100-8", prefetch=4)
    means = (Means("kernel", 0.4), Means("copy_engine", 0.0))
    means_of = (np.arange(len(schedule)) % 3 - 1).astype(np.int8)
    changed = replace(schedule, means=means, means_of=means_of)
    assert_same(changed)
    slower, usual = (simulate(x)[1].max() for x in (changed, schedule))
    assert slower > usual


def test_what_waits_for_itself_never_finishes():
    """A get that waits for the gemm that reads it is named; numbers outside the tables are refused."""
    problem = umm.Problem(m=64, n=64, k=64, a="row", b="row", c="row", ranks=8)
    schedule = umm.schedule(problem, "h100-8", prefetch=0, max_gemms=1)
    get = int(schedule.waiting[schedule.kind[schedule.waiting] == GET][0])
    reader = int(schedule.waiting[schedule.after == get][0])
    after = schedule.after.copy()
    after[schedule.after_offsets[get]] = reader
    for player in (played, simulate):
        with pytest.raises(ScheduleError, match=f"action {get} never finishes"):
            player(replace(schedule, after=after))
    after[0] = len(schedule)
    with pytest.raises(ValueError, match="do not belong together"):
        simulate(replace(schedule, after=after))
