"""Blocks: the m, n and k that each rank multiplies, by the matrix that stays in place."""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints, offsets_of
from umm.interval import Interval
from umm.layouts.edges import ceil_edges
from umm.layouts.frameworks.held import between
from umm.layouts.frameworks.mesh import Parts
from umm.layouts.layout import Layout
from umm.program.problem import Problem

SIDES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}
"""The dimensions that are rows and columns of each matrix."""
MOVING = {"A": "n", "B": "m", "C": "k"}
"""The dimension that the replicas of a stationary matrix share out, because it does not have it."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The block of every rank; ranges are half-open, shape (ranks, 2), empty where a rank has no work."""

    problem: Problem  # what is multiplied
    stationary: str  # A, B or C, whose owners do the work
    ranges: dict[str, Ints]  # of m, n and k
    # A dimension of which ranks hold several intervals, such as tokens front and back; empty if there is
    # none. The problem and the ranges count it as if those of a rank followed each other.
    split: str = ""
    # Of each rank, those it really multiplies of that dimension.
    intervals: tuple[tuple[Interval, ...], ...] = ()
    # Rectangles needed of each matrix, as far as asked for.
    _needed: dict[str, "Needed"] = field(default_factory=dict, init=False, repr=False)

    def of(self, matrix: str) -> Ints:
        """Return the rows and columns of a matrix in each rank's block, shape (ranks, 4)."""
        rows, cols = SIDES[matrix]
        return np.concatenate((self.ranges[rows], self.ranges[cols]), axis=1)

    @cached_property
    def sizes(self) -> tuple[Ints, Ints, Ints]:
        """Lengths of m, n and k of every rank; all zero for a rank without work."""
        m, n, k = (np.maximum(0, self.ranges[x][:, 1] - self.ranges[x][:, 0]) for x in "mnk")
        # One empty side makes the block empty; all three are zeroed so that products of sizes stay
        # consistent.
        works = (m > 0) & (n > 0) & (k > 0)
        return m * works, n * works, k * works

    @cached_property
    def works(self) -> Bools:
        """Whether each rank multiplies anything."""
        return np.asarray(self.sizes[2] > 0)

    def needed(self, matrix: str) -> "Needed":
        """Rectangle of A or B that each rank multiplies, or of C that it makes."""
        known = self._needed.get(matrix)
        if known is None:
            of_matrix = Needed.of(self.problem.layout(matrix), self.of(matrix), self.works)
            known = self._needed[matrix] = of_matrix
        return known

    @cached_property
    def lacks(self) -> dict[str, Bools]:
        """Whether each rank has to get something of A, and of B."""
        return {matrix: self.needed(matrix).lacks for matrix in "AB"}

    @cached_property
    def in_whole(self) -> dict[str, Bools]:
        """Whether each rank multiplies all of its own tile of A, and of B, and nothing else of it."""
        result = {}
        for matrix in "AB":
            tiles = held(self.problem.layout(matrix))
            assert tiles is not None
            result[matrix] = self.works & (tiles == self.of(matrix)).all(axis=1)
        return result

    @cached_property
    def whole(self) -> bool:
        """Whether every tile of C is one rank's whole product, so that nothing is added up or copied."""
        tiles, k = held(self.problem.layout("C")), self.ranges["k"]
        assert tiles is not None
        owns = (tiles[:, 0] < tiles[:, 1]) & (tiles[:, 2] < tiles[:, 3])
        # In place every rank's product is its own tile of C, all of it, and needs no room besides.
        return self.needed("C").in_place and bool(
            (~owns | (self.works & (k == (0, self.problem.k)).all(axis=1))).all()
        )


@dataclass(frozen=True)
class Needed:
    """Rectangles of one matrix that ranks multiply or make; equal ones move alike in any multiply."""

    layout: Layout  # of the matrix
    cuts: object  # of the layout: equal ones may number their tiles otherwise, where some are empty
    said: bytes  # the rest, as a digest
    rects: Ints = field(compare=False, repr=False)  # rows and columns of each rank, shape (ranks, 4)
    works: Bools = field(compare=False, repr=False)  # whether each rank does any work

    @classmethod
    def of(cls, layout: Layout, rects: Ints, works: Bools) -> "Needed":
        """Build from a layout and the rectangles that ranks need."""
        # Arrays are not hashable; the digest stands for them in caches and comparisons.
        digest = blake2b(rects.tobytes() + works.tobytes()).digest()
        return cls(layout, layout.cuts, digest, rects, works)

    @cached_property
    def lacks(self) -> Bools:
        """Whether each rank has to get something of it."""
        tiles = held(self.layout)
        assert tiles is not None
        inside = (tiles[:, ::2] <= self.rects[:, ::2]) & (tiles[:, 1::2] >= self.rects[:, 1::2])
        return np.asarray(self.works & ~inside.all(axis=1))

    @cached_property
    def in_place(self) -> bool:
        """Whether it is of every rank its own tile, and all of that."""
        tiles = held(self.layout)
        assert tiles is not None
        return bool((~self.works | (tiles == self.rects).all(axis=1)).all())


def blocks(problem: Problem, stationary: str) -> Blocks | None:
    """Return the blocks of a multiply; None where a rank holds several tiles of some matrix.

    It may hold several along one dimension, if both matrices that have it are cut alike and stay in place;
    of C that is, each product is what its rank holds, or a replica of it.

    Args:
        stationary: A, B or C. Replica r of a replicated one does the r-th share of the third dimension.

    Source: Brock & Golin (2025), section 4: the same shares as in their op lists.
    """
    tiles = {x: held(problem.layout(x)) for x in "ABC"}
    layout, stays = problem.layout(stationary), tiles[stationary]
    if stays is None or any(x is None for x in tiles.values()):
        return _split(problem, stationary)
    rows, cols = SIDES[stationary]
    moving = MOVING[stationary]
    # A stationary matrix lacks one dimension; its replicas divide that one, as in 2.5D algorithms.
    shares = ceil_edges({"m": problem.m, "n": problem.n, "k": problem.k}[moving], layout.replicas)
    replica = layout.replica_of_rank
    ranges = {
        rows: stays[:, :2],
        cols: stays[:, 2:],
        moving: np.stack((shares[replica], shares[replica + 1]), 1),
    }
    return Blocks(problem, stationary, ranges)


def _split(problem: Problem, stationary: str) -> Blocks | None:
    """Return the blocks of a multiply of whose matrices two are cut into several tiles a rank, alike."""
    joint = _joined(problem)
    if joint is None:
        return None
    joined, split, spans_of = joint
    result = blocks(joined, stationary)
    assert result is not None
    # Only matrices that stay may be split: ranks multiply them interval by interval where they are, while a
    # collective moves one slice a rank.
    stays = [x for x in "AB" if split in SIDES[x] and not result.lacks[x].any()]
    if len(stays) + (split in SIDES["C"] and result.needed("C").in_place) < 2:
        return None
    (tiles, axis), *_ = ((held(joined.layout(x)), SIDES[x].index(split)) for x in "ABC" if split in SIDES[x])
    assert tiles is not None
    first = result.ranges[split] - tiles[:, 2 * axis : 2 * axis + 1]  # counted from the first of a rank's own
    intervals = tuple(
        tuple(Interval(*x) for x in between(spans, start, stop))
        for spans, (start, stop) in zip(spans_of, first.tolist(), strict=True)
    )
    return replace(result, split=split, intervals=intervals)


def _joined(problem: Problem) -> tuple[Problem, str, tuple[tuple[Interval, ...], ...]] | None:
    """Return a multiply in which a rank's tiles follow each other, that dimension, and their true places.

    None if ranks hold several tiles along several dimensions, or of one matrix otherwise than of another.
    """
    # A grid with more tiles than process places along an axis gives some rank several tiles there.
    several = {
        SIDES[x][axis]
        for x in "ABC"
        for axis in (0, 1)
        if problem.layout(x).grid_shape()[axis] > problem.layout(x).process_grid[axis]
    }
    if len(several) != 1:
        return None
    (split,) = several
    layouts, spans_of = dict[str, Any](), list[tuple[tuple[Interval, ...], ...]]()
    for x in "ABC":
        if split in SIDES[x]:
            layout, axis = problem.layout(x), SIDES[x].index(split)
            edges, places = (layout.row_edges, layout.col_edges)[axis], layout.process_grid[axis]
            of_place: list[list[Interval]] = [[] for _ in range(places)]
            for number in np.diff(edges).nonzero()[0].tolist():
                of_place[number % places].append(Interval(int(edges[number]), int(edges[number + 1])))
            spans_of.append(
                tuple(tuple(of_place[place]) for place in layout.place_of_rank[1 + axis].tolist())
            )
            ends = np.cumsum([0, *(sum(t.stop - t.start for t in tiles) for tiles in of_place)])
            rows, cols = (ends, layout.col_edges) if axis == 0 else (layout.row_edges, ends)
            layouts[x.lower()] = Layout(
                layout.shape, rows, cols, layout.process_grid,
                replicas=layout.replicas, places=layout.places,
            )  # fmt: skip
    if spans_of[0] != spans_of[1]:
        return None
    return replace(problem, **layouts), split, spans_of[0]


def by_owner(problem: Problem) -> Problem:
    """Return a multiply with m, n and k in the order of who holds them, so that ranks hold few large tiles.

    Nothing moves: the product of matrices is the same in any order of rows, columns and k. Where two matrices
    share a dimension that both cut alike, each rank holds one tile of it; else the first one holds as many as
    the second has places.

    >>> cyclic = Problem(m=64, n=64, k=64, **dict.fromkeys("abc", "cyclic:8x8:2x2"), ranks=4)
    >>> found = by_owner(cyclic)
    >>> found.a, found.b, found.c
    ('2d:2x2', '2d:2x2', '2d:2x2')
    """
    edges = {x: [problem.layout(x).row_edges, problem.layout(x).col_edges] for x in "ABC"}
    for dimension in "mnk":
        (first, axis), (second, other) = (
            (x, SIDES[x].index(dimension)) for x in "ABC" if dimension in SIDES[x]
        )
        cuts = edges[first][axis], edges[second][other]
        places = problem.layout(first).process_grid[axis], problem.layout(second).process_grid[other]
        # Common refinement of the cuts of both matrices: each part has one place in the first and one in the
        # second.
        start = np.unique(np.concatenate(cuts))[:-1]
        sizes = np.diff(start, append=cuts[0][-1])
        here, other_places = (
            (x.searchsorted(start, "right") - 1) % n for x, n in zip(cuts, places, strict=True)
        )
        if places[0] == places[1] and np.array_equal(here, other_places):
            ends = offsets_of(np.bincount(here, sizes, places[0]).astype(np.int64))
            edges[first][axis] = edges[second][other] = ends
        # Order parts by (place in the second, place in the first): the second's are contiguous, and the first
        # has one run for each of them.
        elif any(len(x) > n + 1 for x, n in zip(cuts, places, strict=True)):
            common = np.bincount(other_places * places[0] + here, sizes, places[0] * places[1])
            edges[first][axis] = fine = offsets_of(common.astype(np.int64))
            edges[second][other] = fine[:: places[0]]
    layouts = {}
    for x in "ABC":
        was = problem.layout(x)
        parts = Parts(edges[x][0], edges[x][1], was.process_grid, was.places)
        exact = Layout(was.shape, *parts[:3], replicas=was.replicas, places=was.places)
        if exact.cuts != was.cuts:
            plain = Layout.of_parts(parts, was.shape)
            layouts[x.lower()] = plain if plain.cuts == exact.cuts else exact  # with as many empty tiles
    return replace(problem, **layouts)  # type: ignore[arg-type]


def in_blocks(problem: Problem) -> bool:
    """Whether ranks hold several tiles along a dimension of some matrix."""
    sides = ((x.grid_shape(), x.process_grid) for x in problem.layouts)
    return any(tiles > places for x in sides for tiles, places in zip(*x, strict=True))


def held(layout: Layout) -> Ints | None:
    """Return the rows and columns of each rank's one tile, shape (ranks, 4); None if some rank has several.

    Empty tiles do not count.
    """
    return _held(layout, layout.cuts)


@lru_cache(maxsize=8192)
def _held(layout: Layout, key: object) -> Ints | None:
    # The key is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    (tile_rows, tile_cols), (rows, cols) = layout.grid_shape(), layout.process_grid
    if tile_rows > rows or tile_cols > cols:
        return None
    _, i, j = layout.place_of_rank
    at = [
        np.minimum(x, count)
        for x, count in ((i, tile_rows), (i + 1, tile_rows), (j, tile_cols), (j + 1, tile_cols))
    ]
    edges = (layout.row_edges, layout.row_edges, layout.col_edges, layout.col_edges)
    return np.stack([edge[x] for edge, x in zip(edges, at, strict=True)], axis=1).astype(np.int64)


def groups_of(rects: Ints, among: Bools) -> list[tuple[tuple[int, ...], list[int]]]:
    """Return the different rectangles of some ranks, and the ranks of each, ascending."""
    ranks = np.flatnonzero(among)
    ranks_of: dict[tuple[int, ...], list[int]] = {}
    for rank, rect in zip(ranks.tolist(), map(tuple, rects[ranks].tolist()), strict=True):
        ranks_of.setdefault(rect, []).append(rank)
    return list(ranks_of.items())


def size_of(rects: Ints) -> Ints:
    """Return the elements of rectangles."""
    sides = np.maximum(0, rects[:, 1::2] - rects[:, ::2])
    return np.asarray(sides[:, 0] * sides[:, 1])


def in_common(some: Ints, others: Ints) -> Floats:
    """Return the elements that each of some rectangles (down) has in common with each of others (across)."""
    rows, cols = (
        np.minimum(some[:, i + 1, None], others[:, i + 1]) - np.maximum(some[:, i, None], others[:, i])
        for i in (0, 2)
    )
    return np.asarray(np.maximum(rows, 0) * np.maximum(cols, 0), dtype=np.float64)
