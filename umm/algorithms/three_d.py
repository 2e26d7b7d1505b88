"""The 3-D algorithm: a rank for each brick of the m×n×k space; each matrix lies once, over all ranks.

On a mesh of p₁×p₂×p₃ rank (i, j, l) multiplies A(i, l) with B(l, j). A(i, l) is spread over j and gathered
there, B(l, j) over i; the sum over l leaves C(i, j) spread over l. Pieces are multiplied as they come.
"""

from math import prod

import numpy as np

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, read_mesh
from umm.algorithms.lines import brought
from umm.algorithms.option import Option
from umm.algorithms.partial import Partial, scatter_sum
from umm.algorithms.spread import spread
from umm.problem import Problem
from umm.schedules.builder import Builder
from umm.schedules.slices import Slice


def mesh(ranks: int, grid: str) -> Mesh | None:
    """The cube, or the mesh that is asked for."""
    edge = round(ranks ** (1 / 3))
    sizes = read_mesh(grid, 3) if grid else (edge, edge, edge)
    return sizes if prod(sizes) == ranks else None


def native(problem: Problem, grid: str) -> Native:
    """Each tile of each matrix spread over the ranks that share it; a layer of k has consecutive ranks."""
    rows, cols, layers = mesh(problem.p, grid) or (1, 1, 1)
    ranks = np.arange(problem.p, dtype=np.int64).reshape(layers, rows, cols)  # l, i, j
    return Native(
        spread(problem.shape("A"), ranks.transpose(1, 0, 2), axis=1),
        spread(problem.shape("B"), ranks.transpose(0, 2, 1), axis=0),
        spread(problem.shape("C"), ranks.transpose(1, 2, 0), axis=0),
    )


def write(build: Builder, names: Names, grid: str) -> None:
    """Gather and multiply on every rank, then sum along every line of ranks with one tile of C."""
    rows, cols, layers = mesh(build.ranks, grid) or (1, 1, 1)
    for i in range(rows):
        for j in range(cols):
            line = []
            for layer in range(layers):
                # Each rank starts with the piece it has, and with the ranks after it.
                a = [build.tile(names.a, i, layer * cols + (j + x) % cols) for x in range(cols)]
                b = [build.tile(names.b, layer * rows + (i + x) % rows, j) for x in range(rows)]
                line.append(_multiplied(build, (layer * rows + i) * cols + j, a, b, names.c))
            scatter_sum(build, line, [build.tile(names.c, i * layers + x, j) for x in range(layers)])


def _multiplied(build: Builder, rank: int, a: list[Slice], b: list[Slice], c: str) -> Partial:
    """Return the product at a rank of a tile of A, in pieces by columns, and one of B, in pieces by rows."""
    partial = Partial(build, build.temporary(rank, c, a[0].rows, b[0].cols, "C"))
    held: dict[int, Slice] = {}
    if not partial.piece.elements:
        return partial
    for number, left in enumerate(a):
        left = brought(build, left, rank, ("A", number))
        for place, right in enumerate(b):
            span = left.cols.intersect(right.rows)
            if span.size:
                if place not in held:
                    held[place] = brought(build, right, rank, ("B", place))
                partial.add(left.cut(left.rows, span), held[place].cut(span, right.cols))
    return partial


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
            "Ranks along m, n and k, such as 2x3x4; the cube if not said.",
            words=lambda grid: f"grid {grid or 'of a cube'}",
        ),
    ),
    takes="p = q³, or any p with a grid",
    mesh=mesh,
    words=Formula("3n²/p^⅔ · (1 − p^−⅓)", lambda n, q, *_: 3 * n * n / q**2 * (1 - 1 / q)),
    messages=Formula("3(p^⅓ − 1)", lambda n, q, *_: 3 * (q - 1)),
    published="n²/p^⅔ words, a constant number of steps",
)
