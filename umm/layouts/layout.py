"""How one matrix is cut into tiles, who owns each tile, and how often the whole is replicated."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import isqrt

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.interval import Interval

Tile = tuple[int, int]
ORDERS = ("blocked", "interleaved")


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


def square_grid(places: int) -> tuple[int, int]:
    """Return the most square process grid with no more rows than columns.

    >>> square_grid(12), square_grid(7)
    ((3, 4), (1, 7))
    """
    rows = next(d for d in range(isqrt(places), 0, -1) if places % d == 0)
    return rows, places // rows


class Layout:
    """A shape, a partition of it (row and column edges, an owner for each tile), and replicas.

    Tile grids are row-major; tile (i, j) belongs to place (i mod rows, j mod columns) of the process
    grid, places counted row-major. Each of the c replicas holds the whole matrix on p / c ranks:
    replica r has ranks r·p/c … (r + 1)·p/c − 1 (``blocked``) or the ranks ≡ r mod c (``interleaved``).
    Two layouts are equal when every element has the same owners, however they were written.

    Attributes:
        shape: Rows and columns of the matrix.
        row_edges: Global row index where each tile row starts, and the end. Empty tiles are legal.
        col_edges: The same for columns.
        process_grid: Rows and columns of the process grid of one replica.
        ranks: p, the ranks of all replicas together.
        replicas: c, which divides p.
        order: ``blocked`` or ``interleaved``.
        text: The text form, without the shape and the ranks; ``str`` of the layout.

    Source: Brock & Golin (2025), section 3.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        row_edges: Sequence[int] | Ints,
        col_edges: Sequence[int] | Ints,
        process_grid: tuple[int, int],
        *,
        ranks: int | None = None,
        replicas: int = 1,
        order: str = "blocked",
        text: str | None = None,
    ) -> None:
        places = process_grid[0] * process_grid[1]
        self.shape = (int(shape[0]), int(shape[1]))
        self.row_edges = _checked_edges(row_edges, self.shape[0], "row")
        self.col_edges = _checked_edges(col_edges, self.shape[1], "column")
        self.process_grid = process_grid
        self.ranks = places * replicas if ranks is None else ranks
        self.replicas = replicas
        self.order = order
        _check_replicas(self.ranks, replicas)
        if order not in ORDERS:
            raise LayoutError(f"replicas cannot be ordered {order!r}; choose blocked or interleaved")
        if places != self.ranks // replicas:
            raise LayoutError(
                f"process grid {process_grid[0]}x{process_grid[1]} has {places} places, but a replica has "
                f"{self.ranks // replicas} ranks ({self.ranks} ranks / {replicas} replicas)"
            )
        self.text = text if text is not None else self._edges_text()

    def _edges_text(self) -> str:
        rows, cols = ("-".join(map(str, edges.tolist())) for edges in (self.row_edges, self.col_edges))
        grid = f"{self.process_grid[0]}x{self.process_grid[1]}"
        return f"edges:{rows}x{cols}:{grid}" + _replica_text(self.replicas, self.order)

    # Constructors ---------------------------------------------------------------------------------

    @classmethod
    def block(
        cls,
        shape: tuple[int, int],
        process_grid: tuple[int, int],
        *,
        replicas: int = 1,
        rule: str = "ceil",
        order: str = "blocked",
        text: str | None = None,
    ) -> "Layout":
        """One tile for each place of the process grid.

        >>> Layout.block((10, 6), (3, 1), rule="balanced").tile_bounds((1, 0))[0]
        Interval(start=4, stop=7)
        """
        if min(process_grid) < 1:
            raise LayoutError(f"a process grid needs at least one row and one column, not {process_grid}")
        cut = {"ceil": ceil_edges, "balanced": balanced_edges}[rule]
        rows, cols = cut(shape[0], process_grid[0]), cut(shape[1], process_grid[1])
        if text is None:
            suffix = "" if rule == "ceil" else ":balanced"
            text = f"2d:{process_grid[0]}x{process_grid[1]}{suffix}" + _replica_text(replicas, order)
        return cls(shape, rows, cols, process_grid, replicas=replicas, order=order, text=text)

    @classmethod
    def block_cyclic(
        cls,
        shape: tuple[int, int],
        tile_shape: tuple[int, int],
        process_grid: tuple[int, int],
        *,
        replicas: int = 1,
        order: str = "blocked",
    ) -> "Layout":
        """Tiles of one shape dealt out cyclically over a process grid, as in ScaLAPACK."""
        if min(tile_shape) < 1 or min(process_grid) < 1:
            raise LayoutError(f"tile shape {tile_shape} and process grid {process_grid} must be at least 1x1")
        rows, cols = ceil_tiles(shape[0], tile_shape[0]), ceil_tiles(shape[1], tile_shape[1])
        sizes = f"{tile_shape[0]}x{tile_shape[1]}:{process_grid[0]}x{process_grid[1]}"
        text = f"cyclic:{sizes}" + _replica_text(replicas, order)
        return cls(shape, rows, cols, process_grid, replicas=replicas, order=order, text=text)

    @classmethod
    def parse(cls, text: str, shape: tuple[int, int], ranks: int) -> "Layout":
        """Return the layout that a text form means for a matrix of this shape on this many ranks.

        The forms are ``row``, ``col``, ``2d``, ``2d:3x4``, ``cyclic:256x128:3x4`` and
        ``edges:0-3-8x0-5-9:1x2``, then optionally ``:balanced``, then optionally ``@c`` or
        ``@c:interleaved``.

        Raises:
            LayoutError: for a text of another form, or one that does not fit the shape or the ranks.

        >>> layout = Layout.parse("2d:3x2:balanced@2:interleaved", (8, 5), ranks=12)
        >>> str(layout), layout.replicas, layout.owner((2, 1), replica=1)
        ('2d:3x2:balanced@2:interleaved', 2, 11)
        """
        from umm.layouts.text import parse_layout

        return parse_layout(text, shape, ranks)

    # The index half of table 1 --------------------------------------------------------------------

    def grid_shape(self) -> tuple[int, int]:
        """Return the rows and columns of the tile grid, empty tiles included."""
        return len(self.row_edges) - 1, len(self.col_edges) - 1

    def tile_bounds(self, tile: Tile) -> tuple[Interval, Interval]:
        """Return the rows and columns a tile covers, in global indices."""
        i, j = self._checked_tile(tile)
        return (
            Interval(int(self.row_edges[i]), int(self.row_edges[i + 1])),
            Interval(int(self.col_edges[j]), int(self.col_edges[j + 1])),
        )

    def tile_shape(self, tile: Tile) -> tuple[int, int]:
        """Return the rows and columns of a tile."""
        rows, cols = self.tile_bounds(tile)
        return rows.size, cols.size

    def overlapping_tiles(self, rows: Interval, cols: Interval) -> list[Tile]:
        """Return the tiles that share at least one element with a submatrix.

        Args:
            rows: Rows of the submatrix, in global indices.
            cols: Columns of the submatrix, in global indices.

        Returns:
            Tile indices in row-major order; empty if the submatrix is empty.

        Source: Brock & Golin (2025), table 1.

        >>> a = Layout.block_cyclic((8, 6), tile_shape=(4, 3), process_grid=(2, 2))
        >>> a.overlapping_tiles(Interval(3, 5), Interval(0, 2))
        [(0, 0), (1, 0)]
        """
        return [
            (i, j) for i in _overlapping(self.row_edges, rows) for j in _overlapping(self.col_edges, cols)
        ]

    # Owners and replicas --------------------------------------------------------------------------

    @cached_property
    def owners(self) -> Ints:
        """Owner rank of every tile: an array of shape (replicas, grid rows, grid columns)."""
        grid_rows, grid_cols = self.grid_shape()
        place_row = np.arange(grid_rows) % self.process_grid[0]
        place_col = np.arange(grid_cols) % self.process_grid[1]
        place = place_row[:, None] * self.process_grid[1] + place_col
        replica = np.arange(self.replicas)[:, None, None]
        if self.order == "interleaved":
            return place * self.replicas + replica
        return replica * (self.ranks // self.replicas) + place

    @cached_property
    def replica_owners(self) -> Ints:
        """The same with tiles numbered row-major: shape (replicas, tiles)."""
        return self.owners.reshape(self.replicas, -1)

    @cached_property
    def replica_of_rank(self) -> Ints:
        """Replica that each rank belongs to, for all ranks."""
        rank = np.arange(self.ranks)
        if self.order == "interleaved":
            return rank % self.replicas
        return rank // (self.ranks // self.replicas)

    def owner(self, tile: Tile, replica: int = 0) -> int:
        """Return the rank that holds a tile of a replica."""
        i, j = self._checked_tile(tile)
        return int(self.owners[replica, i, j])

    def replica(self, rank: int) -> int:
        """Return the replica that a rank belongs to."""
        return int(self.replica_of_rank[rank])

    def tiles_of(self, rank: int) -> list[Tile]:
        """Return the tiles a rank holds, in row-major order, empty ones included."""
        rows, cols = np.nonzero(self.owners[self.replica(rank)] == rank)
        return list(zip(rows.tolist(), cols.tolist(), strict=True))

    @cached_property
    def tile_elements(self) -> Ints:
        """Number of elements of every tile, row-major."""
        return np.outer(np.diff(self.row_edges), np.diff(self.col_edges)).reshape(-1)

    @cached_property
    def elements_of_rank(self) -> Ints:
        """Number of elements each rank holds.

        >>> Layout.parse("row@3", (8, 6), ranks=9).elements_of_rank.tolist()
        [18, 18, 12, 18, 18, 12, 18, 18, 12]
        """
        held = np.zeros(self.ranks, dtype=np.int64)
        owners = self.owners.reshape(self.replicas, -1)
        # Written out, because add.at reads past the end of values that it should broadcast (NumPy 2.4).
        np.add.at(held, owners, np.broadcast_to(self.tile_elements, owners.shape))
        return held

    # Identity -------------------------------------------------------------------------------------

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What makes two layouts the same: shape, edges without empty tiles' names, and owners."""
        return (
            self.shape,
            self.row_edges.tobytes(),
            self.col_edges.tobytes(),
            self.ranks,
            self.replicas,
            self.owners.tobytes(),
        )

    @cached_property
    def _hash(self) -> int:
        return hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Layout) and self.key == other.key)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Layout({self.text!r}, shape={self.shape}, ranks={self.ranks})"

    def _checked_tile(self, tile: Tile) -> Tile:
        rows, cols = self.grid_shape()
        if not (0 <= tile[0] < rows and 0 <= tile[1] < cols):
            raise LayoutError(f"tile {tile} is outside the {rows}x{cols} tile grid of {self.text}")
        return tile


@lru_cache(maxsize=1024)
def ceil_tiles(size: int, tile: int) -> Ints:
    """Return the edges of tiles of one size, the last one cut off; one empty tile if size is 0."""
    edges = np.append(np.arange(0, max(size, 1), tile, dtype=np.int64), size)
    edges.setflags(write=False)
    return edges


def _replica_text(replicas: int, order: str) -> str:
    if replicas == 1 and order == "blocked":
        return ""
    return f"@{replicas}" + (":interleaved" if order == "interleaved" else "")


def _check_replicas(ranks: int, replicas: int) -> None:
    if ranks < 1 or replicas < 1 or ranks % replicas:
        choices = ", ".join(str(c) for c in range(1, ranks + 1) if ranks % c == 0)
        raise LayoutError(f"{ranks} ranks cannot hold {replicas} equal replicas; choose from {choices}")


def _checked_edges(edges: Sequence[int] | Ints, size: int, name: str) -> Ints:
    array = np.asarray(edges, dtype=np.int64)
    if len(array) < 2 or array[0] != 0 or array[-1] != size or np.any(np.diff(array) < 0):
        shown = "-".join(map(str, array[:8].tolist())) + ("-…" if len(array) > 8 else "")
        raise LayoutError(f"{name} edges {shown} do not rise from 0 to {size}")
    return array


def _overlapping(edges: Ints, span: Interval) -> list[int]:
    """Return the indices of the parts that share an index with a range."""
    if span.size == 0:
        return []
    start = np.maximum(edges[:-1], span.start)
    stop = np.minimum(edges[1:], span.stop)
    indices: list[int] = np.nonzero(start < stop)[0].tolist()
    return indices
