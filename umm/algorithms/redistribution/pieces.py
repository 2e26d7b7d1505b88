"""What moves from one layout of a matrix to another: pieces, who has each and who shall have it."""

from collections.abc import Iterator
from typing import NamedTuple

from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder

OWN = "own"
"""The lane on which a rank copies within its own memory."""


class Piece(NamedTuple):
    """A rectangle that lies in one tile of the source and in one of the target.

    Attributes:
        held: Where it lies, by rank: in each replica of the source.
        wanted: Where it shall lie, by rank: in each replica of the target.
    """

    held: dict[int, Slice]
    wanted: dict[int, Slice]

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

        def part(slices: dict[int, Slice], number: int) -> dict[int, Slice]:
            return {rank: x.part(number, parts, axis) for rank, x in slices.items()}

        return [Piece(part(self.held, i), part(self.wanted, i)) for i in range(parts)]


def pieces_of(build: Builder, source: str, target: str, final: str = "broadcast") -> Iterator[Piece]:
    """Yield every piece that is not empty, tile by tile of the target.

    Args:
        build: Knows the tensors.
        source: Name of the tensor that is there.
        target: Name of the tensor that is written.
        final: Which replicas of the source are complete, as ``Options.final`` leaves those of C.
    """
    here, there = build.layout(source), build.layout(target)
    for tile in ((i, j) for i in range(there.grid_shape()[0]) for j in range(there.grid_shape()[1])):
        wanted = [build.tile(target, *tile, replica) for replica in range(there.replicas)]
        for origin in here.overlapping_tiles(wanted[0].rows, wanted[0].cols):
            for held in _complete([build.tile(source, *origin, x) for x in range(here.replicas)], final):
                rows = held[0].rows.intersect(wanted[0].rows)
                cols = held[0].cols.intersect(wanted[0].cols)
                if rows.size and cols.size:
                    yield Piece(
                        {x.rank: x._replace(rows=rows, cols=cols) for x in held},
                        {x.rank: x._replace(rows=rows, cols=cols) for x in wanted},
                    )


def _complete(replicas: list[Slice], final: str) -> list[list[Slice]]:
    """Return what is complete of a tile's replicas, slices of the same elements together."""
    if final == "reduce":
        return [replicas[:1]]
    if final == "reduce-scatter":
        return [[x.part(number, len(replicas))] for number, x in enumerate(replicas)]
    return [replicas]


def keep(build: Builder, pieces: list[Piece]) -> None:
    """Write the copies of ranks that have what they want."""
    for piece in pieces:
        for rank in piece.wanted.keys() & piece.held.keys():
            build.get(piece.held[rank], piece.wanted[rank], lane=OWN)
