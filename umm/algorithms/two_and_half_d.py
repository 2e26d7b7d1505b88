"""The 2.5-D algorithm: each of d layers of a square grid holds A and B and does a share of Cannon's steps.

With d layers of q×q ranks, layer l does steps l·q/d up to (l + 1)·q/d of Cannon's q, so that each tile makes
d times fewer moves; then the layers' parts of C are summed. d = 1 is Cannon's algorithm.
"""

from math import isqrt
from typing import Any

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, square_root
from umm.algorithms.cannon import shifts
from umm.algorithms.option import Option
from umm.algorithms.partial import Partial, scatter_sum, sum_replicas
from umm.algorithms.spread import spread
from umm.layouts.layout import Layout
from umm.problem import MATRICES, Problem
from umm.schedules.builder import Builder
from umm.units import counted


def mesh(ranks: int, layers: int, **options: Any) -> Mesh | None:
    """q×q×d with d | q; as many layers as there can be if their number is 0."""
    for d in [layers] if layers else range(isqrt(ranks), 0, -1):
        q = square_root(ranks // d)
        if ranks % d == 0 and q and q % d == 0:
            return q, q, d
    return None


def native(problem: Problem, layers: int, final: str) -> Native:
    """A and B on every layer; C on every layer, or each of its tiles in a part on every layer."""
    q, _, d = mesh(problem.p, layers) or (1, 1, 1)
    a, b, c = (Layout.block(problem.shape(x), (q, q), replicas=d) for x in MATRICES)
    if final == "reduce-scatter":
        c = spread(c.shape, c.owners.transpose(1, 2, 0), axis=0)
    return Native(a, b, c)


def write(build: Builder, names: Names, **options: Any) -> None:
    """Shift and multiply on each layer, then sum over the layers."""
    a, b, c = (build.layout(name) for name in names)
    q, d = a.process_grid[0], a.replicas
    in_place = c.replicas == d
    partials: dict[tuple[int, int], list[Partial]] = {(i, j): [] for i in range(q) for j in range(q)}
    for layer in range(d):
        if not in_place:
            for (i, j), line in partials.items():
                rank, rows, cols = a.owner((i, j), layer), a.tile_bounds((i, 0))[0], b.tile_bounds((0, j))[1]
                line.append(Partial(build, build.temporary(rank, names.c, rows, cols, "C")))
        for i, j, x, y in shifts(build, names, layer, range(layer * q // d, (layer + 1) * q // d)):
            if in_place:
                build.gemm(build.tile(names.c, i, j, layer), x, y)
            else:
                partials[i, j][layer].add(x, y)
    if in_place:
        sum_replicas(build, names.c)
        return
    for (i, j), line in partials.items():
        scatter_sum(build, line, [build.tile(names.c, i * d + layer, j) for layer in range(d)])


def layers_in_words(layers: int) -> str:
    """Return what the option means in a list of choices."""
    return counted(layers, "layer") if layers else "as many layers as fit"


ALGORITHM = Algorithm(
    "2.5d",
    "Layers of a square grid, each with A, B and a share of Cannon's steps; C is summed over them.",
    "Solomonik & Demmel (2011)",
    native,
    write,
    options=(
        Option(
            "layers", 0, "Layers d, which divides q; 0 takes as many as there can be.", words=layers_in_words
        ),
        Option(
            "final", "reduce-scatter", "Each layer sums a part of every tile of C, or gets all of it.",
            ("reduce-scatter", "all-reduce"),
        ),
    ),
    takes="p = d·q² with d | q",
    mesh=mesh,
    words=Formula(
        "2n²/√(dp) + (d − 1)n²/p",
        lambda n, q, _, d: 2 * n * n / (d * q) * (q > 1) + (d - 1) * n * n / (d * q * q),
    ),
    messages=Formula("2√(p/d³) + d − 1", lambda n, q, _, d: 2 * q // d * (q > 1) + d - 1),
    published="W = n²/√(dp) words, S = √(p/d³) steps",
)  # fmt: skip
