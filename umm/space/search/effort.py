"""Limits of a search, counted in work: a host's speed and load change no answer."""

import math
from dataclasses import dataclass, field
from time import process_time

from umm.numbers import real_from_0
from umm.space.pricing.pricer import Work

MAX_LISTED = 100_000  # assignments up to which all are gone through; of more, those near a bound below all
STAGE_WORK = 1_000_000
"""For one stage: going through a list, dividing a bound, choosing movements, more memory, patience.

A million takes 12 s of a core of a server of 2024, compiled.
"""
LISTED_RANKS = 216
"""Ranks up to which a list takes one stage; on more, whose schedules are longer, in proportion."""
STEP_WORK = 300_000
"""For a shorter one: near a bound on one node, following estimates down from a scheme, prefetch depths."""
LATER_STAGE_FACTOR = 3
"""Times the work of the first stage that a later one may do at most, for a caller that gives little.

On several nodes, where bounds are loose, the first stage may do as many times the usual.
"""


@dataclass
class Effort:
    """The work that a search may do; it stops with a gap where that is not enough."""

    work: Work  # what is counted, by who prices the points
    most: float = math.inf  # work of the first stage, as `Work` counts it
    deadline: float = math.inf  # processor time at which a user wants the search to end, in seconds
    until: float = field(init=False)  # count at which the stage ends
    cut: bool = False  # whether it was the user's time that ended it

    def __post_init__(self) -> None:
        self.until = self.work.done + self.most

    def allow(self, work: float) -> None:
        """Begin another stage that may do some work, in proportion where the first may do little."""
        self.until = self.work.done + min(work, LATER_STAGE_FACTOR * self.most)

    @property
    def left(self) -> float:
        """Work that is left of the stage."""
        return self.until - self.work.done

    @property
    def spent(self) -> bool:
        """Whether nothing is left of the stage, or of the user's time."""
        # The clock is read only if a user has set a deadline: everything else has to be reproducible.
        self.cut = self.cut or (self.deadline < math.inf and process_time() > self.deadline)
        return self.cut or self.left <= 0

    def affords(self, actions: int, share: float = 0.5) -> bool:
        """Whether so many actions are at most a share of the work that is left."""
        return not self.spent and actions <= share * self.left


def deadline(seconds: float | None) -> float:
    """Return the processor time at which some seconds are over; infinite for None."""
    return math.inf if seconds is None else process_time() + real_from_0(seconds, "seconds")
