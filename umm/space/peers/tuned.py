"""An algorithm with the options that serve it best, found by simulation."""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, NamedTuple

from umm.algorithms.algorithm import Algorithm
from umm.algorithms.option import Option
from umm.errors import ScheduleError
from umm.executor import executor
from umm.layouts.places import replication_factors
from umm.machines import Machine
from umm.program.problem import Problem
from umm.space.peers.multiplies import Way
from umm.space.search.walk import Progress


class Tuned(NamedTuple):
    """An algorithm as it competes.

    Attributes:
        contender: With its best options; None if it cannot serve the problem with any.
        refusal: Why it cannot with its own options, and what would work; None if it can.
    """

    contender: Way | None
    refusal: str | None


def tuned(
    algorithm: Algorithm, start: Problem, machine: Machine, limit: int, progress: Progress | None = None
) -> Tuned:
    """Return an algorithm with the options that make it fastest within a budget.

    Options that are one of a few are tried one after another, the others as they are best by then; so are
    meshes of ranks, and the budget itself where an algorithm takes one. If nothing fits, what comes nearest.

    Args:
        algorithm: Which.
        start: The problem, and where its operands lie.
        machine: Where it runs.
        limit: Bytes that a rank may hold.
        progress: Called with how many choices of options were tried, and how many there are.
    """
    makespan = executor("sim").makespan
    best: tuple[tuple[int, float], Way] | None = None
    refusal = algorithm.refusal(start, machine, algorithm.chosen({}))
    trials: list[tuple[str, Any]] = [("", None)]
    trials += [(x.name, value) for x in algorithm.options for value in _values(x, start, limit)]
    for number, (name, value) in enumerate(trials):
        if progress:
            progress(number, len(trials))
        options = dict(best[1].options) if best else {}
        options |= {name: value} if name else {}
        if not _serves(algorithm, start, machine, options):
            continue
        contender = Way(algorithm.name, algorithm.name, options)
        schedule = contender.schedule(start, machine)
        cost = max(0, int(schedule.memory_bytes.max()) - limit), makespan(schedule)
        if best is None or cost < best[0]:
            best = cost, contender
    return Tuned(best[1] if best else None, refusal)


def _values(option: Option, start: Problem, limit: int) -> Iterator[Any]:
    """Yield what is tried of an option."""
    if option.name == "grid":
        for axes in (2, 3):
            for mesh in product(replication_factors(start.p), repeat=axes):
                if prod(mesh) == start.p:
                    yield "x".join(map(str, mesh))
    elif option.name == "memory":
        yield limit / start.unreplicated_share
    elif isinstance(option.default, bool):
        yield not option.default
    elif isinstance(option.default, str):
        yield from (value for value in option.values if value != option.default)


def _serves(algorithm: Algorithm, start: Problem, machine: Machine, options: dict[str, Any]) -> bool:
    try:
        return algorithm.refusal(start, machine, algorithm.chosen(options)) is None
    except ScheduleError:  # a mesh of more axes than it has
        return False
