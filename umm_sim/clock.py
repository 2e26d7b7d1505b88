"""SimPy's Environment as clock and queue, with one light alarm for all calls that fall on one time."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from simpy.core import EmptySchedule, Environment

Call = Callable[[Any], None]


class Clock(Environment):
    """Simulated time in seconds and a queue of alarms.

    An alarm is a time, a function and the keys to call it with: actions, pairs of ranks, flows. Actions that
    run in lockstep start and finish by the thousand at equal times, gets and gemms in turn. So a call with
    the time and the function of one of the last two alarms joins it. A SimPy Timeout costs four times as
    much.
    """

    _queue: list[tuple[float, int, Call, list[Any]]]  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._now: float = 0.0
        self._alarms = 0
        self._latest_time = -1.0
        self._latest_call: Call | None = None
        self._latest_keys: list[Any] = []
        self._other_time = -1.0
        self._other_call: Call | None = None
        self._other_keys: list[Any] = []
        self._unsettled: list[Callable[[], None]] = []

    def at(self, time: float, call: Call, key: Any) -> None:
        """Call a function with a key at a time, now or later."""
        if time == self._latest_time and call is self._latest_call:
            self._latest_keys.append(key)
            return
        if time == self._other_time and call is self._other_call:
            self._other_keys.append(key)
            return
        self._other_time, self._other_call = self._latest_time, self._latest_call
        self._other_keys = self._latest_keys
        self._latest_time, self._latest_call = time, call
        self._latest_keys = keys = [key]
        self._alarms += 1
        heappush(self._queue, (time, self._alarms, call, keys))

    def settle(self, function: Callable[[], None]) -> None:
        """Call a function after all finishes and starts of this instant."""
        self._unsettled.append(function)

    def step(self) -> None:
        """Let all alarms of the next instant go off, then settle; EmptySchedule if there is none."""
        queue = self._queue
        if not queue:
            raise EmptySchedule
        self._now = now = queue[0][0]
        while queue and queue[0][0] == now:
            _, _, call, keys = heappop(queue)
            for key in keys:  # may grow meanwhile
                call(key)
            if keys is self._latest_keys:
                self._latest_call = None
            elif keys is self._other_keys:
                self._other_call = None
        if self._unsettled:
            functions, self._unsettled = self._unsettled, []
            for settle in functions:
                settle()
