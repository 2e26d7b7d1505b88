"""How fast a core is just now: a small multiply beside each measurement, compared with the fastest of all.

The cores of a host change their speed: another guest computes on the other half of a physical core, a clock
falls. What is measured between two readings of the pace counts if they are near the best there were.
"""

from collections.abc import Iterable, Sequence
from time import perf_counter, thread_time
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats
from umm_hw.gemm import multiply

SIDE = 192  # rows, columns and length of the multiply that is timed: its matrices fit a core's own cache
WARM_UP = 5  # multiplies before those that are timed: the first 0.3 ms after other work are up to 30 % slower
TIMES = 12  # how often for one reading, about 1 ms
OWN_CORE = 0.95  # share of its core below which others computed there meanwhile
SLACK = 1.1  # reading over the best one, above which a core was slowed down
FEWEST = 4  # one in so many repeats counts at least: those that had most of their core


class Reading(NamedTuple):
    """Seconds of some work, and the share of a core it had."""

    seconds: float  # duration; for a reading of the pace that of one multiply
    share: float  # the share of the core that this thread had meanwhile


class Paced(NamedTuple):
    """A measurement and the pace about it."""

    seconds: float  # what was measured
    reading: float  # the mean of the readings before and after it, in seconds; of several ranks the slowest
    share: float = 1.0  # the least share of a core in these readings and in the measurement itself

    def at(self, pace: float) -> "Paced":
        """Return it as it would be at the pace of a reading: seconds go as the reading beside them."""
        return Paced(self.seconds * pace / self.reading, pace, self.share)


class Pace:
    """Reads how long a small multiply takes on this core."""

    def __init__(self) -> None:
        self._factors: list[NDArray[np.float32]] = [np.full((SIDE, SIDE), 1e-3, np.float32) for _ in range(3)]

    def reading(self, times: int = TIMES) -> Reading:
        """Return the mean of some multiplies in a row."""
        a, b, c = self._factors
        for _ in range(WARM_UP):  # whatever ran before, they are in the core's cache
            multiply(a, b, c, beta=1.0)
        began, computed = perf_counter(), thread_time()
        for _ in range(times):
            multiply(a, b, c, beta=1.0)
        seconds = perf_counter() - began
        return Reading(seconds / times, (thread_time() - computed) / seconds)


def beside(measured: Reading, before: Reading, after: Reading) -> Paced:
    """Return a measurement between two readings.

    >>> beside(Reading(0.5, 0.97), Reading(2e-3, 1.0), Reading(3e-3, 0.9))
    Paced(seconds=0.5, reading=0.0025, share=0.9)
    """
    share = min(before.share, measured.share, after.share)
    return Paced(measured.seconds, (before.seconds + after.seconds) / 2, share)


def together(seconds: float, readings: Sequence[tuple[Reading, Reading, Reading]]) -> Paced:
    """Return a measurement that ended when the last of some ranks did: each one's, between two readings."""
    ranks = [beside(of_rank, before, after) for before, of_rank, after in readings]
    return Paced(seconds, max(rank.reading for rank in ranks), min(rank.share for rank in ranks))


def slowest(ranks: Sequence[Paced]) -> list[Paced]:
    """Return the simultaneous repeats of some ranks, each at the pace of the slowest core among them.

    Work that all ranks take part in ends when the slowest does.

    >>> slowest([Paced(1.0, 2.0), Paced(1.5, 3.0, share=0.9)])
    [Paced(seconds=1.5, reading=3.0, share=0.9), Paced(seconds=1.5, reading=3.0, share=0.9)]
    """
    reading, share = max(one.reading for one in ranks), min(one.share for one in ranks)
    return [one.at(reading)._replace(share=share) for one in ranks]


class Shared(Protocol):
    """A measurement that knows which share of a core it had, and how fast that was."""

    @property
    def share(self) -> float:
        """The least share."""

    @property
    def reading(self) -> float:
        """The slowest pace, in seconds."""


Repeat = TypeVar("Repeat", bound=Shared)


def at_best(one: Shared, best: float) -> bool:
    """Whether a measurement had its cores, at their best pace.

    Args:
        best: The reading of a core at its best, in seconds.
    """
    return one.share >= OWN_CORE and one.reading <= SLACK * best


def undisturbed(repeats: Sequence[Repeat], best: float) -> list[Repeat]:
    """Return the repeats that had their cores, at their best pace; of too few such the least disturbed.

    Args:
        best: The reading of a core at its best, in seconds.

    >>> repeats = [Paced(2.0, 1.0, share=0.5), Paced(1.0, 1.0), Paced(1.6, 1.6)]
    >>> undisturbed(repeats, best=1.0)
    [Paced(seconds=1.0, reading=1.0, share=1.0)]
    """
    quiet = [one for one in repeats if at_best(one, best)]
    least = -(-len(repeats) // FEWEST)
    if len(quiet) >= least:
        return quiet
    return sorted(repeats, key=lambda one: one.reading / one.share)[:least]


def fastest(repeats: Iterable[Shared]) -> float:
    """Return the reading of a core at its best, in seconds: the fastest except one in twenty."""
    return float(np.quantile([one.reading for one in repeats], 0.05))


def usual(repeats: Sequence[Shared], best: float) -> float:
    """Return the median reading of the repeats that count."""
    return float(np.median([one.reading for one in undisturbed(repeats, best)]))


def seconds(repeats: Sequence[Paced], best: float, pace: float) -> Floats:
    """Return the seconds that the undisturbed repeats would take at one pace.

    Args:
        best: The reading of a core at its best, in seconds.

    >>> seconds([Paced(2.0, 1.0), Paced(2.1, 1.05), Paced(9.0, 3.0)], best=1.0, pace=1.0).tolist()
    [2.0, 2.0]
    """
    return np.array([one.at(pace).seconds for one in undisturbed(repeats, best)])
