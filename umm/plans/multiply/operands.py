"""Operands of ops: the ranges they fetch, their sizes, and the way of their part of C to its owner."""

from collections.abc import Sequence

import numpy as np

from umm import cost
from umm.arrays import Bools, Floats, Ints
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.multiply.oplist import OpList
from umm.schedules.table.buffers import Buffers, first_tiles, temporaries
from umm.schedules.table.details import Details


def spans(ops: OpList, slices: bool) -> tuple[Ints, Ints]:
    """Return for each op a number for the range of A it would fetch, its tile or its slice, and for B's."""
    if not slices:
        return ops.tiles[0], ops.tiles[1]
    a = ops.m_segment * len(ops.k_axis.edges) + ops.k_segment
    b = ops.k_segment * len(ops.n_axis.edges) + ops.n_segment
    return a, b


def elements(ops: OpList, matrix: str, slices: bool) -> Ints:
    """Return the elements of A or B that each op would fetch: its whole tile or its slice."""
    if slices:
        m, n, k = ops.sizes
        return m * k if matrix == "A" else k * n
    return ops.problem.layout(matrix).tile_elements[ops.tiles[0 if matrix == "A" else 1]]


def owners(layout: Layout, rank: Ints, tile: Ints) -> Ints:
    """Return for each op the owner of its tile of A or B in its rank's own replica."""
    owner: Ints = layout.replica_owners[layout.replica_of_rank[rank], tile]
    return owner


def updates(layout: Layout, rank: Ints, tile: Ints) -> tuple[Ints, Bools]:
    """Return for each op the owner of its tile of C, and whether it goes there through a pool slot."""
    # A remote tile does; so does a local one that any other rank accumulates into, because a gemm that adds
    # in place would race with those accumulates.
    # Accumulates stay within a replica; replicas of C are summed afterwards, see `replicas`.
    flat_tile = layout.replica_of_rank[rank] * (layout.owners.size // layout.replicas) + tile
    owner = layout.owners.reshape(-1)[flat_tile]
    shared = np.zeros(layout.owners.size, dtype=bool)
    shared[flat_tile[owner != rank]] = True
    return owner, shared[flat_tile]


def refills(machine: Machine, ops: OpList, op: Ints, payload: Ints, got: bool) -> Floats | float:
    """Return the seconds by which transfers make GEMMs of their ranks longer; see `cost.refill_seconds`."""
    # Transfers evict a rank's working set from its caches; the more a GEMM works on, the more it loads again.
    (m, n, k), itemsize = ops.sizes, ops.problem.itemsize
    worked_on = (m * k + k * n) * itemsize("A") + m * n * itemsize("C")
    return cost.refill_seconds(machine, payload, ops.rank[op], ops.rank, worked_on, got)


def first_read(ops: OpList, row: Ints, large: Sequence[tuple[Ints, Ints]]) -> Ints:
    """Return for each op the bytes in no cache that it is first to read: of its rank's own A, and of gets.

    Args:
        row: When each op runs: of two ops of a rank the one with the smaller number runs first.
        large: Of A and of B the ops that read what has left the caches since it was got, and the get of each.
    """
    # What a get has just written is still in a cache unless it was large; the own tile of A never passed by
    # one.
    local = (owners(ops.problem.layouts[0], ops.rank, ops.tiles[0]) == ops.rank).nonzero()[0]
    slices, nbytes = spans(ops, True), np.zeros(len(ops), dtype=np.int64)
    for matrix, op, place in ((0, local, ops.rank[local]), (0, *large[0]), (1, *large[1])):
        first = op[firsts(row[op], place, slices[matrix][op])]
        nbytes[first] += elements(ops, "AB"[matrix], True)[first] * ops.problem.itemsize("A")
    return nbytes


def added_again(ops: OpList, row: Ints) -> Ints:
    """Return the bytes of C that each op adds to in place as its rank did before, but not right before."""
    # Rows are numbers in the whole table; turns count a rank's own ops, so that "right before" is a
    # difference of 1.
    turn = np.empty(len(ops), dtype=np.int64)
    turn[np.lexsort((row, ops.rank))] = np.arange(len(ops))
    part = ops.m_segment * len(ops.n_axis.edges) + ops.n_segment
    in_place = (~updates(ops.problem.layouts[2], ops.rank, ops.tiles[2])[1]).nonzero()[0]
    # Pairs of consecutive ops of a rank that add to the same part of C: a stable sort keeps the order of rows
    # within each part.
    in_order, key = in_place[row[in_place].argsort()], ops.rank * (int(part.max()) + 1) + part
    by_part = in_order[key[in_order].argsort(kind="stable")]
    before, later = by_part[:-1], by_part[1:]
    same = key[later] == key[before]
    before, later = before[same], later[same]
    again = later[turn[later] > turn[before] + 1]
    nbytes, (m, n, _) = np.zeros(len(ops), dtype=np.int64), ops.sizes
    nbytes[again] = (m * n)[again] * ops.problem.itemsize("C")
    return nbytes


def firsts(row: Ints, place: Ints, used: Ints) -> Ints:
    """Return, of each thing that is used in a place, which use has the smallest row.

    >>> firsts(np.array([5, 3, 4, 6]), np.array([0, 0, 1, 1]), np.array([7, 7, 7, 8])).tolist()
    [1, 2, 3]
    """
    # `lexsort` sorts by its last key first: by place, then by thing, then by row.
    order = np.lexsort((row, used, place))
    new = np.ones(len(order), dtype=bool)
    new[1:] = (place[order[1:]] != place[order[:-1]]) | (used[order[1:]] != used[order[:-1]])
    return order[new]


def strided(ops: OpList) -> Bools:
    """Return for each op whether it adds to some columns of its tile of C alone."""
    edges, column = ops.problem.layouts[2].col_edges, ops.n_axis.second[ops.n_segment]
    partial: Bools = ops.sizes[1] < edges[column + 1] - edges[column]
    return partial


class Writer:
    """Writes the operands of an op list's actions into the details of a schedule.

    Args:
        number: Each op's number within its rank.
        first: Number of the first temporary to be made.
    """

    def __init__(self, details: Details, ops: OpList, number: Ints, first: int) -> None:
        self.details, self.ops, self.number = details, ops, number
        self.first = first
        self.temporaries: list[Buffers] = []
        self.layouts = ops.problem.layouts
        m, n, k = (
            np.stack([axis.edges[segment], axis.edges[segment + 1]], axis=1)
            for axis, segment in (
                (ops.m_axis, ops.m_segment),
                (ops.n_axis, ops.n_segment),
                (ops.k_axis, ops.k_segment),
            )
        )
        self.spans = ((m, k), (k, n), (m, n))  # rows and columns of each op's slices of A, B and C
        firsts = first_tiles(ops.problem.tensors)
        self.own = [
            first_of_x + layout.replica_of_rank[ops.rank] * layout.tile_elements.size + tile
            for first_of_x, layout, tile in zip(firsts, self.layouts, ops.tiles, strict=False)
        ]

    def gemms(self, row: Ints) -> None:
        """Write the gemms of all ops, as if all they read and update were the rank's own tiles."""
        self.details.op[row] = self.number
        self.details.beta[row] = 1.0
        # Operands of a gemm are C, A, B; matrices are numbered A, B, C.
        for operand, matrix in enumerate((2, 0, 1)):
            self.details.put(row, operand, self.own[matrix], *self.spans[matrix])

    def gets(
        self, matrix: int, row: Ints, ops: Ints, of_tiles: Bools, slot: Ints, readers: tuple[Ints, Ints]
    ) -> None:
        """Write gets of A (0) or B (1) for some ops.

        Args:
            of_tiles: Whether each moves the whole tile, or the slice that its op needs.
            slot: Pool slot that each fills.
            readers: Pairs of a gemm's row and the get, of these, whose temporary it reads.
        """
        details, layout = self.details, self.layouts[matrix]
        i, j = np.divmod(self.ops.tiles[matrix][ops], layout.grid_shape()[1])
        tile_rows = np.stack([layout.row_edges[i], layout.row_edges[i + 1]], axis=1)
        tile_cols = np.stack([layout.col_edges[j], layout.col_edges[j + 1]], axis=1)
        rows, cols = (
            np.where(of_tiles[:, None], tile, span[ops])
            for tile, span in zip((tile_rows, tile_cols), self.spans[matrix], strict=True)
        )
        made = self._made(temporaries(self.ops.rank[ops], slot, matrix, rows, cols))
        details.op[row] = self.number[ops]
        details.put(row, 0, made, rows, cols)
        details.put(row, 1, self.own[matrix][ops], rows, cols)
        gemm_row, get = readers
        details.buffer[gemm_row, 1 + matrix] = made[get]

    def updates(self, row: Ints, gemm_row: Ints, ops: Ints, slot: Ints) -> None:
        """Write the accumulates of some ops, and into which slot their gemms go."""
        details, (rows, cols) = self.details, (span[ops] for span in self.spans[2])
        made = self._made(temporaries(self.ops.rank[ops], slot, 2, rows, cols))
        details.op[row] = self.number[ops]
        details.put(row, 0, self.own[2][ops], rows, cols)
        details.put(row, 1, made, rows, cols)
        # A product in a pool slot starts from nothing: the accumulate adds it to C, not the gemm.
        details.buffer[gemm_row, 0], details.beta[gemm_row] = made, 0.0

    def _made(self, buffers: Buffers) -> Ints:
        """Add temporaries; return their numbers."""
        numbers = np.arange(self.first, self.first + len(buffers))
        self.first += len(buffers)
        self.temporaries.append(buffers)
        return numbers
