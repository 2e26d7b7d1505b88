"""The gets of a plan: the op of each, and the reads that it serves; the share of them that is in a cache.

Every op reads A and B. With N ops, read i is op i's read of A and read N + i its read of B.
"""

from dataclasses import dataclass

import numpy as np

from umm.arrays import Bools, Floats, Ints, rows_of_groups
from umm.machines import Machine
from umm.plans.multiply.operands import elements, spans
from umm.plans.multiply.oplist import OpList
from umm.plans.multiply.rows import OpRows
from umm.schedules.table.details import GET


@dataclass(frozen=True, eq=False)
class Fetches:
    """The gets of A, then those of B, each in the order of the op list; a get is known by its place there."""

    count: int  # number of ops, N
    op: Ints  # the op of each get
    of_b: Bools  # whether a get moves B
    whole: Bools  # whether it moves the whole tile
    number: Ints  # number of each get among the rank's gets of this operand
    remote: Ints  # the reads of tiles that are not the rank's own, ascending
    served_by: Ints  # the get that serves each of them

    def of(self, operand: int) -> slice:
        """Return the places of the gets of A (0) or B (1)."""
        first_of_b = int(self.of_b.searchsorted(True))
        return slice(first_of_b, None) if operand else slice(0, first_of_b)


def fetches(ops: OpList, plan: OpRows) -> Fetches:
    """Return the gets of a plan, read off its rows.

    The rows of an op are its gets, its gemm and its accumulate, and a gemm waits for the gets of all that it
    reads.
    """
    count, gets = len(ops), len(plan.get_row)
    # An op's gets stand right before its gemm, so the first gemm row after a get is that of its op.
    order = plan.gemm_row.argsort()
    op: Ints = order[plan.gemm_row[order].searchsorted(plan.get_row)]
    of_b = np.arange(gets) >= plan.a_gets
    sizes = [elements(ops, matrix, False)[op] for matrix in "AB"]
    # Ranks of B's gets are shifted by p, so that one sorted column numbers both operands' gets.
    rank = ops.rank[op] + of_b * ops.problem.p
    kind, _, offsets, after, _ = plan.rows
    reader = np.arange(count).repeat(offsets[plan.gemm_row + 1] - offsets[plan.gemm_row])
    waited = after[rows_of_groups(offsets, plan.gemm_row)]
    brought = kind[waited] == GET
    # From a row of the table to the number of the get that stands there.
    place = np.empty(len(kind), dtype=np.int64)
    place[plan.get_row] = np.arange(gets)
    get = place[waited[brought]]
    read = reader[brought] + count * of_b[get]
    ascending = read.argsort()
    return Fetches(
        count,
        op,
        of_b,
        plan.elements == np.where(of_b, sizes[1], sizes[0]),
        np.arange(gets) - rank.searchsorted(rank),
        read[ascending],
        get[ascending],
    )


def shares_cached(x: Fetches, ops: OpList, nbytes: Ints, machine: Machine) -> Floats:
    """Return for each get from a cache the mean over ranks of bytes got so, over that of its own rank.

    At most 1, and 0 for gets from memory: of what their rank did not get before, or got too many bytes ago.
    Ranks that the problem leaves idle get nothing.

    Args:
        ops: The op list.
        nbytes: Bytes that each moves.
        machine: How many bytes a rank may have got since, its own included.
    """
    rank, b = ops.rank[x.op], x.of_b
    tile, piece = (
        np.where(b, *(x_of[x.op] for x_of in spans(ops, slices)[::-1])) for slices in (False, True)
    )
    # Negative numbers for whole tiles: a tile and a slice with the same number are different ranges.
    piece = np.where(x.whole, -1 - tile, piece)
    order = np.lexsort((b, x.op))
    # Approximates an LRU cache: a range is still there if fewer bytes than the cache holds came since.
    until = np.empty(len(b), dtype=np.int64)  # bytes of all gets up to the end of each
    until[order] = nbytes[order].cumsum()
    order = np.lexsort((until, piece, b, rank))
    before, then = order[:-1], order[1:]
    same = (piece[before] == piece[then]) & (b[before] == b[then]) & (rank[before] == rank[then])
    cached = np.zeros(len(b))
    cached[then] = same & (until[then] - until[before] <= machine.cache)
    of_rank = np.bincount(rank, cached * nbytes, ops.problem.p)
    mean = of_rank.sum() / max(ops.problem.p, machine.device_count)
    shares: Floats = cached * np.minimum(1.0, mean / np.maximum(of_rank, 1.0))[rank]
    return shares


def readers(x: Fetches, gets: Bools) -> list[tuple[Ints, Ints]]:
    """Return for A and for B the ops that read from these gets, and each one's get."""
    of_b, some = x.remote >= x.count, gets[x.served_by]
    reads = [some & ~of_b, some & of_b]
    return [(x.remote[read] % x.count, x.served_by[read]) for read in reads]
