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
        places = owners.transpose(0, 2, 1).reshape(rows * parts, cols)
        return laid(shape, cut_again(shape[0], rows, parts), cut_again(shape[1], cols), places)
    places = owners.reshape(rows, cols * parts)
    return laid(shape, cut_again(shape[0], rows), cut_again(shape[1], cols, parts), places)


def laid(shape: tuple[int, int], row_edges: Ints, col_edges: Ints, places: Ints) -> Layout:
    """Return the layout of one replica with these edges, by its shortest text.

    Args:
        shape: Rows and columns of the matrix.
        row_edges: Where each tile row starts, and the end.
        col_edges: The same for columns.
        places: The rank at each place of the process grid.
    """
    grid = (len(places), len(places[0]))
    usual = [Layout.block(shape, grid, places=places[None])]
    tile = int(row_edges[1]), int(col_edges[1])
    if min(tile) > 0:
        usual.append(Layout.block_cyclic(shape, tile, grid, places=places[None]))
    for layout in usual:
        if np.array_equal(layout.row_edges, row_edges) and np.array_equal(layout.col_edges, col_edges):
            return layout
    return Layout(shape, row_edges, col_edges, grid, places=places[None])


def cut_again(size: int, *parts: int) -> Ints:
    """Return the edges of a dimension that is cut into parts, each of which is cut again, and so on.

    >>> cut_again(10, 2, 2).tolist(), cut_again(10, 4).tolist()
    ([0, 3, 5, 8, 10], [0, 3, 6, 9, 10])
    """
    edges = np.array([0, size])
    for number in parts:
        starts = [start + ceil_edges(stop - start, number)[:-1] for start, stop in pairwise(edges)]
        edges = np.append(np.concatenate(starts), size)
    return edges
