"""Pieces of a tensor where ranks can multiply them: one got, or those of several ranks gathered."""

from collections.abc import Hashable

from umm.algorithms.collectives.registry import ways
from umm.algorithms.collectives.way import room_for
from umm.interval import Interval
from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder


def brought(build: Builder, piece: Slice, rank: int, slot: Hashable) -> Slice:
    """Return a piece at a rank: as it lies there, or got into a slot of its pool."""
    if piece.rank == rank or not piece.elements:
        return piece
    into = room_for(build, piece, rank, slot)
    build.get(piece, into)
    return into


def gathered(build: Builder, pieces: dict[int, Slice], collective: str, slot: Hashable) -> dict[int, Slice]:
    """Return where every rank has all pieces of a matrix together, after gathering them.

    Args:
        build: Where the actions go.
        pieces: By rank, what it has; the pieces of all make a rectangle.
        collective: A way to do an all-gather.
        slot: Pool slot of what is gathered.
    """
    if len(pieces) == 1:
        return pieces
    first, *_, last = pieces.values()
    rows, cols = Interval(first.rows.start, last.rows.stop), Interval(first.cols.start, last.cols.stop)
    whole = first._replace(rows=rows, cols=cols)
    there = {rank: room_for(build, whole, rank, slot) for rank in pieces}

    def into(rank: int, origin: int) -> Slice:
        return there[rank].cut(pieces[origin].rows, pieces[origin].cols)

    ways()[collective].writers["all-gather"](build, list(pieces), pieces.__getitem__, into)
    return there
