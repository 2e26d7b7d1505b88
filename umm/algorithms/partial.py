"""Products that several ranks hold parts of as a sum, and what adds them up."""

from collections.abc import Iterable, Sequence

from umm.schedules.builder import Builder, Row
from umm.schedules.slices import Slice


class Partial:
    """A rank's part of a sum: its first product sets it, all others add to it.

    Attributes:
        piece: Where it lies.
        begun: Whether it holds anything; empty tiles have no products.
    """

    def __init__(self, build: Builder, piece: Slice, begun: bool = False) -> None:
        self.piece, self.begun, self._build = piece, begun, build

    def add(self, a: Slice, b: Slice, trans: Iterable[str] = (), after: Sequence[Row] = ()) -> None:
        """Add the product of two slices that this rank has."""
        if a.elements and b.elements and self.piece.elements:
            self._build.gemm(self.piece, a, b, beta=float(self.begun), trans=trans, after=after)
            self.begun = True

    def give(self, other: "Partial", after: Sequence[Row] = ()) -> None:
        """Add this to another rank's part of the sum."""
        if self.begun:
            move = self._build.accumulate if other.begun else self._build.put
            move(self.piece, other.piece, after=after)
            other.begun = True


def scatter_sum(build: Builder, line: list[Partial], owners: list[Slice]) -> None:
    """Add up the partial sums of a line of ranks, each part of the sum where it belongs.

    Args:
        build: Where the actions go.
        line: Each rank's partial sum, all of the same rows and columns.
        owners: Where each part of the sum belongs, one for each rank; no two ranks start with the same.
    """
    for step in range(len(owners)):
        for place, partial in enumerate(line):
            target = owners[(place + step) % len(owners)]
            if partial.begun:
                build.accumulate(partial.piece.cut(target.rows, target.cols), target)


def sum_replicas(build: Builder, tensor: str) -> None:
    """Let every replica of a tensor hold the sum of all replicas, in place.

    Each rank sums a part of a tile for all replicas, then gets the other parts.
    """
    layout = build.layout(tensor)
    rows, cols = layout.grid_shape()
    copies = layout.replicas
    parts = {
        (i, j, replica): [build.tile(tensor, i, j, replica).part(part, copies) for part in range(copies)]
        for i in range(rows)
        for j in range(cols)
        for replica in range(copies)
    }
    for step in range(1, copies):
        for (i, j, replica), own in parts.items():
            owner = (replica + step) % copies
            build.accumulate(own[owner], parts[i, j, owner][owner])
    for step in range(1, copies):
        for (i, j, replica), own in parts.items():
            owner = (replica + step) % copies
            build.get(parts[i, j, owner][owner], own[owner])
