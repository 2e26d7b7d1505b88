"""The local multiplies of every rank, found by slicing (index arithmetic) alone.

Each dimension is cut at the edges of the two matrices that share it; an op is one segment of m, one of n
and one of k, so the whole list is three columns of segment numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints, frozen, in_c
from umm.errors import InfeasibleError, ProblemError, expect
from umm.files import shown
from umm.host.hardware import free_memory
from umm.interval import Interval
from umm.layouts.edges import Tile, ceil_edges
from umm.numbers import as_int
from umm.program.problem import MATRICES, Problem, largest_matrix
from umm.units import counted, format_bytes

count_in_c, ops_in_c = (in_c("umm.plans.multiply._plan", name) for name in ("count", "ops"))

MOST_OPS = 5 * 10**7
MANY_OPS = 10**6  # beyond these it is asked whether there is memory for them, and noted how much they take
BYTES_OF_OP = 2000  # what an op's actions take while a schedule is made: of 262,144 ops on cyclic:1x1, 600 MB
OFFSETS = ("none", "index", "rotate", "last")


class Op(NamedTuple):
    """One local multiply: C[m, n] += A[m, k] · B[k, n], with the tiles that hold the three slices."""

    rank: int
    a_tile: Tile
    b_tile: Tile
    c_tile: Tile
    m: Interval
    n: Interval
    k: Interval

    def __str__(self) -> str:
        a, b, c = (f"({i},{j})" for i, j in (self.a_tile, self.b_tile, self.c_tile))
        ranges = " ".join(
            f"{x}={r.start}:{r.stop}" for x, r in zip("mnk", (self.m, self.n, self.k), strict=True)
        )
        return f"rank {self.rank}: C{c} += A{a} · B{b}  {ranges}"


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension cut at the edges of the two matrices that share it."""

    edges: Ints  # global index where each segment starts, and the end; no segment is empty
    first: Ints  # tile row or column of the first matrix (A for m and k, B for n) that holds a segment
    second: Ints  # the same for the second matrix (C for m and n, B for k)
    # For the first matrix, the second, and the shares of the dimension: the segment where each tile row or
    # column, or share, starts, and the number of segments.
    starts: tuple[Ints, Ints, Ints]

    @cached_property
    def sizes(self) -> Ints:
        """Number of indices of each segment."""
        return self.edges[1:] - self.edges[:-1]

    @cached_property
    def groups(self) -> Ints:
        """The segments where a tile of the first matrix starts, and the number of segments."""
        changes = (self.first[1:] != self.first[:-1]).nonzero()[0] + 1
        return np.concatenate(([0], changes, [len(self.first)]))

    def interval(self, segment: int) -> Interval:
        """Return the global indices of a segment."""
        return Interval(int(self.edges[segment]), int(self.edges[segment + 1]))


@dataclass(frozen=True, eq=False)
class OpList(Sequence[Op]):
    """The ops of some or all ranks, each rank's in execution order, ranks ascending."""

    problem: Problem  # what is multiplied
    stationary: str  # The matrix whose owners do the work: A, B or C.
    rank: Ints  # rank of each op
    m_segment: Ints  # segment of m of each op; n_segment and k_segment the same
    n_segment: Ints
    k_segment: Ints
    m_axis: Axis  # the segments of m, cut where A's and C's rows are; n_axis and k_axis the same
    n_axis: Axis
    k_axis: Axis

    def __len__(self) -> int:
        return len(self.rank)

    def __getitem__(self, index: int) -> Op:  # type: ignore[override]
        m, n, k = (int(x[index]) for x in (self.m_segment, self.n_segment, self.k_segment))
        return Op(
            int(self.rank[index]),
            (int(self.m_axis.first[m]), int(self.k_axis.first[k])),
            (int(self.k_axis.second[k]), int(self.n_axis.first[n])),
            (int(self.m_axis.second[m]), int(self.n_axis.second[n])),
            self.m_axis.interval(m),
            self.n_axis.interval(n),
            self.k_axis.interval(k),
        )

    def __repr__(self) -> str:
        return f"OpList({counted(len(self), 'op')}, stationary {self.stationary}: {self.problem!r})"

    def __str__(self) -> str:
        return "\n".join(str(op) for op in self)

    @cached_property
    def tiles(self) -> tuple[Ints, Ints, Ints]:
        """Row-major tile numbers of A, B and C for each op."""
        a, b, c = (layout.grid_shape()[1] for layout in self.problem.layouts)
        m, n, k = self.m_segment, self.n_segment, self.k_segment
        return (
            (self.m_axis.first * a)[m] + self.k_axis.first[k],
            (self.k_axis.second * b)[k] + self.n_axis.first[n],
            (self.m_axis.second * c)[m] + self.n_axis.second[n],
        )

    @cached_property
    def sizes(self) -> tuple[Ints, Ints, Ints]:
        """Length of the m, n and k range of each op."""
        return (
            self.m_axis.sizes[self.m_segment],
            self.n_axis.sizes[self.n_segment],
            self.k_axis.sizes[self.k_segment],
        )


_FIELDS = [x.name for x in fields(OpList)]


def op_list(
    problem: Problem, stationary: str = "auto", *, offset: str = "index", rank: int | None = None
) -> OpList:
    """Return the local multiplies of every rank, or of one rank where the whole would not fit.

    ProblemError for an unknown stationary matrix or offset, or more ops than a table holds. InfeasibleError
    if this host lacks the memory for them.

    Args:
        problem: What is multiplied.
        stationary: A, B, C, or ``auto`` for the largest matrix. Its owners do the work; replica r of a
            replicated stationary matrix does the r-th of c shares of k (C), m (B) or n (A), cut by
            the ceil rule.
        offset: Where each stationary tile (i, j) starts its own list: ``none``, ``index``: (i + j) mod its
            length, as published, ``last``: one further, so that it ends there, or ``rotate``: at the (i + j)
            mod T-th tile of the moving matrix that has the most tiles in that list (T of them), so that
            misaligned lists spread too.
        rank: Only this rank's ops.

    Source: Brock & Golin (2025), algorithms 1 and 2. Line 20 of algorithm 1 prints ``a_bounds[0]``; B's
    rows are indexed by k, so it is A's column range here.

    >>> problem = Problem(m=4, n=4, k=4, a="col", b="col", c="col", ranks=2)
    >>> print(op_list(problem, "C"))
    rank 0: C(0,0) += A(0,0) · B(0,0)  m=0:4 n=0:2 k=0:2
    rank 0: C(0,0) += A(0,1) · B(0,0)  m=0:4 n=0:2 k=2:4
    rank 1: C(0,1) += A(0,1) · B(0,1)  m=0:4 n=2:4 k=2:4
    rank 1: C(0,1) += A(0,0) · B(0,1)  m=0:4 n=2:4 k=0:2
    """
    expect(problem, Problem, "op_list", "a Problem, such as umm.Problem(m=64, n=48, k=32, ranks=4)")
    _ = problem.p  # which says so if there are no layouts yet
    # Moving the largest matrix costs most, so it is the one that stays.
    if stationary == "auto":
        stationary = largest_matrix(problem)
    if stationary not in MATRICES:
        raise ProblemError(f"stationary matrix {shown(stationary)} is unknown; choose from A, B, C, auto")
    if offset not in OFFSETS:
        raise ProblemError(f"iteration offset {shown(offset)} is unknown; choose from {', '.join(OFFSETS)}")
    layout = problem.layout(stationary)
    m_axis, n_axis, k_axis = _axes(problem, stationary)

    owner, replica, i, j = layout.tiles_by_owner
    if rank is not None:
        if as_int(rank) not in range(problem.p):
            raise ProblemError(f"rank {shown(rank)} is not one of the ranks 0 to {problem.p - 1}")
        owner, replica, i, j = (x[owner == rank] for x in layout.tiles_by_owner)
    # Per stationary matrix: where its tile rows and columns start as segments, and the shares of the third
    # dimension that its replicas divide up.
    rows, cols, share = {
        "A": (m_axis.starts[0], k_axis.starts[0], n_axis.starts[2]),
        "B": (k_axis.starts[1], n_axis.starts[0], m_axis.starts[2]),
        "C": (m_axis.starts[1], n_axis.starts[1], k_axis.starts[2]),
    }[stationary]
    total = int(count_in_c(i, j, replica, rows, cols, share))
    _check_count(total)
    groups = {"A": n_axis, "B": m_axis, "C": m_axis}[stationary].groups

    def turned(shift: Ints) -> OpList:
        """Return the ops, each stationary tile's list started at its shift-th."""
        # A loop over the rows of one array takes longer than four arrays, for it ends in an error.
        ranks, m, n, k = [np.empty(total, dtype=np.int64) for _ in range(4)]
        ops_in_c(owner, replica, i, j, shift, rows, cols, share, groups, ranks, m, n, k, ord(stationary))
        values = problem, stationary, ranks, m, n, k, m_axis, n_axis, k_axis
        return frozen(OpList, zip(_FIELDS, values, strict=True))

    if offset == "index":
        return turned(i + j)
    if offset == "last":
        return turned(i + j + 1)
    # "rotate" depends on which tiles a list meets, so the list is made once unturned.
    ops = turned(np.zeros_like(i))
    if offset == "none" or total == 0:
        return ops
    tile_size = (rows[i + 1] - rows[i]) * (cols[j + 1] - cols[j]) * (share[replica + 1] - share[replica])
    tile_start = tile_size.cumsum() - tile_size
    return turned(_rotation(ops, np.arange(len(owner)).repeat(tile_size), tile_start, i + j))


def _check_count(total: int) -> None:
    """Refuse more ops than a table or this host's memory holds."""
    if total > MOST_OPS:
        raise ProblemError(
            f"these layouts take {total} local multiplies, more than the {MOST_OPS} that one table holds; "
            "choose larger tiles"
        )
    if total > MANY_OPS and total * BYTES_OF_OP > free_memory():
        raise InfeasibleError(
            f"these layouts take {total} local multiplies, whose actions need some "
            f"{format_bytes(total * BYTES_OF_OP)}, but {format_bytes(free_memory())} is free on this host; "
            "choose larger tiles"
        )
    if total > MANY_OPS:
        _note(total)


@cache
def _note(total: int) -> None:
    """Warn of many ops: with a tile for each rank they grow with the square of the ranks."""
    from logging import getLogger

    getLogger("umm").warning(
        f"note: these layouts take {total:,} local multiplies, whose actions need some "
        f"{format_bytes(total * BYTES_OF_OP)}; fewer ranks or larger tiles take less"
    )


def _axes(problem: Problem, stationary: str) -> tuple[Axis, Axis, Axis]:
    """Return m, n and k as ops cut them: where A, B and C do, and replicas of the stationary matrix."""
    a, b, c = problem.layouts
    shares = {
        "m": 1,
        "n": 1,
        "k": 1,
        {"A": "n", "B": "m", "C": "k"}[stationary]: problem.layout(stationary).replicas,
    }
    return (
        _axis(a.cuts[0], c.cuts[0], shares["m"]),
        _axis(b.cuts[1], c.cuts[1], shares["n"]),
        _axis(a.cuts[1], b.cuts[0], shares["k"]),
    )


@lru_cache(maxsize=4096)
def _axis(first: bytes, second: bytes, shares: int) -> Axis:
    """Return a dimension cut at the edges of two matrices, and into a number of shares."""
    first_edges, second_edges = (np.frombuffer(edges, dtype=np.int64) for edges in (first, second))
    # A common refinement of all cuts: within a segment no tile and no share changes.
    cuts = np.concatenate((first_edges, second_edges, ceil_edges(int(first_edges[-1]), shares)))
    edges = np.sort(cuts)
    edges = edges[np.concatenate(([True], edges[1:] != edges[:-1]))]
    starts, segment = edges[:-1], edges.searchsorted(cuts)
    tiles, both = len(first_edges), len(first_edges) + len(second_edges)
    return Axis(
        edges,
        first_edges.searchsorted(starts, side="right") - 1,
        second_edges.searchsorted(starts, side="right") - 1,
        (segment[:tiles], segment[tiles:both], segment[both:]),
    )


def _rotation(ops: OpList, tile_of_op: Ints, tile_start: Ints, index: Ints) -> Ints:
    """Return for each stationary tile where its list starts: at the index-th tile of the busier operand."""
    tiles = [t for x, t in zip(MATRICES, ops.tiles, strict=True) if x != ops.stationary]
    firsts = []
    for moving in tiles:
        # One integer per (stationary tile, moving tile), so that a single `unique` handles all lists at once.
        key = tile_of_op * (int(moving.max()) + 1) + moving
        first = np.sort(np.unique(key, return_index=True)[1])  # where each moving tile first appears
        count = np.bincount(tile_of_op[first], minlength=len(tile_start))
        start = count.cumsum() - count
        turn = start + index % np.maximum(count, 1)
        firsts.append((count, first[np.minimum(turn, len(first) - 1)]))
    (count_1, first_1), (count_2, first_2) = firsts
    # The operand with more tiles in the list is the one whose owners would be crowded.
    chosen = np.where(count_1 >= count_2, first_1, first_2)
    return np.where(count_1 > 0, chosen - tile_start, 0)
