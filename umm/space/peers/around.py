"""What to do at other m than the one at hand."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from umm.errors import LayoutError, ProblemError
from umm.machines import Machine
from umm.program.problem import Problem
from umm.space.budget import rank_limit
from umm.space.peers.choice import MARGIN, chosen
from umm.space.peers.contender import Contender, Row, Timed, timed
from umm.space.peers.crossover import REACH, Stretch, stretches
from umm.space.peers.multiplies import in_place, least_seconds, redistributed
from umm.space.search.search import Told

RIVAL = 1.25
"""Asked about at all m is who takes at most so many times the best at this one or at an end."""


class Around:
    """What to do at other m than the one at hand.

    Args:
        start: The problem, and where its operands are.
        machine: Where it runs.
        memory: Budget a rank.
        told: As :func:`umm.space.peers.peers.peers` takes it.
    """

    def __init__(self, start: Problem, machine: Machine, memory: str | int | None, told: Told) -> None:
        self.start, self.machine, self.memory, self.told = start, machine, memory, told
        self.others: list[Contender] = []
        self._stays: dict[int, Timed] = {}

    def stretches(self, rows: list[Row]) -> list[Stretch]:
        """Return what to do at all m around; nothing if the layouts are for this one alone.

        Layouts to move operands to are searched for at the ends; in between those are tried, and those of
        the m at hand.

        Args:
            rows: Those of the m at hand.
        """
        m, here = self.start.m, [row.timed for row in rows]
        self.preferred = chosen(here, self.start).in_words(self.start)
        self.others = [x.contender for x in here[1:]]
        try:
            for end in (max(1, m // REACH), m * REACH):
                start = replace(self.start, m=end)
                moved = self._moved(start) if self._is_open(end) else None
                self.others += [moved] if moved else []
            looked_at = [here, *(self._timed(x) for x in (max(1, m // REACH), m * REACH))]
            self.others = [x for x in self.others if any(_rivals(x, timed) for timed in looked_at)]
            return stretches(m, self.way_at)
        except LayoutError:
            return []

    def way_at(self, m: int) -> str:
        """Return what to do at an m, in words."""
        timed, start = self._timed(m), replace(self.start, m=m)
        return chosen(timed, start, self.preferred).in_words(start)

    def _timed(self, m: int) -> list[Timed]:
        """Return how long contenders take at an m; in place alone if nothing could be worth more."""
        found = [self._in_place(m)]
        if not self._is_open(m):
            return found
        start = replace(self.start, m=m)
        for number, x in enumerate(self.others):
            self.told(f"m = {m}", number, len(self.others))
            with suppress(ProblemError):  # what it needs may depend on m
                found.append(timed(x, start, self.machine, rank_limit(self.memory, start, self.machine)))
        return found

    def _in_place(self, m: int) -> Timed:
        if m not in self._stays:
            start = replace(self.start, m=m)
            stay = in_place(start, self.machine, self.memory, partial(self.told, f"m = {m}, in place"))
            self._stays[m] = timed(stay, start, self.machine, rank_limit(self.memory, start, self.machine))
        return self._stays[m]

    def _moved(self, start: Problem) -> Contender | None:
        told = partial(self.told, f"m = {start.m}, redistribute")
        return redistributed(start, self.machine, self.memory, told)

    def _is_open(self, m: int) -> bool:
        """Whether something could be worth more than staying in place."""
        stay, least = self._in_place(m), least_seconds(replace(self.start, m=m), self.machine)
        return not stay.fits or stay.makespan_s * (1 - MARGIN) > least


def _rivals(contender: Contender, timed: Sequence[Timed]) -> bool:
    """Whether a contender is nearly as fast as the fastest of some."""
    best = min(x.makespan_s for x in timed)
    return any(x.contender is contender and x.makespan_s <= RIVAL * best for x in timed)
