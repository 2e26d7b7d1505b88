"""Every rank gets what it shall own from a rank that has it."""

from collections.abc import Iterable, Sequence

from umm.algorithms.redistribution.pieces import Piece, keep
from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder


class Sources:
    """Which of several ranks that have a piece another gets it from.

    The one that keeps the busiest link of its route busy for the least time, with all that it carries so far;
    of equals the one with the fewest links between, then the first after the rank that gets.
    """

    def __init__(self, build: Builder) -> None:
        self._machine, self._ranks = build.machine, build.ranks
        self._bandwidth = build.machine.link_bandwidth.tolist()
        self._busy = [0.0] * len(self._bandwidth)

    def choose(self, holders: Iterable[int], rank: int, nbytes: int) -> int:
        """Return the rank to get so many bytes from, and count them."""
        found = min(holders, key=lambda holder: self._cost(holder, rank, nbytes))
        for link in self._route(found, rank):
            self._busy[link] += nbytes / self._bandwidth[link]
        return found

    def _route(self, holder: int, rank: int) -> Sequence[int]:
        ends = (self._machine.device_of(x, self._ranks) for x in (holder, rank))
        return self._machine.route(*ends)

    def _cost(self, holder: int, rank: int, nbytes: int) -> tuple[float, int, int]:
        route = self._route(holder, rank)
        busiest = max(self._busy[link] + nbytes / self._bandwidth[link] for link in route)
        return busiest, len(route), (holder - rank) % self._ranks


def gets(build: Builder, pieces: list[Piece]) -> None:
    """Write the gets of each rank, first those from the ranks after it, so that not all read one at once."""
    keep(build, pieces)
    sources = Sources(build)
    moves: list[tuple[int, int, Slice, Slice]] = []
    for piece in sorted(pieces, key=lambda piece: (len(piece.held), -piece.elements)):
        for rank in piece.takers:
            into = piece.wanted[rank]
            nbytes = piece.elements * build.tensors[into.tensor].itemsize
            origin = sources.choose(piece.held, rank, nbytes)
            moves.append((rank, (origin - rank) % build.ranks, piece.held[origin], into))
    for *_, source, into in sorted(moves, key=lambda move: move[:2]):
        build.get(source, into)
