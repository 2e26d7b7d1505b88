"""The duties of every algorithm on every executor of data; a test class for an executor inherits this."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, integer_operands, laws
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import SIZES, layout_texts

import umm
from umm.algorithms.scheduling import algorithms
from umm.executor import Executor
from umm.schedules.races import races

RANKS = (1, 2, 3, 4, 6, 8, 9, 12, 16)
MOST_ACTIONS = 1500


@cache
def served():
    """Every algorithm on every number of ranks it takes, with its own options or none."""
    return [
        (name, p)
        for name, algorithm in algorithms().items()
        for p in RANKS
        if algorithm.mesh(p, **algorithm.chosen({})) is not None
    ]


@st.composite
def options_of(draw, name, ranks):
    """Options of an algorithm that so many ranks fit."""
    algorithm = algorithms()[name]
    given = {}
    for option in algorithm.options:
        if option.name == "grid":
            axes = 3 if name == "3d" else 2
            given["grid"] = draw(st.sampled_from(["", *meshes_of(ranks, axes)]))
        elif option.name == "mesh":
            given["mesh"] = draw(st.sampled_from(["", *(x for n in (1, 2, 3) for x in meshes_of(ranks, n))]))
        elif option.name == "steps":
            given["steps"] = draw(strategies(ranks))
        elif option.name == "memory":
            given["memory"] = draw(st.sampled_from([0.0, 1.5, 2.0, 4.0]))
        elif isinstance(option.default, str):
            given[option.name] = draw(st.sampled_from(option.values))
        elif isinstance(option.default, bool):
            given[option.name] = draw(st.booleans())
        elif isinstance(option.default, int):
            given[option.name] = draw(st.integers(option.least, 4))
        else:
            given[option.name] = draw(st.sampled_from([0.0, 1e-6]))
    assume(algorithm.mesh(ranks, **algorithm.chosen(given)) is not None)
    return given


@st.composite
def strategies(draw, ranks):
    """Steps of COSMA for so many ranks: dimensions split over ranks, and between them in time; or none."""
    mesh = draw(st.sampled_from(meshes_of(ranks, 3))).split("x")
    steps = [f"p{x}{parts}" for x, parts in zip("mnk", mesh, strict=True) if int(parts) > 1]
    steps += [f"s{x}{draw(st.integers(2, 3))}" for x in draw(st.sets(st.sampled_from("mnk")))]
    return ",".join(draw(st.permutations(steps)))


def meshes_of(ranks, axes):
    """Every mesh of so many ranks as text.

    >>> meshes_of(4, 2)
    ['1x4', '2x2', '4x1']
    """
    if axes == 1:
        return [str(ranks)]
    sizes = [d for d in range(1, ranks + 1) if ranks % d == 0]
    return [f"{size}x{rest}" for size in sizes for rest in meshes_of(ranks // size, axes - 1)]


@st.composite
def requests(draw, most=RANKS[-1]):
    """An algorithm, its options, and a problem on any layouts that it takes."""
    name, ranks = draw(st.sampled_from([(name, p) for name in algorithms() for p in RANKS if p <= most]))
    options = draw(options_of(name, ranks))
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    a, b, c = (draw(layout_texts(shape, ranks)) for shape in ((m, k), (k, n), (m, n)))
    return name, options, umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype="float64")


def scheduled(request):
    """The schedule of a request, unless it is refused or too long for a test."""
    name, options, problem = request
    algorithm = algorithms()[name]
    assume(algorithm.refusal(problem, MACHINE, algorithm.chosen(options)) is None)
    schedule = umm.schedule(problem, MACHINE, algorithm=name, **options)
    assume(len(schedule) <= MOST_ACTIONS)
    assert [str(race) for race in races(schedule)] == []
    return schedule


def all_replicas_are_right(schedule, executor: Executor):
    a, b = integer_operands(schedule.problem)
    result = executor.run(schedule, (a, b)).result
    return np.array_equal(result, np.broadcast_to(a @ b, result.shape))


class AlgorithmConformance:
    """Inherit, override ``executor`` as for ExecutorConformance, and say how many ranks there are at most.

    ``numbers`` selects those of RANKS that each algorithm is tried on.
    """

    most = RANKS[-1]
    numbers = slice(None)

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls) -> Callable[..., Executor]:
        """A function that makes an executor, taking its options; ``replica`` is one of them."""
        raise NotImplementedError

    @pytest.mark.parametrize("name", algorithms())
    def test_every_replica_of_c_is_exact_on_every_number_of_ranks(self, executor, name):
        """Uneven sizes, 13x11x14, and fewer rows than ranks, 3x2x5; from and to layouts, all in turn."""
        layouts = ["row", "col", "2d", "row@{p}", "cyclic:2x3:1x{p}", "2d:balanced"]
        tried = [p for served_name, p in served() if served_name == name and p <= self.most]
        for turn, p in enumerate(tried[self.numbers]):
            m, n, k = ((13, 11, 14), (3, 2, 5))[turn % 2]
            a, b, c = (layouts[(turn + x) % len(layouts)].format(p=p) for x in range(3))
            problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=p, dtype="float64")
            schedule = umm.schedule(problem, MACHINE, algorithm=name)
            assert all_replicas_are_right(schedule, executor(replica=None)), p

    @settings(laws, max_examples=examples(12))
    @given(st.data())
    def test_every_replica_of_c_is_exact_for_any_layouts_and_options(self, executor, data):
        schedule = scheduled(data.draw(requests(self.most)))
        assert all_replicas_are_right(schedule, executor(replica=None))
