"""Where another contender becomes the fastest as a size changes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

from umm.errors import LayoutError, ProblemError
from umm.machines import Machine
from umm.program.problem import Problem
from umm.space.budget import rank_limit
from umm.space.peers.contender import MARGIN, Contender, Row, Timed, chosen, timed
from umm.space.peers.multiplies import in_place, least_seconds, redistributed
from umm.space.search.search import Told

REACH = 8
"""The largest size asked about, as a multiple of the one at hand, and one over the smallest."""
EXACT = 16
"""How exactly the size is found where it changes: to one part in so many, or in half as many."""


@dataclass(frozen=True)
class Stretch:
    """A range of sizes with one way to take.

    Attributes:
        start: Where it begins; of the first, the smallest size asked about.
        stop: Where the next begins; of the last, the largest size asked about.
        way: Which way, in words.
    """

    start: int
    stop: int
    way: str


def stretches(size: int, way_at: Callable[[int], str]) -> list[Stretch]:
    """Return the way to take for every size around one, neighbours with different ways.

    Asked are powers of two times the size; between two with different ways, halves of what is between, until
    where it changes is known to a round number. What comes and goes between two that are alike is not seen.

    Args:
        size: The size at hand.
        way_at: Returns the way to take at a size.

    >>> stretches(8192, lambda m: "in place" if m < 3000 else "gather A")
    [Stretch(start=1024, stop=3072, way='in place'), Stretch(start=3072, stop=65536, way='gather A')]
    """
    way_at = cache(way_at)
    steps = REACH.bit_length() - 1
    sizes = sorted({max(1, size * 2**i // REACH) for i in range(2 * steps + 1)})
    bounds = [(sizes[0], way_at(sizes[0]))]
    for low, high in pairwise(sizes):
        bounds += _changes(low, high, way_at)
    stops = [start for start, _ in bounds[1:]] + [sizes[-1]]
    return [Stretch(start, stop, way) for (start, way), stop in zip(bounds, stops, strict=True)]


def _changes(low: int, high: int, way_at: Callable[[int], str]) -> list[tuple[int, str]]:
    """Return where the way changes between two sizes, and to which."""
    if way_at(low) == way_at(high):
        return []
    unit = 2 ** max(0, (low // EXACT).bit_length() - 1)
    middle = (low + high) // 2 // unit * unit
    if not low < middle < high or high - low <= unit:
        return [(high, way_at(high))]
    return _changes(low, middle, way_at) + _changes(middle, high, way_at)


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
