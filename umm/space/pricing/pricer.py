"""The interface between a search and the pricer of a space's points."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from umm.arrays import Bools
from umm.errors import InfeasibleError
from umm.machines import Machine
from umm.plans.multiply.options import Options
from umm.schedules.schedule import Schedule
from umm.space.assignments import Assignments
from umm.space.choice import Choice
from umm.space.points import MultiplyPoints, Point

Makespan = Callable[[Schedule], float]


@dataclass
class Work:
    """A count of work, the same on every host; the unit is to write and simulate one action."""

    done: float = 0.0  # units so far


class Pricer(Protocol):
    """Prices points from cheap to dear: a bound of all, a better one of some, then a makespan by simulation.

    Each bound is at most the simulated makespan; so a search may leave out what a bound rules out.
    """

    machine: Machine  # where they would run
    makespan: Makespan  # what simulates a schedule
    respected: bool  # whether no makespan was below its bound
    # Whether points that cannot be faster than the last of the best, but as fast, are of interest.
    equals: bool
    work: Work  # counts the schedules written and the bounds found
    choices: dict[Any, Choice]  # the points that were simulated
    points: MultiplyPoints | Assignments
    built: int  # how many points have been built

    def ascending(self, limit: int, among: Bools | None = None) -> tuple[list[Point], list[float]]:
        """Return the points that may fit into so many bytes a rank, by ascending bound, and the bounds.

        Args:
            limit: Bytes a rank may hold.
            among: Which of the points to look at, in the order of their numbers; all if None.
        """

    def better(self, point: Point, bound: float) -> float:
        """Return a better bound of a point that costs little: its schedule is not built."""

    def fits(self, point: Point, limit: int) -> bool:
        """Return whether the fullest rank holds at most so many bytes; its schedule is built."""

    def bound(self, point: Point) -> float:
        """Return a lower bound of a point from its schedule."""

    def actions(self, point: Point) -> int:
        """Return about how many actions the schedule of a point has; 0 if only building it says that."""
        return 0

    def known(self, point: Point) -> bool:
        """Return whether the makespan of a point is known, from another one that is the same schedule."""
        return False

    def simulated(self, point: Point, bound: float) -> tuple[Hashable, Choice]:
        """Return a key that is equal for points with one schedule, and the point with its makespan.

        Args:
            bound: A lower bound on its makespan.
        """

    def alike(self, row: Hashable) -> list[tuple[str, Options]]:
        """Return the stationary matrix and the options of all points simulated that are one schedule."""
        return []

    def text(self, point: Point) -> object:
        """Return a ranking's last tie-break."""

    def moved(self, choice: Choice) -> list[tuple[str, Mapping[str, int]]]:
        """Return for each statement that moves something its name, and the bytes of each tensor."""
        return []

    def infeasible(self, limit: int) -> InfeasibleError:
        """Return the refusal of a limit that no point fits, with the least memory of any."""

    def drop(self, point: Point) -> None:
        """Keep no longer the schedule of a point."""
