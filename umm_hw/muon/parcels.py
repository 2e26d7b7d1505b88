"""Packed exchanges: each rank writes once the elements of many matrices that others read or receive."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.errors import UmmError
from umm.interval import Interval
from umm_hw.arrays.exchange import A, Exchange, Item

Array = NDArray[Any]
ALIGNMENT = 64  # bytes to which a rank's published memory is padded: a line of a cache


class Parcels:
    """One exchange among ranks, each of which publishes a row of elements.

    Args:
        sizes: Elements from each rank to each, shape (ranks, ranks); none to itself.
        dtype: Type of the elements.
        shared: Whether all readers of a rank read the same elements.
    """

    def __init__(self, sizes: Ints, dtype: np.dtype[Any], shared: bool = False) -> None:
        self.sizes, self.dtype, self.shared = sizes, dtype, shared
        self._starts = np.zeros_like(sizes) if shared else np.cumsum(sizes, axis=1) - sizes
        self._totals = sizes.max(axis=1) if shared else sizes.sum(axis=1)
        self.halves: Sequence[int] = self.nbytes

    @property
    def nbytes(self) -> list[int]:
        """Bytes that each rank publishes, padded."""
        padded: list[int] = (-(-self._totals * self.dtype.itemsize // ALIGNMENT) * ALIGNMENT).tolist()
        return padded

    @property
    def any(self) -> bool:
        """Whether anything is sent."""
        return bool(self.sizes.any())

    def readers(self, kind: str, rank: int) -> Sequence[int]:
        """Return the ranks that read from a rank."""
        ranks: list[int] = np.flatnonzero(self.sizes[rank]).tolist()
        return ranks

    def sources(self, kind: str, rank: int) -> Sequence[int]:
        """Return the ranks that a rank reads from."""
        ranks: list[int] = np.flatnonzero(self.sizes[:, rank]).tolist()
        return ranks

    def item(self, kind: str, rank: int, step: int) -> Item:
        """Return a rank's elements; exchanges take two places in its memory in turn."""
        return Item(A, rank, step % 2 * self.halves[rank], (1, int(self._totals[rank])), self.dtype, "C")

    def rectangle(self, kind: str, source: int, reader: int, step: int) -> tuple[Interval, Interval]:
        """Return where the elements for a reader are."""
        start = int(self._starts[source, reader])
        return Interval(0, 1), Interval(start, start + int(self.sizes[source, reader]))


class Mail:
    """The exchanges of one collective call, one after another.

    Args:
        parcels: Every exchange that the call may make: they share memory.
        signature: What all ranks have in common.
        words: What the call does, in the third person.
        refusal: Why this rank refuses, which all ranks then raise.
    """

    def __init__(
        self,
        exchange: Exchange,
        parcels: Sequence[Parcels],
        signature: bytes,
        words: str,
        refusal: UmmError | None = None,
    ) -> None:
        self.exchange, self.rank, self._step = exchange, exchange.group.rank, 0
        exchange.begin(signature, words, refusal)
        halves = np.max([[0] * exchange.group.size, *(x.nbytes for x in parcels)], axis=0).tolist()
        for each in parcels:
            each.halves = halves
        exchange.reserve([2 * nbytes for nbytes in halves])
        self._readers: list[Sequence[int]] = []

    def exchanged(self, parcels: Parcels, write: Callable[[int, Array], None]) -> Iterator[tuple[int, Array]]:
        """Send this rank's elements, and yield those of each rank it reads from.

        Args:
            write: Fills the elements for a reader; called once where all read the same.
        """
        if not parcels.any:
            return
        exchange, rank, step = self.exchange, self.rank, self._step
        if step > 1:
            exchange.settle(self._readers[step - 2], step - 2)
        readers = parcels.readers(A, rank)
        if readers:
            row = exchange.own(parcels.item(A, rank, step))[0]
            for reader in readers[: 1 if parcels.shared else None]:
                write(reader, row[parcels.rectangle(A, rank, reader, step)[1].slice])
        self._readers.append(readers)
        self._step += 1
        exchange.publish(parcels, A, step)
        for source in parcels.sources(A, rank):
            seen = exchange.see(parcels, A, source, step)
            cols = parcels.rectangle(A, source, rank, step)[1]
            yield source, seen.array[0, cols.start - seen.col : cols.stop - seen.col]
        exchange.release(step)

    def close(self) -> None:
        """Complete the messages of this rank."""
        self.exchange.finish()
