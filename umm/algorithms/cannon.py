"""Cannon's algorithm: tiles of A and B go round the rows and columns of a square process grid.

Rank (i, j) multiplies A(i, l) with B(l, j) at step s, where l = i + j + s mod q. The skew brings it its first
tiles; then every tile moves on by one place a step, from neighbour to neighbour.
"""

from typing import Any

from umm.algorithms.algorithm import Algorithm, Names, Native, square_root
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.builder import Builder
from umm.schedules.slices import Slice


def native(problem: Problem) -> Native:
    """A tile of each matrix for each place of a square process grid."""
    q = square_root(problem.p) or 1
    return Native(*(Layout.block(problem.shape(x), (q, q)) for x in "ABC"))


def write(build: Builder, names: Names, **options: Any) -> None:
    """Skew, then multiply and shift q times; a rank holds its tiles and room for those to come."""
    q = build.layout(names.c).process_grid[0]
    places = [(i, j) for i in range(q) for j in range(q)]
    a_held: dict[tuple[int, int], Slice] = {}
    b_held: dict[tuple[int, int], Slice] = {}
    for step in range(q):
        a_next, b_next = {}, {}
        for i, j in places:
            rank, way = i * q + j, (i + j + step) % q
            if step == 0:
                a_from, b_from = build.tile(names.a, i, way), build.tile(names.b, way, j)
            else:
                a_from, b_from = a_held[i, (j + 1) % q], b_held[(i + 1) % q, j]
            a_next[i, j], b_next[i, j] = a_from, b_from
            if a_from.rank != rank:
                a_next[i, j] = build.temporary(rank, names.a, a_from.rows, a_from.cols, slot=("A", step % 2))
                build.get(a_from, a_next[i, j])
            if b_from.rank != rank:
                b_next[i, j] = build.temporary(rank, names.b, b_from.rows, b_from.cols, slot=("B", step % 2))
                build.get(b_from, b_next[i, j])
        a_held, b_held = a_next, b_next
        for i, j in places:
            build.gemm(build.tile(names.c, i, j), a_held[i, j], b_held[i, j])


def refuses(problem: Problem, machine: Machine) -> str | None:
    """It takes a square number of ranks."""
    if square_root(problem.p) is not None:
        return None
    below = int(problem.p**0.5)
    return f"{problem.p} ranks are not a square grid; choose {below**2} or {(below + 1) ** 2}"


ALGORITHM = Algorithm(
    "cannon",
    "Square grid; skew, then shift A along rows and B along columns q times.",
    "Cannon (1969); SUMMA2.5, section 2",
    native,
    write,
    refuses,
)
