"""Who multiplies which part of C = op(A)·op(B), and whose pieces each rank needs for it.

Rows, columns and k are each cut where any layout is, and segments that have the same owners everywhere are
taken together: however finely a matrix is dealt out, there are only as many classes of k as A has columns and
B rows of ranks. That is the universal algorithm by slicing, with indices permuted so that slices are long.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm_hw.arrays.axes import Joint, Runs, join, runs
from umm_hw.arrays.exchange import A, B, Item, P
from umm_hw.arrays.operand import Operand, Work

ALIGNMENT = 64


class Box(NamedTuple):
    """One rank's multiply: segments of m and of n, and a place of k."""

    m: Joint  # rows, each with A's place and C's
    n: Joint  # columns, with B's place and C's
    k: int  # place of k


class Class(NamedTuple):
    """The k with one place of work, one column of A's ranks and one row of B's."""

    work: int  # place of the work
    a: int  # column of A's process grid
    b: int  # row of B's
    segments: Joint  # the k, with where they lie in A's and B's local matrices


class Product:
    """One multiply of three operands with its work shared out; the same on every rank.

    Args:
        a: m×k.
        b: k×n.
        c: m×n.
        work: Who multiplies what.
        steps: Parts that k is published and multiplied in.
        compute_dtype: Type that is multiplied and summed in.
        joins: Whether k of several owners may be put together where that saves passes over C.
    """

    def __init__(
        self,
        a: Operand,
        b: Operand,
        c: Operand,
        work: Work,
        steps: int,
        compute_dtype: np.dtype[Any],
        joins: bool = False,
    ) -> None:
        self.a, self.b, self.c, self.work, self.steps = a, b, c, work, steps
        self.compute_dtype, self.joins = compute_dtype, joins
        self.ranks = a.layout.ranks
        self._m = join(a.axes[0], c.axes[0], work.m)
        self._n = join(b.axes[1], c.axes[1], work.n)
        self._boxes: dict[int, Box | None] = {}
        self._sources: dict[tuple[str, int], tuple[int, ...]] = {}
        self._items: dict[tuple[str, int, int], Item] = {}
        self._published: dict[tuple[str, int], list[int]] = {}
        self._bytes: dict[tuple[str, int], int] = {}
        self._contributors: dict[int, list[int]] = {}

    # Boxes ----------------------------------------------------------------------------------------

    @cached_property
    def place(self) -> dict[int, tuple[int, int, int]]:
        """Place of the work of each rank that has one."""
        return {int(rank): (i, j, x) for (i, j, x), rank in np.ndenumerate(self.work.ranks)}

    def box(self, rank: int) -> Box | None:
        """Return a rank's box; None if it multiplies nothing."""
        if rank not in self._boxes:
            at = self.place.get(rank)
            box = None
            if at is not None:
                m, n = self._m.where(self._m.places[2] == at[0]), self._n.where(self._n.places[2] == at[1])
                box = Box(m, n, at[2]) if m.size and n.size else None
            self._boxes[rank] = box
        return self._boxes[rank]

    @cached_property
    def classes(self) -> list[Class]:
        """All k by who holds them, in the order of their work, B's place, A's place."""
        k = join(self.a.axes[1], self.b.axes[0], self.work.k)
        a, b, work = k.places
        order = np.lexsort((k.start, a, b, work))
        keys = np.stack((work, a, b))[:, order]
        if not len(order):
            return []
        new = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
        groups = np.split(order, new[1:])
        return [Class(int(work[x[0]]), int(a[x[0]]), int(b[x[0]]), k.where(x)) for x in groups]

    @cached_property
    def class_sizes(self) -> Ints:
        """Indices of k in each class."""
        return np.array([x.segments.size for x in self.classes], dtype=np.int64)

    def part_sizes(self, step: int) -> Ints:
        """Indices of k of each class in a step."""
        return self.class_sizes * (step + 1) // self.steps - self.class_sizes * step // self.steps

    def of_box(self, box: Box) -> Iterator[tuple[int, Class]]:
        """Yield the classes that a box multiplies, with their numbers."""
        return ((number, x) for number, x in enumerate(self.classes) if x.work == box.k)

    # Items ----------------------------------------------------------------------------------------

    def _operand(self, kind: str) -> Operand:
        return self.a if kind == A else self.b

    def _needs(self, kind: str, rank: int) -> list[tuple[int, int]]:
        """Return the places of A or B that a rank's box reads."""
        box = self.box(rank)
        if box is None:
            return []
        side = (box.m if kind == A else box.n).places[0]
        across = sorted({x.a if kind == A else x.b for _, x in self.of_box(box)})
        along = np.unique(side).tolist()
        return [(i, x) if kind == A else (x, i) for i in along for x in across]

    def sources(self, kind: str, rank: int) -> Sequence[int]:
        """Return the other ranks whose items a rank reads."""
        if (kind, rank) not in self._sources:
            if kind == P:
                sources = set(self.contributors(rank))
            else:
                operand = self._operand(kind)
                sources = {operand.source(row, col, rank) for row, col in self._needs(kind, rank)}
            self._sources[kind, rank] = tuple(sorted(sources - {rank}))
        return self._sources[kind, rank]

    @cached_property
    def _readers(self) -> dict[tuple[str, int], list[int]]:
        readers: dict[tuple[str, int], list[int]] = {}
        for kind in (A, B) if self.work.direct else (A, B, P):
            for rank in range(self.ranks):
                for source in self.sources(kind, rank):
                    readers.setdefault((kind, source), []).append(rank)
        return readers

    def readers(self, kind: str, rank: int) -> Sequence[int]:
        """Return the other ranks that read items of a rank."""
        return self._readers.get((kind, rank), ())

    @cached_property
    def _works_read(self) -> dict[tuple[str, int], set[int]]:
        """Of each rank that publishes A or B, the places of k whose work reads it."""
        works: dict[tuple[str, int], set[int]] = {}
        for (kind, rank), readers in self._readers.items():
            if kind != P:
                works[kind, rank] = {box.k for box in map(self.box, readers) if box}
        return works

    def published(self, kind: str, rank: int) -> list[int]:
        """Return the classes that a rank publishes, in order."""
        key = kind, rank
        if key not in self._published:
            works = self._works_read.get(key, set())
            row, col = self._operand(kind).place_of_rank[rank]
            self._published[key] = [
                number
                for number, x in enumerate(self.classes)
                if x.work in works and (x.a == col if kind == A else x.b == row)
            ]
        return self._published[key]

    def item(self, kind: str, rank: int, step: int) -> Item:
        """Return the item that a rank publishes in a step; steps take two places in memory in turn."""
        key = kind, rank, step
        if key in self._items:
            return self._items[key]
        if kind == P:
            box = self.box(rank)
            shape = (box.m.size, box.n.size) if box and self.readers(P, rank) else (0, 0)
            before = sum(2 * self._padded(x, rank) for x in (A, B))
            item = Item(P, rank, before, shape, self.compute_dtype, self.c.orders[rank])
        else:
            operand, half = self._operand(kind), step % 2
            numbers = self.published(kind, rank)
            depth = int(self.part_sizes(step)[numbers].sum())
            spans = operand.held(rank)
            shape = (spans[0].size, depth) if kind == A else (depth, spans[1].size)
            before = half * self._padded(kind, rank) + (2 * self._padded(A, rank) if kind == B else 0)
            item = Item(kind, rank, before, shape, operand.dtype, operand.orders[rank])
        self._items[key] = item
        return item

    def _padded(self, kind: str, rank: int) -> int:
        """Return the bytes kept for an item of any step; half of it if one step alone needs it."""
        key = kind, rank
        if key not in self._bytes:
            numbers, operand = self.published(kind, rank), self._operand(kind)
            depth = int((-(-self.class_sizes[numbers] // self.steps)).sum()) if numbers else 0
            other = operand.held(rank)[0 if kind == A else 1].size
            halves = 2 if self.steps > 1 else 1
            nbytes = depth * other * operand.dtype.itemsize * halves
            self._bytes[key] = -(-nbytes // 2 // ALIGNMENT) * ALIGNMENT
        return self._bytes[key]

    def published_bytes(self, rank: int) -> int:
        """Return the bytes that a rank publishes in."""
        last = 0 if self.work.direct else self.item(P, rank, 0).nbytes
        return 2 * (self._padded(A, rank) + self._padded(B, rank)) + last

    def depth_runs(self, kind: str, number: int, step: int) -> Runs:
        """Return where a class's k of a step lie in its owner's local matrix, and in the class's part."""
        part = self.classes[number].segments.part(step, self.steps)
        return runs(part.locals[0 if kind == A else 1], part.positions, part.sizes)

    def depth_start(self, kind: str, rank: int, number: int, step: int) -> int:
        """Return where a class begins along k in the item of its publisher."""
        numbers = [x for x in self.published(kind, rank) if x < number]
        return int(self.part_sizes(step)[numbers].sum())

    def side_runs(self, kind: str, rank: int, place: int) -> Runs:
        """Return where a place's rows of A, or columns of B, lie in its local matrix, and where in a box."""
        box = self.box(rank)
        assert box is not None
        joint = box.m if kind == A else box.n
        some = joint.places[0] == place
        return runs(joint.locals[0][some], joint.positions[some], joint.sizes[some])

    def rectangle(self, kind: str, source: int, reader: int, step: int) -> tuple[Interval, Interval]:
        """Return the rows and columns of an item that hold all that a reader needs."""
        if kind == P:
            rows, cols = self.sum_runs(source, reader)
            return _span(rows.source, rows.sizes), _span(cols.source, cols.sizes)
        operand, box = self._operand(kind), self.box(reader)
        assert box is not None
        row, col = operand.place_of_rank[source]
        side = self.side_runs(kind, reader, row if kind == A else col)
        span = operand.held(source)[0 if kind == A else 1]
        along = _span(side.source - span.start, side.sizes)
        numbers = [x for x in self.published(kind, source) if self.classes[x].work == box.k]
        first = self.depth_start(kind, source, numbers[0], step) if numbers else 0
        deep = Interval(first, first + int(self.part_sizes(step)[numbers].sum()))
        return (along, deep) if kind == A else (deep, along)

    # Sums -----------------------------------------------------------------------------------------

    def contributors(self, rank: int) -> list[int]:
        """Return the ranks whose products add up to a rank's part of C, in the order of summing."""
        if self.work.direct:
            return []
        if rank not in self._contributors:
            row, col = self.c.place_of_rank[rank]
            ranks = list[int]()
            for i in np.unique(self._m.places[2][self._m.places[1] == row]).tolist():
                for j in np.unique(self._n.places[2][self._n.places[1] == col]).tolist():
                    ranks += self.work.ranks[i, j].tolist()
            boxes = ((x, self.box(x)) for x in ranks)
            self._contributors[rank] = [x for x, box in boxes if box is not None and any(self.of_box(box))]
        return self._contributors[rank]

    def sum_runs(self, source: int, reader: int) -> tuple[Runs, Runs]:
        """Return the runs by which a rank's product is added to the reader's local part of C."""
        box = self.box(source)
        assert box is not None
        sides = []
        for joint, place in zip((box.m, box.n), self.c.place_of_rank[reader], strict=True):
            ours = joint.places[1] == place
            sides.append(runs(joint.positions[ours], joint.locals[1][ours], joint.sizes[ours]))
        return sides[0], sides[1]

    # Costs ----------------------------------------------------------------------------------------

    def flop(self, rank: int) -> float:
        """Return the floating-point operations of a rank."""
        box = self.box(rank)
        if box is None:
            return 0.0
        return 2.0 * box.m.size * box.n.size * sum(x.segments.size for _, x in self.of_box(box))


def _span(start: Ints, sizes: Ints) -> Interval:
    if len(start) == 0:
        return Interval(0, 0)
    return Interval(int(start.min()), int((start + sizes).max()))
