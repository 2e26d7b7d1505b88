"""SimPy's Environment as clock and queue, with one light event for all calls that fall on one time."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, cast

from simpy.core import EmptySchedule, Environment
from simpy.events import NORMAL, Event


class Alarm:
    """An event that calls a function with each of some keys; a Timeout costs four times as much.

    Attributes:
        time: When it goes off.
        function: What is called.
        keys: What it is called with: actions, pairs of ranks, flows.
    """

    __slots__ = ("function", "keys", "time")

    def __init__(self, time: float, function: Callable[[Any], None], key: Any) -> None:
        self.time = time
        self.function = function
        self.keys = [key]


class Clock(Environment):
    """Simulated time in seconds and a queue of alarms.

    Actions that run in lockstep start and finish by the thousand at equal times, so a call at the same time
    as the one asked for before goes to the same alarm.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now: float = 0.0
        self._latest = _NEVER
        self._unsettled: list[Callable[[], None]] = []

    def at(self, time: float, function: Callable[[Any], None], key: Any) -> None:
        """Call a function with a key at a time, now or later."""
        latest = self._latest
        if latest.time == time and latest.function is function:
            latest.keys.append(key)
            return
        self._latest = alarm = Alarm(time, function, key)
        heappush(self._queue, (time, NORMAL, next(self._eid), cast(Event, alarm)))

    def settle(self, function: Callable[[], None]) -> None:
        """Call a function after all finishes and starts of this instant."""
        self._unsettled.append(function)

    def step(self) -> None:
        """Let the next alarm go off, and settle if it is the last of its instant.

        Raises:
            EmptySchedule: if there is none.
        """
        queue = self._queue
        if not queue:
            raise EmptySchedule
        self._now, _, _, event = heappop(queue)
        alarm = cast(Alarm, event)
        function = alarm.function
        for key in alarm.keys:  # may grow meanwhile
            function(key)
        if self._latest is alarm:
            self._latest = _NEVER
        if self._unsettled and (not queue or queue[0][0] > self._now):
            functions, self._unsettled = self._unsettled, []
            for settle in functions:
                settle()


_NEVER = Alarm(-1.0, lambda nothing: None, None)
