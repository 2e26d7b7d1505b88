"""Cannon's algorithm: tiles of A and B go round the rows and columns of a square process grid.

Rank (i, j) multiplies A(i, l) with B(l, j) at step s, where l = i + j + s mod q. The skew brings it its first
tiles; then every tile moves on by one place a step, from neighbour to neighbour.
"""

from collections.abc import Iterator
from typing import NamedTuple

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, square_root
from umm.algorithms.writing import brought
from umm.layouts.layout import Layout
from umm.program.problem import MATRICES, Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


class Pair(NamedTuple):
    """Tiles of A and B that the rank at row i and column j of a layer has now and shall multiply."""

    i: int
    j: int
    a: Slice
    b: Slice


def mesh(ranks: int) -> Mesh | None:
    """As many rows as columns."""
    q = square_root(ranks)
    return (q, q) if q else None


def native(problem: Problem) -> Native:
    """A tile of each matrix for each place of a square process grid."""
    q = square_root(problem.p) or 1
    return Native(*(Layout.block(problem.shape(x), (q, q)) for x in MATRICES))


def write(build: Builder, names: Names) -> None:
    """Skew, then multiply and shift q times; a rank holds its tiles and room for those to come."""
    for i, j, a, b in shifts(build, names):
        build.gemm(build.tile(names.c, i, j), a, b)


def shifts(build: Builder, names: Names, layer: int = 0, steps: range | None = None) -> Iterator[Pair]:
    """Move tiles over a square layer of ranks and yield what each rank shall multiply then.

    Args:
        build: Where the actions go.
        names: A and B have a tile for each place of the layer.
        layer: Replica of A and of B that the layer holds.
        steps: Which of the q steps; all if not given. The skew goes right to the first.
    """
    q = build.layout(names.a).process_grid[0]
    places = [(i, j) for i in range(q) for j in range(q)]
    ranks = {place: build.tile(names.a, *place, layer).rank for place in places}
    held: dict[tuple[int, int], tuple[Slice, Slice]] = {}
    steps = steps or range(q)
    for step in steps:
        arrived: dict[tuple[int, int], tuple[Slice, Slice]] = {}
        for i, j in places:
            way, rank = (i + j + step) % q, ranks[i, j]
            if step == steps.start:
                a, b = build.tile(names.a, i, way, layer), build.tile(names.b, way, j, layer)
            else:
                a, b = held[i, (j + 1) % q][0], held[(i + 1) % q, j][1]
            a = brought(build, a, rank, ("A", step % 2))
            b = brought(build, b, rank, ("B", step % 2))
            arrived[i, j] = a, b
        held = arrived
        yield from (Pair(*place, *pair) for place, pair in held.items())


ALGORITHM = Algorithm(
    "cannon",
    "Square grid; skew, then shift A along rows and B along columns, √p steps.",
    "Cannon (1969); SUMMA2.5, section 2.1",
    native,
    write,
    takes="p = q²",
    mesh=mesh,
    words=Formula("2n²/√p", lambda n, q, _: 2 * n * n / q * (q > 1)),
    messages=Formula("2√p", lambda n, q, _: 2 * q * (q > 1)),
    published="2n²/√p words, √p steps",
)
