"""The NumPy executor: the conformance suite in row order and in random order, and tests of its own."""

from functools import partial

import numpy as np
import pytest
from conformance.executor_suite import ExecutorConformance, integer_operands, laws, scheduled
from conformance.program_suite import ProgramConformance
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems, schedule_options, stationaries

import umm
from umm.errors import InputError
from umm_hw.blocks import place
from umm_hw.numpy.executor import NumpyExecutor
from umm_hw.numpy.transport import NumpyTransport


class TestRowOrder(ExecutorConformance, ProgramConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return NumpyExecutor


class TestRandomOrder(ExecutorConformance, ProgramConformance):
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


def test_an_unknown_order_is_refused():
    with pytest.raises(InputError, match="order 'fast' is unknown; choose from rows, random"):
        NumpyExecutor(order="fast")


@pytest.mark.parametrize("edges", ["0-4-6", "0-4-4-6", "0-0-4-6", "0-4-6-6"])
def test_layouts_that_are_equal_may_number_their_tiles_otherwise(edges):
    """The rows of every replica of B and C are cut at 4, at different numbers: empty tiles are in between."""
    text = f"edges:{edges}x0-6:1x1@2"
    problem = umm.Problem(m=6, n=6, k=6, a="row", b=text, c=text, ranks=2, dtype="float64")
    a, b = integer_operands(problem)
    for stationary in "ABC":
        schedule = umm.schedule(problem, "h100-8", stationary=stationary, final="broadcast")
        assert np.array_equal(NumpyExecutor(replica=1).run(schedule, (a, b)).result, a @ b)
