"""The bound of one schedule in C against the same in Python: equal to the last bit."""

import pytest
from compiled import compiled, text_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, stationaries

import umm
from umm.schedules import bound
from umm.schedules.table.details import GEMM

MACHINES = [umm.machine(name) for name in ("dgx-h100x4", "h100-8", "cpu-hdr")]


@pytest.fixture(scope="module")
def in_c():
    return compiled("_bound").bound


def both(schedule, in_c):
    found = []
    for function in (None, in_c):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bound, "bound_in_c", function)
            found.append(bound.schedule_bound(schedule))
    return found


@settings(max_examples=examples(80), deadline=None)
@given(problems(), stationaries, st.sampled_from(MACHINES), st.integers(1, 3))
def test_a_multiply_is_bounded_alike_in_c(in_c, problem, stationary, machine, depth):
    if problem.p > machine.device_count:
        machine = MACHINES[0]
    python, c = both(umm.schedule(problem, machine, stationary=stationary, prefetch=depth), in_c)
    assert python == c > 0


@pytest.mark.parametrize("name", ["summa", "cannon", "2.5d"])
def test_so_are_phases_between_barriers(in_c, name):
    """Of 16 ranks on two nodes, whose rounds wait for all of them or sum replicas at the end."""
    problem = umm.Problem(512, 512, 512, ranks=16)
    schedule = umm.schedule(problem, "dgx-h100x4", algorithm=name)
    python, c = both(schedule, in_c)
    assert python == c > 0


def test_its_number_of_a_gemm_is_the_table_s():
    assert f"enum {{ GEMM = {GEMM} }};" in text_of("_bound")


def test_columns_that_do_not_belong_together_are_refused(in_c):
    schedule = umm.schedule(umm.Problem(64, 64, 64, ranks=4), MACHINES[0])
    routes = bound._routes(schedule)
    with pytest.raises(ValueError, match="do not belong together"):
        bound._compiled(schedule, routes, schedule.seconds[:1], range(len(schedule)), in_c)
    with pytest.raises(ValueError, match="do not belong together"):
        bound._compiled(schedule, routes, schedule.seconds, range(len(schedule) + 1), in_c)
