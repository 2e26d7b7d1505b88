"""Values of a file as columns: every one taken as it is said, and what is not one refused in one line."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from umm.arrays import Floats, Ints
from umm.errors import ScheduleError
from umm.files import real_number, shown, whole_number

What = Callable[[int], str]
"""What a value is, by its place in the list, for the message."""


def whole_column(values: Sequence[Any], what: What, least: int = 0, below: int = 2**63) -> Ints:
    """Return whole numbers as an array.

    Raises:
        InputError: for the first that is not one, or lies outside least … below − 1.
    """
    if (
        not set(map(type, values)) <= {int}
        or min(values, default=least) < least
        or max(values, default=0) >= below
    ):
        for place, value in enumerate(values):
            whole_number(value, what(place), least, below)
    return np.array(values, dtype=np.int64)


def real_column(values: Sequence[Any], what: What) -> Floats:
    """Return finite numbers, whole or not, as an array.

    Raises:
        InputError: for the first that is not one.
    """
    if set(map(type, values)) <= {float} and np.isfinite(np.array(values)).all():
        return np.array(values, dtype=np.float64)
    return np.array([real_number(value, what(place)) for place, value in enumerate(values)], dtype=np.float64)


def range_column(values: Sequence[Any], what: What) -> Ints:
    """Return half-open ranges [start, stop] of whole numbers as an array of shape (ranges, 2).

    Raises:
        InputError: for the first that is not one.
    """
    for place, value in enumerate(values):
        if type(value) is not list or len(value) != 2:
            raise ScheduleError(f"{what(place)} = {shown(value)} is not a range [start, stop]")
    flat = [number for span in values for number in span]
    return whole_column(flat, lambda place: what(place // 2)).reshape(-1, 2)
