"""Actions in a random order that their dependencies allow, with traps for data that is not there yet."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats
from umm.schedules.schedule import Schedule
from umm_hw.blocks import Memory, Work
from umm_hw.float8 import pools_of
from umm_hw.numpy.transport import NumpyTransport
from umm_hw.transport import Block


class RandomOrder:
    """Performs a schedule by events: an action starts once all it waits for has finished, and finishes later.

    Every event gets a random priority, and the lowest of all that may happen does, lanes aside. So now and
    then an event comes as late as the dependencies allow. What an action overwrites is NaN from its start to
    its finish; what it reads it reads at its finish; C in place is read at start and written at finish;
    accumulates and reduces happen at finish. Pools start as NaN. So a dependency that is missing shows up,
    with some seed, as NaN or as a wrong sum in C.

    Args:
        schedule: What to perform.
        works: The memory of each action.
        steps: What performs each action at once.
        ranks: The virtual ranks.
        memory: The tensors and the pool slots.
        seed: Of the priorities.
    """

    def __init__(
        self,
        schedule: Schedule,
        works: Sequence[Work],
        steps: Sequence[Callable[[], object]],
        ranks: Sequence[NumpyTransport],
        memory: Memory,
        seed: int,
    ) -> None:
        self._schedule = schedule
        self._steps = steps
        self._targets = [None if w.writes is None else ranks[w.writes.rank].view(w.writes) for w in works]
        self._kept: dict[int, NDArray[Any]] = {}  # C as a running in-place gemm has read it
        self._in_place = [work.in_place for work in works]
        self._overwrites = [not work.adds and not work.in_place for work in works]
        self._rng = np.random.default_rng(seed)
        for rank, sizes in enumerate(pools_of(schedule, [matrix.dtype for matrix in memory.matrices])):
            nbytes = int(sizes.sum())
            slots = Block(rank, memory.pool, 0, 1, nbytes, nbytes, np.dtype(np.uint8))
            ranks[rank].view(slots).fill(0xFF)  # NaN in every floating-point type

    def perform(self) -> tuple[Floats, Floats]:
        """Perform every action; return when each started and finished, in seconds after the first event."""
        count = len(self._schedule)
        start, end = np.zeros(count), np.zeros(count)
        waits_for = np.diff(self._schedule.after_offsets).tolist()
        waiting = self._waiting()
        events: list[tuple[float, int, bool]] = []  # priority, action, whether it finishes

        def enable(action: int, finishes: bool) -> None:
            heappush(events, (self._rng.random(), action, finishes))

        for action in range(count):
            if waits_for[action] == 0:
                enable(action, False)
        began = perf_counter()
        while events:
            _, action, finishes = heappop(events)
            if not finishes:
                start[action] = perf_counter() - began
                self._start(action)
                enable(action, True)
                continue
            self._finish(action)
            end[action] = perf_counter() - began
            for later in waiting[action]:
                waits_for[later] -= 1
                if waits_for[later] == 0:
                    enable(later, False)
        return start, end

    def _waiting(self) -> list[list[int]]:
        """Return for each action those that wait for it."""
        waiting: list[list[int]] = [[] for _ in range(len(self._schedule))]
        owner = self._schedule.waiting
        for action, later in zip(self._schedule.after.tolist(), owner.tolist(), strict=True):
            waiting[action].append(later)
        return waiting

    def _start(self, action: int) -> None:
        target = self._targets[action]
        if target is None:
            return
        if self._in_place[action]:
            self._kept[action] = target.copy()
        elif self._overwrites[action]:
            target.fill(np.nan)

    def _finish(self, action: int) -> None:
        target = self._targets[action]
        if target is not None and self._in_place[action]:
            target[...] = self._kept.pop(action)
        with np.errstate(invalid="ignore"):  # NaN is the trap, not an accident
            self._steps[action]()
