"""Limits of a search, counted in work: a host's speed and load change no answer."""

import math
from dataclasses import dataclass, field
from time import process_time

from umm.space.pricing.pricer import Work

MAX_LISTED = 100_000
"""Assignments up to which all are gone through; of more, those near a bound below all."""
WORK_NEAR_A_BOUND = 350_000
"""For assignments near a bound on one node: 4 s where :data:`STAGE_WORK` takes 12, about 150,000 actions."""
WORK_OF_EXPERTS = 140_000
"""For mixtures of experts, whose many small messages take three times as long to write: 90,000 actions."""
WORK_OF_LISTED, RANKS_OF_LISTED = 1_200_000, 216
"""For going through all assignments of other programs on up to so many ranks, whose schedules are short.

In proportion on more, up to :data:`WORK_ON_NODES`.
"""
WORK_ON_NODES = 3_000_000
"""For programs on several nodes with too many for that: bounds are loose there, and more is worth a try."""
STAGE_WORK = 1_000_000
"""For one further stage: dividing a bound, choosing movements, more memory, a search without improvement.

A million takes 12 s of a core of a server of 2024, compiled.
"""
STEP_WORK = 300_000
"""For a shorter one: following estimates down from a scheme, prefetch depths, a better bound of movements."""
LATER_STAGE_FACTOR = 3
"""Times the work of the first stage that a later one may do at most, for a caller that gives little."""


@dataclass
class Effort:
    """The work that a search may do; it stops with a gap where that is not enough.

    Attributes:
        work: What is counted, by who prices the points.
        most: Work of the first stage, as :class:`Work` counts it.
        deadline: Processor time at which a user wants the search to end, in seconds.
        until: Count at which the stage ends.
        cut: Whether it was the user's time that ended it.
    """

    work: Work
    most: float = math.inf
    deadline: float = math.inf
    until: float = field(init=False)
    cut: bool = False

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
    return math.inf if seconds is None else process_time() + seconds
