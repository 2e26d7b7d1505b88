"""Half-open ranges of one matrix dimension."""

from typing import NamedTuple


class Interval(NamedTuple):
    """The indices start, start + 1, …, stop − 1; empty when stop ≤ start."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of indices.

        >>> Interval(3, 5).size, Interval(5, 3).size
        (2, 0)
        """
        return self.stop - self.start if self.stop > self.start else 0

    def intersect(self, other: "Interval") -> "Interval":
        """Return the shared indices (the paper's ``bound``); empty if there are none.

        >>> Interval(0, 6).intersect(Interval(4, 9))
        Interval(start=4, stop=6)
        """
        return Interval(max(self.start, other.start), min(self.stop, other.stop))

    def shift(self, offset: int) -> "Interval":
        """Return the range moved by an offset: global to local with minus the tile's start."""
        return Interval(self.start + offset, self.stop + offset)

    def part(self, number: int, parts: int) -> "Interval":
        """Return one of some nearly equal parts that follow each other.

        >>> [Interval(4, 9).part(i, 2) for i in range(2)]
        [Interval(start=4, stop=6), Interval(start=6, stop=9)]
        """
        start, size = self.start, self.size
        return Interval(start + size * number // parts, start + size * (number + 1) // parts)

    @property
    def slice(self) -> slice:
        """The range as a slice of an array."""
        return slice(self.start, self.stop)
