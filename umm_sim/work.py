"""Work that passes at a rate which may change: the bytes of a transfer, the engine seconds of a gemm."""

from collections.abc import Callable
from math import inf
from typing import Any

from umm_sim.clock import Clock


class Work:
    """Work under way.

    Attributes:
        due: When it ends at this rate.
        alarm: When the alarm that counts goes off; those at other times are out of date.
    """

    __slots__ = ("action", "alarm", "due", "left", "rate", "since")

    def __init__(self, action: int, left: float, now: float) -> None:
        self.action = action  # the action it belongs to
        self.left = left  # what is still to do at time `since`
        self.since = now
        self.rate = 0.0  # how much of it is done in a second since then
        self.due = self.alarm = inf

    def go_on(self, rate: float, clock: Clock, end: Callable[[Any], None]) -> None:
        """Go on at another rate; ``end`` is called with the work at its due time."""
        now = clock._now
        left = self.left = self.left - self.rate * (now - self.since)
        self.rate, self.since = rate, now
        self.due = due = now + left / rate if left > 0.0 else now
        # An alarm that comes too early sets itself anew, so work slowed down keeps its own.
        if due < self.alarm:
            self.alarm = due
            clock.at(due, end, self)

    def has_ended(self, clock: Clock, end: Callable[[Any], None]) -> bool:
        """Say whether an alarm is the work's end; one that comes too early is set anew."""
        now = clock._now
        if self.alarm != now:
            return False
        if self.due > now:
            self.alarm = self.due
            clock.at(self.due, end, self)
            return False
        self.alarm = inf
        return True
