"""SimPy's Environment as clock and queue, with events made in advance and one settling per instant."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, cast

from simpy.core import Environment
from simpy.events import NORMAL, Event, EventPriority

LAST = EventPriority(2)  # after every finish and start of the same instant


class Alarm:
    """An event that calls functions with itself when its time comes.

    It has what SimPy's event loop asks of an event and nothing else: a Timeout costs four times as much.

    Attributes:
        callbacks: What is called; SimPy takes the list off the event, so many alarms can share one.
        key: What the alarm is about: an action, a pair of ranks, a flow.
    """

    __slots__ = ("callbacks", "key")
    _ok = True

    def __init__(self, callbacks: Sequence[Callable[["Alarm"], None]], key: Any) -> None:
        self.callbacks = callbacks
        self.key = key


class Clock(Environment):
    """Simulated time in seconds, an alarm queue, and a list of what to settle once an instant is over."""

    def __init__(self) -> None:
        super().__init__()
        self._now: float = 0.0
        self._unsettled: list[Callable[[], None]] = []
        self._settling = [self._settle]

    def ring(self, alarm: Alarm, delay: float) -> None:
        """Let an alarm go off after a delay; what ``Environment.schedule`` does, one call shorter."""
        heappush(self._queue, (self._now + delay, NORMAL, next(self._eid), cast(Event, alarm)))

    def run(self, until: Any = None) -> None:
        """Let all alarms go off in order of time; like ``Environment.run``, but in one loop."""
        queue = self._queue
        while queue:
            self._now, _, _, alarm = heappop(queue)
            for callback in cast(Alarm, alarm).callbacks:
                callback(cast(Alarm, alarm))

    def settle(self, function: Callable[[], None]) -> None:
        """Call a function once after all finishes and starts of this instant."""
        if function in self._unsettled:
            return
        if not self._unsettled:
            self.schedule(cast(Event, Alarm(self._settling, None)), LAST)
        self._unsettled.append(function)

    def instant_is_over(self) -> bool:
        """Whether no alarm is left in this instant but the one that is going off."""
        return not self._queue or self._queue[0][0] > self._now

    def _settle(self, alarm: Alarm) -> None:
        functions, self._unsettled = self._unsettled, []
        for function in functions:
            function()
