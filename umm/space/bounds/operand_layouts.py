"""Where the layouts of one operand put things, as arrays over layouts and ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from umm.arrays import Bools, Ints
from umm.layouts.layout import Layout
from umm.space.bounds.overlaps import Parts

DIMENSIONS = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}


@dataclass(frozen=True, eq=False)
class OperandLayouts:
    """The layouts of one operand, and where each puts every rank.

    Attributes:
        matrix: A, B or C.
        layouts: Its layouts.
        itemsize: Bytes of an element.
    """

    matrix: str
    layouts: Sequence[Layout]
    itemsize: int

    def __len__(self) -> int:
        return len(self.layouts)

    @cached_property
    def parts(self) -> dict[str, list[Parts]]:
        """How each layout cuts the matrix's two dimensions."""
        rows, cols = DIMENSIONS[self.matrix]
        return {
            rows: [Parts(x.row_edges, x.process_grid[0]) for x in self.layouts],
            cols: [Parts(x.col_edges, x.process_grid[1]) for x in self.layouts],
        }

    @cached_property
    def replica(self) -> Ints:
        """Replica of each rank, shape (layouts, p)."""
        return np.array([x.replica_of_rank for x in self.layouts], dtype=np.int64)

    @cached_property
    def place(self) -> dict[str, Ints]:
        """Row (first dimension) and column (second) of each rank in its process grid, shape (layouts, p)."""
        rows, cols = [], []
        for x in self.layouts:
            _, row, col = x.place_of_rank
            rows.append(row)
            cols.append(col)
        first, second = DIMENSIONS[self.matrix]
        return {first: np.array(rows), second: np.array(cols)}

    @cached_property
    def reachable(self) -> Bools:
        """Whether two ranks are different ones of the same replica, shape (layouts, p, p)."""
        same: Bools = self.replica[:, :, None] == self.replica[:, None, :]
        same[:, np.arange(same.shape[1]), np.arange(same.shape[1])] = False
        return same

    @cached_property
    def held(self) -> Ints:
        """Bytes each rank holds, shape (layouts, p)."""
        return np.array([x.elements_of_rank for x in self.layouts], dtype=np.int64) * self.itemsize

    @cached_property
    def largest_tile(self) -> list[int]:
        """Bytes of each layout's largest tile."""
        return [
            int(np.diff(x.row_edges).max()) * int(np.diff(x.col_edges).max()) * self.itemsize
            for x in self.layouts
        ]

    def cut(self, start: int, stop: int) -> "OperandLayouts":
        """Return some consecutive layouts."""
        return OperandLayouts(self.matrix, self.layouts[start:stop], self.itemsize)
