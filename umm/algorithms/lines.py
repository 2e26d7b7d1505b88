"""A piece from a rank to another, or to all of a line of ranks; and the sum of a line's pieces to one."""

from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise

from umm.schedules.builder import Builder
from umm.schedules.slices import Slice

WAYS = ("tree", "ring", "direct")
"""How: from one to two, to four, to eight; from neighbour to neighbour; or from one to each."""


def brought(build: Builder, piece: Slice, rank: int, slot: Hashable) -> Slice:
    """Return a piece where a rank can multiply it: as it lies there, or got into a slot of its pool."""
    if piece.rank == rank or not piece.elements:
        return piece
    into = build.temporary(rank, build.tensors[piece.tensor].name, piece.rows, piece.cols, slot)
    build.get(piece, into)
    return into


def broadcast(build: Builder, pieces: Mapping[int, Slice], root: int, way: str) -> None:
    """Copy the root's piece to all ranks of a line.

    Args:
        build: Where the actions go.
        pieces: Where the piece lies or shall lie at each rank, in the order of the line.
        root: Rank that has it.
        way: One of WAYS; each forwards what it has received itself, but all get it from the root by
            ``direct``. Neighbours pass on one piece while they receive the next, so a ring is a pipeline.
    """
    for source, target in _hops(list(pieces), root, way):
        if way == "direct":
            build.get(pieces[source], pieces[target])
        else:
            build.put(pieces[source], pieces[target])


def reduce(build: Builder, pieces: Mapping[int, Slice], root: int, way: str) -> None:
    """Add the pieces of all ranks of a line to the root's: a broadcast, backwards.

    Args:
        build: Where the actions go.
        pieces: What each rank holds, in the order of the line; a rank on the way adds to its own.
        root: Rank that shall have the sum.
        way: One of WAYS.
    """
    for target, source in reversed(list(_hops(list(pieces), root, way))):
        build.accumulate(pieces[source], pieces[target])


def _hops(ranks: list[int], root: int, way: str) -> Iterator[tuple[int, int]]:
    """Yield from whom to whom a piece goes, in order.

    >>> list(_hops([4, 5, 6, 7], 5, "tree")), list(_hops([4, 5, 6], 5, "ring"))
    ([(5, 6), (5, 7), (6, 4)], [(5, 6), (6, 4)])
    """
    start = ranks.index(root)
    line = ranks[start:] + ranks[:start]
    if way == "tree":
        span = 1
        while span < len(line):
            yield from zip(line[:span], line[span:], strict=False)
            span *= 2
    elif way == "ring":
        yield from pairwise(line)
    else:
        yield from ((root, rank) for rank in line[1:])
