"""What a search found: the best points, the front of time against memory, and how sure both are."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from umm.notebook.shown import Shown
from umm.space.choice import Choice
from umm.space.given import bring_seconds
from umm.space.search.budget import device_share
from umm.space.search.front import REACH, front, knee, worth_more
from umm.space.search.looked_at import LookedAt
from umm.space.search.sure import TOLERANCE, Sure

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Found(Shown):
    """The best points of a space, and how much had to be looked at to know that they are.

    Attributes:
        machine: Name of the machine.
        limit: Bytes a rank was allowed: the budget, or what it has of its device if that is less.
        top: The best points by makespan (to ten figures), memory and text; points that are one schedule once.
        priced: Points of the space as written, all of them priced by the closed form.
        distinct: Points left after merging equal ones.
        pruned: Points that were never simulated, because a bound or their memory ruled them out.
        bounded: Points whose schedule was built to bound it.
        simulated: Points simulated.
        proven: Whether every simulated makespan respected its bound, so that the pruned ones are worse: in
            this model, to the :data:`umm.space.search.sure.TOLERANCE` that its makespans have.
        reserves: Whether the limit is the device less a reserve for all else, because no budget was given.
        looked: The points with what is known of them, from which the front comes.
    """

    machine: str
    limit: int
    top: list[Choice]
    priced: int
    distinct: int
    pruned: int
    bounded: int
    simulated: int
    proven: bool
    reserves: bool
    looked: LookedAt = field(repr=False, compare=False)

    tolerance = TOLERANCE

    @property
    def device(self) -> int:
        """Bytes a rank has of its device."""
        return device_share(self.looked.machine, self.looked.points.bare.p)

    @cached_property
    def frontier(self) -> list[Choice]:
        """The points within the limit that no other beats in both time and memory, by ascending memory.

        Those that take more than :data:`umm.space.search.front.REACH` times as long as the best are left out.
        """
        return front(self.looked, self.limit, reach=REACH)

    @cached_property
    def knee(self) -> Choice | None:
        """The point of the frontier after which more memory buys little; see :func:`front.knee`."""
        return knee(self.frontier)

    @cached_property
    def more(self) -> Choice | None:
        """What a little more memory than the budget would buy, see :func:`front.worth_more`."""
        if self.limit >= self.device or self.reserves:
            return None
        return worth_more(self.looked, self.limit, self.device, self.top[0].makespan_s)

    @cached_property
    def sure(self) -> Sure:
        """What the ranges of the machine's numbers make of makespans: their ranges, and what ties."""
        return Sure(self.looked.machine, self.looked.makespan)

    @cached_property
    def tied(self) -> list[Choice]:
        """Those of the top that cannot be told apart from the first, itself included; see :class:`Sure`."""
        return [x for x in self.top if self.sure.tie(self.top[0], x)]

    def bringing(self, choice: Choice) -> dict[str, float] | None:
        """Return what bringing its operands takes, by matrix; None for many ranks, or a search cut short."""
        if not self.proven:
            return None
        return bring_seconds(choice.problem, self.looked.machine, choice.options.final)

    def record(self, choice: Choice) -> dict[str, Any]:
        """Return a point as plain values, with its range and what bringing takes, in seconds."""
        return choice.to_dict() | {
            "makespan_range_s": list(self.sure.range(choice)),
            "bring_s": self.bringing(choice),
        }

    def to_frame(self) -> "pd.DataFrame":
        """Return the best points as a pandas DataFrame, one row each, best first."""
        import pandas as pd

        return pd.DataFrame([self.record(choice) for choice in self.top])

    def __repr__(self) -> str:
        sure = "proven best" if self.proven else "best so far"
        return f"Found({self.machine}: {self.top[0]}; {sure} of {self.distinct:,})"

    def __str__(self) -> str:
        lines = [f"{i:>3}  {choice}" for i, choice in enumerate(self.top, 1)]
        share = self.simulated / self.distinct
        lines.append(
            f"{'proven' if self.proven else 'not proven'}: {self.priced} points priced, {self.distinct} "
            f"distinct, {self.pruned} pruned, {self.simulated} simulated ({share:.1%})"
        )
        return "\n".join(lines)
