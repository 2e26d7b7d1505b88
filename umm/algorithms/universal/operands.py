"""What ops read and update: the ranges they fetch, how large they are, and how their part of C gets home."""

import numpy as np

from umm.algorithms.universal.oplist import OpList
from umm.arrays import Bools, Ints
from umm.layouts.layout import Layout
from umm.schedules.table import Details

AXES = (("m", "k"), ("k", "n"), ("m", "n"))
"""Dimensions of the rows and columns of A, B and C."""


def spans(ops: OpList, slices: bool) -> tuple[Ints, Ints]:
    """Return for each op a number for the range of A it would fetch, its tile or its slice, and for B's."""
    if not slices:
        return ops.tiles[0], ops.tiles[1]
    a = ops.m_segment * len(ops.k_axis.edges) + ops.k_segment
    b = ops.k_segment * len(ops.n_axis.edges) + ops.n_segment
    return a, b


def elements(ops: OpList, matrix: str, slices: bool) -> Ints:
    """Return the elements of A or B that each op would fetch: its whole tile or its slice."""
    m, n, k = ops.sizes
    if slices:
        return m * k if matrix == "A" else k * n
    return ops.problem.layout(matrix).tile_elements[ops.tiles[0 if matrix == "A" else 1]]


def updates(layout: Layout, rank: Ints, tile: Ints) -> tuple[Ints, Bools]:
    """Return for each op the owner of its tile of C, and whether it goes there through a pool slot.

    A remote tile does; so does a local one that any other rank accumulates into, because a gemm that adds
    in place would race with those accumulates.
    """
    flat_tile = layout.replica_of_rank[rank] * (layout.owners.size // layout.replicas) + tile
    owner = layout.owners.reshape(-1)[flat_tile]
    shared = np.zeros(layout.owners.size, dtype=bool)
    shared[flat_tile[owner != rank]] = True
    return owner, shared[flat_tile]


def in_place_chain(rank: Ints, tile: Ints, ops: Ints) -> tuple[Ints, Ints]:
    """Return pairs of consecutive ops of a rank that add to the same tile of C in place."""
    by_tile = ops[(rank[ops] * (int(tile.max()) + 1) + tile[ops]).argsort(kind="stable")]
    same = (tile[by_tile[1:]] == tile[by_tile[:-1]]) & (rank[by_tile[1:]] == rank[by_tile[:-1]])
    return by_tile[:-1][same], by_tile[1:][same]


class Writer:
    """Writes what the actions of an op list touch into the details of a schedule.

    Args:
        details: The columns to write.
        ops: The op list.
        number: Each op's number within its rank.
        slices: Whether a get moves the slice its op needs instead of the whole tile.
    """

    def __init__(self, details: Details, ops: OpList, number: Ints, slices: bool) -> None:
        self.details, self.number, self.slices = details, number, slices
        self.layouts = ops.problem.layouts
        self.spans = {
            dimension: np.stack([axis.edges[segment], axis.edges[segment + 1]], axis=1)
            for dimension, axis, segment in (
                ("m", ops.m_axis, ops.m_segment),
                ("n", ops.n_axis, ops.n_segment),
                ("k", ops.k_axis, ops.k_segment),
            )
        }
        self.tiles = [
            np.stack(np.divmod(tile, layout.grid_shape()[1]), axis=1)
            for tile, layout in zip(ops.tiles, self.layouts, strict=True)
        ]

    def gemms(self, row: Ints) -> None:
        """Write the gemms of all ops; the slots of what they read and update come with those."""
        for dimension, span in self.spans.items():
            getattr(self.details, dimension)[row] = span
        self.details.op[row] = self.number
        for name, tile in zip(("a_tile", "b_tile", "c_tile"), self.tiles, strict=True):
            getattr(self.details, name)[row] = tile

    def gets(self, matrix: int, row: Ints, ops: Ints, slot: Ints) -> None:
        """Write gets of A (0) or B (1) for some ops."""
        details = self.details
        details.op[row], details.matrix[row] = self.number[ops], matrix
        details.tile[row], details.slot[row] = self.tiles[matrix][ops], slot
        if self.slices:
            rows, cols = AXES[matrix]
            details.rows[row], details.cols[row] = self.spans[rows][ops], self.spans[cols][ops]
        else:
            layout = self.layouts[matrix]
            i, j = self.tiles[matrix][ops].T
            details.rows[row] = np.stack([layout.row_edges[i], layout.row_edges[i + 1]], axis=1)
            details.cols[row] = np.stack([layout.col_edges[j], layout.col_edges[j + 1]], axis=1)

    def updates(self, row: Ints, gemm_row: Ints, ops: Ints, slot: Ints) -> None:
        """Write the accumulates of some ops, and into which slot their gemms go."""
        details = self.details
        details.c_slot[gemm_row] = details.slot[row] = slot
        details.op[row], details.matrix[row] = self.number[ops], 2
        details.tile[row] = self.tiles[2][ops]
        details.rows[row], details.cols[row] = self.spans["m"][ops], self.spans["n"][ops]
