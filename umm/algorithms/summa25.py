"""SUMMA2.5 (Tesseract): d layers of q×q ranks, each with all of B and its own rows of A and of C.

A and C lie on a dq×q grid, B on a q×q grid in d replicas, and every layer does SUMMA on its own. Backward,
dA = dC·Bᵀ stays within a layer too; dB = Aᵀ·dC is summed over the layers.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, square_root
from umm.algorithms.summa import PANELS, Panels, Plane
from umm.algorithms.two_and_half_d import layers_in_words
from umm.algorithms.writing import sum_replicas
from umm.layouts.layout import Layout
from umm.plans.option import Option
from umm.program.problem import Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


def mesh(ranks: int, layers: int, **options: Any) -> Mesh | None:
    """q×q×d with d ≤ q; as many layers as there can be if their number is 0."""
    # The deepest mesh first. p = d·q² and d ≤ q give d ≤ p^⅓, so √p is a safe start.
    for d in [layers] if layers else range(isqrt(ranks), 0, -1):
        q = square_root(ranks // d)
        if ranks % d == 0 and q and q >= d:
            return q, q, d
    return None


def native(problem: Problem, layers: int, **options: Any) -> Native:
    """A and C on dq×q, B on q×q in d replicas."""
    q, _, d = mesh(problem.p, layers) or (1, 1, 1)
    return Native(
        Layout.block(problem.shape("A"), (d * q, q)),
        Layout.block(problem.shape("B"), (q, q), replicas=d),
        Layout.block(problem.shape("C"), (d * q, q)),
    )


def write(build: Builder, names: Names, layers: int, **options: Any) -> None:
    """SUMMA on every layer."""
    for layer in layers_of(build, names.b, Panels(**options)):
        layer.multiply(names.c, names.a, names.b)


def backward(build: Builder, names: Names, gradients: Names, how: Panels) -> None:
    """Write the two multiplies of the backward pass: dA = dC·Bᵀ, and dB = Aᵀ·dC, summed over the layers.

    Args:
        names: Of A, B and C, in the layouts of :func:`native`; C is not used.
        gradients: Of dA, dB and dC, each in the layout of what it is the gradient of.
        how: How panels go, and the sum over the layers.
    """
    for layer in layers_of(build, names.b, how):
        layer.multiply_bt(gradients.a, gradients.c, names.b)
        layer.multiply_at(gradients.b, names.a, gradients.c)
    # Each layer has the part of dB from its own rows of A and dC.
    sum_replicas(build, how.broadcast, gradients.b)


def layers_of(build: Builder, b: str, how: Panels) -> list[Plane]:
    """Return the layers, each as a process grid.

    Args:
        b: A tensor that lies on each of them.
    """
    q = build.layout(b).process_grid[0]

    def tile_on(layer: int) -> Callable[[str, int, int], Slice]:
        def tile(tensor: str, i: int, j: int) -> Slice:
            # B has a replica on each layer; of A and C, which lie on dq×q, a layer has q rows of tiles. With
            # one layer both grids are q×q, and both rules agree.
            if build.layout(tensor).process_grid[0] == q:
                return build.tile(tensor, i, j, layer)
            return build.tile(tensor, layer * q + i, j)

        return tile

    return [Plane(build, q, q, tile_on(layer), how) for layer in range(build.layout(b).replicas)]


ALGORITHM = Algorithm(
    "summa2.5",
    "Layers of a square grid, each with all of B and its own rows of A and C; SUMMA on every layer.",
    "SUMMA2.5, section 3.1 (Tesseract)",
    native,
    write,
    options=(
        Option("layers", 0, "Layers d ≤ q; 0 takes as many as there can be.", words=layers_in_words),
        *PANELS,
    ),
    takes="p = d·q² with d ≤ q",
    mesh=mesh,
    words=Formula("n²/q · (1 + 1/d)(1 − 1/q)", lambda n, q, _, d: n * n / q * (1 + 1 / d) * (1 - 1 / q)),
    messages=Formula("2(q − 1)", lambda n, q, _, d: 2 * (q - 1)),
    published="W = n²/√(dp) words, S = √(p/d³) steps, as for 2.5d",
)
