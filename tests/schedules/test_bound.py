"""The bound of a schedule: at most its simulated makespan, at least the work of each link and engine."""

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, stationaries

import umm
from umm.schedules.bound import schedule_bound
from umm.schedules.table.details import GEMM
from umm_sim.executor import SimExecutor

MACHINES = [umm.machine(name) for name in ("dgx-h100x4", "h100-8", "cpu-hdr")]


def busiest(schedule):
    """The seconds of the link that carries most, and of the engine that multiplies most."""
    carried = np.zeros(len(schedule.links.names))
    for src, dst, nbytes in zip(
        *(x.tolist() for x in (schedule.src, schedule.dst, schedule.nbytes)), strict=True
    ):
        if src != dst:
            for link in schedule.routes[src, dst]:
                carried[link] += nbytes
    gemms = schedule.kind == GEMM
    engines = np.bincount(schedule.lanes.engine[schedule.lane[gemms]], schedule.seconds[gemms])
    return max((carried / schedule.links.bandwidth).max(initial=0.0), engines.max(initial=0.0))


@settings(max_examples=examples(80), deadline=None)
@given(problems(), stationaries, st.sampled_from(MACHINES), st.integers(1, 3))
def test_it_is_below_the_simulation_and_above_the_busiest_link_and_engine(
    problem, stationary, machine, depth
):
    if problem.p > machine.device_count:
        machine = MACHINES[0]
    schedule = umm.schedule(problem, machine, stationary=stationary, prefetch=depth)
    assert busiest(schedule) * (1 - 1e-8) <= schedule_bound(schedule) <= SimExecutor().makespan(schedule)


@pytest.mark.parametrize("name", ["summa", "cannon", "2.5d"])
def test_so_it_is_of_phases_between_barriers(name):
    """Of 16 ranks on two nodes, whose rounds wait for all of them or sum replicas at the end."""
    schedule = umm.schedule(umm.Problem(512, 512, 512, ranks=16), "dgx-h100x4", algorithm=name)
    assert busiest(schedule) * (1 - 1e-8) <= schedule_bound(schedule) <= SimExecutor().makespan(schedule)


def test_a_chain_of_gemms_is_bounded_by_its_length():
    """One rank multiplies tile after tile, and moves nothing: the bound is the makespan."""
    schedule = umm.schedule(umm.Problem(64, 64, 64, a="cyclic:16x16:1x1", ranks=1), "h100-8")
    assert schedule_bound(schedule) == pytest.approx(SimExecutor().makespan(schedule), rel=1e-8)


def test_columns_that_do_not_belong_together_are_refused():
    schedule = umm.schedule(umm.Problem(64, 64, 64, ranks=4), MACHINES[0])
    with pytest.raises(ValueError, match="do not belong together"):
        schedule_bound(replace(schedule, lane=schedule.lane + 1000))
