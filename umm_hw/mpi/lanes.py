"""The lanes of one rank as threads: each performs its actions in row order, as soon as they may start."""

from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from time import perf_counter, sleep
from typing import Protocol

from umm_hw.cores.backoff import LONGEST_PAUSE, Backoff
from umm_hw.cores.threads import answer_quickly, wake_on_time
from umm_hw.mpi.job.activity import ACTIVITY, Doing
from umm_hw.waits import RankOrder

USUAL_PAUSE = 200e-6  # seconds between two looks at the flags


class Flags(Protocol):
    """Flags that every rank has, raised by other ranks."""

    def up(self, flags: Sequence[int]) -> bool:
        """Whether all these flags of this rank are up."""

    def raise_on(self, ranks: Sequence[int], flag: int) -> None:
        """Raise a flag on some ranks, after all that this rank has done is visible to them."""


class RankLanes:
    """Performs one rank's actions.

    Args:
        order: What they wait for.
        steps: What performs each row of this rank.
        flags: How ranks signal each other.
    """

    def __init__(
        self,
        order: RankOrder,
        steps: Mapping[int, Callable[[], object]],
        flags: Flags,
        ranks: int,
    ) -> None:
        self._order = order
        self._steps = steps
        self._flags = flags
        self._everyone = range(ranks)
        self._left = dict(order.waits_for)
        self._lock = Lock()
        self._failed = Event()
        self._errors: list[BaseException] = []
        self._lane_of = {row: lane for lane, rows in enumerate(order.lanes) for row in rows}
        self._ready: list[SimpleQueue[int]] = [SimpleQueue() for _ in order.lanes]
        self.spans: dict[int, tuple[float, float]] = {}
        """Start and end of each row, in seconds of ``perf_counter``."""

    def perform(self, begin: float) -> None:
        """Perform all actions, none before a time of ``perf_counter``; an error of a lane is raised here."""
        threads = [
            Thread(target=self._run, args=(lane, begin), name=f"umm-lane-{lane}", daemon=True)
            for lane in range(len(self._order.lanes))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(LONGEST_PAUSE)  # in steps, so that Ctrl-C comes through
        ACTIVITY.lanes.clear()
        if self._errors:
            raise self._errors[0]

    def _run(self, lane: int, begin: float) -> None:
        try:
            wake_on_time()
            if lane not in self._order.computing:
                answer_quickly()
            sleep(max(0.0, begin - perf_counter()))
            released: set[int] = set()
            for row in self._order.lanes[lane]:
                if not self._wait(lane, row, released):
                    return
                start = perf_counter()
                ACTIVITY.lanes[lane] = Doing(row, False, start)
                self._steps[row]()
                self.spans[row] = start, perf_counter()
                self._finish(row)
            ACTIVITY.lanes.pop(lane, None)
        except BaseException as error:
            self._errors.append(error)
            self._failed.set()

    def _wait(self, lane: int, row: int, released: set[int]) -> bool:
        """Return once a row may start; False if another lane has failed."""
        flags = self._order.flags.get(row)
        if row not in released and row in self._order.waits_for:
            ready = self._ready[lane]
            if ready.empty():
                ACTIVITY.lanes[lane] = Doing(row, True, perf_counter())
            while row not in released:
                try:
                    released.add(ready.get(timeout=LONGEST_PAUSE))
                except Empty:
                    if self._failed.is_set():
                        return False
        if flags and not self._flags.up(flags):
            ACTIVITY.lanes[lane] = Doing(row, True, perf_counter())
            pauses = Backoff(USUAL_PAUSE)
            while not self._flags.up(flags):
                if self._failed.is_set():
                    return False
                pauses.sleep()
        return True

    def _finish(self, row: int) -> None:
        """Release the rows that wait for a row, on this rank and on others."""
        signals = self._order.signals.get(row)
        if signals:
            self._flags.raise_on(signals, row)
        releases = self._order.releases.get(row)
        if not releases:
            return
        with self._lock:
            for then in releases:
                self._left[then] -= 1
            free = [then for then in releases if self._left[then] == 0]
        for then in free:
            if then in self._order.arrival:
                self._flags.raise_on(self._everyone, self._order.arrival[then])
                self._finish(then)
            else:
                self._ready[self._lane_of[then]].put(then)
