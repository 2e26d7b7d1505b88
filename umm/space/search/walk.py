"""Simulate the most promising points first, until no bound left can beat what was found."""

import heapq
import math
from collections.abc import Callable

import numpy as np

from umm.arrays import Bools
from umm.space.choice import Choice
from umm.space.points import Point
from umm.space.pricing.pricer import Pricer
from umm.space.search.incumbents import Effort, Incumbents

Progress = Callable[[int, int], None]


class BestFirst:
    """The state of one search: what waits to be simulated, and the best so far.

    A point enters with the bound that all points have, waits with a better one, then with that of its
    schedule, and is simulated when no other has a lower bound. So what is left when the lowest bound exceeds
    the last of the best cannot be better.

    Args:
        pricer: Prices the points.
        limit: Most bytes a rank may hold.
        top: How many of the best to find.
        among: Which of the points to look at; all of them if None.
        effort: What may be spent; without end if None.
    """

    def __init__(
        self,
        pricer: Pricer,
        limit: int,
        top: int,
        among: Bools | None = None,
        effort: Effort | None = None,
    ) -> None:
        self.pricer = pricer
        self.found = Incumbents(pricer, limit, top, effort or Effort())
        self.order, self.seconds = pricer.ascending(limit, among)
        self.waiting: list[tuple[float, bool, Point]] = []  # bound, whether it is that of a schedule, point
        self.next_one = 0
        self.done = False
        self.lowest = 0.0

    @property
    def settled(self) -> int:
        """How many points are simulated or ruled out so far."""
        if self.done:
            return self.pricer.points.count
        hopeless = len(self.seconds) - int(np.searchsorted(self.seconds, self.found.last, side="right"))
        open_ = max(0, len(self.seconds) - hopeless - self.next_one) + len(self.waiting)
        return self.pricer.points.count - open_

    def run(self, progress: Progress | None = None) -> None:
        """Simulate from the lowest bound up until nothing left can enter the top, or the effort is spent."""
        waiting, found, pricer = self.waiting, self.found, self.pricer
        while waiting or self.next_one < len(self.order):
            closed = self.seconds[self.next_one] if self.next_one < len(self.order) else math.inf
            self.lowest = min(closed, waiting[0][0] if waiting else math.inf)
            if self.lowest > found.last:
                break
            if found.first is not None and found.effort.spent:
                return
            if not waiting or waiting[0][0] > closed:
                point = self.order[self.next_one]
                heapq.heappush(waiting, (pricer.better(point, closed), False, point))
                self.next_one += 1
                continue
            bound, built, point = waiting[0]
            if not built and not pricer.fits(point, found.limit):
                heapq.heappop(waiting)
                pricer.drop(point)
                continue
            of_schedule = bound if built else max(bound, pricer.bound(point))
            if of_schedule > bound:
                heapq.heapreplace(waiting, (of_schedule, True, point))
                continue
            found.attempt(point, bound)
            heapq.heappop(waiting)
            if progress:
                progress(self.settled, pricer.points.count)
        self.done, self.lowest = True, math.inf
        if progress:
            progress(pricer.points.count, pricer.points.count)

    def choices(self) -> list[Choice]:
        """Return the best so far, each with the points that are the same schedule."""
        return self.found.choices()
