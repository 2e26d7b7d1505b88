"""Edges of tiles along one dimension, and the grid of tiles they form."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import gcd, isqrt

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.interval import Interval

MOST_TILES = 2**24  # tiles of all replicas of a matrix: those of 256 x 256 of a million by a million
MAX_KEPT_SPANS = 2**16  # tiles whose rows and columns are kept, in 2 MB


def ceil_edges(size: int, parts: int) -> Ints:
    """Return the edges of parts that are all as large as ⌈size / parts⌉ but the last.

    The rule of torch.chunk and ScaLAPACK; trailing parts may be empty.

    >>> ceil_edges(10, 3).tolist(), ceil_edges(3, 4).tolist()
    ([0, 4, 8, 10], [0, 1, 2, 3, 3])
    """
    return np.minimum(np.arange(parts + 1, dtype=np.int64) * -(-size // parts), size)


def balanced_edges(size: int, parts: int) -> Ints:
    """Return the edges of parts that differ by at most one; the first get the extra indices.

    >>> balanced_edges(10, 3).tolist()
    [0, 4, 7, 10]
    """
    small, extra = divmod(size, parts)
    index = np.arange(parts + 1, dtype=np.int64)
    return index * small + np.minimum(index, extra)


def zigzag_edges(size: int, places: int, sequences: int = 1) -> Ints:
    """Return edges by which each place gets one part from the front of a sequence and one from its back.

    As many groups of places share the sequences as can have equally many. In a group each sequence is cut
    into twice as many parts as it has places; the first half is dealt out in order and the second in reverse.
    So under a causal mask all places have the same work. Tiles go to places in turn, so empty tiles fill the
    turns of the others.

    >>> def tiles(edges):
    ...     return [(int(a), int(b), i % 2) for i, (a, b) in enumerate(zip(edges[:-1], edges[1:])) if b > a]
    >>> tiles(zigzag_edges(8, 2)), tiles(zigzag_edges(8, 2, sequences=2))
    ([(0, 2, 0), (2, 4, 1), (4, 6, 1), (6, 8, 0)], [(0, 2, 0), (2, 4, 0), (4, 6, 1), (6, 8, 1)])

    Source: Zhu (2024), zigzag ring attention; Brandon et al. (2023), Striped Attention, on the balance.
    """
    edges, tile, length = [0], 0, -(-size // sequences)
    groups = gcd(places, sequences)
    share, of_group = sequences // groups, places // groups
    for sequence, first in enumerate(range(0, max(size, 1), max(length, 1))):
        parts = ceil_edges(min(length, size - first), 2 * of_group) + first
        for number, stop in enumerate(parts[1:].tolist()):
            place = number if number < of_group else 2 * of_group - 1 - number
            place += sequence // share * of_group
            empty = (place - tile) % places
            edges += [edges[-1]] * empty + [stop]
            tile += empty + 1
    return np.array(edges, dtype=np.int64)


RULES = {"ceil": ceil_edges, "balanced": balanced_edges}  # how uneven sizes are cut, by name


@lru_cache(maxsize=1024)
def tile_edges(size: int, tile: int) -> Ints:
    """Return the edges of tiles of one size, the last one cut off; one empty tile if size is 0.

    LayoutError for more parts than a matrix may have tiles.

    >>> tile_edges(10, 4).tolist(), tile_edges(0, 4).tolist()
    ([0, 4, 8, 10], [0, 0])
    """
    if size > MOST_TILES * tile:
        raise LayoutError(f"tiles of {tile} cut {size} into more parts than {MOST_TILES:,}; take larger ones")
    edges = np.append(np.arange(0, max(size, 1), tile, dtype=np.int64), size)
    edges.setflags(write=False)
    return edges


def checked_edges(edges: Sequence[int] | Ints, size: int, name: str) -> Ints:
    """Return edges as an array; LayoutError if they do not rise from 0 to the size.

    Args:
        edges: Where each part starts, and the end.
        name: What the edges cut, for the error: ``row`` or ``column``.
    """
    array = np.asarray(edges, dtype=np.int64)
    if len(array) < 2 or array[0] != 0 or array[-1] != size or (array[1:] < array[:-1]).any():
        shown = "-".join(map(str, array[:8].tolist())) + ("-…" if len(array) > 8 else "")
        raise LayoutError(f"{name} edges {shown} do not rise from 0 to {size}")
    return array


def square_grid(places: int) -> tuple[int, int]:
    """Return the most square process grid with no more rows than columns.

    >>> square_grid(12), square_grid(7)
    ((3, 4), (1, 7))
    """
    rows = next(d for d in range(isqrt(places), 0, -1) if places % d == 0)
    return rows, places // rows


Tile = tuple[int, int]


class TileGrid:
    """A shape, cut at row edges and at column edges; tiles are counted row-major, empty ones included."""

    def __init__(
        self, shape: tuple[int, int], row_edges: Sequence[int] | Ints, col_edges: Sequence[int] | Ints
    ) -> None:
        self.shape = (int(shape[0]), int(shape[1]))  # rows and columns of the matrix
        # Global row index where each tile row starts, and the end. Empty tiles are legal.
        self.row_edges = checked_edges(row_edges, self.shape[0], "row")
        self.col_edges = checked_edges(col_edges, self.shape[1], "column")  # the same for columns

    def grid_shape(self) -> tuple[int, int]:
        """Return the rows and columns of the tile grid, empty tiles included."""
        return len(self.row_edges) - 1, len(self.col_edges) - 1

    def tile_bounds(self, tile: Tile) -> tuple[Interval, Interval]:
        """Return the rows and columns a tile covers, in global indices."""
        i, j = self.checked_tile(tile)
        rows, cols = self._edges
        return Interval(rows[i], rows[i + 1]), Interval(cols[j], cols[j + 1])

    def tile_shape(self, tile: Tile) -> tuple[int, int]:
        """Return the rows and columns of a tile."""
        rows, cols = self.tile_bounds(tile)
        return rows.size, cols.size

    def overlapping_tiles(self, rows: Interval, cols: Interval) -> list[Tile]:
        """Return the tiles that share at least one element with a submatrix, row-major.

        Args:
            rows: Rows of the submatrix, in global indices.
            cols: Columns of the submatrix, in global indices.

        Source: Brock & Golin (2025), table 1.

        >>> a = TileGrid((8, 6), row_edges=[0, 4, 8], col_edges=[0, 3, 6])
        >>> a.overlapping_tiles(Interval(3, 5), Interval(0, 2))
        [(0, 0), (1, 0)]
        """
        down, across = (
            filled[max(0, bisect_right(edges, start) - 1) : bisect_left(edges, stop)] if start < stop else []
            for (filled, edges), (start, stop) in zip(self._filled_parts, (rows, cols), strict=True)
        )
        return [(i, j) for i in down for j in across]

    def checked_tile(self, tile: Tile) -> Tile:
        """Return the tile, if there is one of these indices; LayoutError if there is none."""
        rows, cols = self.grid_shape()
        if not (0 <= tile[0] < rows and 0 <= tile[1] < cols):
            raise LayoutError(f"tile {tile} is outside the {rows}x{cols} tile grid of {self}")
        return tile

    @cached_property
    def _edges(self) -> tuple[list[int], list[int]]:
        """Row edges and column edges as numbers, which are faster one by one than arrays are."""
        return self.row_edges.tolist(), self.col_edges.tolist()

    @cached_property
    def _filled_parts(self) -> list[tuple[list[int], list[int]]]:
        """Numbers and edges of the rows, and of the columns, of tiles that are not empty; zigzag has many."""
        sides = []
        for edges in (self.row_edges, self.col_edges):
            filled = np.flatnonzero(np.diff(edges))
            sides.append((filled.tolist(), [*edges[filled].tolist(), int(edges[-1])]))
        return sides

    @property
    def tile_spans(self) -> tuple[Ints, Ints]:
        """First row and row after the last of every tile, row-major, and the same of columns."""
        # A search asks for those of a few tiles again and again; of millions they are 32 bytes each.
        tiles = (len(self.row_edges) - 1) * (len(self.col_edges) - 1)
        return self._kept_spans if tiles <= MAX_KEPT_SPANS else self._spans()

    @cached_property
    def _kept_spans(self) -> tuple[Ints, Ints]:
        return self._spans()

    def _spans(self) -> tuple[Ints, Ints]:
        sides = (np.stack([edges[:-1], edges[1:]], axis=1) for edges in (self.row_edges, self.col_edges))
        rows, cols = sides
        return rows.repeat(len(cols), axis=0), np.tile(cols, (len(rows), 1))

    @cached_property
    def tile_elements(self) -> Ints:
        """Number of elements of every tile, row-major."""
        rows, cols = (edges[1:] - edges[:-1] for edges in (self.row_edges, self.col_edges))
        elements: Ints = (rows[:, None] * cols).reshape(-1)
        return elements

    @cached_property
    def cuts(self) -> tuple[bytes, bytes]:
        """Row edges and column edges, empty tiles included, as values to keep something by."""
        return self.row_edges.tobytes(), self.col_edges.tobytes()
