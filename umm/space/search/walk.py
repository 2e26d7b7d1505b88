"""The best-first walk: simulate promising points until no bound can beat the incumbents."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from umm.arrays import Bools
from umm.schedules.bound import ROUNDING
from umm.space.choice import Choice
from umm.space.points import Point
from umm.space.pricing.pricer import Pricer
from umm.space.search.effort import Effort

Progress = Callable[[int, int], None]
Standing = Callable[[float, float], None]
"""Called with the best makespan so far, and a bound below all points, both in seconds."""


@dataclass
class Incumbents:
    """The best points within a limit, fastest first; points that are one schedule are one of them.

    Equal makespans (to ten figures) are ordered by memory, then by text.
    """

    pricer: Pricer  # prices the points
    limit: int  # bytes a rank may hold
    top: int  # how many of the best to keep
    effort: Effort  # what may be spent
    simulated: int = 0  # how many points were simulated
    lowest: float = 0.0  # a bound below all points, in seconds; 0 while none is known
    progress: Progress | None = None  # called now and then with the number of points simulated and of all
    standing: Standing | None = None  # called now and then with the best so far and the bound
    # Layouts that people use, which are no points of the space.
    beside: list[Choice] = field(default_factory=list)
    _best: list[tuple[tuple[Any, ...], Hashable, Choice]] = field(default_factory=list)
    _fitting: dict[Point, Choice | None] = field(default_factory=dict)

    @property
    def last(self) -> float:
        """The most that the bound of a point may be to enter: infinite while there is room."""
        if len(self._best) < self.top:
            return math.inf
        # One that is just as fast counts where it may need less memory, except the last digits of a sum.
        seconds = self._best[-1][2].makespan_s
        return seconds / ROUNDING if self.pricer.equals else math.nextafter(seconds, 0.0)

    @property
    def first(self) -> Choice | None:
        """The best."""
        return self._best[0][2] if self._best else None

    @property
    def rows(self) -> list[Any]:
        """The points of the best, fastest first; of those that are one schedule one."""
        return [row for _, row, _ in self._best]

    def affords(self, point: Point, share: float = 0.5) -> bool:
        """Whether simulating a point takes at most a share of the work that is left, or its time is known."""
        return self.pricer.known(point) or self.effort.affords(self.pricer.actions(point), share)

    def attempt(self, point: Point, bound: float) -> Choice | None:
        """Simulate a point unless that was done before; None if it does not fit."""
        if point in self._fitting:
            return self._fitting[point]
        if not self.pricer.fits(point, self.limit):
            self.pricer.drop(point)
            self._fitting[point] = None
            return None
        row, choice = self.pricer.simulated(point, bound)
        self._fitting[point] = choice
        self.simulated += 1
        # Equal times can differ in their last digits, by the order in which they were added up.
        # Memory and text break ties, so that the order of simulation does not decide the answer.
        key = (float(f"{choice.makespan_s:.9e}"), choice.memory_bytes, self.pricer.text(point))
        by_key = itemgetter(0)
        entry = min([*(x for x in self._best if x[1] == row), (key, row, choice)], key=by_key)
        self._best = sorted([*(x for x in self._best if x[1] != row), entry], key=by_key)[: self.top]
        return choice

    def report(self) -> None:
        """Report how far the search is, where that was asked for."""
        if self.progress:
            self.progress(self.simulated, self.pricer.points.count)
        if self.standing and self.first:
            self.standing(self.first.makespan_s, self.lowest)

    def choices(self) -> list[Choice]:
        """Return the best so far, each with the points that are the same schedule.

        What is no point of the space is among them only if it is faster than all points.
        """
        points = []
        for _, row, choice in self._best:
            same = tuple(x for x in self.pricer.alike(row) if x != (choice.stationary, choice.options))
            points.append(replace(choice, ties=same) if same else choice)
        faster = [x for x in self.beside if not points or x.makespan_s < points[0].makespan_s * ROUNDING]
        return [*sorted(faster, key=lambda x: x.makespan_s), *points][: self.top]


class BestFirst:
    """The state of one search: points that wait to be simulated, and the best so far.

    A point enters with the bound that all points have, waits with a better one, then with that of its
    schedule. It is simulated when no other has a lower bound. So what is left when the lowest bound exceeds
    the last of the best cannot be better.

    Args:
        limit: Most bytes a rank may hold.
        top: How many of the best to find.
        among: Which of the points to look at; all of them if None.
        effort: What may be spent; without end if None.
        within: Seconds; a point that is sure to take longer is not looked at.
    """

    def __init__(
        self,
        pricer: Pricer,
        limit: int,
        top: int,
        among: Bools | None = None,
        effort: Effort | None = None,
        within: float = math.inf,
    ) -> None:
        self.pricer, self.within = pricer, within
        self.found = Incumbents(pricer, limit, top, effort or Effort(pricer.work))
        self.order, self.seconds = pricer.ascending(limit, among)
        self.waiting: list[tuple[float, bool, Point]] = []  # bound, whether it is that of a schedule, point
        self.next_one = 0
        self.done = False
        self.left_out = math.inf  # the lowest bound of what was too much to simulate

    @property
    def settled(self) -> int:
        """How many points are simulated or ruled out so far."""
        if self.done:
            return self.pricer.points.count
        # Bounds ascend, so all beyond the last incumbent are ruled out without being looked at.
        hopeless = len(self.seconds) - bisect_right(self.seconds, self.found.last)
        open_ = max(0, len(self.seconds) - hopeless - self.next_one) + len(self.waiting)
        return self.pricer.points.count - open_

    def run(self, progress: Progress | None = None, standing: Standing | None = None) -> None:
        """Simulate from the lowest bound up until nothing left can enter the top, or the effort is spent."""
        waiting, incumbents, pricer = self.waiting, self.found, self.pricer
        while waiting or self.next_one < len(self.order):
            incumbents.lowest = min(self._open, self.left_out)
            if self._open > min(incumbents.last, self.within):
                break
            if incumbents.first is not None and (incumbents.effort.spent or self.left_out < self._open):
                # No simulation any more: the gap closes from below, by better bounds of the points that are
                # still open, with as much work again.
                most, effort = min(incumbents.first.makespan_s, self.left_out), incumbents.effort
                effort.allow(effort.most)
                while self._open < most and not effort.spent and self._enter():
                    pass
                incumbents.lowest = min(self._open, self.left_out)
                return
            # Lazy tightening: a bound is improved only when its point is the lowest of all.
            if self._enter():
                continue
            bound, built, point = waiting[0]
            if incumbents.first is not None and not incumbents.affords(point, share=1.0):
                self.left_out = min(self.left_out, bound)
                heapq.heappop(waiting)
                continue
            # Memory of a schedule is exact and above the bound by tensors
            # alone, so a point may drop out here.
            if not built and not pricer.fits(point, incumbents.limit):
                heapq.heappop(waiting)
                pricer.drop(point)
                continue
            hasty = incumbents.effort.spent  # and nothing is found yet: the next point has to do
            of_schedule = bound if built or hasty else max(bound, pricer.bound(point))
            # The tighter bound may put others before this point, so it goes back to wait.
            if of_schedule > bound:
                heapq.heapreplace(waiting, (of_schedule, True, point))
                continue
            incumbents.attempt(point, bound)
            heapq.heappop(waiting)
            if progress:
                progress(self.settled, pricer.points.count)
            if standing and incumbents.first is not None:
                standing(incumbents.first.makespan_s, incumbents.lowest)
        # Nothing is open below the incumbents, so only points that were too much to simulate keep a gap.
        self.done, incumbents.lowest = True, self.left_out
        if progress:
            progress(pricer.points.count, pricer.points.count)

    @property
    def _closed(self) -> float:
        """The lowest bound of points that have not been looked at yet."""
        return self.seconds[self.next_one] if self.next_one < len(self.order) else math.inf

    @property
    def _open(self) -> float:
        """The lowest bound of points that may be simulated yet."""
        return min(self._closed, self.waiting[0][0] if self.waiting else math.inf)

    def _enter(self) -> bool:
        """Let the next point wait with a better bound, unless one that waits already has a lower bound."""
        closed = self._closed
        if self.next_one == len(self.order) or (self.waiting and self.waiting[0][0] <= closed):
            return False
        point = self.order[self.next_one]
        heapq.heappush(self.waiting, (self.pricer.better(point, closed), False, point))
        self.next_one += 1
        return True
