"""Who multiplies which pieces, written a second time from Brock & Golin (2025), algorithms 1 and 2."""

from typing import NamedTuple

from reference.plain_layout import PlainLayout, Range, Tile, ceil_edges, common, length, plain_layout

from umm import Problem

DIMENSIONS = {"A": "mk", "B": "kn", "C": "mn"}


class Op(NamedTuple):
    """One local multiply: which tile of each matrix, and which slices of them."""

    tiles: dict[str, Tile]
    m: Range
    n: Range
    k: Range

    def slice(self, matrix: str) -> tuple[Range, Range]:
        """Rows and columns of a matrix that take part."""
        rows, cols = (getattr(self, dimension) for dimension in DIMENSIONS[matrix])
        return rows, cols


def layouts_of(problem: Problem) -> dict[str, PlainLayout]:
    """The three layouts, read from their text forms."""
    texts = {"A": str(problem.a), "B": str(problem.b), "C": str(problem.c)}
    return {x: plain_layout(text, problem.shape(x), problem.p) for x, text in texts.items()}


def ops_of(problem: Problem, stationary: str, offset: str, rank: int) -> list[Op]:
    """All ops of a rank, in execution order (Brock & Golin 2025, algorithms 1 and 2)."""
    layouts = layouts_of(problem)
    still = layouts[stationary]
    ops = []
    for tile in still.tiles():
        if still.owner(tile, still.replica(rank)) == rank:
            listed = ops_of_tile(problem, layouts, stationary, tile, still.replica(rank))
            ops += rotated(listed, stationary, tile, offset)
    return ops


def ops_of_tile(
    problem: Problem, layouts: dict[str, PlainLayout], stationary: str, tile: Tile, replica: int
) -> list[Op]:
    """The ops of one stationary tile; a replica does one part of the dimension the tile does not have."""
    free = {"A": "n", "B": "m", "C": "k"}[stationary]
    first, second = {"A": "BC", "B": "AC", "C": "AB"}[stationary]
    edges = ceil_edges(getattr(problem, free), layouts[stationary].replicas)
    limits = {"m": (0, problem.m), "n": (0, problem.n), "k": (0, problem.k)}
    limits[free] = (edges[replica], edges[replica + 1])
    limits = narrowed(limits, stationary, layouts[stationary], tile)
    ops = []
    for one in touching(layouts, first, limits):
        inner = narrowed(limits, first, layouts[first], one)
        for other in touching(layouts, second, inner):
            spans = narrowed(inner, second, layouts[second], other)
            ops.append(Op({stationary: tile, first: one, second: other}, **spans))
    return ops


def narrowed(limits: dict[str, Range], matrix: str, layout: PlainLayout, tile: Tile) -> dict[str, Range]:
    """The m, n and k ranges cut down to a tile."""
    cut = dict(limits)
    for dimension, bounds in zip(DIMENSIONS[matrix], layout.bounds(tile), strict=True):
        cut[dimension] = common(limits[dimension], bounds)
    return cut


def touching(layouts: dict[str, PlainLayout], matrix: str, limits: dict[str, Range]) -> list[Tile]:
    """The tiles of a matrix that the ranges touch, row-major; none if there is nothing to multiply."""
    if not all(length(span) for span in limits.values()):
        return []
    rows, cols = DIMENSIONS[matrix]
    return layouts[matrix].overlapping(limits[rows], limits[cols])


def rotated(ops: list[Op], stationary: str, tile: Tile, offset: str) -> list[Op]:
    """One stationary tile's ops from where the iteration offset starts them."""
    if offset == "none" or not ops:
        return ops
    start = sum(tile) % len(ops)
    if offset == "rotate":
        moving = {x: list(dict.fromkeys(op.tiles[x] for op in ops)) for x in "ABC" if x != stationary}
        matrix = max(moving, key=lambda x: len(moving[x]))  # the first of them where both have as many
        wanted = moving[matrix][sum(tile) % len(moving[matrix])]
        start = next(i for i, op in enumerate(ops) if op.tiles[matrix] == wanted)
    return ops[start:] + ops[:start]
