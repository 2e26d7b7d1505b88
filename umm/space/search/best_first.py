"""The search: simulate the most promising points first, stop when no bound can beat what was found."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Ints
from umm.errors import InfeasibleError, InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.schedules.bound import ROUNDING, schedule_bound
from umm.schedules.schedule import Schedule
from umm.space.bounds.bringing import bringing
from umm.space.bounds.closed_form import Bounds, closed_form
from umm.space.choice import Choice
from umm.space.points import Points, Space
from umm.space.search.budget import device_share, least_memory, rank_limit
from umm.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

Makespan = Callable[[Schedule], float]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Found:
    """The best points of a space, and how much had to be looked at to know that they are.

    Attributes:
        machine: Name of the machine.
        limit: Bytes a rank was allowed: the budget, or what it has of its device if that is less.
        top: The best points by makespan (to ten figures), memory and text.
        priced: Points of the space as written, all of them priced by the closed form.
        distinct: Points left after merging equal ones.
        pruned: Points that were never simulated, because a bound or their memory ruled them out.
        bounded: Points whose schedule was built to bound it.
        simulated: Points simulated.
        proven: Whether every simulated makespan respected its bound, so that the pruned ones are worse.
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

    def to_frame(self) -> "pd.DataFrame":
        """Return the best points as a pandas DataFrame, one row each, best first."""
        import pandas as pd

        return pd.DataFrame([choice.to_dict() for choice in self.top])

    def __str__(self) -> str:
        lines = [f"{i:>3}  {choice}" for i, choice in enumerate(self.top, 1)]
        share = self.simulated / self.distinct
        lines.append(
            f"{'proven' if self.proven else 'not proven'}: {self.priced} points priced, {self.distinct} "
            f"distinct, {self.pruned} pruned, {self.simulated} simulated ({share:.1%})"
        )
        return "\n".join(lines)


class SearchInterruptedError(KeyboardInterrupt):
    """Ctrl-C during a search.

    Attributes:
        found: The best points by then, not proven.
    """

    def __init__(self, found: Found) -> None:
        super().__init__("interrupted")
        self.found = found


def search(
    space: Space,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = "2x",
    top: int = 10,
    progress: Progress | None = None,
) -> Found:
    """Return the best points of a space, with proof.

    All points get a closed-form lower bound at once. From the lowest up, a point's schedule is built for its
    exact memory and a tighter bound, then simulated, until no bound left is below the top's last makespan.

    Args:
        space: What may be chosen; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its topology file.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``. The proof holds
            for anything that never beats the bounds.
        memory: Budget per rank: bytes (``16GiB``), a multiple of the unreplicated share (``2x``) or None.
            Never more than a rank's share of its device's memory.
        top: How many of the best to find.
        progress: Called now and then with the number of points settled and of all points.

    Raises:
        InfeasibleError: if no point fits the budget and the device; says the smallest that would do.
        InputError: for a budget, layout or machine that does not exist.
        SearchInterruptedError: on Ctrl-C, with the best found by then.
    """
    if top < 1:
        raise InputError(f"top = {top} is not possible; it must be a whole number ≥ 1")
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    points = space.on(machine.default_ranks).points()
    machine.check_ranks(points.bare.p)
    limit = rank_limit(memory, points.bare, machine)
    bounds = closed_form(points, machine)
    found = BestFirst(points, machine, bounds, limit, makespan or executor("sim").makespan, top)
    try:
        found.run(progress)
    except KeyboardInterrupt:
        raise SearchInterruptedError(found.result()) from None
    if not found.best:
        whole = limit == device_share(machine, points.bare.p)
        where = f", what a rank has of a device of {machine.name}" if whole else ""
        raise InfeasibleError(
            f"nothing fits {format_bytes(limit)} per rank{where}; the smallest memory that works is "
            f"{_at_least(least_memory(points, machine, bounds), points)}"
        )
    return found.result()


class BestFirst:
    """The state of one search: what waits to be simulated, and the best so far."""

    def __init__(
        self,
        points: Points,
        machine: Machine,
        bounds: Bounds,
        limit: int,
        makespan: Makespan,
        top: int,
    ) -> None:
        self.points, self.machine, self.makespan, self.top = points, machine, makespan, top
        self.limit = limit
        fits = np.nonzero(bounds.memory <= self.limit)[0]
        by_bound = fits[np.argsort(bounds.seconds[fits], kind="stable")]
        self.order = points.allowed[by_bound].tolist()
        self.seconds = bounds.seconds[by_bound].tolist()
        self.best: list[tuple[tuple[Any, ...], Choice]] = []
        self.waiting: list[tuple[float, int, Schedule]] = []
        self.bringing: dict[int, tuple[float, Ints]] = {}  # seconds, and bytes of each rank, of what waits
        self.bounded = self.simulated = self.next_one = 0
        self.done = False
        self.proven = True

    def run(self, progress: Progress | None) -> None:
        """Simulate from the lowest bound up until nothing left can enter the top."""
        waiting, next_one = self.waiting, 0
        while waiting or next_one < len(self.order):
            closed = self.seconds[next_one] if next_one < len(self.order) else math.inf
            if min(closed, waiting[0][0] if waiting else math.inf) > self._last():
                break
            if waiting and waiting[0][0] <= closed:
                self._simulate(*waiting[0])
                heapq.heappop(waiting)
                if progress:
                    progress(self._settled(len(waiting), next_one), len(self.points))
                continue
            point = self.order[next_one]
            schedule = self.points.multiply(point, self.machine)
            takes, held = self.bringing[point] = bringing(self.points, point, self.machine)
            if int((schedule.memory_bytes + held).max()) <= self.limit:
                self.bounded += 1
                bound = max(closed, schedule_bound(schedule) + takes)
                heapq.heappush(waiting, (bound, point, schedule))
            next_one += 1
            self.next_one = next_one
        self.done = True
        if progress:
            progress(len(self.points), len(self.points))

    def result(self) -> Found:
        """Return what has been found; before the end, what is open yet counts as neither."""
        settled = len(self.points) if self.done else self._settled(len(self.waiting), self.next_one)
        return Found(
            self.machine.name,
            self.limit,
            [choice for _, choice in self.best],
            self.points.written,
            len(self.points),
            settled - self.simulated,
            self.bounded,
            self.simulated,
            self.proven and self.done,
        )

    def _last(self) -> float:
        """Return the makespan of the top's last place, infinite while there is room."""
        if len(self.best) < self.top:
            return math.inf
        return self.best[-1][1].makespan_s / ROUNDING

    def _settled(self, waiting: int, next_one: int) -> int:
        """Return how many points are simulated or ruled out by now."""
        hopeless = len(self.seconds) - int(np.searchsorted(self.seconds, self._last(), side="right"))
        open_ = max(0, len(self.seconds) - hopeless - next_one) + waiting
        return len(self.points) - open_

    def _simulate(self, bound: float, point: int, schedule: Schedule) -> None:
        takes, held = self.bringing.pop(point)
        makespan = self.makespan(schedule) + takes
        self.simulated += 1
        self.proven &= bound <= makespan
        options, stationary, *_ = self.points.parts(point)
        choice = Choice(
            self.points.problem(point),
            stationary,
            options,
            makespan,
            bound,
            int((schedule.memory_bytes + held).max()),
            int(schedule.pool_bytes.max()),
            schedule.problem.flop / (makespan * schedule.peak),
            schedule.options.get("gap"),
        )
        # Equal times can differ in their last digits, by the order in which they were added up.
        key = (float(f"{makespan:.9e}"), choice.memory_bytes, self.points.text(point))
        self.best = sorted([*self.best, (key, choice)], key=lambda entry: entry[0])[: self.top]


def _at_least(nbytes: int, points: Points) -> str:
    """Return a budget that just suffices, in bytes and as a multiple of the unreplicated share."""
    multiple = math.ceil(100 * nbytes / points.bare_share) / 100
    return f"{nbytes} bytes ({format_bytes(nbytes)}, {multiple:g}x)"
