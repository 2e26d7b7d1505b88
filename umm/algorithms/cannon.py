"""Cannon's algorithm: tiles of A and B go round the rows and columns of a square process grid.

Rank (i, j) multiplies A(i, l) with B(l, j) at step s, where l = i + j + s mod q. The skew brings it its first
tiles; then every tile moves on by one place a step, from neighbour to neighbour.
"""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from umm.algorithms.algorithm import Algorithm, Formula, Mesh, Names, Native, square_root
from umm.layouts.layout import Layout
from umm.plans.collectives.way import room_for
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


def shifts(
    build: Builder, names: Names, layer: int = 0, steps: range | None = None, chunks: int = 1
) -> Iterator[Pair]:
    """Move tiles over a square layer of ranks and yield each rank's next factors.

    Args:
        names: A and B have a tile for each place of the layer.
        layer: Replica of A and of B that the layer holds.
        steps: Which of the q steps; all if not given. The skew goes right to the first.
        chunks: Parts of k in which tiles go, each multiplied as it comes.
    """
    q = build.layout(names.a).process_grid[0]
    places = [(i, j) for i in range(q) for j in range(q)]
    ranks = {place: build.tile(names.a, *place, layer).rank for place in places}
    tiles: dict[tuple[int, int], tuple[Slice, Slice]] = {}
    steps = steps or range(q)
    for step in steps:
        moves: dict[tuple[int, int], tuple[Slice, Slice, Slice, Slice]] = {}
        for i, j in places:
            way, rank = (i + j + step) % q, ranks[i, j]
            # The skew gets the first tiles straight from their owners, not by a chain of neighbour moves.
            # Steps of a 2.5-D layer start at l·q/d instead of 0; the same get brings the layer to its first
            # step.
            if step == steps.start:
                a, b = build.tile(names.a, i, way, layer), build.tile(names.b, way, j, layer)
            else:
                # A moves one column to the left, B one row up: take what the right and the lower neighbour
                # have just multiplied.
                a, b = tiles[i, (j + 1) % q][0], tiles[(i + 1) % q, j][1]
            # Two slots by parity: a step's gets never overwrite the tiles that neighbours read in this step.
            rooms = _room(build, a, rank, ("A", step % 2)), _room(build, b, rank, ("B", step % 2))
            moves[i, j] = a, b, *rooms
        # A part of k is columns of A and rows of B. All gets of a part come before its gemms, so the next
        # part can travel while this one is multiplied.
        for chunk in range(chunks):
            pairs = []
            for place, (a, b, left, right) in moves.items():
                x, y = (piece.part(chunk, chunks, axis=1) for piece in (a, left))
                v, w = (piece.part(chunk, chunks) for piece in (b, right))
                for source, into in ((x, y), (v, w)):
                    # They are equal where the skew finds a tile in place: at step 0, A in row 0 and B in
                    # column 0.
                    if source != into:
                        build.get(source, into)
                pairs.append(Pair(*place, y, w))
            yield from pairs
        tiles = {place: (left, right) for place, (_, _, left, right) in moves.items()}


def _room(build: Builder, piece: Slice, rank: int, slot: Hashable) -> Slice:
    """Return where a rank has a piece: where it is, or room in a slot of its pool."""
    return piece if piece.rank == rank or not piece.elements else room_for(build, piece, rank, slot)


ALGORITHM = Algorithm(
    "cannon",
    "Square grid; skew, then shift A along rows and B along columns, √p steps.",
    "Cannon (1969); SUMMA2.5, section 2.1",
    native,
    write,
    takes="p = q²",
    mesh=mesh,
    # Of each matrix a rank gets q tiles of n²/q² elements: one for the skew and q − 1 for the shifts.
    words=Formula("2n²/√p", lambda n, q, _: 2 * n * n / q * (q > 1)),
    messages=Formula("2√p", lambda n, q, _: 2 * q * (q > 1)),
    published="2n²/√p words, √p steps",
)
