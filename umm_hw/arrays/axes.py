"""Who holds which rows, or columns, of an operand, and where in its memory: runs of consecutive indices.

A layout is a product of its rows and its columns, so what a rank holds is one dense local matrix: the rows of
its place by the columns of its place, both ascending, as in ScaLAPACK. All here is about one dimension.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.interval import Interval
from umm.layouts.layout import Layout

LONG = 8  # elements of a run from which copying runs one by one is faster than by lists of indices


class Axis(NamedTuple):
    """One dimension of a window of a matrix, cut wherever another place of the process grid begins."""

    start: Ints  # first index of each segment, counted from the window's own first; ascending
    place: Ints  # row, or column, of the process grid that holds it
    local: Ints  # where it begins in the local matrices of that place
    size: int  # indices of the window

    def held(self, place: int) -> Interval:
        """Return the local indices of a place that lie in the window: always consecutive ones."""
        ours = self.place == place
        first = int(self.local[ours].min(initial=np.iinfo(np.int64).max))
        stop = int((self.local + self.sizes)[ours].max(initial=0))
        return Interval(min(first, stop), stop)

    @property
    def sizes(self) -> Ints:
        """Indices of each segment."""
        return np.diff(self.start, append=self.size)


def axis_of(layout: Layout, dim: int, window: Interval) -> Axis:
    """Return how a window of a layout's rows (dim 0) or columns (dim 1) is held.

    >>> cut = axis_of(Layout.parse("cyclic:2x2:2x1", (9, 4), ranks=2), 0, Interval(1, 8))
    >>> cut.start.tolist(), cut.place.tolist(), cut.local.tolist()
    ([0, 1, 3, 5], [0, 1, 0, 1], [1, 0, 2, 2])
    """
    edges = (layout.row_edges, layout.col_edges)[dim]
    count = layout.process_grid[dim]
    sizes = np.diff(edges)
    rounds = np.pad(sizes, (0, -len(sizes) % count)).reshape(-1, count)
    before = (np.cumsum(rounds, axis=0) - rounds).reshape(-1)[: len(sizes)]
    start, stop = np.maximum(edges[:-1], window.start), np.minimum(edges[1:], window.stop)
    some = start < stop
    place = np.arange(len(sizes)) % count
    local = before + start - edges[:-1]
    return Axis(start[some] - window.start, place[some], local[some], window.size)


def even(size: int, parts: int) -> Axis:
    """Return a dimension cut into parts that differ by at most one index; part i is place i.

    >>> even(5, 3).start.tolist(), even(1, 3).place.tolist()
    ([0, 2, 4], [0])
    """
    small, extra = divmod(size, parts)
    index = np.arange(parts)
    start = index * small + np.minimum(index, extra)
    some = np.diff(start, append=size) > 0
    return Axis(start[some], index[some], np.zeros(int(some.sum()), dtype=np.int64), size)


class Joint(NamedTuple):
    """One dimension as several axes see it, cut wherever any of them is."""

    start: Ints  # first index of each segment
    sizes: Ints  # indices of each
    places: tuple[Ints, ...]  # of each axis, the place of each segment
    locals: tuple[Ints, ...]  # of each axis, where the segment begins in that place's local matrices

    def where(self, some: NDArray[Any]) -> "Joint":
        """Return the segments chosen by a mask or by numbers."""
        return Joint(
            self.start[some],
            self.sizes[some],
            tuple(x[some] for x in self.places),
            tuple(x[some] for x in self.locals),
        )

    def part(self, number: int, parts: int) -> "Joint":
        """Return one of several even parts of these segments, counted along them, cut where it must be."""
        total = int(self.sizes.sum())
        first, last = total * number // parts, total * (number + 1) // parts
        before = np.cumsum(self.sizes) - self.sizes
        skip = np.clip(first - before, 0, self.sizes)
        sizes = np.clip(last - before, 0, self.sizes) - skip
        some = sizes > 0
        moved = tuple((local + skip)[some] for local in self.locals)
        return Joint((self.start + skip)[some], sizes[some], tuple(x[some] for x in self.places), moved)

    @property
    def positions(self) -> Ints:
        """Where each segment begins if all follow each other."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def size(self) -> int:
        """Indices of all segments."""
        return int(self.sizes.sum())


def join(*axes: Axis) -> Joint:
    """Return the common refinement of axes of one dimension.

    >>> both = join(even(6, 2), even(6, 3))
    >>> both.start.tolist(), both.places[0].tolist(), both.places[1].tolist()
    ([0, 2, 3, 4], [0, 0, 1, 1], [0, 1, 1, 2])
    """
    start = np.unique(np.concatenate([axis.start for axis in axes]))
    sizes = np.diff(start, append=axes[0].size)
    at = [np.searchsorted(axis.start, start, side="right") - 1 for axis in axes]
    places = tuple(axis.place[i] for axis, i in zip(axes, at, strict=True))
    moved = tuple(axis.local[i] + start - axis.start[i] for axis, i in zip(axes, at, strict=True))
    return Joint(start, sizes, places, moved)


class Runs(NamedTuple):
    """Consecutive indices that go from one place to another: sources, targets and how many, run by run."""

    source: Ints
    target: Ints
    sizes: Ints

    @property
    def size(self) -> int:
        """Indices of all runs."""
        return int(self.sizes.sum())

    @property
    def slice(self) -> slice | None:
        """The source as one slice, if the runs are one that goes to target 0; None otherwise."""
        if len(self.sizes) == 0:
            return slice(0, 0)
        first = int(self.source[0])
        one = len(self.sizes) == 1 and int(self.target[0]) == 0
        return slice(first, first + int(self.sizes[0])) if one else None

    def shifted(self, source: int = 0, target: int = 0) -> "Runs":
        """Return the runs with other origins of their indices."""
        return Runs(self.source + source, self.target + target, self.sizes)


def runs(source: Ints, target: Ints, sizes: Ints) -> Runs:
    """Return runs, those joined that follow each other at both ends.

    >>> runs(np.array([0, 2, 9]), np.array([4, 6, 8]), np.array([2, 2, 1])).sizes.tolist()
    [4, 1]
    """
    if len(sizes) < 2:
        return Runs(source, target, sizes)
    follows = (source[1:] == source[:-1] + sizes[:-1]) & (target[1:] == target[:-1] + sizes[:-1])
    first = np.flatnonzero(np.append(True, ~follows))
    return Runs(source[first], target[first], np.add.reduceat(sizes, first))


def whole(size: int) -> Runs:
    """Return all indices of a dimension, each to itself."""
    zero = np.zeros(1, dtype=np.int64)
    return Runs(zero, zero, np.array([size], dtype=np.int64))


def places_of(target: Any, source: Any, rows: Runs, cols: Runs) -> Iterator[tuple[Any, Any]]:
    """Yield corresponding parts of two matrices as indices, for runs of rows by runs of columns.

    Runs are taken one by one where they are long; short ones would take longer to name than to copy, and are
    yielded as lists of indices: ``target[i] = source[j]`` serves both.
    """
    for row_to, row_from in _spans(rows):
        for col_to, col_from in _spans(cols):
            if isinstance(row_to, slice) or isinstance(col_to, slice):
                yield (row_to, col_to), (row_from, col_from)
            else:
                yield np.ix_(row_to, col_to), np.ix_(row_from, col_from)


def _spans(runs: Runs) -> Iterator[tuple[Any, Any]]:
    count = len(runs.sizes)
    if count == 0:
        return
    if count == 1 or runs.size >= LONG * count:
        for source, target, size in zip(*(x.tolist() for x in runs), strict=True):
            yield slice(target, target + size), slice(source, source + size)
        return
    within = np.arange(runs.size) - np.repeat(np.cumsum(runs.sizes) - runs.sizes, runs.sizes)
    yield np.repeat(runs.target, runs.sizes) + within, np.repeat(runs.source, runs.sizes) + within


def copy(target: Any, source: Any, rows: Runs, cols: Runs) -> None:
    """Copy runs of rows by runs of columns from one matrix into another."""
    for into, origin in places_of(target, source, rows, cols):
        target[into] = source[origin]
