"""Collectives down and up a tree: binomial, where as many ranks again have it in each step, or a star.

MPI's broadcast takes the binomial tree where ranks or bytes are few. Else the root scatters its parts down
the tree and all ranks gather them, so that the root sends its bytes about twice, not once for each level.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from umm.machines import Machine
from umm.plans.collectives import direct, way
from umm.schedules.table.buffers import Slices
from umm.schedules.table.details import PUT

TREE_RANKS, SHORT, LONG = 8, 12_288, 524_288
"""Ranks and bytes below which MPICH broadcasts by a tree, and bytes from which it gathers around a ring.

Source: MPICH, src/mpi/coll/bcast/bcast.c: MPIR_CVAR_BCAST_MIN_PROCS, _SHORT_MSG_SIZE and _LONG_MSG_SIZE.
"""
LONGEST = 16
"""Ranks up to which a ring is written hop by hop; more gather by doubling, in fewer and larger messages."""
TREE, DOUBLING, RING = "tree", "scatter-doubling", "scatter-ring"


@way.one_collective
def broadcast(x: way.Broadcast) -> None:
    """Whoever has it puts it into one that has not."""
    root = x.given.rank
    way.copied(x.build, x.given, x.into(root))
    for parent, child in branches(x.ranks, root):
        piece = x.given if parent == root else x.into(parent)
        x.build.put(piece, x.into(child), **x.manner.how)


@way.one_collective
def reduce(x: way.Reduce) -> None:
    """The way of a broadcast back, each rank adding its own part."""
    root, sums, sum_at = x.into.rank, way.Sums(x), way.sum_places(x)
    # Reversed, every child has its subtree's sum complete before it adds that to its parent.
    for parent, child in reversed(list(branches(x.ranks, root))):
        so_far = sums.so_far(x.given(child), sum_at(child))
        x.build.accumulate(so_far, sums.begun(x.given(parent), sum_at(parent)), **x.manner.how)
    sums.begun(x.given(root), x.into)


def of_mpi(ranks: int, nbytes: int) -> str:
    """Return how MPICH broadcasts.

    >>> of_mpi(4, 2**20), of_mpi(8, 2**18), of_mpi(8, 2**20), of_mpi(9, 2**18)
    ('tree', 'scatter-doubling', 'scatter-ring', 'scatter-ring')
    """
    if ranks < TREE_RANKS or nbytes < SHORT:
        return TREE
    return DOUBLING if nbytes < LONG and ranks & (ranks - 1) == 0 else RING


@way.one_collective
def broadcast_of_mpi(x: way.Broadcast) -> None:
    """By a tree, or a scatter down a tree and an all-gather, as MPICH chooses by ranks and bytes."""
    ranks, source = x.ranks, x.given
    name = of_mpi(len(ranks), source.elements * x.build.tensors[source.tensor].itemsize)
    if name == TREE:
        broadcast(x)
        return
    way.copied(x.build, source, x.into(source.rank))
    # Ranks are renumbered from the root, so that the tree below always has its root at 0.
    start, p = list(ranks).index(source.rank), len(ranks)
    pieces = Slices.of([source, *(x.into(ranks[(start + i) % p]) for i in range(1, p))])
    giver, taker, first, stop = np.array([*_moves(p, name)], dtype=np.int64).T
    at, targets = (pieces.taken(end).parts(first, stop, p) for end in (giver, taker))
    how = np.zeros(len(giver), dtype=np.int64)
    x.build.transfers(np.full(len(giver), PUT), at, targets, [x.manner.how], how)


def _moves(p: int, name: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield who puts which parts to whom, counted from the root, which has all: first part and last.

    >>> [*_moves(3, RING)]
    [(0, 2, 2, 2), (0, 1, 1, 1), (0, 1, 0, 0), (1, 2, 1, 1), (0, 1, 2, 2), (1, 2, 0, 0)]
    """
    # Scatter: each holder of a span hands its upper half to that half's first rank, as in MPICH's binomial
    # scatter; spans beyond p are cut off.
    span = 1 << (p - 1).bit_length()
    while span > 1:
        half = span // 2
        for i in range(0, p - half, span):
            yield i, i + half, i + half, min(i + span, p) - 1
        span = half
    if name == RING and p <= LONGEST:
        # Ring all-gather: at step s rank i passes on the part that it received at step s − 1, number i − s.
        for step in range(p - 1):
            for i in range(p - 1):
                yield i, i + 1, (i - step) % p, (i - step) % p
        return
    pairs = p & (p - 1) == 0  # else as Bruck et al. (1997) gather among any number of ranks
    while span < p:
        for i in range(p):
            # After each round a rank holds twice as many consecutive parts; Bruck's runs may wrap around at
            # p.
            taker, first = (i ^ span, i // span * span) if pairs else ((i - span) % p, i)
            last = first + min(span, p - span) - 1
            # The root has all parts from the start, so nothing is sent to it.
            if taker:
                yield i, taker, first, min(last, p - 1)
                # A run that wraps around is two slices, hence two messages.
                if last >= p:
                    yield i, taker, 0, last - p
        span *= 2


def _named(machine: Machine, what: str, ranks: Sequence[int], nbytes: int, way: str | None) -> str:
    """Return ``mpi`` and how it broadcasts."""
    return f"mpi-{of_mpi(len(ranks), nbytes)}"


def _by_way_of_first(reduce: way.Writer, broadcast: way.Writer) -> way.Writer:
    """Return a writer of an all-reduce to the first rank and back, from the writers of the two."""

    @way.one_collective
    def all_reduce(x: way.AllReduce) -> None:
        """A reduce to the first rank, then a broadcast from it."""
        first = x.into(x.ranks[0])
        reduce(way.Exchange(x.build, x.ranks, x.given, first, x.into, x.zeroed, x.manner))
        broadcast(way.Exchange(x.build, x.ranks, first, x.into, manner=x.manner))

    return all_reduce


def branches(ranks: Sequence[int], root: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs (parent, child) of the tree, in the order of a broadcast.

    >>> list(branches([0, 1, 2, 3, 4], root=3))
    [(3, 4), (3, 0), (4, 1), (3, 2)]
    """
    start, p = list(ranks).index(root), len(ranks)
    # Every rank with the data serves one without it; the holders double each round (⌈log2 p⌉ rounds).
    distance = 1
    while distance < p:
        for place in range(min(distance, p - distance)):
            yield ranks[(start + place) % p], ranks[(start + place + distance) % p]
        distance *= 2


_SOURCE = "Thakur, Rabenseifner and Gropp (2005)"
WAYS = (
    way.Way(
        "tree",
        "A binomial tree: as many ranks again in each step.",
        _SOURCE,
        {"all-reduce": _by_way_of_first(reduce, broadcast), "broadcast": broadcast, "reduce": reduce},
    ),
    way.Way(
        "mpi",
        "As MPICH broadcasts: a tree for few ranks or bytes, else a scatter and an all-gather.",
        f"{_SOURCE}; MPICH, src/mpi/coll/bcast",
        {"broadcast": broadcast_of_mpi},
        named=_named,
    ),
    way.Way(  # the fewest steps there are, for sums of a few bytes
        "star",
        "To one rank and back, in two steps.",
        _SOURCE,
        {"all-reduce": _by_way_of_first(direct.reduce, direct.broadcast)},
        relays=False,
    ),
)
