"""The search over a chain's layouts: from the lowest bound up, or near the bound where there are too many."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from time import process_time
from typing import TYPE_CHECKING, Any

from umm.errors import InfeasibleError, InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.notebook.shown import Shown
from umm.schedules.schedule import Schedule
from umm.space.bounds.chain_tables import Place, chain_tables
from umm.space.chain_space import ChainSpace
from umm.space.search.budget import DEVICE, limit_of
from umm.space.search.chain_tries import ChainChoice, Tries
from umm.space.search.chain_walk import all_from_the_lowest, near_the_bound, one_by_one
from umm.space.search.sure import TOLERANCE, Sure
from umm.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd

MOST_RANGED = 60_000
"""Actions simulated for ranges; the best after which they would be more have none."""
EVERY = 100_000
"""Assignments up to which all are gone through; of more, those near a bound below all."""
ONE_BY_ONE = "multiply by multiply"


@dataclass(frozen=True)
class FoundChain(Shown):
    """The best layouts of a chain, and how much had to be looked at to know that they are.

    Attributes:
        machine: Name of the machine.
        limit: Bytes a rank was allowed.
        top: The best assignments, fastest first.
        named: Makespan of each of the chain's own layouts by name, in seconds, and of the assignment that is
            chosen multiply by multiply; None where it does not fit.
        left_out: Of those for which there was no time a lower bound of the makespan, in seconds.
        priced: Assignments of the space.
        pruned: Those that a bound or their memory ruled out, or that were not looked at.
        simulated: Those simulated.
        proven: Whether no assignment of the space that fits can beat the best.
        gap: How far the best may be above the best there is, as a share of itself; 0 if proven.
        moved: What each statement of the best moves: of each tensor the bytes that reach the rank that gets
            most of it.
        tries: What was simulated, from which ranges come.
    """

    machine: str
    limit: int
    top: list[ChainChoice]
    named: dict[str, float | None]
    left_out: dict[str, float]
    priced: int
    pruned: int
    simulated: int
    proven: bool
    gap: float
    moved: list[tuple[str, Mapping[str, int]]]
    tries: Tries = field(repr=False, compare=False)

    tolerance = TOLERANCE

    @cached_property
    def sure(self) -> Sure:
        """What the ranges of the machine's numbers make of makespans: their ranges, and what ties."""
        return Sure(self.tries.machine, self.tries.simulate)

    @cached_property
    def ranged(self) -> list[ChainChoice]:
        """The first of the top, as many as can be simulated with the machine's numbers at their ends too."""
        actions = accumulate(x.actions * self.sure.corners for x in self.top)
        return [x for x, count in zip(self.top, actions, strict=True) if count <= MOST_RANGED]

    @cached_property
    def tied(self) -> list[ChainChoice]:
        """Those of them that cannot be told apart from the first, itself included; see :class:`Sure`."""
        return [x for x in self.ranged if self.sure.tie(self.top[0], x)]

    def record(self, choice: ChainChoice) -> dict[str, Any]:
        """Return an assignment as plain values, with its range in seconds, None if it has none."""
        ranged = choice in self.ranged
        return choice.to_dict() | {
            "makespan_range_s": list(self.sure.range(choice)) if ranged else None,
            "ties_with_first": choice in self.tied,
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return the best assignments as a pandas DataFrame, one row each, a column for each tensor."""
        import pandas as pd

        names = ("makespan_s", "fraction_of_peak", "memory_bytes")
        return pd.DataFrame([{x: getattr(choice, x) for x in names} | choice.layouts for choice in self.top])

    def __str__(self) -> str:
        best = self.top[0]
        sure = "proven best" if self.proven else f"within {100 * self.gap:.2g} % of the best"
        return (
            f"{format_seconds(best.makespan_s)}, {best.fraction_of_peak:.1%} of peak, "
            f"{format_bytes(best.memory_bytes)} per rank: {sure} of {self.priced:,} assignments on "
            f"{self.machine}"
        )

    def __repr__(self) -> str:
        return f"FoundChain({self})"


def search_chain(
    space: ChainSpace,
    machine: Machine | str,
    *,
    makespan: Callable[[Schedule], float] | None = None,
    memory: str | int | None = DEVICE,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
    most: int = 150_000,
    seconds: float = 60.0,
    **options: Any,
) -> FoundChain:
    """Return the best layouts for a chain in its space, proven by bounds or with a gap.

    Every statement is priced for all layouts of its tensors. Up to 100,000 assignments are simulated from
    the lowest bound up, until no bound is below the best. Of more, a bound below all is found by duality,
    and what is simulated is near it.

    Args:
        space: The chain and the layouts to choose from.
        machine: A machine, its name, or the path of its topology file.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``.
        memory: Budget per rank: bytes, a multiple of all tensors' share unreplicated, ``device``
            for what a rank has of its device less a tenth, or None for all of that.
        top: How many of the best to find.
        progress: Called now and then with the number of assignments settled and of all.
        most: Actions simulated after which it stops with a gap.
        seconds: Of processor time after which it does too.
        options: The universal algorithm's, for all multiplies.

    Raises:
        InfeasibleError: if no assignment fits.
        InputError: for a budget or a layout that is none.
    """
    if top < 1:
        raise InputError(f"top = {top} is not possible; it must be a whole number ≥ 1")
    until = process_time() + seconds
    machine = machine if isinstance(machine, Machine) else find_machine(machine)
    space = space.on(machine.default_ranks)
    machine.check_ranks(space.ranks or 1)
    tables = chain_tables(space, machine, options)
    limit = _limit(space, machine, memory)
    tries = Tries(tables, machine, makespan or executor("sim").makespan, limit, top, most, until, options)
    walk = all_from_the_lowest if space.assignments <= EVERY else near_the_bound
    lowest = walk(tries, progress)
    if not tries.best:
        least = sum(of.max(axis=-1).min() for of in tables.held)
        raise InfeasibleError(
            f"no layouts of chain {space.chain.name} fit {format_bytes(limit)} a rank; "
            f"its tensors alone take about {format_bytes(int(least))} or more"
        )
    own: dict[str, Place | None] = {name: space.place(x) for name, x in space.chain.layouts.items()}
    own[ONE_BY_ONE] = one_by_one(tables, limit)
    named, left_out = dict[str, float | None](), dict[str, float]()
    for name, place in own.items():
        if place is None or tries.affords(place):
            named[name] = _named(tries, name, place)
        else:
            left_out[name] = tables.bound(place)
    best = tries.best[0]
    gap = max(0.0, 1 - lowest / best.makespan_s)
    return FoundChain(
        machine.name, limit, tries.best, named, left_out, space.assignments,
        space.assignments - tries.simulated, tries.simulated, tries.respected and gap == 0.0, gap,
        tries.moved(best), tries,
    )  # fmt: skip


def _named(tries: Tries, name: str, place: Place | None) -> float | None:
    """Return the makespan of the chain's own layouts; None if they do not fit, or cannot be on so many ranks.

    Args:
        tries: Where they may have been simulated.
        name: Theirs.
        place: Which assignment they are; None if they are not of the space.
    """
    if place is not None:
        return tries.makespan(place)
    try:
        return tries.laid_out(tries.tables.space.chain.layouts[name])
    except InputError:
        return None


def _limit(space: ChainSpace, machine: Machine, memory: str | int | None) -> int:
    """Return the bytes a rank may hold of a chain on a machine; ``1x`` is its share of all tensors."""
    ranks = space.ranks or 1
    tensors = space.chain.laid_out({}, ranks).tensors
    share = sum(x.shape[0] * x.shape[1] * x.itemsize for x in tensors) / ranks
    return limit_of(memory, share, machine, ranks)
