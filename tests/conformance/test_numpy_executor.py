"""The NumPy executor: the conformance suite in row order and in random order, and what is its own."""

from functools import partial

import numpy as np
import pytest
from conformance.executor_suite import ExecutorConformance, integer_operands, laws, scheduled
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems, schedule_options, stationaries

import umm
from umm.errors import InputError, ScheduleError
from umm_hw.blocks import place
from umm_hw.numpy.executor import NumpyExecutor
from umm_hw.numpy.transport import NumpyTransport


class TestRowOrder(ExecutorConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return NumpyExecutor


class TestRandomOrder(ExecutorConformance):
    keeps_lanes = False

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(NumpyExecutor, order="random", seed=7)


@laws
@given(problems(), stationaries, schedule_options, st.integers(0, 2**32))
def test_any_order_that_the_dependencies_allow_gives_the_product(problem, stationary, options, seed):
    """Lanes aside: `after` alone makes a schedule right."""
    schedule = scheduled(problem, stationary, options)
    a, b = integer_operands(problem)
    result = NumpyExecutor(order="random", seed=seed).run(schedule, (a, b)).result
    assert np.array_equal(result, a @ b)


@laws
@given(problems(), stationaries, schedule_options)
def test_every_rank_allocates_what_the_schedule_says(problem, stationary, options):
    """Tiles and pool slots together are memory_bytes to the byte."""
    schedule = scheduled(problem, stationary, options)
    first = NumpyTransport(schedule.ranks)
    ranks = [first.as_rank(rank) for rank in range(schedule.ranks)]
    for rank in ranks:
        place(schedule, rank)
    assert [rank.nbytes for rank in ranks] == schedule.memory_bytes.tolist()


def test_the_same_seed_gives_the_same_order():
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, a="row", b="row", c="2d", ranks=4), "h100-8")
    orders = [
        np.argsort(NumpyExecutor(order="random", seed=seed).run(schedule).start).tolist()
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]


def test_bfloat16_is_refused():
    schedule = umm.schedule(umm.Problem(m=4, n=4, k=4, ranks=2, dtype="bfloat16"), "h100-8")
    with pytest.raises(InputError, match="NumPy matrices cannot hold bfloat16; choose from float64, float32"):
        NumpyExecutor().run(schedule)


def test_an_unknown_order_is_refused():
    with pytest.raises(InputError, match="order 'fast' is unknown; choose from rows, random"):
        NumpyExecutor(order="fast")


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        (
            "src",
            2,
            0,
            r"action 2 \(get of rank 0\) uses tile \(1, 0\) of B as rank 0's own, but rank 1 holds it",
        ),
        (
            "b_slot",
            3,
            1,
            r"action 3 \(gemm of rank 0\) reads rows 4:8, columns 0:8 of B in slot 1, where no row",
        ),
    ],
)
def test_an_action_on_memory_that_is_not_there_is_refused(column, row, value, message):
    """Row×row→row over 2 ranks: action 2 gets the other half of B, action 3 multiplies with it."""
    problem = umm.Problem(m=8, n=8, k=8, a="row", b="row", c="row", ranks=2)
    schedule = umm.schedule(problem, "h100-8", stationary="C")
    columns = schedule.details if hasattr(schedule.details, column) else schedule
    getattr(columns, column)[row] = value
    with pytest.raises(ScheduleError, match=message):
        NumpyExecutor().run(schedule)
