"""Collectives without relays: every rank deals with every other one at once."""

from collections.abc import Sequence

from umm.algorithms.collectives.way import (
    PLAIN,
    Manner,
    Piece,
    Pieces,
    Sums,
    Way,
    copied,
    in_parts,
    one_collective,
)
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


@one_collective
def all_gather(
    build: Builder, ranks: Sequence[int], piece: Piece, into: Pieces, manner: Manner = PLAIN
) -> None:
    """Every rank gets every piece from where it lies, the next rank's first."""
    all_to_all(build, ranks, lambda rank, _: piece(rank), into, manner)


@one_collective
def reduce_scatter(
    build: Builder,
    ranks: Sequence[int],
    given: Pieces,
    into: Piece,
    room: Pieces | None = None,
    zeroed: bool = False,
    manner: Manner = PLAIN,
) -> None:
    """Every rank adds what it gives for each owner to the owner's sum, the next owner's first."""
    sums, held = Sums(build, zeroed), {rank: into(rank) for rank in ranks}
    for rank in ranks:
        sums.begun(given(rank, rank), held[rank])
    for step in range(1, len(ranks)):
        how = manner.to(step)
        for place, rank in enumerate(ranks):
            owner = ranks[(place + step) % len(ranks)]
            build.accumulate(given(rank, owner), held[owner], **how)


@one_collective
def all_to_all(
    build: Builder, ranks: Sequence[int], given: Pieces, into: Pieces, manner: Manner = PLAIN
) -> None:
    """Every rank gets its piece of every rank, the next rank's first."""
    for rank in ranks:
        copied(build, given(rank, rank), into(rank, rank))
    exchange(build, ranks, given, into, manner)


def exchange(build: Builder, ranks: Sequence[int], given: Pieces, into: Pieces, manner: Manner) -> None:
    """Every rank gets its pieces of all others; its own is left where it is."""
    for step in range(1, len(ranks)):
        how = manner.to(step)
        for place, rank in enumerate(ranks):
            origin = ranks[(place + step) % len(ranks)]
            build.get(given(origin, rank), into(rank, origin), **how)


@one_collective
def broadcast(
    build: Builder, ranks: Sequence[int], source: Slice, into: Piece, manner: Manner = PLAIN
) -> None:
    """Every rank gets it from the one that has it."""
    copied(build, source, into(source.rank))
    for rank in ranks:
        if rank != source.rank:
            build.get(source, into(rank), **manner.how)


@one_collective
def reduce(
    build: Builder,
    ranks: Sequence[int],
    given: Piece,
    into: Slice,
    room: Piece | None = None,
    zeroed: bool = False,
    manner: Manner = PLAIN,
) -> None:
    """Every rank adds its part to the sum."""
    Sums(build, zeroed).begun(given(into.rank), into)
    for rank in ranks:
        if rank != into.rank:
            build.accumulate(given(rank), into, **manner.how)


WAY = Way(
    "direct",
    "Every pair of ranks at once, nothing relayed.",
    "Thakur, Rabenseifner and Gropp (2005), section 4: pairwise exchange",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": in_parts(reduce_scatter, all_gather),
        "all-to-all": all_to_all,
        "broadcast": broadcast,
        "reduce": reduce,
    },
    relays=False,
)
