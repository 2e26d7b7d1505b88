"""What a rank does in a multiply: publish its pieces, multiply what it reads, sum what others multiplied."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm_hw import gemm
from umm_hw.arrays.axes import Runs, copy, places_of, whole
from umm_hw.arrays.exchange import A, B, Exchange, P, Seen
from umm_hw.arrays.product import Product

Array = NDArray[Any]
_PIECE = 2**17  # elements that are scaled or added at once, so that what lies between stays in a cache


class Performer:
    """One rank's part of a product, with the memory it needs beside operands and what it publishes.

    Args:
        product: What all ranks do.
        rank: Which of them.
        exchange: How it sees others' pieces.
    """

    def __init__(self, product: Product, rank: int, exchange: Exchange) -> None:
        self.product, self.rank, self.exchange = product, rank, exchange
        self.box = product.box(rank)
        self._order = self._classes_in_order()
        self.packed = {kind: self._packs(kind) for kind in (A, B)}
        self._buffers = {kind: np.empty(0, np.uint8) for kind in (A, B)}
        self._sums = np.empty(0, np.uint8)
        self._contributors = product.contributors(rank)
        self._known: dict[tuple[str, int, int, int], tuple[Runs, Runs]] = {}  # pieces of panels, once found

    # Memory ---------------------------------------------------------------------------------------

    def buffer_bytes(self, kind: str) -> int:
        """Return the bytes of the buffer in which panels of A or B are put together, where they must be."""
        if self.box is None:
            return 0
        side = self.box.m.size if kind == A else self.box.n.size
        depth = -(-self.product.class_sizes // self.product.steps)
        most = max((int(depth[x]) for x in self.packed[kind]), default=0)
        return side * most * self.product.compute_dtype.itemsize

    def sum_bytes(self) -> int:
        """Return the bytes of partial sums that no other rank reads."""
        if self.product.work.direct or self.box is None or self.product.readers(P, self.rank):
            return 0
        return self.box.m.size * self.box.n.size * self.product.compute_dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes beside the operands: published, put together, summed; and received, across hosts."""
        received = self.exchange.bytes_beside(self.product, self.rank, self.product.steps)
        own = self.buffer_bytes(A) + self.buffer_bytes(B) + self.sum_bytes()
        return own + self.product.published_bytes(self.rank) + received

    # Performing -----------------------------------------------------------------------------------

    def perform(self, a: Array, b: Array, c: Array, alpha: Any, beta: Any) -> None:
        """Multiply. Collective; all ranks have entered.

        Args:
            a: This rank's local matrix of A, transposed if the product reads it so.
            b: The same of B.
            c: Its part of C that is written.
            alpha: Factor of the product.
            beta: Factor of what C was; it is not read if 0.
        """
        if alpha == 0 or not self.product.classes:
            scale(c, beta)
            return
        self._take_memory()
        locals_ = {A: a, B: b}
        direct, started = self.product.work.direct, False
        target = c if direct else self._partial()
        factors = (alpha, beta) if direct else (1, 0)
        self._publish(0, locals_)
        for step in range(self.product.steps):
            if step + 1 < self.product.steps:
                self._publish(step + 1, locals_)
            depths = self.product.part_sizes(step)
            for number in self._order:
                if depths[number]:
                    left, right = (
                        self._panel(kind, number, step, int(depths[number]), locals_[kind]) for kind in (A, B)
                    )
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
        """Copy what others read of a step into shared memory; two steps' items exist at once."""
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
            held = operand.held(rank)[0 if kind == A else 1]
            side = Runs(*(np.array([x]) for x in (held.start, 0, held.size)))
            start = 0
            for number in product.published(kind, rank):
                depth = product.depth_runs(kind, number, step)
                if kind == A:
                    copy(into[:, start : start + depth.size], locals_[kind], side, depth)
                else:
                    copy(into[start : start + depth.size], locals_[kind], depth, side)
                start += depth.size
        self.exchange.publish(product, A + B, step)

    def _panel(self, kind: str, number: int, step: int, depth: int, local: Array) -> Array:
        """Return a class's k in a step by the box's rows of A, or columns of B: as a view where it can be."""
        assert self.box is not None
        pieces = self._pieces(kind, number)
        if number not in self.packed[kind]:
            (place, source) = pieces[0]
            seen, side, deep = self._seen(kind, number, step, place, source, local)
            lines, across = side.slice, deep.slice
            return seen.array[lines, across] if kind == A else seen.array[across, lines]
        size = self.box.m.size if kind == A else self.box.n.size
        operand = self.product.a if kind == A else self.product.b
        shape = (size, depth) if kind == A else (depth, size)
        order: Any = operand.orders[pieces[0][1]]
        memory = self._buffers[kind]
        panel: Array = np.ndarray(shape, self.product.compute_dtype, memory, order=order)
        for place, source in pieces:
            seen, side, deep = self._seen(kind, number, step, place, source, local)
            copy(panel, seen.array, *((side, deep) if kind == A else (deep, side)))
        return np.conjugate(panel, out=panel) if operand.conj else panel

    def _pieces(self, kind: str, number: int) -> list[tuple[int, int]]:
        """Return the places that hold a panel, each with the rank to read it from."""
        assert self.box is not None
        operand, x = (self.product.a if kind == A else self.product.b), self.product.classes[number]
        places = np.unique((self.box.m if kind == A else self.box.n).places[0]).tolist()
        if kind == A:
            return [(place, operand.source(place, x.a, self.rank)) for place in places]
        return [(place, operand.source(x.b, place, self.rank)) for place in places]

    def _seen(
        self, kind: str, number: int, step: int, place: int, source: int, local: Array
    ) -> tuple[Seen, Runs, Runs]:
        """Return an array that has a piece of a panel, and where: along the box, and along k."""
        product, key = self.product, (kind, number, step, place)
        if key not in self._known:
            side = product.side_runs(kind, self.rank, place)
            if source == self.rank:
                deep = product.depth_runs(kind, number, step)
            else:
                operand = product.a if kind == A else product.b
                first = operand.held(source)[0 if kind == A else 1].start
                start = product.depth_start(kind, source, number, step)
                side = side.shifted(source=-first)
                deep = whole(int(product.part_sizes(step)[number])).shifted(source=start)
            self._known[key] = side, deep
        side, deep = self._known[key]
        if source == self.rank:
            return Seen(local, 0, 0), side, deep
        seen = self.exchange.see(product, kind, source, step)
        if seen.row or seen.col:
            along, into = (seen.row, seen.col) if kind == A else (seen.col, seen.row)
            side, deep = side.shifted(source=-along), deep.shifted(source=-into)
        return seen, side, deep

    def _packs(self, kind: str) -> set[int]:
        """Return the classes whose panels must be put together, being in several pieces of memory."""
        if self.box is None:
            return set()
        product, found = self.product, set[int]()
        operand = product.a if kind == A else product.b
        for number, x in product.of_box(self.box):
            pieces = self._pieces(kind, number)
            whole_side = (
                len(pieces) == 1 and product.side_runs(kind, self.rank, pieces[0][0]).slice is not None
            )
            held = x.segments.locals[0 if kind == A else 1]
            own = any(source == self.rank for _, source in pieces)
            one_run = not own or bool((held[1:] == (held + x.segments.sizes)[:-1]).all())
            as_it_is = operand.dtype == product.compute_dtype and not operand.conj
            if not (as_it_is and whole_side and one_run):
                found.add(number)
        return found

    def _classes_in_order(self) -> list[int]:
        """Return this rank's classes, those it holds itself first; ranks begin at different ones."""
        if self.box is None:
            return []
        product = self.product
        col, row = product.a.place_of_rank[self.rank][1], product.b.place_of_rank[self.rank][0]
        across, down = product.a.places.shape[2], product.b.places.shape[1]
        numbers = [(number, x) for number, x in product.of_box(self.box)]
        return [n for n, x in sorted(numbers, key=lambda e: ((e[1].a - col) % across, (e[1].b - row) % down))]

    # Sums -----------------------------------------------------------------------------------------

    def _partial(self) -> Array:
        """Return where this rank's products go: shared memory if others sum them."""
        product = self.product
        if product.readers(P, self.rank):
            return self.exchange.own(product.item(P, self.rank, 0))
        shape = (self.box.m.size, self.box.n.size) if self.box else (0, 0)
        order: Any = product.c.orders[self.rank]
        return np.ndarray(shape, product.compute_dtype, self._sums, order=order)

    def _sum(self, c: Array, own: Array, alpha: Any, beta: Any) -> None:
        """Set C to α·(sum of all products) + β·C, always in the same order, so to the same bits."""
        product = self.product
        done = set[tuple[int, int]]()
        window = [x.start for x in product.c.held(self.rank)]
        if not self._contributors:
            scale(c, beta)
        for source in self._contributors:
            mine = source == self.rank
            seen = Seen(own, 0, 0) if mine else self.exchange.see(product, P, source, 0)
            rows, cols = product.sum_runs(source, self.rank)
            rows = rows.shifted(source=-seen.row, target=-window[0])
            cols = cols.shifted(source=-seen.col, target=-window[1])
            place = product.place[source][:2]
            for to, of in places_of(c, seen.array, rows, cols):
                add(c, to, seen.array, of, alpha, 1 if place in done else beta)
            done.add(place)

    def _take_memory(self) -> None:
        for kind in (A, B):
            self._buffers[kind] = _at_least(self._buffers[kind], self.buffer_bytes(kind))
        self._sums = _at_least(self._sums, self.sum_bytes())


def _at_least(memory: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    return memory if memory.nbytes >= nbytes else np.empty(nbytes, np.uint8)


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


def add(c: Array, to: Any, p: Array, of: Any, alpha: Any, beta: Any) -> None:
    """Set a part of C to α·P + β·C, a piece at a time; half precision is rounded once."""
    source = p[of]
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
