"""SUMMA: panels of A go along the rows of a process grid and panels of B along its columns, panel by panel.

Each panel of k is broadcast by the ranks that have it, and every rank adds the product of two panels to its
own tile of C. The multiplies of a backward pass keep these layouts: for A·Bᵀ and Aᵀ·B one operand is
broadcast, and the products are summed where a panel of C belongs. ScaLAPACK's PDGEMM does the same with
panels of a block, whose owners take turns: a rank's blocks of a panel are packed into one message.

Each panel costs a pass over C. Parts of k that are thin are therefore broadcast one by one into one panel.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, read_mesh
from umm.interval import Interval
from umm.layouts.edges import square_grid
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives.collective import ways
from umm.plans.collectives.way import Exchange, Manner, Piece
from umm.plans.movement.blocks import by_owner, in_blocks
from umm.plans.option import Option
from umm.program.problem import MATRICES, Problem
from umm.program.tensors import LARGEST
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

MOST_PANELS, MOST_PRODUCTS = 64, 500_000
"""Panels of a multiply with which peers pipeline it; products of panels of PDGEMM, all ranks together."""
DEEP = 128  # indices of k from which a GEMM hides its pass over C, as in umm_hw.arrays.panels
LOGICAL = 32
"""Indices of k that PDGEMM puts together at least: ScaLAPACK, PBLAS/SRC/pilaenv.f and PB_CpgemmAB.c."""
Place = tuple[int, int]


class Panels(NamedTuple):
    """How panels go."""

    # Along a line of ranks, by the name of a way to do collectives; sums go that way back, where it is not
    # MPI's, which does broadcasts alone.
    broadcast: str = "tree"
    chunks: int = 1  # in so many parts that follow each other along a ring; 0 for what suits their bytes
    panel: int = 0  # the most rows or columns of a panel; 0 for a tile's, or up to 128 of thin ones
    prefetch: int = 1  # how many are on their way while one is multiplied


@dataclass(frozen=True)
class Plane:
    """A process grid whose ranks hold a tile of each matrix."""

    build: Builder  # where the actions go
    rows: int  # rows of the grid
    cols: int  # columns of it
    tile: Callable[[str, int, int], Slice]  # returns the tile of a tensor at a place
    how: Panels  # how panels go

    def multiply(self, c: str, a: str, b: str) -> None:
        """Set C to A·B: panels of columns of A, and of rows of B."""
        # Edges of A's columns and of B's rows together: each panel has one owner column and one owner row.
        for number, parts in enumerate(self._joined(c, self._bounds((a, 1), (b, 0)))):
            left, right = self._spread(a, 1, parts, number), self._spread(b, 0, parts, number)
            for place in self._places():
                into = self.tile(c, *place)
                self.build.gemm(into, left[into.rank], right[into.rank], beta=float(number > 0))

    def multiply_bt(self, c: str, a: str, b: str) -> None:
        """Set C to A·Bᵀ: panels of rows of B, which become columns of C; A stays."""
        # k is the columns of A, spread over a grid row: each rank has a part of the sum for a panel of C.
        self._transposed(c, a, b, 0)

    def multiply_at(self, c: str, a: str, b: str) -> None:
        """Set C to Aᵀ·B: panels of columns of A, which become rows of C; B stays."""
        # k is the rows of A, spread over a grid column: the sum for a panel of C runs along that column.
        self._transposed(c, b, a, 1)

    def _transposed(self, c: str, stays: str, moving: str, axis: int) -> None:
        """Multiply with panels of an operand along an axis; sum each where that panel of C belongs."""
        bounds = self._bounds((moving, axis), (c, 1 - axis))
        for number, (span,) in enumerate(panels_of(bounds, self.how.panel)):
            panel = self._spread(moving, axis, [span], number)
            for line, target in self._lines(c, 1 - axis, span):
                pieces = {}
                for place in line:
                    tile, rank = self.tile(stays, *place), self.tile(c, *place).rank
                    pieces[rank] = target
                    # The owner multiplies straight into C; the others need room for a partial sum.
                    if rank != target.rank:
                        slot = c, 1 - axis, number % (self.how.prefetch + 1)
                        pieces[rank] = self.build.temporary(rank, c, target.rows, target.cols, slot)
                    both = (panel[tile.rank], tile) if axis else (tile, panel[tile.rank])
                    self.build.gemm(pieces[rank], *both, beta=0, trans="ba"[axis])
                piece_of = pieces.__getitem__
                self._write("reduce", list(pieces), piece_of, target, piece_of)

    def _places(self) -> Iterator[Place]:
        return ((i, j) for i in range(self.rows) for j in range(self.cols))

    def _spans(self, tensor: str, axis: int) -> list[Interval]:
        """Return which rows (axis 0) or columns (axis 1) of a tensor each row or column of the grid has."""
        if axis:
            return [self.tile(tensor, 0, j).cols for j in range(self.cols)]
        return [self.tile(tensor, i, 0).rows for i in range(self.rows)]

    def _bounds(self, *cut: tuple[str, int]) -> list[int]:
        """Return where a tile of one of some tensors starts along an axis, and the end."""
        return sorted({edge for tensor, axis in cut for span in self._spans(tensor, axis) for edge in span})

    def _joined(self, c: str, bounds: Sequence[int]) -> list[list[Interval]]:
        """Return panels, those of thin tiles joined if that saves more of passes over C than it copies."""
        alone = panels_of(bounds, self.how.panel)
        joined = panels_of(bounds, self.how.panel, self.how.panel or DEEP)
        m, n = self.tile(c, 0, 0).shape
        # A gemm of few k is bound by its pass over C, m·n elements a panel. Joining saves passes, but the
        # owner's part has to be copied beside those of others: (m + n) elements per index of k.
        copied = sum(x[-1].stop - x[0].start for x in joined if len(x) > 1)
        return joined if (len(alone) - len(joined)) * m * n > copied * (m + n) else alone

    def _lines(self, tensor: str, axis: int, span: Interval) -> Iterator[tuple[list[Place], Slice]]:
        """Yield the lines of places along which a panel goes, each with its part where it belongs."""
        owner = next(x for x, s in enumerate(self._spans(tensor, axis)) if s.intersect(span) == span)
        for x in range(self.rows if axis else self.cols):
            line = [(x, j) for j in range(self.cols)] if axis else [(i, x) for i in range(self.rows)]
            tile = self.tile(tensor, *line[owner])
            yield line, tile.cut(tile.rows, span) if axis else tile.cut(span, tile.cols)

    def _spread(self, tensor: str, axis: int, parts: Sequence[Interval], number: int) -> dict[int, Slice]:
        """Broadcast a panel along its lines and return where each rank has it."""
        # prefetch + 1 slots: a panel's room is free once the multiply that read it is over.
        slot, panels = (tensor, axis, number % (self.how.prefetch + 1)), dict[int, Slice]()
        for span in parts:
            for line, piece in self._lines(tensor, axis, span):
                ranks = [self.tile(tensor, *place).rank for place in line]
                spread(self.build, partial(self._write, "broadcast"), piece, axis, parts, ranks, slot, panels)
        return panels

    def _write(self, what: str, line: Sequence[int], given: Any, into: Any, room: Any = None) -> None:
        """Write a collective along a line of ranks."""
        writers = ways()[self.how.broadcast].writers
        # The mpi way only broadcasts; its sums go by a tree.
        write = writers[what] if what in writers else ways()["tree"].writers[what]
        manner = Manner(chunks=self.how.chunks or None)
        write(Exchange(self.build, line, given, into, room, manner=manner))


def panels_of(bounds: Sequence[int], width: int, joins: int = 0) -> list[list[Interval]]:
    """Return the panels of k, each as the parts of which it is made.

    Args:
        bounds: Where tiles start, and the end.
        width: The most of a part; 0 for tiles as they are.
        joins: Up to so much parts that follow each other make one panel.

    >>> [[tuple(part) for part in panel] for panel in panels_of([0, 4, 8, 24], 12, 8)]
    [[(0, 4), (4, 8)], [(8, 20)], [(20, 24)]]
    """
    panels: list[list[Interval]] = []
    for left, right in pairwise(bounds):
        for start in range(left, right, width or right - left):
            # A part stays inside a tile, so that it has one owner; only whole parts are joined to a panel.
            part = Interval(start, min(start + (width or right), right))
            if panels and part.stop - panels[-1][0].start <= joins:
                panels[-1].append(part)
            else:
                panels.append([part])
    return panels


def spread(
    build: Builder,
    write: Callable[..., None],
    part: Slice,
    axis: int,
    parts: Sequence[Interval],
    line: Sequence[int],
    slot: Hashable,
    panels: dict[int, Slice],
) -> None:
    """Broadcast a part of a panel along a line of ranks, and enter each rank's panel.

    Args:
        part: The part at its owner. A panel of one part is used there; others are put together.
        axis: 0 for a panel of rows, 1 for one of columns.
        panels: Panel of each rank; filled.
    """
    extent = Interval(parts[0].start, parts[-1].stop)
    rows, cols = (part.rows, extent) if axis else (extent, part.cols)
    for rank in line:
        # A joined panel has to be contiguous, so even an owner copies its part; a single part is read in
        # place.
        if rank == part.rank and len(parts) == 1:
            panels[rank] = part
        elif rank not in panels:
            panels[rank] = build.temporary(rank, build.tensors[part.tensor].name, rows, cols, slot)
    if part.elements:
        target = {rank: panels[rank].cut(part.rows, part.cols) for rank in line}
        write(list(line), part, target.__getitem__)


def mesh(ranks: int, grid: str, **options: Any) -> Mesh | None:
    """The most square grid, or the one that is asked for."""
    rows, cols = read_mesh(grid, 2) if grid else square_grid(ranks)
    return (rows, cols) if rows * cols == ranks else None


def native(problem: Problem, grid: str, **options: Any) -> Native:
    """A tile of each matrix for each place of the process grid."""
    rows, cols = mesh(problem.p, grid) or (1, problem.p)
    return Native(*(Layout.block(problem.shape(x), (rows, cols)) for x in MATRICES))


def write(build: Builder, names: Names, grid: str, **options: Any) -> None:
    """Broadcast and multiply, panel by panel."""
    plane(build, names.c, Panels(**options)).multiply(names.c, names.a, names.b)


def plane(build: Builder, like: str, how: Panels) -> Plane:
    """Return all ranks as the process grid that a tensor lies on; the other tensors lie on the same."""
    rows, cols = build.layout(like).process_grid
    return Plane(build, rows, cols, build.tile, how)


PANELS = (
    Option(
        "broadcast", "mpi", "How a panel goes along a row or column of ranks; mpi as MPICH chooses by size.",
        ("mpi", "tree", "ring", "direct"), words="broadcast by {}".format,
    ),
    Option(
        "chunks", 1, "Parts of a panel that follow each other along a ring; 0 for what suits their bytes.",
        words=lambda n: "" if n == 1 else f"{n or 'suitable'} chunks",
    ),
    Option(
        "panel", 0, "The most columns of A and rows of B in a panel; 0 for a tile's, or 128 of thin tiles.",
        words=lambda n: f"panels of {n}" if n else "whole panels", most=LARGEST,
    ),
    Option(
        "prefetch", 1, "Panels that are on their way while one is multiplied.", words="prefetch {}".format
    ),
)  # fmt: skip
GRID = Option(
    "grid", "", "Ranks along m and n, such as 2x3; the most square if not given.",
    words=lambda grid: grid and f"grid {grid}",
)  # fmt: skip

ALGORITHM = Algorithm(
    "summa",
    "Any process grid; panels of A are broadcast along its rows, panels of B along its columns.",
    "van de Geijn & Watts (1997); SUMMA2.5, section 2.2",
    native,
    write,
    options=(GRID, *PANELS),
    piped=lambda problem: [
        {"broadcast": "ring", "prefetch": 3, "panel": panel}
        for panel in (256, 512, 1024)
        if panel * MOST_PANELS >= problem.k
    ],
    mesh=mesh,
    words=Formula("2n²/√p · (1 − 1/√p)", lambda n, q, _: 2 * n * n / q * (1 - 1 / q)),
    messages=Formula("2(√p − 1)", lambda n, q, _: 2 * (q - 1)),
    published="2n²/√p words, 2√p broadcasts",
)


def cut_alike(problem: Problem) -> bool:
    """Whether A, B and C lie on one process grid, without copies, and are cut at the same m and n."""
    a, b, c = problem.layouts
    if c.replicas > 1 or any(x.places.shape != c.places.shape for x in (a, b)):
        return False
    pairs = (a.row_edges, c.row_edges), (b.col_edges, c.col_edges)
    same = all(bool((x.places == c.places).all()) for x in (a, b))
    return same and all(len(x) == len(y) and bool((x == y).all()) for x, y in pairs)


def on_one_grid(problem: Problem, **options: Any) -> Native:
    """The layouts of a problem if they are of one process grid and cut alike; else a tile a place."""
    return Native(*problem.layouts) if cut_alike(problem) else native(problem, "")


def of_blocks(problem: Problem) -> tuple[Problem, dict[str, int]]:
    """Return a problem with all blocks of a rank as one tile, and their k, if it is cut alike."""
    if not cut_alike(problem):
        return problem, {}
    a, b, _ = problem.layouts
    # One tile per rank keeps the schedule small; the block length is kept as the panel width.
    return by_owner(problem), {"block": int(np.diff(np.union1d(a.col_edges, b.row_edges)).max())}


def block_cyclic(problem: Problem) -> bool:
    """Whether A, B and C are cut alike, k too, and ranks hold several blocks."""
    a, b, _ = problem.layouts
    return cut_alike(problem) and np.array_equal(a.col_edges, b.row_edges) and in_blocks(problem)


def write_blocks(build: Builder, names: Names, broadcast: str, prefetch: int, block: int) -> None:
    """Broadcast a column of blocks of A and a row of blocks of B, and add their product to C."""
    # A rank packs its blocks of a column, or of a row, into one message, and multiplies with one GEMM.
    a, b, c = (build.layout(x) for x in names)
    rows, cols = c.process_grid
    width, bounds = block or _half(a), np.unique((*a.col_edges, *b.row_edges)).tolist()

    def to_all(line: Sequence[int], part: Slice, into: Piece) -> None:
        manner = Manner(chunks=1)
        ways()[broadcast].writers["broadcast"](Exchange(build, line, part, into, manner=manner))

    def turn(panel: Sequence[Interval]) -> int:
        """Return how many panels of its tile come before."""
        # The tiles here hold a rank's blocks side by side (see of_blocks). Sorting by the place within the
        # tile restores the cyclic order, in which owners take turns.
        start = panel[0].start
        return (start - int(bounds[bisect_right(bounds, start) - 1])) // width

    # PBLAS joins blocks up to its logical width, so thin blocks are not multiplied one by one.
    panels = sorted(panels_of(bounds, width, max(width, LOGICAL)), key=turn)
    for number, parts in enumerate(panels):
        slot, left, right = number % (prefetch + 1), dict[int, Slice](), dict[int, Slice]()
        for span in parts:
            col, row = (
                int(np.searchsorted(edges, span.start, side="right")) - 1
                for edges in (a.col_edges, b.row_edges)
            )
            for i in range(rows):
                tile = build.tile(names.a, i, col)
                line = c.places[0, i].tolist()
                spread(build, to_all, tile.cut(tile.rows, span), 1, parts, line, (names.a, slot), left)
            for j in range(cols):
                tile = build.tile(names.b, row, j)
                line = c.places[0, :, j].tolist()
                spread(build, to_all, tile.cut(span, tile.cols), 0, parts, line, (names.b, slot), right)
        for (i, j), rank in np.ndenumerate(c.places[0]):
            into = build.tile(names.c, i, j)
            build.gemm(into, left[int(rank)], right[int(rank)], beta=float(number > 0))


def _half(layout: Layout) -> int:
    return max(1, -(-layout.shape[1] // (2 * layout.process_grid[1])))


def too_many_blocks(problem: Problem, machine: Machine, block: int, **options: Any) -> str | None:
    """Return that blocks are too small to multiply one by one; None if they are not."""
    a = on_one_grid(problem).a
    count = -(-problem.k // max(block or _half(a), LOGICAL)) * problem.p
    if count <= MOST_PRODUCTS:
        return None
    times = 2
    while count / times > MOST_PRODUCTS:
        times *= 2
    return f"its blocks make {count:,} products, at most {MOST_PRODUCTS:,}; take blocks {times} times as long"


PDGEMM = Algorithm(
    "scalapack",
    "PDGEMM: SUMMA of block-cyclic matrices, a panel of a block after another.",
    "Choi, Dongarra & Walker (1996), ScaLAPACK's PBLAS",
    on_one_grid,
    write_blocks,
    refuses=too_many_blocks,
    options=(
        PANELS[0],
        # PBLAS broadcasts a panel, multiplies, and only then goes on to the next.
        replace(PANELS[3], default=0),
        Option(
            "block", 0, "Columns of A and rows of B in a panel; 0 for the layouts' blocks, or two a rank.",
            words=lambda n: f"panels of {n}" if n else "", most=LARGEST,
        ),
    ),
    mesh=lambda ranks, **options: square_grid(ranks),
    sees=of_blocks,
    compares=block_cyclic,
)  # fmt: skip
