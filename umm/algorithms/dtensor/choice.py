"""DTensor's choices: the placements its matmul takes, its costs of redistributions, their steps.

Source: PyTorch 2.13, torch/distributed/tensor: ``redistribute_cost`` of _collective_utils.py, the strategies
of ``mm`` in _ops/_matrix_ops.py in their order, ``generate_greedy_transform_infos`` of _redistribute.py,
``_select_min_cost_strategy`` of _sharding_prop.py. ``make test-frameworks`` holds all of it to the real one.
"""

from collections.abc import Iterator
from itertools import product
from math import inf, prod
from typing import NamedTuple

from umm.machines import Machine
from umm.machines.fabrics.direct import Pairs
from umm.plans.collectives.rings import nodes_of

REPLICATE, SHARD_0, SHARD_1, PARTIAL = "Replicate", "Shard(0)", "Shard(1)", "Partial"
SHARDS = (SHARD_0, SHARD_1)
# PyTorch's own constants: latency of any collective, and what it adds for an all-to-all beyond the formula of
# an all-gather, since all-to-alls are usually slower.
BASE_US, PENALTY_US = 6.6, 1.0
GIBI = 2**30
Placements = tuple[str, ...]  # what each axis of a mesh does to a matrix


class Mesh(NamedTuple):
    """DTensor's assumptions on a device mesh."""

    shape: tuple[int, ...]  # ranks along each axis
    bandwidth: tuple[float, ...]  # GiB/s of a ring along each axis
    hop_us: tuple[float, ...]  # microseconds a hop along each axis

    @classmethod
    def of(cls, machine: Machine, shape: tuple[int, ...]) -> "Mesh":
        """Return DTensor's numbers: an axis leaves the host if it and those after it fill more than one."""
        ranks = prod(shape)
        one_host = machine.fabric.near == 1 or isinstance(machine.fabric, Pairs)  # groups are GPUs of a host
        # The numbers are PyTorch's defaults, not this machine's: the aim is its choice, not a good estimate.
        host = ranks if one_host else len(nodes_of(machine, range(ranks), ranks)[0])
        near = [prod(shape[axis:]) <= host for axis in range(len(shape))]
        return cls(
            shape, tuple(87.7 * (1 if x else 0.22) for x in near), tuple(0.6 if x else 2.7 for x in near)
        )


class Way(NamedTuple):
    """The placements of A, B and C on the mesh while ranks multiply."""

    a: Placements
    b: Placements
    c: Placements


ON_AN_AXIS = (
    (REPLICATE, REPLICATE, REPLICATE),
    (SHARD_1, SHARD_0, PARTIAL),
    (SHARD_0, REPLICATE, SHARD_0),
    (REPLICATE, SHARD_1, SHARD_1),
)
"""What A, B and the product can be along one axis so that ranks multiply without communication."""


class Step(NamedTuple):
    """One collective of a redistribution."""

    axis: int  # the axis of the mesh along which ranks take part
    now: str  # what the axis does to the matrix
    then: str  # what it does afterwards


def steps(now: Placements, then: Placements, shape: tuple[int, ...]) -> Iterator[Step]:
    """Yield the steps from one placement to another on a mesh of a shape.

    A cut of a dimension that an axis further left shall cut otherwise is undone first, the last axis first.

    >>> [tuple(step) for step in steps((SHARD_0, SHARD_0), (REPLICATE, SHARD_0), (2, 2))]
    [(1, 'Shard(0)', 'Replicate'), (0, 'Shard(0)', 'Replicate'), (1, 'Replicate', 'Shard(0)')]
    """
    current = list(now)
    if len(now) > 1 and _shards(now, shape) > 1:
        for axis in reversed(range(len(now))):
            # Shards of one dimension are nested from left to right, so an axis can only be cut in its final
            # way once the axes to its left that cut the same dimension are as they shall be.
            target = then[axis]
            if target in SHARDS:
                before = [[i for i in range(axis) if x[i] == target] for x in (current, then)]
                if before[0] != before[1]:
                    target = REPLICATE
            if current[axis] != target:
                yield Step(axis, current[axis], target)
                current[axis] = target
    # From left to right: outer cuts before those nested in them.
    for axis, target in enumerate(then):
        if current[axis] != target:
            yield Step(axis, current[axis], target)


def _shards(placements: Placements, shape: tuple[int, ...]) -> int:
    """Return how many parts placements cut a matrix into."""
    return prod(n for n, placement in zip(shape, placements, strict=True) if placement in SHARDS)


def redistribute_cost(nbytes: float, now: Placements, then: Placements, mesh: Mesh) -> float:
    """Return DTensor's estimate of the microseconds from one placement of an input to another.

    It is the same to the last bit: of ways that cost as much, rounding decides which one is cheapest.

    Args:
        nbytes: Bytes of the whole matrix.
        now: What each axis of the mesh does to it: Replicate or a Shard.
        mesh: What it assumes of the mesh.
    """
    if now == then or set(now) == {REPLICATE}:
        return 0.0
    # Bytes of one rank's shard; a gather multiplies them, a local slice divides them.
    moved = nbytes / _shards(now, mesh.shape) / GIBI
    total = 0.0
    for axis, before, after in steps(now, then, mesh.shape):
        ranks, hops = mesh.shape[axis], mesh.shape[axis] - 1
        if before == REPLICATE:
            moved /= ranks
            continue
        moved *= ranks if after == REPLICATE else 1
        # An alpha-beta ring: p − 1 hops, and (p − 1)/p of the bytes pass each rank.
        ring = BASE_US + hops * mesh.hop_us[axis] + moved * hops / ranks / mesh.bandwidth[axis] * 1e6
        total += ring + (0.0 if after == REPLICATE else PENALTY_US)
    return total


def ways(axes: int) -> list[Way]:
    """Return every way to multiply on a mesh of so many axes, in DTensor's order."""
    return [Way(*zip(*each, strict=True)) for each in product(ON_AN_AXIS, repeat=axes)]


def chosen_way(
    shapes: tuple[tuple[int, int], tuple[int, int]], itemsize: int, a: Placements, b: Placements, mesh: Mesh
) -> Way:
    """Return the way DTensor multiplies.

    The one whose inputs lie so already; else the first to which they are cheapest to bring, whatever becomes
    of the output.

    Args:
        shapes: Of A and of B.
        a: What each axis of the mesh does to A.
        b: Likewise to B.
        mesh: What DTensor assumes of the mesh.

    >>> mesh = Mesh((8,), (87.7,), (0.6,))
    >>> for m in (4096, 8192):
    ...     print(m, *chosen_way(((m, 12288), (12288, 49152)), 4, (SHARD_1,), (SHARD_1,), mesh))
    4096 ('Replicate',) ('Shard(1)',) ('Shard(1)',)
    8192 ('Shard(1)',) ('Shard(0)',) ('Partial',)
    """

    def cost(way: Way) -> float:
        total = 0.0
        for shape, now, then in zip(shapes, (a, b), way[:2], strict=True):
            # Each dimension needs as many rows or columns as it would have parts.
            parts = (prod(n for n, x in zip(mesh.shape, then, strict=True) if x == y) for y in SHARDS)
            if any(size < count for size, count in zip(shape, parts, strict=True)):
                return inf
            total += redistribute_cost(shape[0] * shape[1] * itemsize, now, then, mesh)
        return total

    # Slicing a Replicate is free, so several ways may cost nothing: one that moves nothing wins then. After
    # that, min keeps the first of equals, so the order of ON_AN_AXIS matters.
    return min(ways(len(mesh.shape)), key=lambda way: (cost(way), way[:2] != (a, b)))
