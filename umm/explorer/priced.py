"""All points of a space with their times: bounds at once, simulated ones as they are found."""

import threading
from collections import OrderedDict
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cached_property, lru_cache
from multiprocessing import get_context
from time import monotonic

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.executor import executor
from umm.machines import Machine
from umm.space import Space
from umm.space.bounds.closed_form import closed_form
from umm.space.points import Points

CHUNK = 48
KEPT = 12
Key = tuple[Space, Machine]


class Priced:
    """The points of a space, each with a lower bound of its time or the simulated one.

    Attributes:
        space: What may be chosen.
        machine: Where.
        points: The points.
        seconds: Makespan of each, or its bound.
        memory: Bytes of its fullest rank; of a bound the least it can be.
        exact: Which are simulated.
        labels: Layouts and stationary matrix of a point, without replication factors, by number.
        factors: Replication factors of A, B and C, shape (3, points).
    """

    def __init__(self, space: Space, machine: Machine) -> None:
        self.space, self.machine = space, machine
        self.points: Points = points_of(space)
        bounds = closed_form(self.points, machine)
        self.seconds: Floats = bounds.seconds.copy()
        self.memory: Floats = bounds.memory.copy()
        self.exact: Bools = np.zeros(len(self.points), dtype=bool)
        self.order: Ints = np.argsort(bounds.seconds, kind="stable")
        self.done = 0
        self.started = self.ended = 0.0

    @cached_property
    def places(self) -> tuple[Ints, ...]:
        """Numbers of the options, stationary matrix and layouts of each point."""
        return tuple(np.asarray(x) for x in np.unravel_index(self.points.allowed, self.points.shape))

    @cached_property
    def factors(self) -> Ints:
        """Replication factors of A, B and C, shape (3, points)."""
        of = [np.array([layout.replicas for layout in layouts]) for layouts in self.points.layouts]
        return np.stack([counts[at] for counts, at in zip(of, self.places[2:], strict=True)])

    def texts(self, number: int) -> tuple[tuple[str, str, str], str]:
        """Return the layouts of A, B and C of a point, and its stationary matrix."""
        _, stationary, a, b, c = self.points.parts(int(self.points.allowed[number]))
        return (str(a), str(b), str(c)), stationary

    def number(self, layouts: tuple[str, str, str], stationary: str) -> int | None:
        """Return the point with these layouts, however they are written; None if the space has none."""
        if stationary not in self.space.stationary:
            return None
        at = []
        for texts, layout in zip(self._texts, layouts, strict=True):
            if layout not in texts:
                return None
            at.append(texts[layout])
        flat = np.ravel_multi_index((0, self.space.stationary.index(stationary), *at), self.points.shape)
        place = int(np.searchsorted(self.points.allowed, flat))
        return place if place < len(self.points) and self.points.allowed[place] == flat else None

    @cached_property
    def _texts(self) -> list[dict[str, int]]:
        return [{str(layout): i for i, layout in enumerate(layouts)} for layouts in self.points.layouts]

    def best(self, limit: float) -> Ints:
        """Return the points that fit a budget, fastest first; of equals the one that needs less memory."""
        fits = np.flatnonzero(self.memory <= limit)
        return np.asarray(fits[np.lexsort((self.memory[fits], np.round(self.seconds[fits], 12)))])

    @property
    def complete(self) -> bool:
        """Whether every point is simulated."""
        return self.done >= len(self.order)

    def take(self, numbers: Ints, seconds: Floats, memory: Floats) -> None:
        """Put simulated times in the place of bounds."""
        self.seconds[numbers], self.memory[numbers], self.exact[numbers] = seconds, memory, True
        self.done += len(numbers)
        self.ended = monotonic()

    @property
    def words(self) -> str:
        """What is exact and what is a bound."""
        count, exact = len(self.points), int(self.exact.sum())
        if exact == count:
            return f"{count:,} of {count:,} points exact."
        left = ""
        if exact > CHUNK:
            seconds = (self.ended - self.started) / exact * (count - exact)
            left = f", {max(1, round(seconds))} s left"
        return f"{exact:,} of {count:,} points exact, the rest lower bounds{left}."


@lru_cache(maxsize=16)
def points_of(space: Space) -> Points:
    """Return the points of a space, kept for the next chunk."""
    return space.points()


def simulated(space: Space, machine: Machine, numbers: list[int]) -> tuple[list[float], list[int]]:
    """Return makespans and memories of some points of a space; it runs in a process of its own."""
    points, makespan = points_of(space), executor("sim").makespan
    made = (points.schedule(int(points.allowed[number]), machine) for number in numbers)
    found = [(makespan(schedule), int(schedule.memory_bytes.max())) for schedule in made]
    return [seconds for seconds, _ in found], [nbytes for _, nbytes in found]


class Pricing:
    """Priced spaces, and the one process that simulates their points, each viewer's newest space only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Priced] = OrderedDict()
        self._wanted: OrderedDict[str, Key] = OrderedDict()  # by viewer
        self._lock = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._busy = False

    def of(self, space: Space, machine: Machine) -> Priced:
        """Return the points of a space on a machine, at least as bounds."""
        key = (space, machine)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = Priced(space, machine)
        with self._lock:
            made = self._kept.setdefault(key, made)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made

    def want(self, viewer: str, priced: Priced) -> None:
        """Simulate the points of a space for a viewer, in place of what the viewer wanted before."""
        with self._lock:
            self._wanted[viewer] = (priced.space, priced.machine)
            self._wanted.move_to_end(viewer)
            while len(self._wanted) > KEPT:
                self._wanted.popitem(last=False)
        self._next()

    def cancel(self, viewer: str) -> None:
        """Leave a viewer's space as it is."""
        with self._lock:
            self._wanted.pop(viewer, None)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._wanted.clear()
            pool, self._pool = self._pool, None
        if pool:
            pool.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> None:
        """Hand the process the next few points of whoever waits, unless it has some."""
        with self._lock:
            if self._busy:
                return
            while self._wanted:
                viewer, key = next(iter(self._wanted.items()))
                priced = self._kept.get(key)
                if priced is None or priced.complete:
                    del self._wanted[viewer]
                    continue
                self._wanted.move_to_end(viewer)
                break
            else:
                return
            self._busy = True
            priced.started = priced.started or monotonic()
            numbers = priced.order[priced.done : priced.done + CHUNK]
            try:
                if self._pool is None:
                    self._pool = ProcessPoolExecutor(1, mp_context=get_context("forkserver"))
                future = self._pool.submit(simulated, priced.space, priced.machine, numbers.tolist())
            except (BrokenProcessPool, RuntimeError):
                self._busy, self._pool = False, None
                return
        future.add_done_callback(lambda future: self._take(priced, numbers, future))

    def _take(self, priced: Priced, numbers: Ints, future: "Future[tuple[list[float], list[int]]]") -> None:
        failed = future.cancelled() or future.exception() is not None
        with self._lock:
            self._busy = False
            if failed:
                self._pool = None
                self._wanted.clear()
            else:
                seconds, memory = future.result()
                priced.take(numbers, np.array(seconds), np.array(memory, dtype=np.float64))
        if not failed:
            self._next()
