"""A piece of a tensor where a rank can multiply it."""

from collections.abc import Hashable

from umm.algorithms.collectives.way import room_for
from umm.schedules.builder import Builder
from umm.schedules.slices import Slice


def brought(build: Builder, piece: Slice, rank: int, slot: Hashable) -> Slice:
    """Return a piece at a rank: as it lies there, or got into a slot of its pool."""
    if piece.rank == rank or not piece.elements:
        return piece
    into = room_for(build, piece, rank, slot)
    build.get(piece, into)
    return into
