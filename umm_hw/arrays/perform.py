"""A rank's work in a multiply: publish its pieces, multiply the pieces it reads, sum others' products."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import unwritten
from umm_hw import gemm
from umm_hw.arrays.axes import Runs, copy, places_of
from umm_hw.arrays.exchange import A, B, Exchange, P, Seen
from umm_hw.arrays.panels import Numbers, Panels, Piece
from umm_hw.arrays.product import Product

Array = NDArray[Any]
_PIECE = 2**17  # elements that are scaled or added at once, so that what lies between stays in a cache


class Performer:
    """One rank's part of a product, with its buffers for panels and sums.

    Args:
        product: The work of all ranks.
        rank: This rank's number.
        exchange: Access to others' pieces.
    """

    def __init__(self, product: Product, rank: int, exchange: Exchange) -> None:
        self.product, self.rank, self.exchange = product, rank, exchange
        self.box = product.box(rank)
        self.panels = Panels(product, rank)
        self._buffers: dict[str, NDArray[np.uint8]] = {}
        self._sums = unwritten(0)
        self._contributors = product.contributors(rank)

    # Memory ---------------------------------------------------------------------------------------

    def sum_bytes(self) -> int:
        """Return the bytes of partial sums that no other rank reads."""
        if self.product.work.direct or self.box is None or self.product.readers(P, self.rank):
            return 0
        return self.box.m.size * self.box.n.size * self.product.compute_dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes beside the operands: published, put together, summed; and received, across hosts."""
        received = self.exchange.bytes_beside(self.product, self.rank, self.product.steps)
        local = self.panels.buffer_bytes(A) + self.panels.buffer_bytes(B) + self.sum_bytes()
        return local + self.product.published_bytes(self.rank) + received

    # Performing -----------------------------------------------------------------------------------

    def perform(self, a: Array, b: Array, c: Array, alpha: Any, beta: Any) -> None:
        """Multiply. Collective; all ranks have entered.

        Args:
            a: This rank's local matrix of A, transposed if the product reads it so.
            c: Its part of C that is written.
            alpha: Factor of the product.
            beta: Factor of what C was; it is not read if 0.
        """
        if alpha == 0 or not self.product.classes:
            scale(c, beta)
            return
        if not self._buffers:  # at the first multiply; the next reuse them
            self._buffers = {kind: unwritten(self.panels.buffer_bytes(kind)) for kind in (A, B)}
            self._sums = unwritten(self.sum_bytes())
        locals_ = {A: a, B: b}
        direct, started = self.product.work.direct, False
        target = c if direct else self._partial()
        factors = (alpha, beta) if direct else (1, 0)
        self._publish(0, locals_)
        for step in range(self.product.steps):
            if step + 1 < self.product.steps:
                self._publish(step + 1, locals_)
            for group in self.panels.groups:
                if self.panels.depth(group, step):
                    left, right = (self._panel(kind, group, step, locals_[kind]) for kind in (A, B))
                    multiply(left, right, target, factors[0], 1 if started else factors[1])
                    started = True
            self.exchange.release(step)
        if direct and not started:
            scale(c, beta)
        if not direct:
            self.exchange.publish(self.product, P, 0)
            self._sum(c, target, alpha, beta)
        self.exchange.finish()

    def _publish(self, step: int, locals_: dict[str, Array]) -> None:
        """Copy the pieces that others read in a step into shared memory; two steps' items exist at once."""
        product, rank = self.product, self.rank
        for kind in (A, B):
            readers = product.readers(kind, rank)
            if not readers:
                continue
            if step > 1:
                self.exchange.settle(readers, step - 2)
            item = product.item(kind, rank, step)
            into = self.exchange.own(item)
            operand = product.a if kind == A else product.b
            span = operand.held(rank)[0 if kind == A else 1]
            side = Runs(*(np.array([x]) for x in (span.start, 0, span.size)))
            start = 0
            for number in product.published(kind, rank):
                depth = product.depth_runs(kind, number, step)
                if kind == A:
                    copy(into[:, start : start + depth.size], locals_[kind], side, depth)
                else:
                    copy(into[start : start + depth.size], locals_[kind], depth, side)
                start += depth.size
        self.exchange.publish(product, A + B, step)

    def _panel(self, kind: str, group: Numbers, step: int, local: Array) -> Array:
        """Return a panel of A or B in a step: as a view where it can be, else put together."""
        panels = self.panels
        pieces = panels.pieces(kind, group)
        if not panels.is_packed(kind, group):
            seen, side, deep = self._seen(kind, pieces[0], group, step, local)
            lines, across = side.slice, deep.slice
            return seen.array[lines, across] if kind == A else seen.array[across, lines]
        operand, size, depth = panels.operand(kind), panels.side(kind), panels.depth(group, step)
        shape = (size, depth) if kind == A else (depth, size)
        order: Any = operand.orders[pieces[0].source]
        panel: Array = np.ndarray(shape, self.product.compute_dtype, self._buffers[kind], order=order)
        for piece in pieces:
            seen, side, deep = self._seen(kind, piece, group, step, local)
            copy(panel, seen.array, *((side, deep) if kind == A else (deep, side)))
        return np.conjugate(panel, out=panel) if operand.conj else panel

    def _seen(
        self, kind: str, piece: Piece, group: Numbers, step: int, local: Array
    ) -> tuple[Seen, Runs, Runs]:
        """Return an array that has a piece of a panel, and where: along the box, and along k."""
        side, deep = self.panels.runs(kind, piece, group, step)
        if piece.source == self.rank:
            return Seen(local, 0, 0), side, deep
        seen = self.exchange.see(self.product, kind, piece.source, step)
        if seen.row or seen.col:
            along, into = (seen.row, seen.col) if kind == A else (seen.col, seen.row)
            side, deep = side.shifted(source=-along), deep.shifted(source=-into)
        return seen, side, deep

    # Sums -----------------------------------------------------------------------------------------

    def _partial(self) -> Array:
        """Return where this rank's products go: shared memory if others sum them."""
        product = self.product
        if product.readers(P, self.rank):
            return self.exchange.own(product.item(P, self.rank, 0))
        shape = (self.box.m.size, self.box.n.size) if self.box else (0, 0)
        order: Any = product.c.orders[self.rank]
        return np.ndarray(shape, product.compute_dtype, self._sums, order=order)

    def _sum(self, c: Array, product_here: Array, alpha: Any, beta: Any) -> None:
        """Set C to α·(sum of all products) + β·C, always in the same order, so to the same bits."""
        product = self.product
        done = set[tuple[int, int]]()
        window = [x.start for x in product.c.held(self.rank)]
        if not self._contributors:
            scale(c, beta)
        for source in self._contributors:
            mine = source == self.rank
            seen = Seen(product_here, 0, 0) if mine else self.exchange.see(product, P, source, 0)
            rows, cols = product.sum_runs(source, self.rank)
            rows = rows.shifted(source=-seen.row, target=-window[0])
            cols = cols.shifted(source=-seen.col, target=-window[1])
            place = product.place[source][:2]
            for target, origin in places_of(c, seen.array, rows, cols):
                add(c, target, seen.array, origin, alpha, 1 if place in done else beta)
            done.add(place)


def multiply(a: Array, b: Array, c: Array, alpha: Any, beta: Any) -> None:
    """Set C to α·AB + β·C where C's rows or columns are adjacent; whole numbers exactly.

    >>> c = np.ones((2, 2), order="F", dtype=int)
    >>> multiply(np.eye(2, dtype=int), np.eye(2, dtype=int), c, 2, 1)
    >>> c.tolist()
    [[3, 1], [1, 3]]
    """
    if c.size == 0:
        return
    if c.dtype.kind in "iu":
        product = c.dtype.type(alpha) * (a @ b)
        c[...] = product if beta == 0 else product + c.dtype.type(beta) * c
    elif c.strides[1] == c.itemsize:
        gemm.multiply(a, b, c, alpha, beta)
    else:
        gemm.multiply(b.T, a.T, c.T, alpha, beta)


def scale(c: Array, beta: Any) -> None:
    """Set C to β·C; 0 does not read it."""
    if beta == 0:
        c[...] = 0
    elif beta != 1:
        c *= c.dtype.type(beta)


def add(c: Array, to: Any, p: Array, origin: Any, alpha: Any, beta: Any) -> None:
    """Set a part of C to α·P + β·C, a piece at a time; half precision is rounded once."""
    source = p[origin]
    if not all(isinstance(x, slice) for x in to):
        c[to] = _sum(source, c[to], alpha, beta)
        return
    target = c[to]
    if target.strides[1] > target.strides[0]:
        target, source = target.T, source.T
    rows = max(1, _PIECE // max(1, target.shape[1]))
    for start in range(0, len(target), rows):
        piece = slice(start, start + rows)
        if alpha == 1 and beta == 0:
            target[piece] = source[piece]
        elif alpha == 1 and beta == 1 and target.dtype == source.dtype:
            target[piece] += source[piece]
        else:
            target[piece] = _sum(source[piece], target[piece], alpha, beta)


def _sum(p: Array, c: Array, alpha: Any, beta: Any) -> Array:
    scaled: Array = p if alpha == 1 else p * p.dtype.type(alpha)
    return scaled if beta == 0 else scaled + p.dtype.type(beta) * c.astype(p.dtype)
