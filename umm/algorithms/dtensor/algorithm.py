"""DTensor's matmul: the placements its own cost model picks, NCCL-like rings, one local multiply a rank.

Along each axis of a device mesh a matrix is Replicate, Shard(0), cut by rows, or Shard(1), by columns.
DTensor takes the way to multiply whose inputs are cheapest to redistribute to, whatever becomes of the
output, and then brings the output to where it shall be: axis by axis, a collective each.

Source: PyTorch, torch.distributed.tensor; see :mod:`umm.algorithms.dtensor.choice`.
"""

from collections.abc import Callable, Mapping
from itertools import cycle, product
from math import prod
from typing import NamedTuple, cast

import numpy as np

from umm.algorithms.algorithm import Algorithm, Names, Native, read_mesh
from umm.algorithms.dtensor import choice
from umm.algorithms.writing import near_or_by_level
from umm.arrays import Ints
from umm.interval import Interval
from umm.layouts.frameworks.held import chunk, whole
from umm.layouts.frameworks.words import shared_mesh
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives import direct
from umm.plans.collectives.collective import ways
from umm.plans.collectives.library import LIBRARY
from umm.plans.collectives.library import refuses as refuses_library
from umm.plans.collectives.way import Exchange, Writer
from umm.plans.option import Option
from umm.program.problem import MATRICES, Problem
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

Box = tuple[Interval, Interval]
Held = Mapping[int, Slice]


class DeviceMesh(NamedTuple):
    """The ranks of a device mesh."""

    ranks: Ints  # the rank at each place

    def box(self, shape: tuple[int, int], placements: choice.Placements, rank: int) -> Box:
        """Return a rank's rows and columns of a matrix in placements; all of them for a Partial one."""
        (at,) = np.argwhere(self.ranks == rank).tolist()
        sides = []
        for size, shard in zip(shape, choice.SHARDS, strict=True):
            spans = whole(size)
            for place, parts, placement in zip(at, self.ranks.shape, placements, strict=True):
                # Mesh axes apply from left to right: a second Shard of a dimension cuts the chunk of the
                # first. torch.chunk rounds up, so the last ranks may have nothing.
                spans = chunk(spans, place, parts) if placement == shard else spans
            sides.append(Interval(*spans[0]) if spans else Interval(0, 0))
        return sides[0], sides[1]

    def boxes(self, shape: tuple[int, int], placements: choice.Placements) -> dict[int, Box]:
        """Return the same for every rank."""
        return {rank: self.box(shape, placements, rank) for rank in range(self.ranks.size)}

    def groups(self, axis: int) -> list[list[int]]:
        """Return the ranks that are joined along an axis, in its order."""
        lines: list[list[int]] = (
            np.moveaxis(self.ranks, axis, -1).reshape(-1, self.ranks.shape[axis]).tolist()
        )
        return lines

    def placed(self, placements: choice.Placements, like: Layout) -> Layout:
        """Return the layout that placements mean for a matrix of the shape of another."""
        return Layout.from_dtensor(self.ranks, placements, like.shape)

    def placements(self, layout: Layout) -> choice.Placements | None:
        """Return a layout's placements on this mesh; None if DTensor has no name for it."""
        return next((x for x in self.all_placements() if layout == self.placed(x, layout)), None)

    def all_placements(self) -> list[choice.Placements]:
        """Return all that a matrix can be on this mesh, Replicate first."""
        return list(product((choice.REPLICATE, choice.SHARD_0, choice.SHARD_1), repeat=self.ranks.ndim))

    def nearest(self, layout: Layout) -> Layout:
        """Return a layout as it is if DTensor has a name for it, else the nearest.

        A full copy on every rank is Replicate, however it is cut. Of what has no more replicas those are
        nearest of which ranks need fewest bytes from others; of equals those cut by rows.

        >>> mesh = DeviceMesh(np.arange(8))
        >>> for text in ("2d:4x2", "2d:2x4:colmajor", "col:balanced", "cyclic:2x2:1x1@8"):
        ...     print(text, *mesh.placements(mesh.nearest(Layout.parse(text, (66, 66), ranks=8))))
        2d:4x2 Shard(0)
        2d:2x4:colmajor Shard(1)
        col:balanced Shard(1)
        cyclic:2x2:1x1@8 Replicate
        """
        name = self.placements(layout)
        if name is not None:
            everyone = len(np.unique(layout.owners)) == layout.ranks  # has a tile, if only an empty one
            return layout if everyone else self.placed(name, layout)
        if layout.replicas == layout.ranks:
            return self.placed((choice.REPLICATE,) * self.ranks.ndim, layout)
        # A target with more replicas would cost memory that the caller's layout does not take.
        able = [
            x
            for x in self.all_placements()
            if prod(n for n, name in zip(self.ranks.shape, x, strict=True) if name == choice.REPLICATE)
            <= layout.replicas
        ]
        # max keeps the first of equals, and Shard(0) is listed before Shard(1).
        return max((self.placed(x, layout) for x in able), key=lambda to: _elements_in_place(layout, to))


def device_mesh(problem: Problem, mesh: str) -> DeviceMesh:
    """Return the mesh that a problem is multiplied on.

    Args:
        mesh: Its shape as text; empty for one axis where DTensor has a name for all layouts on it, else the
            one on which it has, else one axis.

    >>> device_mesh(Problem(m=8, n=8, k=8, a="2d", b="row", c="col@2", ranks=8), "").ranks.shape
    (2, 4)
    """
    ranks = np.arange(problem.p, dtype=np.int64)
    if mesh:
        return DeviceMesh(ranks.reshape(read_mesh(mesh, mesh.count("x") + 1)))
    one = DeviceMesh(ranks)
    if all(one.placements(layout) for layout in problem.layouts):
        return one
    shared = shared_mesh(problem.layouts)
    mesh_of_all = DeviceMesh(shared[0].ranks) if shared else one
    return mesh_of_all if all(mesh_of_all.placements(layout) for layout in problem.layouts) else one


def native(problem: Problem, placements: str, mesh: str) -> Native:
    """The problem's own layouts where DTensor has a name for them, else the nearest that it has one for."""
    device = device_mesh(problem, mesh)
    return Native(*(device.nearest(problem.layout(name)) for name in MATRICES))


def _elements_in_place(layout: Layout, to: Layout) -> int:
    """Return how many elements of their target tiles ranks own already."""
    elements = 0
    for rank in range(layout.ranks):
        for wanted in to.tiles_of(rank):
            target = to.tile_bounds(wanted)
            for tile in layout.tiles_of(rank):
                here = layout.tile_bounds(tile)
                elements += here[0].intersect(target[0]).size * here[1].intersect(target[1]).size
    return elements


def refuses(problem: Problem, machine: Machine, placements: str, mesh: str) -> str | None:
    """With the placements as given, layouts that DTensor has no name for."""
    device = device_mesh(problem, mesh)
    if placements == "nearest" or all(device.placements(layout) for layout in problem.layouts):
        return None
    a, b = problem.layouts[:2]
    return (
        f"A {a.shape[0]}x{a.shape[1]} in {a} and B {b.shape[0]}x{b.shape[1]} in {b} on {problem.p} ranks are "
        f"not Replicate, Shard(0) or Shard(1) all; use row, col or row@{problem.p}, or placements=nearest"
    )


def write(build: Builder, names: Names, placements: str, mesh: str) -> None:
    """Redistribute the inputs, multiply, redistribute the output."""
    problem = cast(Problem, build.program)
    device = device_mesh(problem, mesh)
    # DTensor decides by the inputs alone; the placement wanted for C plays no part in the choice.
    now = [device.placements(build.layout(name)) or () for name in names]
    shapes = problem.shape("A"), problem.shape("B")
    assumed = choice.Mesh.of(build.machine, device.ranks.shape)
    way = choice.chosen_way(shapes, problem.itemsize("A"), now[0], now[1], assumed)
    ranks = range(build.ranks)
    a, b = (
        _redistributed(build, device, name, {rank: build.own(name, rank) for rank in ranks}, at, to)
        for name, at, to in zip(names[:2], now[:2], way[:2], strict=True)
    )
    c_tiles = {rank: build.own(names.c, rank) for rank in ranks}
    boxes = device.boxes(problem.shape("C"), way.c)
    # Where the way leaves C in the layout asked for, the product is written there and no copy follows.
    computed = {rank: _room(build, names.c, rank, boxes[rank], "product", c_tiles) for rank in ranks}
    for rank in ranks:
        build.gemm(computed[rank], a[rank], b[rank], beta=0)
    summed = _redistributed(build, device, names.c, computed, way.c, now[2], c_tiles)
    for rank in ranks:
        # The last collective may leave a piece in a pool, or a view of a larger one.
        if summed[rank] != c_tiles[rank]:
            build.get(summed[rank], c_tiles[rank])


def _room(build: Builder, name: str, rank: int, box: Box, slot: object, tiles: Held) -> Slice:
    """Return a slice for a rank's box: in its own tile where that has room for it, else in its pool."""
    if rank in tiles:
        inside = tiles[rank].cut(*box)
        if inside.elements == box[0].size * box[1].size:
            return inside
    return build.temporary(rank, name, *box, slot=slot)


def _redistributed(
    build: Builder,
    mesh: DeviceMesh,
    name: str,
    pieces: Held,
    now: choice.Placements,
    then: choice.Placements,
    tiles: Held | None = None,
) -> Held:
    """Write the collectives from one placement to another; return each rank's new piece."""
    # pieces: piece of each rank. now: placements before. then: placements after. tiles: slices that each rank
    # may use where they fit; None uses pools alone.
    shape, current = build.layout(name).shape, list(now)
    slots = cycle((name, (name, "then")))  # what a step writes is not where it reads
    for axis, before, after in choice.steps(now, then, mesh.ranks.shape):
        had = mesh.boxes(shape, tuple(current))
        current[axis] = after
        boxes = mesh.boxes(shape, tuple(current))
        if before == choice.REPLICATE:
            # Replicate to Shard is a view of what the rank has: nothing moves.
            pieces = {rank: piece.cut(*boxes[rank]) for rank, piece in pieces.items()}
            continue
        if before == choice.PARTIAL and after == choice.REPLICATE:
            targets = pieces  # summed where it is
        else:
            slot = next(slots)
            targets = {rank: _room(build, name, rank, boxes[rank], slot, tiles or {}) for rank in pieces}
        step = _Step(build, pieces, targets, had, boxes)
        for group in mesh.groups(axis):
            COLLECTIVES[before == choice.PARTIAL, after == choice.REPLICATE](step, group)
        pieces = targets
    return pieces


class _Step(NamedTuple):
    """A collective along an axis: where each rank has its piece, where it shall have it, and both boxes."""

    build: Builder
    held: Held
    there: Held
    had: Mapping[int, Box]
    boxes: Mapping[int, Box]

    def for_owner(self, rank: int, owner: int) -> Slice:
        """Return a rank's part of the piece that another shall have."""
        return self.held[rank].cut(*self.boxes[owner])

    def arriving(self, rank: int, origin: int) -> Slice:
        """Return the slice in which a rank puts the piece that another had."""
        return self.there[rank].cut(*self.had[origin])

    def _writer(self, what: str, group: list[int]) -> Writer:
        """Return the writer of a collective: a ring in a node, else by level, so that all cards are busy."""
        # All-reduces are as the machine's library does them, which also knows trees and sums in the switch.
        ranks = sorted(group)
        if what == "all-reduce" and refuses_library(self.build.machine, ranks, self.build.ranks) is None:
            return ways()[LIBRARY].writers[what]
        return ways()[near_or_by_level(self.build, "ring", ranks)].writers[what]

    def all_gather(self, group: list[int]) -> None:
        """Shard to Replicate."""
        self._writer("all-gather", group)(Exchange(self.build, group, self.held.__getitem__, self.arriving))

    def all_to_all(self, group: list[int]) -> None:
        """Shard to the other Shard."""
        direct.all_to_all(Exchange(self.build, group, self.for_owner, self.arriving))

    def all_reduce(self, group: list[int]) -> None:
        """Partial to Replicate."""
        source, target = self.held.__getitem__, self.there.__getitem__
        self._writer("all-reduce", group)(Exchange(self.build, group, source, target))

    def reduce_scatter(self, group: list[int]) -> None:
        """Partial to Shard."""
        scatter = self._writer("reduce-scatter", group)
        scatter(Exchange(self.build, group, self.for_owner, self.there.__getitem__, self.for_owner))


COLLECTIVES: dict[tuple[bool, bool], Callable[[_Step, list[int]], None]] = {
    (False, True): _Step.all_gather,
    (False, False): _Step.all_to_all,
    (True, True): _Step.all_reduce,
    (True, False): _Step.reduce_scatter,
}
"""By whether it was Partial, and whether it becomes Replicate."""


def _mesh(ranks: int, placements: str, mesh: str) -> tuple[int, ...] | None:
    """Return the mesh's shape if its ranks are all there are."""
    shape = read_mesh(mesh, mesh.count("x") + 1) if mesh else (ranks,)
    return shape if prod(shape) == ranks else None


ALGORITHM = Algorithm(
    "dtensor",
    "PyTorch's DTensor on a device mesh: its own choice of placements, rings, one multiply a rank.",
    "PyTorch, torch.distributed.tensor",
    native,
    write,
    refuses,
    options=(
        Option(
            "placements",
            "nearest",
            "Layouts without a DTensor name: moved to the nearest one, or refused.",
            choices=("nearest", "as-given"),
        ),
        Option(
            "mesh",
            "",
            "Shape of the device mesh, such as 2x4; one on which all layouts have names if not given.",
        ),
    ),
    mesh=_mesh,
)
