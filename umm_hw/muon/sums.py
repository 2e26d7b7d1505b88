"""Sums of vectors over groups of ranks, the same bits on every rank."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm_hw.muon.parcels import Mail, Parcels

Array = NDArray[Any]


class Sums:
    """Sums of vectors over groups of ranks: each rank sums a slice, in the order of ranks, and all read it.

    Args:
        groups: Ranks that sum together; every rank is in one.
        count: Elements of a vector.
        dtype: Type of the elements.
    """

    def __init__(self, groups: Sequence[Sequence[int]], count: int, dtype: np.dtype[Any]) -> None:
        ranks = sum(map(len, groups))
        self.dtype = dtype
        self.group = {rank: group for group in groups for rank in group}
        self._slices = {
            rank: slice(count * i // len(group), count * (i + 1) // len(group))
            for group in groups
            for i, rank in enumerate(group)
        }
        parts: Ints = np.zeros((ranks, ranks), dtype=np.int64)
        for group in groups:
            for rank in group:
                others = [x for x in group if x != rank]
                parts[others, rank] = self._slices[rank].stop - self._slices[rank].start
        self.parts = Parcels(parts, dtype)
        self.totals = Parcels(parts.T.copy(), dtype, shared=True)

    def perform(self, mail: Mail, vector: Array) -> Array:
        """Return the sum of all vectors of this rank's group; collective."""
        rank = mail.rank
        parts = {rank: vector[self._slices[rank]]}

        def write(reader: int, row: Array) -> None:
            row[:] = vector[self._slices[reader]]

        for source, row in mail.exchanged(self.parts, write):
            parts[source] = row.copy()
        total = np.empty_like(vector)
        piece = total[self._slices[rank]]
        if piece.size:  # else nobody sends
            piece[:] = parts[self.group[rank][0]]
            for source in self.group[rank][1:]:
                piece += parts[source]

        def write_total(_: int, row: Array) -> None:
            row[:] = piece

        for source, row in mail.exchanged(self.totals, write_total):
            total[self._slices[source]] = row
        return total
