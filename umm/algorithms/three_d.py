"""The 3-D algorithm: a rank for each brick of the m×n×k space; each matrix lies once, over all ranks.

On a mesh of p₁×p₂×p₃ rank (i, j, l) multiplies A(i, l) with B(l, j). A(i, l) is spread over j and gathered
there, B(l, j) over i; the sum over l leaves C(i, j) spread over l. Pieces are multiplied as they come.
"""

from math import prod
from typing import Any

import numpy as np

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, read_mesh
from umm.algorithms.writing import SUM, brought, scatter_sum, spread
from umm.plans.option import Option
from umm.program.problem import Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


def mesh(ranks: int, grid: str, **options: Any) -> Mesh | None:
    """The cube, or the mesh that is asked for."""
    # Rounded, for the float root of a cube may be off in its last bit; the product below refuses non-cubes.
    edge = round(ranks ** (1 / 3))
    sizes = read_mesh(grid, 3) if grid else (edge, edge, edge)
    return sizes if prod(sizes) == ranks else None


def native(problem: Problem, grid: str, **options: Any) -> Native:
    """Each tile of each matrix spread over the ranks that share it; a layer of k has consecutive ranks."""
    rows, cols, layers = mesh(problem.p, grid) or (1, 1, 1)
    # Each transpose below puts the axis along which a tile is shared last, as `spread` takes it: j for A(i,
    # l), i for B(l, j), l for C(i, j).
    ranks = np.arange(problem.p, dtype=np.int64).reshape(layers, rows, cols)  # l, i, j
    return Native(
        spread(problem.shape("A"), ranks.transpose(1, 0, 2), axis=1),
        spread(problem.shape("B"), ranks.transpose(0, 2, 1), axis=0),
        spread(problem.shape("C"), ranks.transpose(1, 2, 0), axis=0),
    )


def write(build: Builder, names: Names, grid: str, sum: str) -> None:  # noqa: A002
    """Gather and multiply on every rank, then sum along every line of ranks with one tile of C."""
    rows, cols, layers = mesh(build.ranks, grid) or (1, 1, 1)
    for i in range(rows):
        for j in range(cols):
            partials, owners = {}, {}
            for layer in range(layers):
                rank = (layer * rows + i) * cols + j
                # Each rank starts with the piece it has, and with the ranks after it.
                a = [build.tile(names.a, i, layer * cols + (j + x) % cols) for x in range(cols)]
                b = [build.tile(names.b, layer * rows + (i + x) % rows, j) for x in range(rows)]
                owners[rank] = build.tile(names.c, i * layers + layer, j)
                # One layer needs no sum: the product goes straight into C.
                partials[rank] = owners[rank]
                if layers > 1:
                    partials[rank] = build.temporary(rank, names.c, a[0].rows, b[0].cols, "C")
                _multiply(build, partials[rank], a, b)
            if layers > 1:
                scatter_sum(build, sum, partials, owners)


def _multiply(build: Builder, c: Slice, a: list[Slice], b: list[Slice]) -> None:
    """Set C to the product of a tile of A, in pieces by columns, and one of B, in pieces by rows."""
    if not c.elements:
        return
    # A's pieces cut the k of a layer into p₂ parts and B's into p₁, so each product takes what a pair has in
    # common. Pieces of B are kept, for each may meet several pieces of A.
    pieces: dict[int, Slice] = {}
    beta = 0.0
    for number, left in enumerate(a):
        left = brought(build, left, c.rank, ("A", number))
        for place, right in enumerate(b):
            span = left.cols.intersect(right.rows)
            if span.size:
                if place not in pieces:
                    pieces[place] = brought(build, right, c.rank, ("B", place))
                build.gemm(c, left.cut(left.rows, span), pieces[place].cut(span, right.cols), beta)
                beta = 1.0
    # A layer may have no k at all; its share of the sum is zero, and still has to be written.
    if not beta:
        build.map("zero", c)


ALGORITHM = Algorithm(
    "3d",
    "A rank for each brick of the m×n×k cube; A and B are gathered along lines, C is summed along them.",
    "Agarwal et al. (1995); SUMMA2.5, section 2.3",
    native,
    write,
    options=(
        Option(
            "grid",
            "",
            "Ranks along m, n and k, such as 2x3x4; the cube if not given.",
            words=lambda grid: f"grid {grid or 'of a cube'}",
        ),
        SUM,
    ),
    takes="p = q³, or any p with a grid",
    mesh=mesh,
    words=Formula("3n²/p^⅔ · (1 − p^−⅓)", lambda n, q, *_: 3 * n * n / q**2 * (1 - 1 / q)),
    messages=Formula("3(p^⅓ − 1)", lambda n, q, *_: 3 * (q - 1)),
    published="n²/p^⅔ words, a constant number of steps",
)
