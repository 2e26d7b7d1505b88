"""The search, of one multiply or of a chain."""

from collections.abc import Callable
from typing import Any, overload

from umm.errors import expect
from umm.machines import Machine
from umm.schedules.schedule import Schedule
from umm.space.chain_space import ChainSpace
from umm.space.points import Space
from umm.space.search import proven
from umm.space.search.budget import DEVICE
from umm.space.search.chain_layouts import FoundChain, search_chain
from umm.space.search.found import Found

Makespan = Callable[[Schedule], float]
Progress = Callable[[int, int], None]
Told = Callable[[str, int, int], None]
"""Called with what is looked at, how much of it has been, and how much there is; 0 if that is not known."""


@overload
def search(
    space: Space,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = DEVICE,
    top: int = 10,
    progress: Progress | None = None,
) -> Found: ...


@overload
def search(
    space: ChainSpace,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = DEVICE,
    top: int = 10,
    progress: Progress | None = None,
) -> FoundChain: ...


def search(space: Space | ChainSpace, machine: Machine | str, **named: Any) -> Found | FoundChain:
    """Return the best points of a space, with proof.

    Of one multiply as :func:`umm.space.search.proven.search` does, of a chain as
    :func:`umm.space.search.chain_layouts.search_chain`.

    Args:
        space: What may be chosen; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its topology file.
        named: ``makespan``, what simulates a schedule; ``memory``, the budget per rank: bytes, a multiple of
            the unreplicated share (``2x``), ``device`` for what the device has less a tenth, or None for all
            of it; ``top``, how many of the best to find; ``progress``, called now and then with the number
            of points settled and of all.

    Raises:
        InfeasibleError: if no point fits the budget and the device.
        InputError: for a budget, layout or machine that does not exist.
        SearchInterruptedError: on Ctrl-C in the search of one multiply, with the best found by then.
    """
    expect(space, (Space, ChainSpace), "search", "a Space, such as umm.Space(m=8192, n=49152, k=12288)")
    if isinstance(space, ChainSpace):
        return search_chain(space, machine, **named)
    return proven.search(space, machine, **named)
