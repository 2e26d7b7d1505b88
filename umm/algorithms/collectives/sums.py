"""Running sums: what a rank is given, where it keeps the sum so far, and whether its own part is in it."""

from umm.algorithms.collectives.way import OWN, Piece, Pieces, copied, room_for
from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder


class Sums:
    """The running sums of one collective.

    Args:
        build: Where the actions go.
        zeroed: Whether the places of sums hold zeros before.
    """

    def __init__(self, build: Builder, zeroed: bool) -> None:
        self._build, self._zeroed = build, zeroed
        self._begun: set[Slice] = set()

    def so_far(self, given: Slice, room: Slice) -> Slice:
        """Return where the sum so far lies: in its room, or as given if nothing has come yet."""
        return room if room in self._begun else given

    def begun(self, given: Slice, room: Slice) -> Slice:
        """Return the room of a sum, after the rank's own part has been brought there once.

        Room of zeros gains it, so that what others add need not wait; other room is overwritten with it.
        """
        if room not in self._begun:
            self._begun.add(room)
            if self._zeroed and given != room:
                self._build.accumulate(given, room, lane=OWN)
            else:
                copied(self._build, given, room)
        return room


def rooms(build: Builder, given: Pieces, into: Piece, room: Pieces | None) -> Pieces:
    """Return where each rank keeps the sum for each owner: ``into`` for itself, else ``room``.

    Args:
        build: Where temporaries come from, if there is no room.
        given: What a rank gives for an owner.
        into: Where an owner wants the sum.
        room: Where a rank keeps running sums for others.
    """
    made: dict[tuple[int, int], Slice] = {}

    def found(rank: int, owner: int) -> Slice:
        if rank == owner:
            return into(owner)
        if room is not None:
            return room(rank, owner)
        if (rank, owner) not in made:
            made[rank, owner] = room_for(build, given(rank, owner), rank)
        return made[rank, owner]

    return found


def sum_places(build: Builder, given: Piece, into: Slice, room: Piece | None) -> Piece:
    """Return where each rank keeps its sum in a reduce: ``into`` at its rank, else ``room``.

    Args:
        build: Where temporaries come from, if there is no room.
        given: What a rank gives.
        into: Where the whole sum goes.
        room: Where the other ranks keep running sums.
    """
    held = rooms(
        build,
        lambda rank, _: given(rank),
        lambda _: into,
        None if room is None else lambda rank, _: room(rank),
    )
    return lambda rank: held(rank, into.rank)
