"""A, B or C as a product reads or writes it, and the ways to share out a multiply."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm_hw.arrays.axes import Axis, axis_of, even


@dataclass(frozen=True)
class Operand:
    """A window of a distributed matrix, read as it is or transposed."""

    layout: Layout  # of the whole matrix
    rows: Interval  # rows of the window, in the matrix as it is stored
    cols: Interval  # columns of it
    trans: bool  # whether the product reads the window transposed
    dtype: np.dtype[Any]  # type of the elements
    # Of each rank, whether its local matrix, transposed or not, is stored by rows (`C`) or by columns (`F`).
    orders: str
    conj: bool = False  # whether the product reads it conjugated

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns as the product reads them."""
        return (self.cols.size, self.rows.size) if self.trans else (self.rows.size, self.cols.size)

    @cached_property
    def axes(self) -> tuple[Axis, Axis]:
        """Rows and columns as the product reads them."""
        stored = axis_of(self.layout, 0, self.rows), axis_of(self.layout, 1, self.cols)
        return stored[::-1] if self.trans else stored

    @cached_property
    def places(self) -> Ints:
        """The rank at each place, shape (replicas, rows, columns), as the product reads them."""
        return self.layout.places.transpose(0, 2, 1) if self.trans else self.layout.places

    @cached_property
    def place_of_rank(self) -> list[tuple[int, int]]:
        """Row and column of the process grid of each rank, as the product reads them."""
        _, row, col = (x.tolist() for x in self.layout.place_of_rank)
        return list(zip(col, row, strict=True) if self.trans else zip(row, col, strict=True))

    @cached_property
    def _held(self) -> list[list[Interval]]:
        return [
            [axis.held(place) for place in range(count)]
            for axis, count in zip(self.axes, self.places.shape[1:], strict=True)
        ]

    def held(self, rank: int) -> tuple[Interval, Interval]:
        """Return which rows and columns of a rank's local matrix lie in the window."""
        row, col = self.place_of_rank[rank]
        return self._held[0][row], self._held[1][col]

    @cached_property
    def _owners(self) -> list[list[list[int]]]:
        owners: list[list[list[int]]] = self.places.transpose(1, 2, 0).tolist()
        return owners

    @cached_property
    def _replica_of_rank(self) -> list[int]:
        replicas: list[int] = self.layout.replica_of_rank.tolist()
        return replicas

    def source(self, row: int, col: int, rank: int) -> int:
        """Return the owner of a place that a rank reads: the rank itself, or the one in its own replica."""
        owners = self._owners[row][col]
        return rank if rank in owners else owners[self._replica_of_rank[rank]]

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for two operands that the same plan can multiply."""
        return self.layout.key, self.rows, self.cols, self.trans, self.dtype.str, self.orders, self.conj


class Work(NamedTuple):
    """How the products are shared out: a grid over m, n and k, and a rank at each of its places."""

    name: str  # in words
    m: Axis  # rows of C by place
    n: Axis  # columns of C
    k: Axis  # what is summed over
    ranks: Ints  # the rank at each place, shape (places of m, of n, of k); each at one place at most
    direct: bool  # whether each rank multiplies into its own part of C, so that nothing is left to sum


def works(a: Operand, b: Operand, c: Operand) -> list[Work]:
    """Return the ways to share out a multiply: each matrix stationary, and even grids over m, n and k."""
    ranks = a.layout.ranks
    (m, k), n = a.shape, c.shape[1]
    copies = [len(x.places) for x in (a, b, c)]
    result = [
        Work("stationary C", *c.axes, even(k, copies[2]), np.moveaxis(c.places, 0, -1), copies[2] == 1),
        Work("stationary A", a.axes[0], even(n, copies[0]), a.axes[1], a.places.transpose(1, 0, 2), False),
        Work("stationary B", even(m, copies[1]), b.axes[1], b.axes[0], b.places.transpose(0, 2, 1), False),
    ]
    for pm in range(1, ranks + 1):
        for pn in range(1, ranks // pm + 1):
            if ranks % (pm * pn) == 0:
                pk = ranks // (pm * pn)
                places = np.arange(ranks, dtype=np.int64).reshape(pm, pn, pk)
                result.append(
                    Work(f"grid {pm}x{pn}x{pk}", even(m, pm), even(n, pn), even(k, pk), places, False)
                )
    return result
