"""The 2.5-D algorithm: each of d layers of a square grid holds A and B and does a share of Cannon's steps.

With d layers of q×q ranks, layer l does steps l·q/d up to (l + 1)·q/d of Cannon's q. So each tile makes d
times fewer moves; then the layers' parts of C are summed. d = 1 is Cannon's algorithm.
"""

from math import isqrt
from typing import Any

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, square_root
from umm.algorithms.cannon import shifts
from umm.algorithms.writing import SUM, scatter_sum, spread, sum_replicas
from umm.layouts.layout import Layout
from umm.plans.option import Option
from umm.program.problem import MATRICES, Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder
from umm.units import counted


def mesh(ranks: int, layers: int, **options: Any) -> Mesh | None:
    """q×q×d with d | q; as many layers as there can be if their number is 0."""
    # The deepest mesh first: the words of the shifts fall with √d. d divides q, so that layers have equal
    # numbers of steps.
    for d in [layers] if layers else range(isqrt(ranks), 0, -1):
        q = square_root(ranks // d)
        if ranks % d == 0 and q and q % d == 0:
            return q, q, d
    return None


def native(problem: Problem, layers: int, final: str, **options: Any) -> Native:
    """A and B on every layer; C on every layer, or each of its tiles in a part on every layer."""
    q, _, d = mesh(problem.p, layers) or (1, 1, 1)
    a, b, c = (Layout.block(problem.shape(x), (q, q), replicas=d) for x in MATRICES)
    if final == "reduce-scatter":
        c = spread(c.shape, c.owners.transpose(1, 2, 0), axis=0)
    return Native(a, b, c)


def write(build: Builder, names: Names, sum: str, chunks: int, **options: Any) -> None:  # noqa: A002
    """Shift and multiply on each layer, then sum over the layers."""
    a, c = build.layout(names.a), build.layout(names.c)
    q, d = a.process_grid[0], a.replicas
    # C on every layer: a layer's partial sum grows in its own replica, and is all-reduced in place.
    if c.replicas == d:
        for layer in range(d):
            for i, j, x, y in shifts(
                build, names, layer, range(layer * q // d, (layer + 1) * q // d), chunks
            ):
                build.gemm(build.tile(names.c, i, j, layer), x, y)
        sum_replicas(build, sum, names.c)
        return
    # Else C is cut over the layers, so partial sums of whole tiles need room beside it.
    partials: dict[tuple[int, int], dict[int, Slice]] = {(i, j): {} for i in range(q) for j in range(q)}
    for layer in range(d):
        steps = range(layer * q // d, (layer + 1) * q // d)
        for i, j, x, y in shifts(build, names, layer, steps, chunks):
            rank, begun = a.owner((i, j), layer), partials[i, j]
            beta = float(rank in begun)
            if rank not in begun:
                begun[rank] = build.temporary(rank, names.c, x.rows, y.cols, "C")
            build.gemm(begun[rank], x, y, beta)
    for (i, j), sums in partials.items():
        owners = (build.tile(names.c, i * d + layer, j) for layer in range(d))
        scatter_sum(build, sum, sums, {owner.rank: owner for owner in owners})


def layers_in_words(layers: int) -> str:
    """Return the option in words, for a list of choices."""
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
            ("reduce-scatter", "all-reduce"), words=str,
        ),
        SUM,
        Option(
            "chunks", 1, "Parts of k in which tiles go, each multiplied as it comes.", least=1,
            words=lambda n: "" if n == 1 else f"{n} chunks",
        ),
    ),
    piped=lambda problem: ({"chunks": 8},),
    takes="p = d·q² with d | q",
    mesh=mesh,
    words=Formula(
        "2n²/√(dp) + (d − 1)n²/p",
        lambda n, q, _, d: 2 * n * n / (d * q) * (q > 1) + (d - 1) * n * n / (d * q * q),
    ),
    messages=Formula("2√(p/d³) + d − 1", lambda n, q, _, d: 2 * q // d * (q > 1) + d - 1),
    published="W = n²/√(dp) words, S = √(p/d³) steps",
)  # fmt: skip
