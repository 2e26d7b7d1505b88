"""Collectives without relays: every rank deals with every other one at once."""

from collections.abc import Sequence

import numpy as np

from umm.arrays import Ints
from umm.plans.collectives import way
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import ACCUMULATE, GET
from umm.schedules.writer.builder import Builder, How


class OfFirst:
    """For each pair of ranks the slice of the first."""

    def __init__(self, piece: way.Piece) -> None:
        self._piece = piece

    def __call__(self, rank: int, other: int) -> Slice:
        """Return it for one pair."""
        return self._piece(rank)

    def columns(self, ranks: Ints, others: Ints) -> Slices:
        """Return it for many."""
        return way.columns(self._piece, ranks)


@way.one_collective
def all_gather(x: way.Gather) -> None:
    """Every rank gets every piece from where it lies, the next rank's first."""
    all_to_all(way.Exchange(x.build, x.ranks, OfFirst(x.given), x.into, manner=x.manner))


@way.one_collective
def reduce_scatter(x: way.Scatter) -> None:
    """Every rank adds its part for each owner to the owner's sum, the next owner's first."""
    here = np.array(x.ranks, dtype=np.int64)
    parts, sums = way.columns(x.given, here, here), way.columns(x.into, here)
    # In place the owner's part is the sum already. Zeroed room takes an add instead of a copy, since others
    # may have added to it before.
    begins = ~parts.same(sums)
    kinds = np.full(np.count_nonzero(begins), ACCUMULATE if x.zeroed else GET)
    x.build.transfers(
        kinds, parts.taken(begins), sums.taken(begins), [How(lane=way.OWN)], np.zeros_like(kinds)
    )
    add_all(x.build, [x.ranks], x.given, x.into, x.manner)


def add_all(
    build: Builder, groups: Sequence[Sequence[int]], given: way.Pieces, into: way.Piece, manner: way.Manner
) -> None:
    """Every rank of equal groups adds its part for each other owner of its group to the owner's sum."""
    steps, ranks, owners = pairs(groups)
    way.by_steps(
        build, ACCUMULATE, way.columns(given, ranks, owners), way.columns(into, owners), manner, steps
    )


@way.one_collective
def all_to_all(x: way.AllToAll) -> None:
    """Every rank gets its piece of every rank, the next rank's first."""
    way.each_copied(x, way.Own(x.given), way.Own(x.into))
    exchange(x.build, [x.ranks], x.given, x.into, x.manner)


def exchange(
    build: Builder, groups: Sequence[Sequence[int]], given: way.Pieces, into: way.Pieces, manner: way.Manner
) -> None:
    """Every rank of equal groups gets its pieces of all others of its group; its own is left where it is."""
    steps, ranks, origins = pairs(groups)
    way.by_steps(
        build, GET, way.columns(given, origins, ranks), way.columns(into, ranks, origins), manner, steps
    )


def pairs(groups: Sequence[Sequence[int]] | Ints) -> tuple[Ints, Ints, Ints]:
    """Return each rank with every other one of its group, the next first: steps, ranks, and the others."""
    rank_at = np.array(groups, dtype=np.int64)
    count, size = rank_at.shape
    # Step s pairs place i with i + s: at each step every rank has exactly one sender and one receiver.
    group, step, place = (x.reshape(-1) for x in np.indices((count, max(size - 1, 0), size)))
    return step + 1, rank_at[group, place], rank_at[group, (place + step + 1) % max(size, 1)]


@way.one_collective
def broadcast(x: way.Broadcast) -> None:
    """Every rank gets it from the one that has it."""
    way.copied(x.build, x.given, x.into(x.given.rank))
    for rank in x.ranks:
        if rank != x.given.rank:
            x.build.get(x.given, x.into(rank), **x.manner.how)


@way.one_collective
def reduce(x: way.Reduce) -> None:
    """Every rank adds its part to the sum."""
    # The root's own part goes first: in room that is not zeroed a later copy would overwrite what others
    # added.
    way.Sums(x).begun(x.given(x.into.rank), x.into)
    for rank in x.ranks:
        if rank != x.into.rank:
            x.build.accumulate(x.given(rank), x.into, **x.manner.how)


WAY = way.Way(
    "direct",
    "Every pair of ranks at once, nothing relayed.",
    "Thakur, Rabenseifner and Gropp (2005), section 4: pairwise exchange",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": way.in_parts(reduce_scatter, all_gather),
        "all-to-all": all_to_all,
        "broadcast": broadcast,
        "reduce": reduce,
    },
    relays=False,
)
