"""The search, of one multiply or of a chain."""

from collections.abc import Callable
from typing import Any, overload

from umm.machines import Machine
from umm.schedules.schedule import Schedule
from umm.space.chain_space import ChainSpace
from umm.space.points import Space
from umm.space.search import best_first
from umm.space.search.best_first import Found
from umm.space.search.chain_layouts import FoundChain, search_chain

Makespan = Callable[[Schedule], float]
Progress = Callable[[int, int], None]


@overload
def search(
    space: Space,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = "2x",
    top: int = 10,
    progress: Progress | None = None,
) -> Found: ...


@overload
def search(
    space: ChainSpace,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = "2x",
    top: int = 10,
    progress: Progress | None = None,
) -> FoundChain: ...


def search(space: Space | ChainSpace, machine: Machine | str, **named: Any) -> Found | FoundChain:
    """Return the best points of a space, with proof.

    Of one multiply as :func:`umm.space.search.best_first.search` does, of a chain as
    :func:`umm.space.search.chain_layouts.search_chain`.

    Args:
        space: What may be chosen; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its topology file.
        named: ``makespan``, what simulates a schedule; ``memory``, the budget per rank: bytes, a multiple of
            the unreplicated share (``2x``) or None; ``top``, how many of the best to find; ``progress``,
            called now and then with the number of points settled and of all.

    Raises:
        InfeasibleError: if no point fits the budget and the device.
        InputError: for a budget, layout or machine that does not exist.
        SearchInterruptedError: on Ctrl-C in the search of one multiply, with the best found by then.
    """
    if isinstance(space, ChainSpace):
        return search_chain(space, machine, **named)
    return best_first.search(space, machine, **named)
