"""Whether two sets of times put the same points in the same order: Kendall's tau-b, the winner's regret."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from umm.arrays import Floats, Ints, summed_before
from umm.errors import InputError


@dataclass(frozen=True)
class RankAgreement:
    """How well predictions order a set of points.

    Attributes:
        tau: Kendall's tau-b: 1 for the same order, −1 for the opposite one; nan if either has one value only.
        regret: How much slower the predicted winner measured than the measured one; 0 if it is the winner.
        points: Number of points.
    """

    tau: float
    regret: float
    points: int


def rank_agreement(
    predicted_times: Sequence[float] | Floats, measured_times: Sequence[float] | Floats
) -> RankAgreement:
    """Compare the order that predictions give a set of points with the measured order.

    Args:
        predicted_times: A time per point, in seconds; of equal winners the first counts.
        measured_times: A time for each of the same points.

    Raises:
        InputError: if the numbers of points differ, or there is none.

    >>> rank_agreement([1.0, 2.0, 3.0], [1.5, 1.2, 9.0])
    RankAgreement(tau=0.3333333333333333, regret=0.25, points=3)
    """
    predicted = np.asarray(predicted_times, dtype=np.float64)
    measured = np.asarray(measured_times, dtype=np.float64)
    if predicted.shape != measured.shape or predicted.ndim != 1 or not predicted.size:
        raise InputError(
            f"{predicted.size} predicted and {measured.size} measured times cannot be compared; "
            "give one of each per point, at least one"
        )
    regret = float(measured[np.argmin(predicted)] / measured.min() - 1)
    return RankAgreement(kendall_tau(predicted, measured), regret, predicted.size)


def kendall_tau(x: Floats, y: Floats) -> float:
    """Return Kendall's tau-b of paired values in O(n log² n); nan if either has one value only.

    Source: Knight, W. R. (1966), J. Am. Stat. Assoc. 61, 436-439.

    >>> kendall_tau(np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.0, 2.0, 1.0]))
    -1.0
    """
    x_place, y_place = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    pairs = _pairs(np.array([len(x)]))
    tied_x, tied_y = _pairs(np.bincount(x_place)), _pairs(np.bincount(y_place))
    tied_both = _pairs(np.unique(x_place * len(x) + y_place, return_counts=True)[1])
    discordant = _inversions(y_place[np.lexsort((y_place, x_place))])
    apart = (pairs - tied_x) * (pairs - tied_y)
    if apart == 0:
        return float("nan")
    return (pairs - tied_x - tied_y + tied_both - 2 * discordant) / math.sqrt(apart)


def _pairs(counts: Ints) -> int:
    """Return how many pairs groups of these sizes have within themselves."""
    return sum(count * (count - 1) // 2 for count in counts.tolist())


def _inversions(values: Ints) -> int:
    """Return how many pairs of whole numbers ≥ 0 stand in the wrong order.

    Two numbers are told apart by their highest bit that differs. So for each bit, among the numbers equal
    in all higher ones, the ones before zeros are counted.
    """
    found = 0
    for bit in range(int(values.max(initial=0)).bit_length()):
        prefix = values >> (bit + 1)
        one = (values >> bit) & 1
        found += int(summed_before(prefix, one)[one == 0].sum())
    return found
