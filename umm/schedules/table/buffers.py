"""Where data is: tiles that ranks own, temporaries in pool slots, and slices of either."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from umm.arrays import Bools, Ints
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.program.tensors import Tensor


@dataclass(frozen=True, eq=False)
class Buffers:
    """Pieces of tensors in the memory of ranks, one a row.

    A schedule's first buffers are the owned tiles: every tile of every replica of every tensor, empty ones
    included. Then come the temporaries, kept packed, row by row, from the start of a pool slot. Several
    temporaries may name one slot, at different times.
    """

    rank: Ints  # rank that holds each
    slot: Ints  # pool slot of a temporary, −1 for an owned tile
    tensor: Ints  # number of the tensor it is a piece of
    rows: Ints  # global rows it covers, half-open, shape (buffers, 2); cols: the same of columns
    cols: Ints

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def elements(self) -> Ints:
        """Number of elements of each."""
        return (self.rows[:, 1] - self.rows[:, 0]) * (self.cols[:, 1] - self.cols[:, 0])

    @cached_property
    def uses(self) -> tuple[Ints, Bools, list[tuple[int, int, int]]]:
        """How temporaries share slots: the use of each, which are not empty, and the uses that have such.

        A use is one slot of one rank. Those that have a temporary that is not empty are a number, rank and
        slot each, in the order in which they are first met.
        """
        key = self.rank * (1 + self.slot.max(initial=0)) + self.slot
        _, where, which = np.unique(key, return_index=True, return_inverse=True)
        full = self.elements > 0
        used = np.unique(which[full])
        used = used[np.argsort(where[used])]
        first = where[used]
        return (
            which, full,
            list(zip(used.tolist(), self.rank[first].tolist(), self.slot[first].tolist(), strict=True)),
        )  # fmt: skip

    def taken(self, which: slice | Ints | Bools) -> "Buffers":
        """Return some of them."""
        return Buffers(*(getattr(self, f.name)[which] for f in fields(self)))


def temporaries(rank: Ints, slot: Ints, tensor: int, rows: Ints, cols: Ints) -> Buffers:
    """Return temporaries of one tensor."""
    return Buffers(rank, slot, np.full(len(rank), tensor, dtype=np.int64), rows, cols)


def joined(parts: Sequence[Buffers]) -> Buffers:
    """Return some buffers, one below the other."""
    if not parts:
        none, no_ranges = np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int64)
        return Buffers(none, none, none, no_ranges, no_ranges)
    return Buffers(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Buffers)))


def owned_tiles(tensors: tuple[Tensor, ...]) -> Buffers:
    """Return the owned tiles of some tensors: tensors in order, then replicas, then tiles row-major.

    >>> from umm import Layout
    >>> owned = owned_tiles((Tensor("X", Layout.parse("row", (4, 3), ranks=2), "float32"),))
    >>> owned.rank.tolist(), owned.rows.tolist(), owned.cols.tolist()
    ([0, 1], [[0, 2], [2, 4]], [[0, 3], [0, 3]])
    """
    if not tensors:
        return joined([])
    layouts = [tensor.layout for tensor in tensors]
    rows, cols = (
        np.concatenate([x.tile_spans[axis] for x in layouts for _ in range(x.replicas)]) for axis in (0, 1)
    )
    number = np.arange(len(tensors)).repeat([x.owners.size for x in layouts])
    return Buffers(owners(tensors), np.full(len(number), -1, dtype=np.int64), number, rows, cols)


def owners(tensors: Sequence[Tensor]) -> Ints:
    """Return the rank of each owned tile of some tensors, in the order of :func:`owned_tiles`."""
    return np.concatenate([x.layout.owners.reshape(-1) for x in tensors] or [np.zeros(0, dtype=np.int64)])


def first_tiles(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    """Return the number of each tensor's first owned tile, and of the first temporary at the end.

    Tile t (row-major) of replica r of tensor x is buffer ``first[x] + r · tiles + t``.
    """
    return tuple(accumulate((tensor.layout.owners.size for tensor in tensors), initial=0))


def tile_at(layout: Layout, row: Ints, col: Ints) -> Ints:
    """Return the row-major number of the tile that holds each of some elements, −1 outside the matrix.

    >>> tile_at(Layout.parse("2d:2x2", (4, 6), ranks=4), np.array([0, 3, 4]), np.array([3, 2, 0])).tolist()
    [1, 2, -1]
    """
    rows, cols = layout.shape
    # Edges may be irregular, so a tile is found by bisection. side="right" puts an element on an edge into
    # the tile that starts there, after any empty ones.
    i = layout.row_edges.searchsorted(row, side="right") - 1
    j = layout.col_edges.searchsorted(col, side="right") - 1
    inside = (row >= 0) & (row < rows) & (col >= 0) & (col < cols)
    return np.where(inside, i * layout.grid_shape()[1] + j, -1)


class Slice(NamedTuple):
    """A rectangle of a buffer; empty ones are legal, and actions on them are left out."""

    buffer: int  # number of the buffer, as the Builder counts
    rank: int  # rank in whose memory it lies
    tensor: int  # number of the tensor it is a piece of
    rows: Interval  # rows, in the tensor's global indices
    cols: Interval  # columns in the same form

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

    def contains(self, rows: Interval, cols: Interval) -> bool:
        """Whether some rows and columns, in global indices, lie in it and are not empty."""
        top, bottom = self[3]
        left, right = self[4]
        return top <= rows[0] < rows[1] <= bottom and left <= cols[0] < cols[1] <= right

    def inner(self, rows: Interval, cols: Interval) -> "Slice":
        """Return some rows and columns that are known to lie in it, in global indices."""
        return Slice(self[0], self[1], self[2], rows, cols)

    def cut(self, rows: Interval, cols: Interval) -> "Slice":
        """Return the part in some rows and columns, in global indices; empty if there is none."""
        buffer, rank, tensor, (top, bottom), (left, right) = self
        first, last = rows
        start, stop = cols
        return Slice(  # without max and min, which take most of the time of this
            buffer, rank, tensor,
            Interval(first if first > top else top, last if last < bottom else bottom),
            Interval(start if start > left else left, stop if stop < right else right),
        )  # fmt: skip


def united(first: Slice, second: Slice) -> Slice | None:
    """Return two slices of a buffer as one, where the second follows the first; None where it does not.

    >>> piece = Slice(0, 0, 0, Interval(4, 9), Interval(0, 8))
    >>> united(piece.part(0, 2), piece.part(1, 2)) == piece
    True
    """
    if first.buffer != second.buffer:
        return None
    if first.rows == second.rows and first.cols.stop == second.cols.start:
        return first._replace(cols=Interval(first.cols.start, second.cols.stop))
    if first.cols == second.cols and first.rows.stop == second.rows.start:
        return first._replace(rows=Interval(first.rows.start, second.rows.stop))
    return None


@dataclass(frozen=True, eq=False)
class Slices:
    """Slices as columns, one a row; see :class:`Slice`."""

    buffer: Ints  # number of the buffer of each
    rank: Ints  # rank in whose memory it lies
    tensor: Ints  # number of the tensor it is a piece of
    spans: Ints  # first row, row after the last, first column, column after the last, shape (slices, 4)

    @classmethod
    def of(cls, slices: Sequence[Slice]) -> "Slices":
        """Return slices as columns.

        >>> pieces = Slices.of([Slice(5, 1, 0, Interval(4, 9), Interval(0, 8))])
        >>> pieces.buffer.tolist(), pieces.spans.tolist(), pieces.all() == [pieces.all()[0]]
        ([5], [[4, 9, 0, 8]], True)
        """
        flat = [
            x for buffer, rank, tensor, rows, cols in slices for x in (buffer, rank, tensor, *rows, *cols)
        ]
        table = np.array(flat, dtype=np.int64).reshape(-1, 7)
        return cls(table[:, 0], table[:, 1], table[:, 2], table[:, 3:])

    @classmethod
    def joined(cls, several: Sequence["Slices"]) -> "Slices":
        """Return the slices of several, one after another."""
        return cls(*(np.concatenate([getattr(x, f.name) for x in several]) for f in fields(cls)))

    def __len__(self) -> int:
        return len(self.buffer)

    @property
    def elements(self) -> Ints:
        """Number of elements of each."""
        tall, wide = self._sides
        elements: Ints = tall * wide
        return elements

    @property
    def _sides(self) -> tuple[Ints, Ints]:
        """Number of rows and of columns of each."""
        spans = self.spans
        return np.maximum(spans[:, 1] - spans[:, 0], 0), np.maximum(spans[:, 3] - spans[:, 2], 0)

    def all(self) -> list[Slice]:
        """Return them one by one."""
        columns = (self.buffer.tolist(), self.rank.tolist(), self.tensor.tolist(), self.spans.tolist())
        return [
            Slice(buffer, rank, tensor, Interval(*spans[:2]), Interval(*spans[2:]))
            for buffer, rank, tensor, spans in zip(*columns, strict=True)
        ]

    def taken(self, which: Ints | Bools) -> "Slices":
        """Return some of them."""
        at = which.nonzero()[0] if which.dtype == bool else which  # to take is faster than to index
        return Slices(*(x.take(at, axis=0) for x in (self.buffer, self.rank, self.tensor, self.spans)))

    def cut(self, spans: Ints) -> "Slices":
        """Return the part of each in rows and columns given for it, shape (slices, 4)."""
        overlaps = np.maximum(self.spans, spans)
        overlaps[:, 1::2] = np.minimum(self.spans[:, 1::2], spans[:, 1::2])
        return Slices(self.buffer, self.rank, self.tensor, overlaps)

    def parts(self, first: Ints, last: Ints, parts: int) -> "Slices":
        """Return of each some of its nearly equal parts, from one to another, cut as a single slice is.

        Rows are cut where they divide or are not fewer, else columns.
        """
        tall, wide = self._sides
        by_cols = (tall % parts != 0) & (tall < wide)
        spans, size = self.spans.copy(), np.where(by_cols, wide, tall)
        row, side = np.arange(len(self)), 2 * by_cols
        start = spans[row, side]
        spans[row, side] = start + size * first // parts
        spans[row, side + 1] = start + size * (last + 1) // parts
        return Slices(self.buffer, self.rank, self.tensor, spans)

    def replaced(self, which: Bools, others: "Slices") -> "Slices":
        """Return them with others, as many as there are marks, in the place of those that are marked."""
        if not which.any():
            return self
        result = Slices(*(getattr(self, f.name).copy() for f in fields(self)))
        for f in fields(self):
            getattr(result, f.name)[which] = getattr(others, f.name)
        return result

    def same(self, others: "Slices") -> Bools:
        """Return which are the same as others, row by row."""
        same: Bools = (self.buffer == others.buffer) & (self.spans == others.spans).all(axis=1)
        return same
