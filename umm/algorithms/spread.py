"""Tiles of a coarse grid, each spread over several ranks: a matrix laid once over a mesh of three axes."""

from itertools import pairwise

import numpy as np

from umm.arrays import Ints
from umm.layouts.edges import ceil_edges
from umm.layouts.layout import Layout


def spread(shape: tuple[int, int], owners: Ints, axis: int) -> Layout:
    """Return the layout in which each tile of a grid is cut once more, over ranks that share it.

    The parts of a tile lie inside it, so that whoever gathers them has that tile and no more; for sizes that
    can be cut evenly this is a 2-D layout with more tiles.

    Args:
        shape: Rows and columns of the matrix.
        owners: Rank of each part, shape (tile rows, tile columns, parts); each rank has one.
        axis: 0 cuts a tile by rows, 1 by columns.

    >>> str(spread((8, 8), np.arange(8).reshape(2, 2, 2), axis=1))
    '2d:2x4'
    >>> spread((10, 8), np.arange(8).reshape(2, 2, 2), axis=0).row_edges.tolist()
    [0, 3, 5, 8, 10]
    """
    rows, cols, parts = owners.shape
    if axis == 0:
        grid, places = (rows * parts, cols), owners.transpose(0, 2, 1).reshape(1, rows * parts, cols)
        row_edges, col_edges = _cut_twice(shape[0], rows, parts), ceil_edges(shape[1], cols)
    else:
        grid, places = (rows, cols * parts), owners.reshape(1, rows, cols * parts)
        row_edges, col_edges = ceil_edges(shape[0], rows), _cut_twice(shape[1], cols, parts)
    block = Layout.block(shape, grid, places=places)
    if np.array_equal(block.row_edges, row_edges) and np.array_equal(block.col_edges, col_edges):
        return block
    return Layout(shape, row_edges, col_edges, grid, places=places)


def _cut_twice(size: int, tiles: int, parts: int) -> Ints:
    coarse = ceil_edges(size, tiles)
    starts = [start + ceil_edges(stop - start, parts)[:-1] for start, stop in pairwise(coarse)]
    return np.append(np.concatenate(starts), size)
