"""The random order catches missing dependencies: each is planted on purpose, in schedules that are right."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from conformance.executor_suite import laws, scheduled
from examples import WHOLE, examples
from hazards import conflicts, unordered, without
from hypothesis import assume, given, settings
from strategies import problems, schedule_options, stationaries

import umm
from umm.arrays import offsets_of
from umm.schedules.races import races
from umm.schedules.table.details import KINDS
from umm.schedules.writer.builder import Builder
from umm_hw.numpy.executor import NumpyExecutor

SEEDS = range(200)

# Each kind of dependency, as (the action that waits, what it waits for).
WHY = {
    ("gemm", "get"): "a gemm reads what its get brings",
    ("get", "gemm"): "a get overwrites a slot that a gemm has read",
    ("accumulate", "gemm"): "an accumulate adds what its gemm has made",
    ("gemm", "accumulate"): "a gemm overwrites a slot that an accumulate has read",
    ("gemm", "gemm"): "gemms add to one tile of C in place, one after the other",
    ("barrier", "gemm"): "replicas are complete before the barrier",
    ("barrier", "accumulate"): "replicas have all their accumulates before the barrier",
    ("barrier", "reduce"): "the sum is complete before it is broadcast",
    ("reduce", "barrier"): "replicas are summed after the barrier",
    ("broadcast", "barrier"): "the sum is broadcast after the barrier",
}


def problem(a, b, c, ranks):
    return umm.Problem(m=8, n=8, k=8, a=a, b=b, c=c, ranks=ranks, dtype="float64")


# Together these have every kind of dependency; few slots, so that all of them are filled again.
SCHEDULES = {
    "gets": (problem("cyclic:2x2:2x2", "cyclic:2x2:2x2", "row", 4), "C", {}),
    "shared gets": (
        problem("col", "cyclic:4x2:1x2", "cyclic:2x4:2x1", 2),
        "A",
        {"prefetch": 0, "max_gemms": 1},
    ),
    "accumulates": (problem("col", "row", "cyclic:2x4:2x1", 2), "A", {"max_gemms": 1, "max_accumulates": 1}),
    "replicas": (problem("col@2", "row@2", "2d@2", 4), "A", {"final": "broadcast", "max_gemms": 1}),
    "replicated work": (problem("row@2", "col@2", "2d@2", 4), "C", {"final": "broadcast"}),
}


def made(name):
    problem, stationary, options = SCHEDULES[name]
    return umm.schedule(problem, "h100-8", stationary=stationary, **({"prefetch": 1} | options))


def is_wrong(schedule, seed):
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(1, 2, schedule.problem.shape(x)) for x in "AB")
    last = schedule.problem.layout("C").replicas - 1 if schedule.options["final"] == "broadcast" else 0
    result = NumpyExecutor(order="random", seed=seed, replica=last).run(schedule, (a, b)).result
    return not np.allclose(result, a @ b, rtol=1e-9)


def planted(name):
    """Every schedule with one dependency taken away so that something races, and that dependency."""
    schedule = made(name)
    for action in range(len(schedule)):
        for dependency in schedule.after_of(action).tolist():
            broken = without(schedule, action, dependency)
            if races(broken):
                yield broken, (KINDS[schedule.kind[action]], KINDS[schedule.kind[dependency]]), action


@settings(laws, max_examples=examples(60))
@given(problems(max_ranks=8), stationaries, schedule_options)
def test_dependencies_order_all_that_touches_the_same_memory(problem, stationary, options):
    """Without looking at lanes: two actions on one element both read, both accumulate, or are ordered."""
    schedule = scheduled(problem, stationary, options)
    assume(len(schedule) <= 400)
    assert not unordered(schedule, conflicts(schedule))
    assert races(schedule) == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_missing_dependency_is_caught(name):
    """Whatever lets two actions race gives NaN or a wrong C with one of the seeds."""
    schedule = made(name)
    assert not any(is_wrong(schedule, seed) for seed in range(20))
    for broken, (kind, waited_for), action in islice(planted(name), 0, None, 1 if WHOLE else 3):
        caught = any(is_wrong(broken, seed) for seed in SEEDS)
        assert caught, f"action {action}: {kind} without waiting for a {waited_for}"


def test_every_kind_of_dependency_is_planted():
    """Of a get that waits for a gemm too: it may only limit how far ahead gets run."""
    kinds = {kinds for name in SCHEDULES for _, kinds, _ in planted(name)}
    assert kinds == set(WHY)


def test_adding_in_place_to_a_tile_that_others_accumulate_into_is_caught():
    """The race of the published algorithm, section 4.2: a local gemm updates C while others accumulate."""
    ranks = 4
    build = Builder(
        "published", problem("col", "row", "row", ranks), umm.machine("h100-8"), options={"final": "complete"}
    )
    for rank in range(ranks):
        a, b = build.own("A", rank), build.own("B", rank)
        for number in range(rank, rank + ranks):
            c, part = build.own("C", number % ranks), a.part(number % ranks, ranks)
            if c.rank == rank:
                build.gemm(c, part, b)
            else:
                room = build.temporary(rank, "C", c.rows, c.cols)
                build.gemm(room, part, b, beta=0.0)
                build.accumulate(room, c)
    right = build.schedule()
    assert not any(is_wrong(right, seed) for seed in range(20))
    kept = right.rank[right.waiting] == right.rank[right.after]  # published, none waits for another rank
    offsets = offsets_of(np.bincount(right.waiting[kept], minlength=len(right)))
    published = replace(right, after=right.after[kept], after_offsets=offsets)
    assert races(published)
    assert any(is_wrong(published, seed) for seed in range(20))
