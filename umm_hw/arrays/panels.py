"""The panels of A and B that a rank multiplies: which k go together, from whom, and whether as views.

A panel is a view where its elements are one piece of one rank's memory, of the type that is multiplied; else
it is put together in a buffer. Every panel costs a pass over C, so where C is large beside the panels, as in
tall and flat products, all k are put together and multiplied at once; so are thin panels of a step, as on
grids of many columns, until they are as deep as a GEMM needs.
"""

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm_hw.arrays.axes import Runs, runs
from umm_hw.arrays.exchange import A, B
from umm_hw.arrays.operand import Operand
from umm_hw.arrays.product import Box, Product

MOST_JOINED = 16 * 2**20  # bytes of panels that are put together only to save passes over C
DEEP = 128  # indices of k of a panel from which a GEMM hides its pass over C: 16 flop a byte in float64
Numbers = tuple[int, ...]  # the classes of k of a panel


class Piece(NamedTuple):
    """One rank's piece of a panel."""

    source: int  # the rank
    place: int  # its place along the rows of A, or the columns of B
    numbers: Numbers  # classes of k it has


class Panels:
    """The panels of one rank.

    Args:
        product: What all ranks do.
    """

    def __init__(self, product: Product, rank: int) -> None:
        self.product, self.rank, self.box = product, rank, product.box(rank)
        self._known: dict[tuple[str, Piece, Numbers, int], tuple[Runs, Runs]] = {}
        self._pieces: dict[tuple[str, Numbers], list[Piece]] = {}
        self._packed: dict[tuple[str, Numbers], bool] = {}

    @cached_property
    def groups(self) -> list[Numbers]:
        """The classes of each panel, the rank's own first; so ranks begin at different ones."""
        if self.box is None:
            return []
        product = self.product
        col, row = product.a.place_of_rank[self.rank][1], product.b.place_of_rank[self.rank][0]
        across, down = product.a.places.shape[2], product.b.places.shape[1]

        def turn(group: Numbers) -> tuple[int, int]:
            """How far a panel's nearest class is from the rank's own."""
            parts = [product.classes[number] for number in group]
            return min(((x.a - col) % across, (x.b - row) % down) for x in parts)

        alone: list[Numbers] = [(number,) for number, _ in product.of_box(self.box)]
        joined = self._thick(alone)
        return sorted(joined if self._joins(self.box, alone, joined) else alone, key=turn)

    def _thick(self, alone: list[Numbers]) -> list[Numbers]:
        """Return panels put together: all where k is one step, else as few of a step as are deep enough."""
        # Panels that are put together follow each other, so that those of a step share rows of B's ranks.
        total = sum(self.depth(x) for x in alone) // self.product.steps
        count = 1 if self.product.steps == 1 else max(1, min(len(alone), total // DEEP))
        cuts = [len(alone) * i // count for i in range(count + 1)]
        return [
            tuple(number for group in alone[first:last] for number in group)
            for first, last in pairwise(cuts)
            if first < last
        ]

    def _joins(self, box: Box, alone: list[Numbers], joined: list[Numbers]) -> bool:
        """Whether passes over C that are saved cost more than panels that are put together."""
        product = self.product
        if len(joined) == len(alone) or not product.joins:
            return False
        before, after = (self.packed_elements(x) for x in (alone, joined))
        item = product.compute_dtype.itemsize
        passes = (len(alone) - len(joined)) * product.steps * box.m.size * box.n.size
        return (product.steps > 1 or after * item <= MOST_JOINED) and passes > after - before

    def packed_elements(self, groups: list[Numbers]) -> int:
        """Return the elements of the panels of some groups that are put together."""
        return sum(
            self.side(kind) * self.depth(group)
            for kind in (A, B)
            for group in groups
            if self.is_packed(kind, group)
        )

    def operand(self, kind: str) -> Operand:
        """Return A or B."""
        return self.product.a if kind == A else self.product.b

    def side(self, kind: str) -> int:
        """Return the rows of A, or the columns of B, of the rank's box."""
        if self.box is None:
            return 0
        return self.box.m.size if kind == A else self.box.n.size

    def depth(self, group: Numbers, step: int | None = None) -> int:
        """Return the k of a panel in a step, or in all."""
        sizes = self.product.class_sizes if step is None else self.product.part_sizes(step)
        return int(sum(sizes[number] for number in group))

    def buffer_bytes(self, kind: str) -> int:
        """Return the bytes of the largest panel of a step that is put together."""
        deepest = -(-self.product.class_sizes // self.product.steps)
        depths = [sum(int(deepest[x]) for x in g) for g in self.groups if self.is_packed(kind, g)]
        return self.side(kind) * max(depths, default=0) * self.product.compute_dtype.itemsize

    def pieces(self, kind: str, group: Numbers) -> list[Piece]:
        """Return the pieces of a panel and the ranks that have them."""
        key = kind, group
        if key not in self._pieces:
            assert self.box is not None
            operand, classes = self.operand(kind), self.product.classes
            across: dict[int, list[int]] = {}
            for number in group:
                across.setdefault(classes[number].a if kind == A else classes[number].b, []).append(number)
            pieces = []
            for place in np.unique((self.box.m if kind == A else self.box.n).places[0]).tolist():
                for other, numbers in across.items():
                    row, col = (place, other) if kind == A else (other, place)
                    pieces.append(Piece(operand.source(row, col, self.rank), place, tuple(numbers)))
            self._pieces[key] = pieces
        return self._pieces[key]

    def is_packed(self, kind: str, group: Numbers) -> bool:
        """Whether a panel must be put together, being in several pieces of memory or of another type."""
        key = kind, group
        if key not in self._packed:
            self._packed[key] = self._must_be_packed(kind, group)
        return self._packed[key]

    def _must_be_packed(self, kind: str, group: Numbers) -> bool:
        operand, pieces = self.operand(kind), self.pieces(kind, group)
        if operand.dtype != self.product.compute_dtype or operand.conj or len(pieces) > 1:
            return True
        piece = pieces[0]
        if self.product.side_runs(kind, self.rank, piece.place).slice is None:
            return True
        if self.product.steps == 1:
            return self.runs(kind, piece, group, 0)[1].slice is None
        if piece.source != self.rank:
            return False  # a publisher puts the k of a class one after another
        segments = self.product.classes[group[0]].segments
        local = segments.locals[0 if kind == A else 1]
        return bool((local[1:] != (local + segments.sizes)[:-1]).any())

    def runs(self, kind: str, piece: Piece, group: Numbers, step: int) -> tuple[Runs, Runs]:
        """Return where a piece lies, in its rank's local matrix or item, and where in the panel.

        Returns:
            Runs along the box, and runs along k.
        """
        key = kind, piece, group, step
        if key not in self._known:
            product, local = self.product, piece.source == self.rank
            side = product.side_runs(kind, self.rank, piece.place)
            if not local:
                side = side.shifted(
                    source=-self.operand(kind).held(piece.source)[0 if kind == A else 1].start
                )
            into = self._positions(group, step)
            ends: list[tuple[Ints, Ints, Ints]] = []
            for number in piece.numbers:
                part = product.classes[number].segments.part(step, product.steps)
                start = part.positions + (
                    0 if local else product.depth_start(kind, piece.source, number, step)
                )
                ends.append(
                    (part.locals[0 if kind == A else 1] if local else start, into[number], part.sizes)
                )
            source, target, sizes = (np.concatenate(x) for x in zip(*ends, strict=True))
            order = target.argsort()
            self._known[key] = side, runs(source[order], target[order], sizes[order])
        return self._known[key]

    def _positions(self, group: Numbers, step: int) -> dict[int, Ints]:
        """Return where the segments of each class begin in a panel: those of several in the order of k."""
        parts = [self.product.classes[x].segments.part(step, self.product.steps) for x in group]
        starts = np.concatenate([x.start for x in parts])
        sizes = np.concatenate([x.sizes for x in parts])
        order = starts.argsort()
        positions = np.empty_like(starts)
        positions[order] = np.cumsum(sizes[order]) - sizes[order]
        cuts = np.cumsum([len(x.start) for x in parts])[:-1]
        return dict(zip(group, np.split(positions, cuts), strict=True))
