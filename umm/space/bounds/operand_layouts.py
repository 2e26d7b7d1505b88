"""Where the layouts of an operand put its parts, and which parts of two layouts overlap, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from umm.arrays import Bools, Floats, Ints, distinct, offsets_of
from umm.layouts.layout import Layout

OVERLAP, SEGMENTS, GOT_AGAIN, WHOLE, WHOLES, LARGEST, LONGEST, SMALLEST, SHORTEST = range(9)
"""What :func:`overlaps` returns of parts of a matrix at one place that a rank at another place touches.

OVERLAP: their touched length. SEGMENTS: the pieces the merged edges cut that into. GOT_AGAIN: the sum over
the pieces of the whole part's length. WHOLE: the length of the touched parts. WHOLES: how many there are.
LARGEST and SMALLEST: the largest and smallest of them. LONGEST and SHORTEST: of the pieces. Where nothing is
touched the smallest and shortest are infinite and the rest are zero.
"""


class Parts:
    """One way to cut a dimension: edges of the parts, and how many places they are dealt out to."""

    def __init__(self, edges: Ints, places: int) -> None:
        self.edges = edges
        self.places = places
        self._key = (edges.tobytes(), places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parts) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, eq=False)
class Overlaps:
    """How parts of some layouts of two matrices meet the work of ranks: each different pair once."""

    table: Floats  # the tables of the different pairs, shape (9, kinds, other kinds, places, places asked)
    kind: Ints  # which kind each layout of the one matrix is
    other: Ints  # which kind each layout of the other matrix is


MAX_CACHED_RANKS = 64
"""Ranks up to which overlaps are kept: layouts of the stationary matrix often cut a dimension alike."""


def overlaps(
    cuts: tuple[Parts, ...], other: tuple[Parts, ...], by: Parts, worked: tuple[int, ...], places: int
) -> Overlaps:
    """Return how the parts of all layouts of a matrix meet the work of some places of ``by``, padded."""
    compute = _overlaps if places <= MAX_CACHED_RANKS else _overlaps.__wrapped__
    return compute(cuts, other, by, worked, places)


@lru_cache(maxsize=16)
def _overlaps(
    cuts: tuple[Parts, ...], other: tuple[Parts, ...], by: Parts, worked: tuple[int, ...], places: int
) -> Overlaps:
    (kinds, kind), (others, other_kind) = _distinct(cuts), _distinct(other)
    pairs, count = np.arange(len(kinds) * len(others)).reshape(len(kinds), len(others)), len(worked)
    # All pairs at once: the edges of pair q stand q · step further on.
    step = int(by.edges[-1]) + 1
    of_edges = np.concatenate([(x.edges + step * pairs[i, :, None]).ravel() for i, x in enumerate(kinds)])
    by_edges = (by.edges + step * pairs.reshape(-1, 1)).ravel()
    more = [(x.edges + step * pairs[:, j, None]).ravel() for j, x in enumerate(others)]
    edges = distinct(np.concatenate((of_edges, by_edges, *more)))
    starts, length = edges[:-1], np.diff(edges)
    # A piece lies between neighbouring merged edges, so it is in exactly one part of each cut.
    worker = (by_edges.searchsorted(starts, side="right") - 1) % len(by.edges) % by.places
    asked = np.full(by.places, -1)
    asked[list(worked)] = np.arange(count)
    # The gap between the last edge of a pair and the first edge of the next one is no piece.
    pieces = ((starts % step < step - 1) & (asked[worker] >= 0)).nonzero()[0]
    starts, length, worker = starts[pieces], length[pieces], asked[worker[pieces]]
    part, pair = of_edges.searchsorted(starts, side="right") - 1, starts // step
    size = np.diff(of_edges)[part]
    first_edge = offsets_of([len(x.edges) for x in kinds for _ in others])[:-1]
    dealt = np.array([x.places for x in kinds]).repeat(len(others))
    place = (part - first_edge[pair]) % dealt[pair]
    cell = (pair * places + place) * count + worker
    # The first piece of each (part, worker) stands for the whole part, which counts once.
    first = np.sort(np.unique(part * count + worker, return_index=True)[1])
    cells = pairs.size * places * count
    table = np.zeros((9, cells))
    table[OVERLAP] = np.bincount(cell, length, cells)
    table[SEGMENTS] = np.bincount(cell, minlength=cells)
    table[GOT_AGAIN] = np.bincount(cell, size, cells)
    table[WHOLE] = np.bincount(cell[first], size[first], cells)
    table[WHOLES] = np.bincount(cell[first], minlength=cells)
    np.maximum.at(table[LARGEST], cell, size)
    np.maximum.at(table[LONGEST], cell, length)
    table[SMALLEST:] = np.inf
    np.minimum.at(table[SMALLEST], cell, size)
    np.minimum.at(table[SHORTEST], cell, length)
    return Overlaps(table.reshape(9, len(kinds), len(others), places, count), kind, other_kind)


def _distinct(parts: Sequence[Parts]) -> tuple[list[Parts], Ints]:
    number: dict[Parts, int] = {}
    index = np.array([number.setdefault(x, len(number)) for x in parts], dtype=np.int64)
    return list(number), index


DIMENSIONS = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}


@dataclass(frozen=True, eq=False)
class OperandLayouts:
    """The layouts of one operand, and where each puts every rank."""

    matrix: str  # A, B or C
    layouts: Sequence[Layout]
    itemsize: int  # bytes of an element

    def __len__(self) -> int:
        return len(self.layouts)

    @cached_property
    def parts(self) -> dict[str, tuple[Parts, ...]]:
        """How each layout cuts the matrix's two dimensions."""
        rows, cols = DIMENSIONS[self.matrix]
        return {
            rows: tuple([Parts(x.row_edges, x.process_grid[0]) for x in self.layouts]),
            cols: tuple([Parts(x.col_edges, x.process_grid[1]) for x in self.layouts]),
        }

    @cached_property
    def replica(self) -> Ints:
        """Replica of each rank, shape (layouts, p)."""
        return np.array([x.replica_of_rank for x in self.layouts], dtype=np.int64)

    @cached_property
    def place(self) -> dict[str, Ints]:
        """Row (first dimension) and column (second) of each rank in its process grid, shape (layouts, p)."""
        rows, cols = [], []
        for x in self.layouts:
            _, row, col = x.place_of_rank
            rows.append(row)
            cols.append(col)
        first, second = DIMENSIONS[self.matrix]
        return {first: np.array(rows), second: np.array(cols)}

    @cached_property
    def reachable(self) -> Bools:
        """Whether two ranks are different ones of the same replica, shape (p, p, layouts)."""
        replica = self.replica.T
        same: Bools = replica[:, None] == replica
        same[np.arange(len(same)), np.arange(len(same))] = False
        return same

    @cached_property
    def held(self) -> Ints:
        """Bytes each rank holds, shape (layouts, p)."""
        return np.array([x.elements_of_rank for x in self.layouts], dtype=np.int64) * self.itemsize

    @cached_property
    def largest_tile(self) -> list[int]:
        """Bytes of each layout's largest tile."""
        return [
            int(np.diff(x.row_edges).max()) * int(np.diff(x.col_edges).max()) * self.itemsize
            for x in self.layouts
        ]
