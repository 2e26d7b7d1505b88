"""The result of a search: the best points, the front of time against memory, and how certain both are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from umm.notebook import Shown
from umm.plans.redistribution.fastest import move_seconds
from umm.space.budget import device_share
from umm.space.choice import Choice
from umm.space.pricing.pricer import Pricer
from umm.space.search.uncertainty import TOLERANCE, Starts, Sure, assumed_starts
from umm.space.search.walk import BestFirst
from umm.space.space import Space
from umm.units import format_bytes, format_seconds, percent

if TYPE_CHECKING:
    import pandas as pd

MAX_SLOWDOWN = 4.0  # how many times as long as the best what a search shows of a front may take


def front(
    pricer: Pricer,
    limit: int,
    least: int = 0,
    reach: float = math.inf,
    within: float = math.inf,
    known: Sequence[Choice] = (),
) -> list[Choice]:
    """Return the points that no other beats in both time and memory, by ascending memory.

    Each is the fastest for every budget from its own memory up to the next one's.

    Args:
        limit: Most bytes a rank may hold.
        least: Points that need no more than this are left out.
        reach: So are those that take more than this many times as long as the fastest.
        within: And those that take more seconds than this.
        known: The fastest within the limit, where it is.
    """
    steps: list[Choice] = []
    # From the right end of the front to the left: the next point has to need less memory than the last one.
    while limit > least:
        choices = known
        if steps or not known:
            best = BestFirst(pricer, limit, 1, within=within)
            best.run()
            choices = best.found.choices()
        if not choices or choices[0].memory_bytes <= least or choices[0].makespan_s > within:
            break
        # The first point has the most memory and so is the fastest: the reach counts from it.
        if not steps:
            within = min(within, reach * choices[0].makespan_s)
        steps += choices
        limit = choices[0].memory_bytes - 1
    return steps[::-1]


def knee(front: Sequence[Choice]) -> Choice | None:
    """Return the point of a front that lies furthest below the line between its ends; None without one.

    Before it a little memory buys much time, after it much memory buys little.

    Source: Satopää, Albrecht, Irwin and Raghavan (2011), Finding a "kneedle" in a haystack.
    """
    if len(front) < 3:
        return None
    first, last = front[0], front[-1]
    # Both axes are scaled to one, or bytes would outweigh seconds; the line joins the two ends.
    memory, seconds = last.memory_bytes - first.memory_bytes, first.makespan_s - last.makespan_s

    def above(x: Choice) -> float:
        return (x.memory_bytes - first.memory_bytes) / memory + (x.makespan_s - last.makespan_s) / seconds

    return min(front[1:-1], key=above)


MOST_RANGED = 60_000
"""Actions simulated for ranges of several statements; the best that would take more have none."""


@dataclass(frozen=True)
class Found(Shown):
    """The best points of a space, and how much had to be looked at to know that they are."""

    space: Space  #: the space that was searched
    machine: str  #: name of the machine
    limit: int  #: bytes a rank was allowed: the budget, or what it has of its device if that is less
    #: The best points by makespan (to ten figures), memory and text; points that are one schedule once.
    top: list[Choice]
    priced: int  #: points of the space as written, all of them priced
    distinct: int  #: points left after merging equal ones
    pruned: int  #: points that were never simulated, because a bound or their memory ruled them out
    bounded: int  #: points whose schedule was built to bound it
    simulated: int  #: points simulated
    #: Whether every simulated makespan respected its bound, so that the pruned ones are worse: in this model,
    #: to the :data:`umm.space.search.uncertainty.TOLERANCE` that its makespans have.
    proven: bool
    gap: float  #: how far the best may be above the best there is, as a share of itself; 0 if proven
    #: Whether the limit is the device less a reserve for all else, because no budget was given.
    reserves: bool
    #: Makespan of each layout that the program has by name, in seconds, and of the assignment that is chosen
    #: multiply by multiply; None where it does not fit. A scheme that gathers weights by copies is timed with
    #: these, as ``umm.peers`` has it, though no point of the space has them.
    named: Mapping[str, float | None]
    #: Of those for which there was no time, or that are far from the best, a lower bound of the makespan, in
    #: seconds.
    left_out: Mapping[str, float]
    #: What each statement of the best moves: of each tensor the bytes that reach the rank that gets most of
    #: it.
    moved: list[tuple[str, Mapping[str, int]]]
    #: What is known of the points, from which the front and ranges come.
    pricer: Pricer = field(repr=False, compare=False)
    #: Whether these are to be computed, with what moving operands takes, what more memory buys and what is
    #: assumed; not where somebody has ended it early and waits.
    whole: bool = True
    cut: bool = False  #: whether a limit of seconds has ended it, so that a faster host would look at more

    tolerance = TOLERANCE

    @property
    def points(self) -> Any:
        """The points: ``MultiplyPoints`` of one multiply, else ``Assignments``."""
        return self.pricer.points

    @property
    def device(self) -> int:
        """Bytes a rank has of its device."""
        return device_share(self.pricer.machine, self.pricer.points.ranks)

    @cached_property
    def frontier(self) -> list[Choice]:
        """The points within the limit that no other beats in both time and memory, by ascending memory.

        Those that take more than :data:`MAX_SLOWDOWN` times as long as the best are left out.
        """
        # An unproven best may be beaten while the front is sought, so it is no end of a front to start from.
        known = self.top[:1] if self.proven and self.space.is_multiply else ()
        return front(self.pricer, self.limit, reach=MAX_SLOWDOWN, known=known)

    @cached_property
    def knee(self) -> Choice | None:
        """The point of the frontier after which more memory buys little; see :func:`knee`."""
        return knee(self.frontier)

    @cached_property
    def more(self) -> Choice | None:
        """The gain of a little more memory than the budget: half or more of that of twice as much.

        The point with the least memory that does, None if twice the memory saves less than a hundredth.
        """
        if self.limit >= self.device or self.reserves:
            return None
        beyond, now = front(self.pricer, min(self.device, 2 * self.limit), self.limit), self.top[0].makespan_s
        if not beyond or beyond[-1].makespan_s > 0.99 * now:
            return None
        return next(x for x in beyond if now - x.makespan_s >= (now - beyond[-1].makespan_s) / 2)

    @cached_property
    def sure(self) -> Sure:
        """Makespans over the ranges of the machine's numbers: their ranges, and ties."""
        return Sure(self.pricer.machine, self.pricer.makespan)

    @cached_property
    def starts(self) -> Starts | None:
        """The best's makespans with assumed latencies half or twice as long; None if none is assumed.

        None too for a schedule that takes as long to write again as the search did.
        """
        if not self.whole or (not self.space.is_multiply and self.top[0].actions > MOST_RANGED):
            return None
        best, simulate = self.top[0], self.pricer.makespan
        return assumed_starts(self.pricer.machine, best.schedule, lambda made: best.times * simulate(made))

    @cached_property
    def ranged(self) -> list[Choice]:
        """The first of the top, as many as can be simulated with the machine's numbers at their ends too."""
        if not self.whole:
            return []
        if self.space.is_multiply:
            return self.top
        # A range costs a simulation for each corner of the machine's
        # numbers, so only a prefix of the top gets one.
        actions = accumulate(x.actions * self.sure.corners for x in self.top)
        return [x for x, count in zip(self.top, actions, strict=True) if count <= MOST_RANGED]

    @cached_property
    def tied(self) -> list[Choice]:
        """Those of them that tie with the first, itself included; see :class:`Sure`."""
        return [x for x in self.ranged if self.sure.tie(self.top[0], x)]

    def bringing(self, choice: Choice) -> dict[str, float] | None:
        """Return the seconds of moving its operands, by matrix; None for many ranks or several statements."""
        if not (self.proven and self.whole and self.space.is_multiply):
            return None
        return move_seconds(choice.problem, self.pricer.machine, choice.options.final)

    def record(self, choice: Choice) -> dict[str, Any]:
        """Return a point as plain values, with its range in seconds, and of a multiply the time of moving."""
        ends = list(self.sure.range(choice)) if self.is_ranged(choice) else None
        more: dict[str, Any] = {"bring_s": self.bringing(choice)}
        if not self.space.is_multiply:
            more = {"ties_with_first": choice in self.tied}
        return choice.to_dict() | {"makespan_range_s": ends} | more

    def is_ranged(self, choice: Choice) -> bool:
        """Whether a point has a range: those of one multiply all have, of several statements the first."""
        return self.whole and (self.space.is_multiply or choice in self.ranged)

    def to_frame(self) -> "pd.DataFrame":
        """Return the best points as a pandas DataFrame, one row each, best first."""
        import pandas as pd

        if self.space.is_multiply:
            return pd.DataFrame([self.record(choice) for choice in self.top])
        names = ("makespan_s", "fraction_of_peak", "memory_bytes")
        return pd.DataFrame(
            [{x: getattr(choice, x) for x in names} | dict(choice.layouts) for choice in self.top]
        )

    def __repr__(self) -> str:
        sure = "proven best" if self.proven else "best so far"
        return f"Found({self.machine}: {self.top[0]}; {sure} of {self.distinct:,})"

    def __str__(self) -> str:
        if not self.space.is_multiply:
            best = self.top[0]
            sure = "proven best" if self.proven else f"within {100 * self.gap:.2g} % of the best"
            return (
                f"{format_seconds(best.makespan_s)}, {percent(best.fraction_of_peak, 1)} of peak, "
                f"{format_bytes(best.memory_bytes)} per rank: {sure} of {self.priced:,} assignments on "
                f"{self.machine}"
            )
        lines = [f"{i:>3}  {choice}" for i, choice in enumerate(self.top, 1)]
        share = self.simulated / self.distinct
        lines.append(
            f"{'proven' if self.proven else 'not proven'}: {self.priced} points priced, {self.distinct} "
            f"distinct, {self.pruned} pruned, {self.simulated} simulated ({percent(share, 1)})"
        )
        return "\n".join(lines)
