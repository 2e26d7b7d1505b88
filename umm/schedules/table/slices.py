"""Slices: rectangles of buffers, as algorithms written with the Builder speak of them."""

from typing import NamedTuple

from umm.interval import Interval


class Slice(NamedTuple):
    """A rectangle of a buffer; empty ones are legal, and what is done with them is left out.

    Attributes:
        buffer: Number of the buffer, as the Builder counts.
        rank: Rank in whose memory it lies.
        tensor: Number of the tensor it is a piece of.
        rows: Rows, in the tensor's global indices.
        cols: Columns likewise.
    """

    buffer: int
    rank: int
    tensor: int
    rows: Interval
    cols: Interval

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.rows.size, self.cols.size

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.rows.size * self.cols.size

    def part(self, number: int, parts: int, axis: int = 0) -> "Slice":
        """Return one of some nearly equal parts, cut along rows (axis 0) or columns (axis 1).

        >>> piece = Slice(0, 0, 0, Interval(4, 9), Interval(0, 8))
        >>> [piece.part(i, 2).rows for i in range(2)]
        [Interval(start=4, stop=6), Interval(start=6, stop=9)]
        """
        buffer, rank, tensor, rows, cols = self
        cut = (cols if axis else rows).part(number, parts)
        return Slice(buffer, rank, tensor, *((rows, cut) if axis else (cut, cols)))

    def cut(self, rows: Interval, cols: Interval) -> "Slice":
        """Return what lies in some rows and columns, in global indices; empty if nothing does."""
        return Slice(*self[:3], self.rows.intersect(rows), self.cols.intersect(cols))


def joined(first: Slice, second: Slice) -> Slice | None:
    """Return two slices of a buffer as one, where the second follows the first; None where it does not.

    >>> piece = Slice(0, 0, 0, Interval(4, 9), Interval(0, 8))
    >>> joined(piece.part(0, 2), piece.part(1, 2)) == piece
    True
    """
    if first.buffer != second.buffer:
        return None
    if first.rows == second.rows and first.cols.stop == second.cols.start:
        return first._replace(cols=Interval(first.cols.start, second.cols.stop))
    if first.cols == second.cols and first.rows.stop == second.rows.start:
        return first._replace(rows=Interval(first.rows.start, second.rows.stop))
    return None
