"""This process's current activity, for the watchdog to name: one stage, and an action for each lane."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple


class Doing(NamedTuple):
    """The action of a lane."""

    row: int  # row of the schedule
    waits: bool  # whether it still waits for others
    since: float  # when it began to run or to wait, in seconds of `perf_counter`


def _nameless(row: int) -> tuple[str, float]:
    return f"action {row}", float("inf")


@dataclass
class Activity:
    """One process's current activity."""

    stage: str = "work"  # the stage of the whole rank
    # The action of each lane, while a schedule is performed.
    lanes: dict[int, Doing] = field(default_factory=dict)
    words: Callable[[int], tuple[str, float]] = _nameless  # a row in words, and the most seconds it may run

    @contextmanager
    def during(self, stage: str) -> Iterator[None]:
        """Name a stage for as long as it lasts."""
        before, self.stage = self.stage, stage
        try:
            yield
        finally:
            self.stage = before

    def waited_for(self) -> str:
        """Return in words the action or stage that this rank waits for."""
        waits = [doing.row for doing in list(self.lanes.values()) if doing.waits]
        return self.words(min(waits))[0] + " to be ready to start" if waits else self.stage

    def overdue(self) -> str | None:
        """Return in words an action that has run longer than it may, if there is one."""
        now = perf_counter()
        for doing in list(self.lanes.values()):
            if not doing.waits:
                what, limit = self.words(doing.row)
                if now - doing.since > limit:
                    return f"{what}, which runs for {now - doing.since:.0f} s; {limit:.0f} s are allowed"
        return None


ACTIVITY = Activity()
