"""Simulate the most promising points first, until no bound left can beat what was found."""

import heapq
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from umm.arrays import Bools
from umm.schedules.bound import ROUNDING
from umm.space.choice import Choice
from umm.space.search.looked_at import LookedAt, OneSchedule

Progress = Callable[[int, int], None]


class BestFirst:
    """The state of one search: what waits to be simulated, and the best so far.

    Args:
        looked: The points.
        limit: Most bytes a rank may hold.
        top: How many of the best to find.
        among: Which of the points to look at; all of them if None.
    """

    def __init__(self, looked: LookedAt, limit: int, top: int, among: Bools | None = None) -> None:
        self.looked, self.limit, self.top = looked, limit, top
        bounds, points = looked.bounds, looked.points
        able = bounds.memory <= limit
        fits = np.nonzero(able if among is None else able & among)[0]
        by_bound = fits[np.argsort(bounds.seconds[fits], kind="stable")]
        self.order = points.allowed[by_bound].tolist()
        self.seconds = bounds.seconds[by_bound].tolist()
        self.multiplies = (bounds.seconds - bounds.brings)[by_bound].tolist()
        self.best: list[tuple[tuple[Any, ...], OneSchedule, Choice]] = []
        self.waiting: list[tuple[float, bool, int]] = []  # bound, whether it is that of a schedule, point
        self.simulated = self.next_one = 0
        self.done = False

    @property
    def settled(self) -> int:
        """How many points are simulated or ruled out by now."""
        if self.done:
            return len(self.looked.points)
        hopeless = len(self.seconds) - int(np.searchsorted(self.seconds, self._last(), side="right"))
        open_ = max(0, len(self.seconds) - hopeless - self.next_one) + len(self.waiting)
        return len(self.looked.points) - open_

    def run(self, progress: Progress | None = None) -> None:
        """Simulate from the lowest bound up until nothing left can enter the top."""
        waiting, points = self.waiting, self.looked.points
        while waiting or self.next_one < len(self.order):
            closed = self.seconds[self.next_one] if self.next_one < len(self.order) else math.inf
            if min(closed, waiting[0][0] if waiting else math.inf) > self._last():
                break
            if not waiting or waiting[0][0] > closed:
                point = self.order[self.next_one]
                brings = self.looked.brings(point) * ROUNDING if points.given else 0.0
                heapq.heappush(waiting, (max(closed, self.multiplies[self.next_one] + brings), False, point))
                self.next_one += 1
                continue
            bound, built, point = waiting[0]
            if built:
                self._simulate(bound, point)
                heapq.heappop(waiting)
                if progress:
                    progress(self.settled, len(points))
            elif self.looked.memory(point) <= self.limit:
                heapq.heapreplace(waiting, (max(bound, self.looked.bound(point)), True, point))
            else:
                heapq.heappop(waiting)
                self.looked.drop(point)
        self.done = True
        if progress:
            progress(len(points), len(points))

    def choices(self) -> list[Choice]:
        """Return the best by now, each with the points that are the same schedule."""
        return [self._with_ties(row, choice) for _, row, choice in self.best]

    def _with_ties(self, row: OneSchedule, choice: Choice) -> Choice:
        points = self.looked.points
        others = [points.parts(point) for point in self.looked.rows[row]]
        same = [(stationary, options) for options, stationary, *_ in others]
        return replace(choice, ties=tuple(x for x in same if x != (choice.stationary, choice.options)))

    def _last(self) -> float:
        """Return the makespan of the top's last place, infinite while there is room."""
        if len(self.best) < self.top:
            return math.inf
        return self.best[-1][2].makespan_s / ROUNDING

    def _simulate(self, bound: float, point: int) -> None:
        row, choice = self.looked.simulated(point, bound)
        self.simulated += 1
        # Equal times can differ in their last digits, by the order in which they were added up.
        key = (float(f"{choice.makespan_s:.9e}"), choice.memory_bytes, self.looked.points.text(point))
        found = (key, row, choice)
        same = next((entry for entry in self.best if entry[1] == row), found)
        others = [entry for entry in self.best if entry[1] != row]
        self.best = sorted([*others, min(same, found, key=_key)], key=_key)[: self.top]


def _key(entry: tuple[tuple[Any, ...], OneSchedule, Choice]) -> tuple[Any, ...]:
    return entry[0]
