"""The universal algorithm as it competes: where operands lie, and after they are brought elsewhere."""

from typing import Any

from umm.errors import InfeasibleError
from umm.machines import Machine
from umm.problem import Problem
from umm.space.choice import Choice
from umm.space.peers.contender import Contender
from umm.space.search.search import search
from umm.space.search.walk import Progress
from umm.space.space import Space

IN_PLACE, REDISTRIBUTE = "universal", "redistribute"


def in_place(
    start: Problem, machine: Machine, memory: str | int | None, progress: Progress | None = None
) -> Contender:
    """Return the best way to multiply where A, B and C lie: proven over stationary matrices and options.

    Args:
        start: The problem, and where its operands lie.
        machine: Where it runs.
        memory: Budget a rank; where nothing fits it, the fastest without one.
        progress: As the search takes it.
    """
    layouts = {x: getattr(start, x) for x in "abc"}
    space = _space(start, **layouts)
    try:
        best = search(space, machine, memory=memory, top=1, progress=progress).top[0]
    except InfeasibleError:
        best = search(space, machine, memory=None, top=1, progress=progress).top[0]
    return Contender(IN_PLACE, options=_options(best))


def redistributed(
    start: Problem, machine: Machine, memory: str | int | None, progress: Progress | None = None
) -> Contender | None:
    """Return the best way that brings operands to other layouts first, proven best.

    Each to row, col or the squarest 2d, or to every rank; a search with ``given`` knows more layouts.

    Args:
        start: The problem, and where its operands lie.
        machine: Where it runs.
        memory: Budget a rank, for what lies there and what is brought.
        progress: As the search takes it.

    Returns:
        None if nothing else fits the budget.
    """
    given = {x: getattr(start, x) for x in "abc"}
    space = _space(start, given=given, grids="square", replication=(1, start.p))
    top = 8
    while True:
        try:
            found = search(space, machine, memory=memory, top=top, progress=progress).top
        except InfeasibleError:
            return None
        for choice in found:
            if choice.problem.layouts != start.layouts:
                a, b, c = (str(getattr(choice.problem, x)) for x in "abc")
                return Contender(REDISTRIBUTE, options=_options(choice), layouts=(a, b, c))
        if len(found) < top:
            return None
        top *= 4


def anywhere(
    start: Problem, machine: Machine, memory: str | int | None, progress: Progress | None = None
) -> Choice | None:
    """Return the best point of the space if operands may lie as they like; None if nothing fits."""
    try:
        space = _space(start, grids="square")
        return search(space, machine, memory=memory, top=1, progress=progress).top[0]
    except InfeasibleError:
        return None


def _space(start: Problem, **more: Any) -> Space:
    sizes = {x: getattr(start, x) for x in ("m", "n", "k", "dtype", "c_dtype")}
    return Space(**sizes, ranks=start.p, **more)


def _options(choice: Choice) -> dict[str, Any]:
    return {"stationary": choice.stationary, **choice.options.to_dict()}
