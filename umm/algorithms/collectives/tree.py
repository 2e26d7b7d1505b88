"""Collectives down and up a tree: binomial, where as many ranks again have it in each step, or a star."""

from collections.abc import Iterator, Sequence

from umm.algorithms.collectives import direct
from umm.algorithms.collectives.way import (
    PLAIN,
    Manner,
    Piece,
    Sums,
    Way,
    Writer,
    copied,
    one_collective,
    sum_places,
)
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


@one_collective
def broadcast(
    build: Builder, ranks: Sequence[int], source: Slice, into: Piece, manner: Manner = PLAIN
) -> None:
    """Whoever has it puts it into one that has not."""
    copied(build, source, into(source.rank))
    for parent, child in branches(ranks, source.rank):
        held = source if parent == source.rank else into(parent)
        build.put(held, into(child), **manner.how)


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
    """The way of a broadcast back, each rank adding its own part."""
    root, sums = into.rank, Sums(build, zeroed)
    held = sum_places(build, given, into, room)
    for parent, child in reversed(list(branches(ranks, root))):
        so_far = sums.so_far(given(child), held(child))
        build.accumulate(so_far, sums.begun(given(parent), held(parent)), **manner.how)
    sums.begun(given(root), into)


def _by_way_of_first(reduce: Writer, broadcast: Writer) -> Writer:
    """Return what writes an all-reduce to the first rank and back, from what writes the two."""

    @one_collective
    def all_reduce(
        build: Builder,
        ranks: Sequence[int],
        given: Piece,
        into: Piece,
        zeroed: bool = False,
        manner: Manner = PLAIN,
    ) -> None:
        """A reduce to the first rank, then a broadcast from it."""
        reduce(build, ranks, given, into(ranks[0]), into, zeroed, manner)
        broadcast(build, ranks, into(ranks[0]), into, manner)

    return all_reduce


def branches(ranks: Sequence[int], root: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs (parent, child) of the tree, in the order of a broadcast.

    >>> list(branches([0, 1, 2, 3, 4], root=3))
    [(3, 4), (3, 0), (4, 1), (3, 2)]
    """
    start, p = list(ranks).index(root), len(ranks)
    distance = 1
    while distance < p:
        for place in range(min(distance, p - distance)):
            yield ranks[(start + place) % p], ranks[(start + place + distance) % p]
        distance *= 2


_SOURCE = "Thakur, Rabenseifner and Gropp (2005)"
WAYS = (
    Way(
        "tree",
        "A binomial tree: as many ranks again in each step.",
        _SOURCE,
        {"all-reduce": _by_way_of_first(reduce, broadcast), "broadcast": broadcast, "reduce": reduce},
    ),
    Way(  # the fewest steps there are, for sums of a few bytes
        "star",
        "To one rank and back, in two steps.",
        _SOURCE,
        {"all-reduce": _by_way_of_first(direct.reduce, direct.broadcast)},
        relays=False,
    ),
)
