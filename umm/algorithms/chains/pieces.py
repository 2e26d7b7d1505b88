"""A piece of a tensor in a rank's memory: its own tile, or a temporary that it gets together."""

from collections.abc import Hashable, Iterator

from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.layouts.tile_grid import Tile
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


def tiles_by_rank(layout: Layout) -> Iterator[tuple[int, Tile, int]]:
    """Yield every tile of every replica that is not empty: its owner, its place in the grid, the replica."""
    for replica in range(layout.replicas):
        for i in range(layout.grid_shape()[0]):
            for j in range(layout.grid_shape()[1]):
                if all(layout.tile_shape((i, j))):
                    yield layout.owner((i, j), replica), (i, j), replica


def gathered(build: Builder, tensor: str, rank: int, rows: Interval, cols: Interval, slot: Hashable) -> Slice:
    """Return some rows and columns of a tensor in a rank's memory.

    Args:
        build: Where the gets go, if any are needed.
        tensor: Complete in every replica.
        rank: Who needs it.
        rows: Its rows.
        cols: Its columns.
        slot: Pool slot for what does not lie in one of the rank's own tiles.
    """
    layout = build.layout(tensor)
    replica = layout.replica(rank)
    tiles = layout.overlapping_tiles(rows, cols)
    if len(tiles) == 1 and layout.owner(tiles[0], replica) == rank:
        return build.tile(tensor, *tiles[0], replica).cut(rows, cols)
    whole = build.temporary(rank, tensor, rows, cols, slot=slot)
    for tile in tiles:
        piece = build.tile(tensor, *tile, replica).cut(rows, cols)
        build.get(piece, whole.cut(piece.rows, piece.cols))
    return whole
