"""From one layout to another: every rank gets its part in the new one from a rank that has it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from umm.errors import UmmError
from umm.interval import Interval
from umm_hw.arrays.axes import Joint, Runs, copy, join, runs
from umm_hw.arrays.exchange import A, Exchange, Item
from umm_hw.arrays.operand import Operand

ROOM = 32 * 2**20  # bytes a rank publishes at most; a larger matrix goes in several steps
MOST_KEPT = 64  # redistributions that are remembered


class Move:
    """The transfers between two layouts, the same on every rank."""

    def __init__(self, x: Operand, y: Operand) -> None:
        self.x, self.y = x, y
        self.ranks = x.layout.ranks
        self.rows, self.cols = (join(x.axes[dim], y.axes[dim]) for dim in (0, 1))
        self._sources = [self._found(rank) for rank in range(self.ranks)]
        most = max(self._elements(rank) for rank in range(self.ranks)) * x.dtype.itemsize
        self.steps = max(1, -(-2 * most // ROOM)) if most > ROOM else 1

    def _found(self, rank: int) -> list[int]:
        row, col = self.y.place_of_rank[rank]
        rows = np.unique(self.rows.places[0][self.rows.places[1] == row]).tolist()
        cols = np.unique(self.cols.places[0][self.cols.places[1] == col]).tolist()
        return [self.x.source(i, j, rank) for i in rows for j in cols]

    def _elements(self, rank: int) -> int:
        rows, cols = self.x.held(rank)
        return rows.size * cols.size if self.readers(A, rank) else 0

    def all_sources(self, rank: int) -> Sequence[int]:
        """Return the ranks that hold elements of a rank's new part, possibly itself too."""
        return self._sources[rank]

    def sources(self, kind: str, rank: int) -> Sequence[int]:
        """Return the other ranks whose items a rank reads."""
        return [x for x in self._sources[rank] if x != rank]

    def readers(self, kind: str, rank: int) -> Sequence[int]:
        """Return the other ranks that read items of a rank."""
        return [x for x in range(self.ranks) if x != rank and rank in self._sources[x]]

    def part(self, rank: int, step: int) -> Interval:
        """Return the local rows that a rank publishes in a step."""
        return self.x.held(rank)[0].part(step, self.steps)

    def item(self, kind: str, rank: int, step: int) -> Item:
        """Return the item that a rank publishes in a step."""
        rows, cols = self.part(rank, step), self.x.held(rank)[1]
        before = step % 2 * (self.published_bytes(rank) // 2)
        return Item(A, rank, before, (rows.size, cols.size), self.x.dtype, self.x.orders[rank])

    def published_bytes(self, rank: int) -> int:
        """Return the bytes that a rank publishes in: two steps at once, if there are several."""
        rows = -(-self.x.held(rank)[0].size // self.steps) + (self.steps > 1)
        nbytes = rows * self.x.held(rank)[1].size * self.x.dtype.itemsize if self._elements(rank) else 0
        return -(-nbytes // 64) * 64 * 2 if self.steps > 1 else nbytes

    def pieces(self, source: int, reader: int, step: int) -> tuple[Runs, Runs]:
        """Return the rows and columns that go from one local matrix to another in a step."""
        sides = []
        ends = zip(
            (self.rows, self.cols), self.x.place_of_rank[source], self.y.place_of_rank[reader], strict=True
        )
        for dim, (joint, ours, theirs) in enumerate(ends):
            some = joint.where((joint.places[0] == ours) & (joint.places[1] == theirs))
            if dim == 0:
                some = _within(some, self.part(source, step))
            sides.append(runs(some.locals[0], some.locals[1], some.sizes))
        return sides[0], sides[1]

    def rectangle(self, kind: str, source: int, reader: int, step: int) -> tuple[Interval, Interval]:
        """Return the rows and columns of an item that hold all that a reader needs."""
        spans = []
        for side, first in zip(self.pieces(source, reader, step), self._first(source, step), strict=True):
            start, sizes = side.source - first, side.sizes
            some = len(start) > 0
            spans.append(Interval(int(start.min()), int((start + sizes).max())) if some else Interval(0, 0))
        return spans[0], spans[1]

    def _first(self, source: int, step: int) -> tuple[int, int]:
        return self.part(source, step).start, self.x.held(source)[1].start

    def perform(self, exchange: Exchange, local: Any, into: Any) -> None:
        """Copy this rank's new part; collective, all ranks have entered."""
        rank = exchange.group.rank
        self._publish(rank, exchange, local, 0)
        for step in range(self.steps):
            if step + 1 < self.steps:
                self._publish(rank, exchange, local, step + 1)
            sources = self.all_sources(rank)
            turned = sources.index(rank) if rank in sources else 0
            for source in (*sources[turned:], *sources[:turned]):
                rows, cols = self.pieces(source, rank, step)
                if not rows.size or not cols.size:
                    continue
                if source == rank:
                    copy(into, local, rows, cols)
                    continue
                seen = exchange.see(self, A, source, step)
                top, left = self._first(source, step)
                copy(into, seen.array, rows.shifted(-top - seen.row), cols.shifted(-left - seen.col))
            exchange.release(step)
        exchange.finish()

    def _publish(self, rank: int, exchange: Exchange, local: Any, step: int) -> None:
        readers = self.readers(A, rank)
        if readers:
            if step > 1:
                exchange.settle(readers, step - 2)
            item, cols = self.item(A, rank, step), self.x.held(rank)[1]
            exchange.own(item)[...] = local[self.part(rank, step).slice, cols.slice]
        exchange.publish(self, A, step)


def _within(joint: Joint, span: Interval) -> Joint:
    """Cut segments to those between two local indices of the first axis."""
    start, stop = joint.locals[0], joint.locals[0] + joint.sizes
    skip = np.clip(span.start - start, 0, joint.sizes)
    sizes = np.clip(span.stop - start, 0, stop - start) - skip
    some = sizes > 0
    moved = tuple((x + skip)[some] for x in joint.locals)
    return Joint((joint.start + skip)[some], sizes[some], tuple(x[some] for x in joint.places), moved)


def move(
    exchange: Exchange,
    x: Operand,
    y: Operand,
    pairs: Sequence[tuple[Any, Any]],
    error: UmmError | None = None,
) -> None:
    """Copy matrices into others of the same shape, laid out in any other way; collective.

    Args:
        x: How each matrix lies.
        y: How each shall.
        pairs: This rank's local matrices before and after, of each matrix of a batch.
        error: Why this rank refuses, which all ranks then raise.
    """
    words = f"redistributes {x.rows.size}x{x.cols.size} from {x.layout} to {y.layout}"
    signature = repr((x.key, y.key, len(pairs))).encode()
    exchange.begin(signature, words, error)
    known: dict[Any, Move] = exchange.__dict__.setdefault("moves", {})
    key = x.key, y.key
    if key not in known:
        if len(known) >= MOST_KEPT:
            known.pop(next(iter(known)))
        known[key] = Move(x, y)
    made = known[key]
    exchange.reserve([made.published_bytes(rank) for rank in range(made.ranks)])
    for number, (local, into) in enumerate(pairs):
        if number:
            exchange.begin(signature, words)
        made.perform(exchange, local, into)
