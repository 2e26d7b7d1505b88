"""DTensor's matmul: the sharding its own cost model picks, NCCL-like rings, one local multiply a rank.

Over a one-dimensional mesh a matrix is Replicate, Shard(0), row blocks, or Shard(1), column blocks. Four ways
multiply without communication; DTensor takes the one whose inputs are cheapest to redistribute to, whatever
becomes of the output, and then brings the output to where it shall be.

Source: PyTorch, torch/distributed/tensor/_collective_utils.py (``redistribute_cost``) and the strategies of
``mm`` in _ops/_matrix_ops.py, in their order.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from umm.algorithms.algorithm import Algorithm, Names, Native
from umm.algorithms.collectives import direct, ring
from umm.algorithms.collectives.grids import nodes_of
from umm.algorithms.collectives.parts import in_parts
from umm.algorithms.option import Option
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import MATRICES, Problem
from umm.schedules.builder import Builder
from umm.schedules.slices import Slice

REPLICATE, SHARD_0, SHARD_1, PARTIAL = "Replicate", "Shard(0)", "Shard(1)", "Partial"
TEXTS = {REPLICATE: "row@{p}", SHARD_0: "row", SHARD_1: "col"}
BASE_S, PENALTY_S = 6.6e-6, 1e-6
GIBI = 2**30
ALL_REDUCE = in_parts(ring.reduce_scatter, ring.all_gather)
Pieces = Callable[[int], Slice]


class Mesh(NamedTuple):
    """What DTensor assumes of a mesh: bytes/s of a ring, and seconds a hop.

    Attributes:
        ranks: Ranks of the mesh.
        bandwidth: Bytes/s.
        hop_s: Seconds a hop.
    """

    ranks: int
    bandwidth: float
    hop_s: float

    @classmethod
    def of(cls, machine: Machine, ranks: int) -> "Mesh":
        """Return DTensor's numbers for a mesh inside one host or over several."""
        if len(nodes_of(machine, range(ranks), ranks)) <= 1:
            return cls(ranks, 87.7 * GIBI, 0.6e-6)
        return cls(ranks, 0.22 * 87.7 * GIBI, 2.7e-6)


class Way(NamedTuple):
    """What A, B and C are on the mesh while ranks multiply."""

    a: str
    b: str
    c: str


WAYS = (
    Way(REPLICATE, REPLICATE, REPLICATE),
    Way(SHARD_1, SHARD_0, PARTIAL),
    Way(SHARD_0, REPLICATE, SHARD_0),
    Way(REPLICATE, SHARD_1, SHARD_1),
)


def placement(layout: Layout) -> str | None:
    """Return what DTensor calls a layout over a one-dimensional mesh; None if it has no name for it."""
    return next((name for name in TEXTS if layout == placed(name, layout)), None)


def placed(name: str, layout: Layout) -> Layout:
    """Return the layout that a placement means for a matrix of the shape and the ranks of another."""
    return Layout.parse(TEXTS[name].format(p=layout.ranks), layout.shape, layout.ranks)


def redistribute_cost(nbytes: float, now: str, then: str, mesh: Mesh) -> float:
    """Return DTensor's estimate of the seconds from one placement of an input to another.

    Args:
        nbytes: Bytes of the whole matrix.
        now: Replicate or a Shard.
        then: Likewise.
        mesh: What it assumes of the mesh.
    """
    if now in (then, REPLICATE):
        return 0.0
    moved = nbytes if then == REPLICATE else nbytes / mesh.ranks
    hops = mesh.ranks - 1
    seconds = BASE_S + hops * mesh.hop_s + moved * hops / mesh.ranks / mesh.bandwidth
    return seconds if then == REPLICATE else seconds + PENALTY_S


def chosen_way(problem: Problem, a: str, b: str, mesh: Mesh) -> Way:
    """Return the way DTensor multiplies: the first of those whose inputs are cheapest to bring there.

    A matrix is only sharded along a dimension with at least as many rows or columns as ranks.

    >>> mesh = Mesh(8, 87.7 * GIBI, 0.6e-6)
    >>> for m in (4096, 8192):
    ...     mlp = Problem(m=m, n=49152, k=12288, a="col", b="col", c="col", ranks=8)
    ...     print(m, *chosen_way(mlp, SHARD_1, SHARD_1, mesh))
    4096 Replicate Shard(1) Shard(1)
    8192 Shard(1) Shard(0) Partial
    """

    def cost(way: Way) -> float:
        total = 0.0
        for name, now, then in (("A", a, way.a), ("B", b, way.b)):
            rows, cols = problem.shape(name)
            if {SHARD_0: rows, SHARD_1: cols}.get(then, problem.p) < problem.p:
                return float("inf")
            total += redistribute_cost(rows * cols * problem.itemsize(name), now, then, mesh)
        return total

    return min(WAYS, key=cost)


def native(problem: Problem, placements: str) -> Native:
    """The problem's own layouts where DTensor has a name for them, else the nearest that it has one for."""
    return Native(*(nearest(problem.layout(name)) for name in MATRICES))


def nearest(layout: Layout) -> Layout:
    """Return a layout as it is if DTensor has a name for it, else the nearest.

    A full copy on every rank is Replicate, however it is cut. Of row blocks and column blocks those are
    nearest of which ranks need fewest bytes from others; of equals row blocks.

    >>> for text in ("2d:4x2", "2d:2x4:colmajor", "col:balanced", "cyclic:2x2:1x1@8"):
    ...     print(text, placement(nearest(Layout.parse(text, (66, 66), ranks=8))))
    2d:4x2 Shard(0)
    2d:2x4:colmajor Shard(1)
    col:balanced Shard(1)
    cyclic:2x2:1x1@8 Replicate
    """
    name = placement(layout)
    if name is not None:
        everyone = len(np.unique(layout.owners)) == layout.ranks  # has a tile, if only an empty one
        return layout if everyone else placed(name, layout)
    if layout.replicas == layout.ranks:
        return placed(REPLICATE, layout)
    return max((placed(name, layout) for name in (SHARD_0, SHARD_1)), key=lambda to: _held(layout, to))


def _held(layout: Layout, to: Layout) -> int:
    """Return how many elements of what ranks shall own they own already."""
    held = 0
    for rank in range(layout.ranks):
        (there,) = [to.tile_bounds(tile) for tile in to.tiles_of(rank)]
        for tile in layout.tiles_of(rank):
            here = layout.tile_bounds(tile)
            held += here[0].intersect(there[0]).size * here[1].intersect(there[1]).size
    return held


def refuses(problem: Problem, machine: Machine, placements: str) -> str | None:
    """With the placements as given, layouts that DTensor has no name for."""
    if placements == "nearest" or all(placement(layout) for layout in problem.layouts):
        return None
    a, b = problem.layouts[:2]
    return (
        f"A {a.shape[0]}x{a.shape[1]} in {a} and B {b.shape[0]}x{b.shape[1]} in {b} on {problem.p} ranks are "
        f"not Replicate, Shard(0) or Shard(1) all; use row, col or row@{problem.p}, or placements=nearest"
    )


def write(build: Builder, names: Names, placements: str) -> None:
    """Redistribute the inputs, multiply, redistribute the output."""
    ranks = list(range(build.ranks))
    problem = build.program
    assert isinstance(problem, Problem)
    now = [placement(build.layout(name)) or SHARD_0 for name in names]
    way = chosen_way(problem, now[0], now[1], Mesh.of(build.machine, build.ranks))
    a, b = (_brought(build, name, at, to) for name, at, to in zip(names[:2], now[:2], way[:2], strict=True))
    computed = _room_for_product(build, names.c, way.c, now[2])
    for rank in ranks:
        build.gemm(computed(rank), a(rank), b(rank), beta=0)
    _deliver(build, names.c, way.c, now[2], computed)


def _own(build: Builder, name: str, rank: int) -> Slice:
    """Return the one tile that a rank holds of a matrix, and that may be empty, as others beside it are."""
    layout = build.layout(name)
    tiles = [build.tile(name, i, j, layout.replica(rank)) for i, j in layout.tiles_of(rank)]
    return max(tiles, key=lambda tile: tile.elements)


def _shard(build: Builder, name: str, at: str, rank: int) -> tuple[Interval, Interval]:
    """Return the rows and columns that a rank has of a matrix in a placement; all where it is whole."""
    rows, cols = build.layout(name).shape
    if at in (REPLICATE, PARTIAL):
        return Interval(0, rows), Interval(0, cols)
    layout = Layout.parse("row" if at == SHARD_0 else "col", (rows, cols), build.ranks)
    return layout.tile_bounds((rank, 0) if at == SHARD_0 else (0, rank))


def _brought(build: Builder, name: str, now: str, then: str) -> Pieces:
    """Write what brings an input to a placement; return where each rank then has its piece."""
    ranks = range(build.ranks)
    own = partial(_own, build, name)
    if now == then:
        return own
    if now == REPLICATE:
        return lambda rank: own(rank).cut(*_shard(build, name, then, rank))
    there = [build.temporary(rank, name, *_shard(build, name, then, rank), slot=name) for rank in ranks]

    def arriving(rank: int, origin: int) -> Slice:
        return there[rank].cut(own(origin).rows, own(origin).cols)

    if then == REPLICATE:
        ring.all_gather(build, ranks, own, arriving)
    else:
        direct.all_to_all(
            build, ranks, lambda rank, to: own(rank).cut(*_shard(build, name, then, to)), arriving
        )
    return there.__getitem__


def _room_for_product(build: Builder, name: str, at: str, wanted: str) -> Pieces:
    """Return where each rank computes its part of C: in place where that becomes its own part of it."""
    if wanted in (at, REPLICATE):
        return lambda rank: _own(build, name, rank).cut(*_shard(build, name, at, rank))
    ranks = range(build.ranks)
    room = [build.temporary(rank, name, *_shard(build, name, at, rank), slot="product") for rank in ranks]
    return room.__getitem__


def _deliver(build: Builder, name: str, at: str, wanted: str, computed: Pieces) -> None:
    """Write what brings C from where it was computed to where it shall be."""
    ranks = range(build.ranks)
    own = partial(_own, build, name)

    def of_owner(rank: int, owner: int) -> Slice:
        return computed(rank).cut(own(owner).rows, own(owner).cols)

    if at == PARTIAL and wanted == REPLICATE:
        ALL_REDUCE(build, ranks, computed, computed)
    elif at == PARTIAL:
        ring.reduce_scatter(build, ranks, of_owner, own, of_owner)
    elif at != wanted and wanted == REPLICATE:
        ring.all_gather(
            build, ranks, computed, lambda rank, origin: own(rank).cut(*_shard(build, name, at, origin))
        )
    elif at != wanted and at == REPLICATE:
        for rank in ranks:
            build.get(of_owner(rank, rank), own(rank))
    elif at != wanted:
        direct.all_to_all(
            build, ranks, of_owner, lambda rank, origin: own(rank).cut(*_shard(build, name, at, origin))
        )


ALGORITHM = Algorithm(
    "dtensor",
    "PyTorch's DTensor on a one-dimensional mesh: its own choice of sharding, rings, one multiply a rank.",
    "PyTorch, torch.distributed.tensor",
    native,
    write,
    refuses,
    options=(
        Option(
            "placements",
            "nearest",
            "Layouts it has no name for: bring them to the nearest it has, or refuse them.",
            choices=("nearest", "as-given"),
        ),
    ),
)
