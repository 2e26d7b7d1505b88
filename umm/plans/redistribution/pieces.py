"""Pieces that move from one layout of a matrix to another, and the way by gets."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm.machines import Machine
from umm.plans.collectives.rings import node_of_ranks
from umm.plans.collectives.way import OWN
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import GET
from umm.schedules.writer.assembly import Room
from umm.schedules.writer.builder import Builder, How


class Piece(NamedTuple):
    """A rectangle that lies in one tile of the source and in one of the target."""

    held: dict[int, Slice]  # where it lies, by rank: in each replica of the source
    wanted: dict[int, Slice]  # where it shall lie, by rank: in each replica of the target

    @property
    def shape(self) -> tuple[int, int]:
        """Its rows and columns."""
        return next(iter(self.held.values())).shape

    @property
    def elements(self) -> int:
        """Its elements."""
        rows, cols = self.shape
        return rows * cols

    @property
    def takers(self) -> list[int]:
        """The ranks that want it and do not have it."""
        return [rank for rank in self.wanted if rank not in self.held]

    def cut(self, parts: int) -> "list[Piece]":
        """Return it as some nearly equal parts along its longer side; fewer where it is shorter than that."""
        rows, cols = self.shape
        axis, parts = int(cols > rows), max(1, min(parts, max(rows, cols)))
        if parts == 1:
            return [self]

        one = next(iter(self.held.values()))  # all have its rows and columns

        def part(slices: dict[int, Slice], rows: Interval, cols: Interval) -> dict[int, Slice]:
            return {rank: x.inner(rows, cols) for rank, x in slices.items()}

        cuts = [one.part(i, parts, axis)[3:] for i in range(parts)]
        return [Piece(part(self.held, *cut), part(self.wanted, *cut)) for cut in cuts]


def pieces_of(build: Room, source: str, target: str, final: str = "broadcast") -> Iterator[Piece]:
    """Yield every piece that is not empty, tile by tile of the target.

    Args:
        final: Which replicas of the source are complete, as ``Options.final`` leaves those of C.
    """
    here, into = build.layout(source), build.layout(target)
    # The overlay of both grids: within a piece neither the owners nor the takers change.
    for tile in into.overlapping_tiles(*(Interval(0, size) for size in into.shape)):  # those not empty
        wanted = [build.tile(target, *tile, replica) for replica in range(into.replicas)]
        for origin in here.overlapping_tiles(wanted[0].rows, wanted[0].cols):
            for holders in _complete([build.tile(source, *origin, x) for x in range(here.replicas)], final):
                rows = holders[0].rows.intersect(wanted[0].rows)
                cols = holders[0].cols.intersect(wanted[0].cols)
                if rows.size and cols.size:
                    yield Piece(
                        {x.rank: x.inner(rows, cols) for x in holders},
                        {x.rank: x.inner(rows, cols) for x in wanted},
                    )


def _complete(replicas: list[Slice], final: str) -> list[list[Slice]]:
    """Complete slices of a tile's replicas, those of the same elements together."""
    # Only replica 0 is complete after a reduce; after a reduce-scatter each has its part of the rows.
    if final == "reduce":
        return [replicas[:1]]
    if final == "reduce-scatter":
        return [[x.part(number, len(replicas))] for number, x in enumerate(replicas)]
    return [replicas]


def keep(build: Builder, pieces: list[Piece]) -> None:
    """Write the copies within ranks that have a piece they want."""
    kept = [
        (piece.held[rank], piece.wanted[rank])
        for piece in pieces
        for rank in piece.wanted.keys() & piece.held.keys()
    ]
    got(build, kept, How(lane=OWN))


def got(build: Builder, moves: Sequence[tuple[Slice, Slice]], how: How) -> None:
    """Write gets from slices into others, one after another."""
    source, into = (Slices.of([x[end] for x in moves]) for end in (0, 1))
    build.transfers(np.full(len(moves), GET), source, into, [how], np.zeros(len(moves), dtype=np.int64))


class Sources:
    """Which of several ranks that have a piece another gets it from.

    Of those in its node, else of all, the one that keeps the busiest link of its route busy for the least
    time, with all that it carries so far; of equals the one with the fewest links between, then the first
    after the rank that gets. A rank's gets follow one another: one that takes as long by a card as all others
    inside the node would double their time, though no link carried more.
    """

    def __init__(self, build: Builder) -> None:
        self._ranks = build.ranks
        self._routes = routes(build.machine, build.ranks)
        self._node = node_of_ranks(build.machine, build.ranks)
        self._bandwidth = np.append(build.machine.link_bandwidth, np.inf)
        self._busy = np.zeros(len(self._bandwidth))

    def choose(self, holders: Iterable[int], rank: int, nbytes: int) -> int:
        """Return the rank to get so many bytes from, and count them."""
        ranks = np.fromiter(holders, dtype=np.int64)
        inside = self._node[ranks] == self._node[rank]
        ranks = ranks[inside] if inside.any() else ranks
        ways = self._routes[ranks, rank]
        # Padding has infinite bandwidth, so routes of different lengths fit one array and padding adds no
        # time.
        best, spent = 0, nbytes / self._bandwidth[ways]
        if len(ranks) > 1:
            links = (ways < len(self._busy) - 1).sum(axis=1)
            busiest = (self._busy[ways] + spent).max(axis=1)
            best = int(np.lexsort(((ranks - rank) % self._ranks, links, busiest))[0])
        self._busy[ways[best]] += spent[best]
        return int(ranks[best])


@lru_cache(maxsize=1)  # the schedules of one machine are asked for one after another
def routes(machine: Machine, ranks: int) -> Ints:
    """Return the links between all pairs of ranks, padded with the number after the last link's."""
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    links = [machine.route(source, target) for source in devices for target in devices]
    padded = np.full((len(links), max(map(len, links))), len(machine.link_names), dtype=np.int64)
    for row, route in zip(padded, links, strict=True):
        row[: len(route)] = route
    return padded.reshape(ranks, ranks, -1)


def gets(build: Builder, pieces: list[Piece]) -> None:
    """Write the gets of each rank, first those from the ranks after it, so that not all read one at once."""
    keep(build, pieces)
    sources = Sources(build)
    moves: list[tuple[int, int, Slice, Slice]] = []
    # Pieces with the fewest holders choose first: they have the least freedom to avoid busy links.
    for piece in sorted(pieces, key=lambda piece: (len(piece.held), -piece.elements)):
        for rank in piece.takers:
            into = piece.wanted[rank]
            nbytes = piece.elements * build.tensors[into.tensor].itemsize
            origin = sources.choose(piece.held, rank, nbytes)
            moves.append((rank, (origin - rank) % build.ranks, piece.held[origin], into))
    got(build, [move[2:] for move in sorted(moves, key=lambda move: move[:2])], How())
