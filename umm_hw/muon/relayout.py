"""Many matrices that change their layouts in one packed exchange."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm_hw.arrays.axes import Runs, copy
from umm_hw.arrays.move import Move
from umm_hw.arrays.operand import Operand
from umm_hw.muon.parcels import Mail, Parcels

Array = NDArray[Any]


class Transfers:
    """Elements that go from each rank to each when a matrix changes its layout."""

    def __init__(self, x: Operand, y: Operand) -> None:
        move = Move(x, y)
        move.steps = 1
        self.pieces: dict[tuple[int, int], tuple[Runs, Runs]] = {}
        self.sizes: Ints = np.zeros((move.ranks, move.ranks), dtype=np.int64)
        for reader in range(move.ranks):
            for source in move.all_sources(reader):
                rows, cols = move.pieces(source, reader, 0)
                if rows.size and cols.size:
                    self.pieces[source, reader] = rows, cols
                    self.sizes[source, reader] = rows.size * cols.size * (source != reader)

    def pack(self, pair: tuple[int, int], local: Array, row: Array) -> Array:
        """Write a pair's elements at the start of a row; return the rest of it."""
        if pair not in self.pieces:
            return row
        rows, cols = self.pieces[pair]
        size = rows.size * cols.size
        copy(row[:size].reshape(rows.size, cols.size), local, _packed(rows), _packed(cols))
        return row[size:]

    def unpack(self, pair: tuple[int, int], row: Array, local: Array) -> Array:
        """Read a pair's elements from the start of a row into a matrix; return the rest of it."""
        if pair not in self.pieces:
            return row
        rows, cols = self.pieces[pair]
        size = rows.size * cols.size
        copy(local, row[:size].reshape(rows.size, cols.size), _unpacked(rows), _unpacked(cols))
        return row[size:]

    def keep(self, rank: int, local: Array, into: Array) -> None:
        """Copy the elements that stay on a rank."""
        if (rank, rank) in self.pieces:
            copy(into, local, *self.pieces[rank, rank])


def _packed(runs: Runs) -> Runs:
    return Runs(runs.source, np.cumsum(runs.sizes) - runs.sizes, runs.sizes)


def _unpacked(runs: Runs) -> Runs:
    return Runs(np.cumsum(runs.sizes) - runs.sizes, runs.target, runs.sizes)


class Relayout:
    """Matrices that change their layouts in one exchange.

    Args:
        transfers: Of each matrix.
        dtype: Type of the elements.
        shared: Whether every rank reads all elements.
    """

    def __init__(self, transfers: Sequence[Transfers], dtype: np.dtype[Any], shared: bool) -> None:
        self.transfers = transfers
        self.parcels = Parcels(sum((x.sizes for x in transfers), np.zeros((1, 1), np.int64)), dtype, shared)

    def perform(self, mail: Mail, before: Sequence[Array], after: Sequence[Array]) -> None:
        """Move this rank's parts of all matrices into others; collective."""
        rank = mail.rank

        def write(reader: int, row: Array) -> None:
            for transfers, local in zip(self.transfers, before, strict=True):
                row = transfers.pack((rank, reader), local, row)

        for transfers, local, into in zip(self.transfers, before, after, strict=True):
            transfers.keep(rank, local, into)
        for source, row in mail.exchanged(self.parcels, write):
            for transfers, into in zip(self.transfers, after, strict=True):
                row = transfers.unpack((source, rank), row, into)
