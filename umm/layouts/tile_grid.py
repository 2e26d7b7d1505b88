"""How one matrix is cut into tiles: the index half of a layout, without owners."""

from collections.abc import Sequence
from functools import cached_property

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.interval import Interval
from umm.layouts.edges import checked_edges, overlapping

Tile = tuple[int, int]


class TileGrid:
    """A shape, cut at row edges and at column edges; tiles are counted row-major, empty ones included.

    Attributes:
        shape: Rows and columns of the matrix.
        row_edges: Global row index where each tile row starts, and the end. Empty tiles are legal.
        col_edges: The same for columns.
    """

    def __init__(
        self, shape: tuple[int, int], row_edges: Sequence[int] | Ints, col_edges: Sequence[int] | Ints
    ) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.row_edges = checked_edges(row_edges, self.shape[0], "row")
        self.col_edges = checked_edges(col_edges, self.shape[1], "column")

    def grid_shape(self) -> tuple[int, int]:
        """Return the rows and columns of the tile grid, empty tiles included."""
        return len(self.row_edges) - 1, len(self.col_edges) - 1

    def tile_bounds(self, tile: Tile) -> tuple[Interval, Interval]:
        """Return the rows and columns a tile covers, in global indices."""
        i, j = self.checked_tile(tile)
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

        >>> a = TileGrid((8, 6), row_edges=[0, 4, 8], col_edges=[0, 3, 6])
        >>> a.overlapping_tiles(Interval(3, 5), Interval(0, 2))
        [(0, 0), (1, 0)]
        """
        return [(i, j) for i in overlapping(self.row_edges, rows) for j in overlapping(self.col_edges, cols)]

    def checked_tile(self, tile: Tile) -> Tile:
        """Return the tile, if there is one of these indices.

        Raises:
            LayoutError: if there is none.
        """
        rows, cols = self.grid_shape()
        if not (0 <= tile[0] < rows and 0 <= tile[1] < cols):
            raise LayoutError(f"tile {tile} is outside the {rows}x{cols} tile grid of {self}")
        return tile

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
