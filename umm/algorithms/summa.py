"""SUMMA: panels of A go along the rows of a process grid and panels of B along its columns, panel by panel.

Each panel of k is broadcast by the ranks that have it, and every rank adds the product of two panels to its
own tile of C. The multiplies of a backward pass keep these layouts: for A·Bᵀ and Aᵀ·B one operand is
broadcast, and the products are summed where a panel of C belongs. ScaLAPACK's PDGEMM does the same with
panels of a block, whose owners take turns: a rank's blocks of a panel are packed into one message.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, Option, read_mesh
from umm.algorithms.collectives.collective import ways
from umm.algorithms.collectives.way import Manner
from umm.algorithms.movement.blocks import by_owner, in_blocks
from umm.interval import Interval
from umm.layouts.edges import square_grid
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.program.problem import MATRICES, Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

MOST_PANELS, MOST_PRODUCTS = 64, 500_000
"""Panels of a multiply with which peers pipeline it; products of panels of PDGEMM, all ranks together."""
Place = tuple[int, int]
Product = tuple[Slice, Slice]


class Panels(NamedTuple):
    """How panels go.

    Attributes:
        broadcast: Along a line of ranks, by the name of a way to do collectives; sums go that way back.
        chunks: In so many parts that follow each other along a ring; 0 for what suits their bytes.
        panel: The most rows or columns of a panel; 0 for as many as tiles allow.
        prefetch: How many are on their way while one is multiplied.
    """

    broadcast: str = "tree"
    chunks: int = 1
    panel: int = 0
    prefetch: int = 1


@dataclass(frozen=True)
class Plane:
    """A process grid whose ranks hold a tile of each matrix.

    Attributes:
        build: Where the actions go.
        rows: Rows of the grid.
        cols: Columns of it.
        tile: Returns the tile of a tensor at a place.
        how: How panels go.
    """

    build: Builder
    rows: int
    cols: int
    tile: Callable[[str, int, int], Slice]
    how: Panels

    def multiply(self, c: str, a: str, b: str) -> None:
        """Set C to A·B: panels of columns of A, and of rows of B."""
        for number, span in self._panels((a, 1), (b, 0)):
            left, right = self._spread(a, 1, span, number), self._spread(b, 0, span, number)
            for place in self._places():
                self.build.gemm(self.tile(c, *place), left[place], right[place], beta=float(number > 0))

    def multiply_bt(self, c: str, a: str, b: str) -> None:
        """Set C to A·Bᵀ: panels of rows of B, which become columns of C; A stays."""
        for number, span in self._panels((b, 0), (c, 1)):
            right = self._spread(b, 0, span, number)
            products = {place: (self.tile(a, *place), right[place]) for place in self._places()}
            self._sum(c, 1, span, number, products, "b")

    def multiply_at(self, c: str, a: str, b: str) -> None:
        """Set C to Aᵀ·B: panels of columns of A, which become rows of C; B stays."""
        for number, span in self._panels((a, 1), (c, 0)):
            left = self._spread(a, 1, span, number)
            products = {place: (left[place], self.tile(b, *place)) for place in self._places()}
            self._sum(c, 0, span, number, products, "a")

    def _places(self) -> Iterator[Place]:
        return ((i, j) for i in range(self.rows) for j in range(self.cols))

    def _spans(self, tensor: str, axis: int) -> list[Interval]:
        """Return which rows (axis 0) or columns (axis 1) of a tensor each row or column of the grid has."""
        if axis:
            return [self.tile(tensor, 0, j).cols for j in range(self.cols)]
        return [self.tile(tensor, i, 0).rows for i in range(self.rows)]

    def _panels(self, *cut: tuple[str, int]) -> Iterator[tuple[int, Interval]]:
        """Yield panels that lie in one tile of each of two tensors, numbered."""
        edges = {edge for tensor, axis in cut for span in self._spans(tensor, axis) for edge in span}
        bounds = sorted(edges)
        starts = [
            start
            for left, right in pairwise(bounds)
            for start in range(left, right, self.how.panel or right - left)
        ]
        for number, (start, stop) in enumerate(zip(starts, [*starts[1:], bounds[-1]], strict=True)):
            yield number, Interval(start, stop)

    def _lines(self, tensor: str, axis: int, span: Interval) -> Iterator[tuple[list[Place], Slice]]:
        """Yield the lines of places along which a panel goes, each with its part where it belongs."""
        owner = next(x for x, s in enumerate(self._spans(tensor, axis)) if s.intersect(span) == span)
        if axis:
            for i in range(self.rows):
                tile = self.tile(tensor, i, owner)
                yield [(i, j) for j in range(self.cols)], tile.cut(tile.rows, span)
        else:
            for j in range(self.cols):
                tile = self.tile(tensor, owner, j)
                yield [(i, j) for i in range(self.rows)], tile.cut(span, tile.cols)

    def _spread(self, tensor: str, axis: int, span: Interval, number: int) -> dict[Place, Slice]:
        """Broadcast a panel along its lines and return where each place has it."""
        held = {}
        for line, own in self._lines(tensor, axis, span):
            pieces = {}
            for place in line:
                rank = self.tile(tensor, *place).rank
                if rank == own.rank:
                    held[place] = own
                else:
                    slot = tensor, axis, number % (self.how.prefetch + 1)
                    held[place] = self.build.temporary(rank, tensor, own.rows, own.cols, slot)
                pieces[rank] = held[place]
            self._collective("broadcast")(list(pieces), own, pieces.__getitem__)
        return held

    def _sum(
        self, c: str, axis: int, span: Interval, number: int, products: dict[Place, Product], trans: str
    ) -> None:
        """Multiply at every place and sum the products along each line, where that panel of C belongs."""
        for line, own in self._lines(c, axis, span):
            pieces = {}
            for place in line:
                rank = self.tile(c, *place).rank
                pieces[rank] = own
                if rank != own.rank:
                    slot = c, axis, number % (self.how.prefetch + 1)
                    pieces[rank] = self.build.temporary(rank, c, own.rows, own.cols, slot)
                self.build.gemm(pieces[rank], *products[place], beta=0, trans=trans)
            held = pieces.__getitem__
            self._collective("reduce")(list(pieces), held, own, held)

    def _collective(self, what: str) -> Callable[..., None]:
        """Return what writes a collective along a line of ranks."""
        write = ways()[self.how.broadcast].writers[what]
        return partial(write, self.build, manner=Manner(chunks=self.how.chunks or None))


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
        "broadcast", "tree", "How a panel goes along a row or column of ranks.", ("tree", "ring", "direct"),
        words="broadcast by {}".format,
    ),
    Option(
        "chunks", 1, "Parts of a panel that follow each other along a ring; 0 for what suits their bytes.",
        words=lambda n: "" if n == 1 else f"{n or 'suitable'} chunks",
    ),
    Option(
        "panel", 0, "The most columns of A and rows of B in a panel; 0 for as many as tiles allow.",
        words=lambda n: f"panels of {n}" if n else "whole panels",
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
    return by_owner(problem), {"block": int(np.diff(problem.layout("A").col_edges).max())}


def block_cyclic(problem: Problem) -> bool:
    """Whether A, B and C are cut alike, k too, and ranks hold several blocks."""
    a, b, _ = problem.layouts
    return cut_alike(problem) and np.array_equal(a.col_edges, b.row_edges) and in_blocks(problem)


def write_blocks(build: Builder, names: Names, broadcast: str, prefetch: int, block: int) -> None:
    """Broadcast a column of blocks of A and a row of blocks of B, and add their product to C.

    A rank packs its blocks of a column, or of a row, into one message, and multiplies with one GEMM.
    """
    a, b, c = (build.layout(x) for x in names)
    rows, cols = c.process_grid
    write, width = ways()[broadcast].writers["broadcast"], block or _half(a)

    def spread(own: Slice, line: Sequence[int], slot: Hashable) -> dict[int, Slice]:
        name = build.tensors[own.tensor].name
        there = {
            x: own if x == own.rank else build.temporary(x, name, own.rows, own.cols, slot) for x in line
        }
        if own.elements:
            write(build, list(line), own, there.__getitem__, manner=Manner(chunks=1))
        return there

    panels = [
        (turn, Interval(start, min(start + width, right)))
        for left, right in pairwise(np.unique((*a.col_edges, *b.row_edges)).tolist())
        for turn, start in enumerate(range(left, right, width))
    ]
    for number, (_, span) in enumerate(sorted(panels, key=lambda x: x[0])):
        col, row = (
            int(np.searchsorted(edges, span.start, side="right")) - 1 for edges in (a.col_edges, b.row_edges)
        )
        slot, left, right = number % (prefetch + 1), dict[int, Slice](), dict[int, Slice]()
        for i in range(rows):
            own = build.tile(names.a, i, col)
            left |= spread(own.cut(own.rows, span), c.places[0, i].tolist(), (names.a, slot))
        for j in range(cols):
            own = build.tile(names.b, row, j)
            right |= spread(own.cut(span, own.cols), c.places[0, :, j].tolist(), (names.b, slot))
        for (i, j), rank in np.ndenumerate(c.places[0]):
            into = build.tile(names.c, i, j)
            build.gemm(into, left[int(rank)], right[int(rank)], beta=float(number > 0))


def _half(layout: Layout) -> int:
    return max(1, -(-layout.shape[1] // (2 * layout.process_grid[1])))


def too_many_blocks(problem: Problem, machine: Machine, block: int, **options: Any) -> str | None:
    """Return that blocks are too small to multiply one by one; None if they are not."""
    a = on_one_grid(problem).a
    count = -(-problem.k // (block or _half(a))) * problem.p
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
        replace(PANELS[3], default=0),
        Option(
            "block", 0, "Columns of A and rows of B in a panel; 0 for the layouts' blocks, or two a rank.",
            words=lambda n: f"panels of {n}" if n else "",
        ),
    ),
    mesh=lambda ranks, **options: square_grid(ranks),
    sees=of_blocks,
    compares=block_cyclic,
)  # fmt: skip
