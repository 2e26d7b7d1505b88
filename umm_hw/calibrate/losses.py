"""The cost of transfers to the gemms beside them: a share of their rate, and seconds of their rank's core."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from umm.arrays import Floats
from umm_hw.calibrate.figures import Figure, figure

MOST_LOST = 0.95  # a gemm beside transfers goes on, however slowly
REFILL_UNSURE = 0.25  # in 18 calibrations what gemms lost by transfers gave 1.4 to 2.6 times a copy's rate


class Loss(NamedTuple):
    """The cost of a transfer beside gemms."""

    nbytes: int  # bytes moved
    cost: float  # seconds by which the gemms end later
    own: float  # seconds from its own start to its end

    @property
    def rate(self) -> float:
        """Its own bytes/s."""
        return self.nbytes / self.own

    @property
    def over(self) -> float:
        """Seconds of its rank's core that it takes beyond its own; 0 where it has a core of its own.

        A lane is woken, the core turns from the gemm to the transfer and back, and the gemm loads again what
        the transfer has driven out of the core's caches.
        """
        return max(0.0, self.cost - self.own)


def shares_beside_gemms(gets: Sequence[Loss], sizes: Sequence[int], rates: Floats) -> Floats:
    """Return the rates of gets beside gemms, as shares of their rates one after the other.

    Small tiles that are got one after the other are found in caches, and so is the code that gets them;
    beside gemms neither is. Large ones are in no cache either way.

    Args:
        gets: Those beside gemms, smallest first.
        sizes: Bytes of those one after the other.
        rates: Their bytes/s.

    >>> gets = [Loss(2**16, 40e-6, 16.384e-6), Loss(2**18, 70e-6, 32.768e-6)]
    >>> shares_beside_gemms(gets, [2**14, 2**18, 2**22], np.array([4e9, 12e9, 10e9])).round(2).tolist()
    [0.5, 0.67, 1.0]
    """
    spans, known = np.log([get.nbytes for get in gets]), np.log(sizes)
    shares = np.minimum([get.rate for get in gets] / np.interp(spans, known, rates), 1.0)
    return np.asarray(np.interp(known, [*spans, spans[-1] + np.log(4)], [*shares, 1.0]))


def refill(losses: Sequence[Loss], copied: float) -> Figure:
    """Return the seconds in which gemms load each byte that no cache holds; 0 if transfers drive nothing out.

    They only read it: in half of the time of a copy, which writes it too.

    Args:
        copied: Bytes/s of a copy too large for caches.

    >>> refill([Loss(2**18, 40e-6, 20e-6)], 20e9).value
    2.5e-11
    """
    if not np.median([loss.over for loss in losses]):
        return Figure(0.0, 0.0)
    return Figure(0.5 / copied, REFILL_UNSURE)


def overhead(losses: Sequence[Loss], per_byte: float) -> Figure:
    """Return the seconds of its rank's core that a transfer takes beyond its own, whatever its size.

    Args:
        per_byte: Seconds of each byte.
    """
    extra = figure([max(0.0, loss.over - per_byte * loss.nbytes) for loss in losses])
    return extra if extra.value else Figure(0.0, 0.0)


def lost_share(losses: Sequence[Loss], start: float, per_byte: float) -> Figure:
    """Return the share of its GEMM rate a rank loses while transfers run.

    Args:
        start: Overhead of each, in seconds.
        per_byte: Further seconds of each byte.
    """
    whole_times = [start + per_byte * loss.nbytes + loss.own for loss in losses]
    share = sum(loss.cost for loss in losses) / sum(whole_times)
    spread = figure([loss.cost / took for loss, took in zip(losses, whole_times, strict=True)]).uncertainty
    return Figure(round(min(MOST_LOST, max(0.0, share)), 3), spread)
