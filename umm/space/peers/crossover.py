"""Where another way becomes the one to take as a size changes: found by asking at sizes and in between."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

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
