"""A plan: which rank computes which piece and the moves from rank to rank, before a schedule orders it.

Statements give jobs, layouts that differ give moves. Nothing here knows a machine or a buffer: bytes by rank
and by pair of ranks follow from the regions alone.
"""

from dataclasses import dataclass

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.interval import Interval


@dataclass(frozen=True, eq=False)
class Regions:
    """Rectangles of one tensor in the memory of ranks, one a row."""

    tensor: str  # name of the tensor
    rank: Ints  # rank in whose memory each lies
    spans: Ints  # first row, row after the last, first column, column after the last, shape (regions, 4)

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def elements(self) -> Ints:
        """Number of elements of each."""
        sides = np.maximum(self.spans[:, 1::2] - self.spans[:, ::2], 0)
        return np.asarray(sides.prod(axis=1))

    def taken(self, which: Ints | Bools) -> "Regions":
        """Return some of them."""
        return Regions(self.tensor, self.rank[which], self.spans[which])

    def region(self, number: int) -> tuple[int, Interval, Interval]:
        """Return rank, rows and columns of one."""
        top, bottom, left, right = self.spans[number].tolist()
        return int(self.rank[number]), Interval(top, bottom), Interval(left, right)


@dataclass(frozen=True, eq=False)
class Jobs:
    """The op list of a statement of any kind: one job a row, done where its output lies."""

    out: Regions  # what each job writes
    reads: tuple[Regions, ...]  # what each reads of every operand, at its rank once it has moved there
    kernel: str  # what computes it: `gemm`, `batch`, `grouped`, `attention` or the name of a map
    adds: Bools  # whether the output of each is one part of a sum

    @property
    def rank(self) -> Ints:
        """Rank that does each."""
        return self.out.rank

    @property
    def title(self) -> str:
        """The product by name, such as ``H = gemm(X, W1)``."""
        return f"{self.out.tensor} = {self.kernel}({', '.join(x.tensor for x in self.reads)})"

    def __len__(self) -> int:
        return len(self.out)


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves for one purpose: a gather, a sum, a redistribution, a dispatch."""

    source: Regions  # where each slice lies
    into: Regions  # where it goes
    adds: bool  # whether it is added there to parts from other ranks
    group: Ints  # number of the ranks that exchange alike, for each: a collective is one group
    way: str  # how it goes: `one-sided`, `by level`, `ring`, the name of a library

    def __len__(self) -> int:
        return len(self.source)

    @property
    def title(self) -> str:
        """The tensor that moves, and how, such as ``Y summed, library``."""
        source, into = self.source.tensor, self.into.tensor
        if source != into:
            return f"{source} {'added' if self.adds else 'copied'} to {into}, {self.way}"
        return f"{source} {'summed' if self.adds else 'moved'}, {self.way}"

    @property
    def elements(self) -> int:
        """Number of elements of all, those that stay at their rank included."""
        return int(self.source.elements.sum())

    @property
    def between(self) -> Bools:
        """Whether each moves from one rank to another."""
        return np.asarray(self.source.rank != self.into.rank)

    def by_rank(self, itemsize: int, ranks: int) -> tuple[Floats, Floats]:
        """Return the bytes that reach each rank from others, and those that leave it.

        >>> two = Regions("X", np.array([0, 1]), np.array([[0, 2, 0, 3], [2, 4, 0, 3]]))
        >>> swapped = Regions("X", np.array([1, 0]), two.spans)
        >>> moves = Moves(two, swapped, False, np.array([0, 0]), "one-sided")
        >>> [x.tolist() for x in moves.by_rank(4, 2)], moves.by_pair(4, 2).tolist()
        ([[24.0, 24.0], [24.0, 24.0]], [[0.0, 24.0], [24.0, 0.0]])
        """
        nbytes = self.source.elements * float(itemsize) * self.between
        arriving, leaving = (np.bincount(x.rank, nbytes, ranks) for x in (self.into, self.source))
        return np.asarray(arriving, np.float64), np.asarray(leaving, np.float64)

    def by_pair(self, itemsize: int, ranks: int) -> Floats:
        """Return the bytes from every rank to every other one, shape (ranks, ranks)."""
        nbytes = self.source.elements * float(itemsize) * self.between
        pairs = np.bincount(self.source.rank * ranks + self.into.rank, nbytes, ranks * ranks)
        return np.asarray(pairs.reshape(ranks, ranks), np.float64)


Plan = tuple[Jobs | Moves, ...]
"""Jobs and moves in the order of the program; what waits for what follows from their regions."""
