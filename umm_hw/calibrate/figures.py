"""A measured number and how sure it is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from umm.arrays import Floats


class Figure(NamedTuple):
    """A measured number and its uncertainty, as a share of it."""

    value: float
    uncertainty: float

    def times(self, factor: float) -> "Figure":
        """Return a multiple, as sure as this one."""
        return Figure(self.value * factor, self.uncertainty)


def figure(repeats: Floats | Sequence[float]) -> Figure:
    """Return the median of repeats and its uncertainty: half of them lie so near to it; 0 of none.

    >>> figure([1.0, 0.9, 1.1, 9.0, 1.0])
    Figure(value=1.0, uncertainty=0.1)
    """
    if not len(repeats):
        return Figure(0.0, 0.0)
    middle = float(np.median(repeats))
    off = float(np.median(np.abs(np.asarray(repeats) - middle)))
    return Figure(middle, round(off / middle, 4) if middle > 0 else 0.0)


def mean(figures: Sequence[Figure]) -> Figure:
    """Return the mean of some figures, as sure as they are in the mean."""
    return Figure(*np.mean(figures, axis=0).tolist())


def average(values: Sequence[float]) -> Figure:
    """Return the mean of figures from several kinds of work, and their median distance from it.

    >>> average([1.0, 1.0, 4.0])
    Figure(value=2.0, uncertainty=0.5)
    """
    middle = float(np.mean(values))
    return Figure(middle, round(float(np.median(np.abs(np.array(values) - middle))) / middle, 4))
