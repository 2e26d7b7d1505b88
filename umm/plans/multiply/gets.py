"""The gets of an op list: which reads of A and B fetch, which do not, and what refilling a slot waits for.

Every op reads A and B. With N ops, read i is op i's read of A and read N + i its read of B; both operands go
through the same few NumPy calls together.
"""

from dataclasses import dataclass

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.machines import Machine
from umm.plans.multiply.operands import elements, owners, spans
from umm.plans.multiply.oplist import OpList


@dataclass(frozen=True, eq=False)
class Fetches:
    """The gets of A, then those of B, each in the order of the op list; a get is known by its place there.

    Attributes:
        count: Number of ops, N.
        fetch: For each of the 2N reads whether it fetches.
        reads: The fetching reads, ascending: one for each get.
        op: The op of each get.
        of_b: 1 where a get moves B, 0 where it moves A.
        src: Owner of the tile each get moves, in the reader's own replica.
        elements: How many each get moves.
        whole: Whether it is the whole tile.
        number: Number of each get among the rank's gets of this operand.
        remote: The reads of tiles that are not the rank's own, ascending.
        served_by: The get that serves each of them.
    """

    count: int
    fetch: Bools
    reads: Ints
    op: Ints
    of_b: Ints
    src: Ints
    elements: Ints
    whole: Bools
    number: Ints
    remote: Ints
    served_by: Ints

    def of(self, operand: int) -> slice:
        """Return the places of the gets of A (0) or B (1)."""
        first_of_b = int(self.reads.searchsorted(self.count))
        return slice(first_of_b, None) if operand else slice(0, first_of_b)


def fetches(ops: OpList, starts: Ints, slices: bool, reuse: bool) -> Fetches:
    """Find the gets of an op list.

    Args:
        ops: The op list.
        starts: First op of each rank.
        slices: A get moves the slice its op needs instead of the whole tile, except an operand of which a
            rank would so get more than by whole tiles.
        reuse: An op that needs the range of the op before it does not fetch again.
    """
    rank, count = ops.rank, len(ops)
    src = np.concatenate(
        [
            owners(layout, rank, tile)
            for layout, tile in zip(ops.problem.layouts[:2], ops.tiles[:2], strict=True)
        ]
    )
    remote = src != np.concatenate((rank, rank))
    fetch, sizes = _ranges(ops, remote, False, reuse)
    reads = fetch.nonzero()[0]
    whole = np.ones(len(reads), dtype=bool)
    if slices:
        fetch_slices, slice_sizes = _ranges(ops, remote, True, reuse)
        of = np.concatenate((rank, rank + len(starts)))  # a rank's A, or its B
        by_tiles, by_slices = (
            np.bincount(of, size * got, 2 * len(starts))
            for size, got in ((sizes, fetch), (slice_sizes, fetch_slices))
        )
        by_tile = (by_slices > by_tiles)[of]
        fetch, sizes = np.where(by_tile, fetch, fetch_slices), np.where(by_tile, sizes, slice_sizes)
        reads = fetch.nonzero()[0]
        whole = by_tile[reads]
    of_b, op = fetch.reshape(2, count).nonzero()
    firsts = reads.searchsorted(np.concatenate((starts, starts + count)))
    number = np.arange(len(reads)) - firsts[rank[op] + of_b * len(starts)]
    remote_reads = remote.nonzero()[0]
    served_by = fetch.cumsum()[remote_reads] - 1
    return Fetches(
        count,
        fetch,
        reads,
        op,
        of_b,
        src[reads],
        sizes[reads],
        whole,
        number,
        remote_reads,
        served_by,
    )


def _ranges(ops: OpList, remote: Bools, slices: bool, reuse: bool) -> tuple[Bools, Ints]:
    """Return which reads would fetch by tiles or by slices, and the elements of what each reads."""
    fetch, rank, count = remote, ops.rank, len(ops)
    if reuse:
        a, b = spans(ops, slices)
        same_rank = rank[1:] == rank[:-1]
        again = np.zeros(2 * count, dtype=bool)
        again[1:count] = (a[1:] == a[:-1]) & same_rank
        again[count + 1 :] = (b[1:] == b[:-1]) & same_rank
        fetch = remote & ~again
    return fetch, np.concatenate([elements(ops, matrix, slices) for matrix in "AB"])


def shares_cached(x: Fetches, ops: OpList, nbytes: Ints, machine: Machine) -> Floats:
    """Return for each get from a cache what the machine's ranks get so in the mean over what its rank does.

    At most 1, and 0 for gets from memory: of what their rank did not get before, or got too many bytes ago.
    Ranks that the problem leaves idle get nothing.

    Args:
        x: The gets.
        ops: The op list.
        nbytes: Bytes that each moves.
        machine: How many bytes a rank may have got since, its own included.
    """
    rank, b = ops.rank[x.op], x.of_b == 1
    tile, piece = (
        np.where(b, *(x_of[x.op] for x_of in spans(ops, slices)[::-1])) for slices in (False, True)
    )
    piece = np.where(x.whole, tile, piece)
    order = np.lexsort((b, x.op))
    until = np.empty(len(b), dtype=np.int64)  # bytes of all gets up to the end of each
    until[order] = nbytes[order].cumsum()
    order = np.lexsort((until, piece, b, rank))
    before, then = order[:-1], order[1:]
    same = (piece[before] == piece[then]) & (b[before] == b[then]) & (rank[before] == rank[then])
    found = np.zeros(len(b))
    found[then] = same & (until[then] - until[before] <= machine.cache)
    of_rank = np.bincount(rank, found * nbytes, ops.problem.p)
    mean = of_rank.sum() / max(ops.problem.p, machine.device_count)
    shares: Floats = found * np.minimum(1.0, mean / np.maximum(of_rank, 1.0))[rank]
    return shares


def readers(x: Fetches, gets: Bools) -> list[tuple[Ints, Ints]]:
    """Return for A and for B the ops that read what these gets brought, and each one's get."""
    of_b, some = x.remote >= x.count, gets[x.served_by]
    reads = [some & ~of_b, some & of_b]
    return [(x.remote[read] % x.count, x.served_by[read]) for read in reads]
