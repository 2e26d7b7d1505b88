"""The computation graph of a rank: component multiplies on one side, tiles on the other, edges between.

An edge is satisfied if the tile is the rank's own, or once it has been fetched. Costs are the step model's:
roofline seconds for a multiply; for a transfer its charged bytes over the bandwidth of the narrowest link of
that pair's route, latency left out. A contribution to the rank's own tile of C that others add to as well is
an accumulate inside the device.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Floats, Ints
from umm.dtypes import payload_bytes
from umm.machines import Machine
from umm.machines.fabric import narrowest
from umm.plans.multiply.operands import elements, owners, spans, strided, updates
from umm.plans.multiply.oplist import OpList
from umm.plans.multiply.options import Options
from umm.schedules.table.resources import Links, Routes, platform


class Data(NamedTuple):
    """A tile, or the slice of one, that component multiplies of a rank read."""

    matrix: int  # 0 for A, 1 for B
    tile: tuple[int, int]  # row and column of the tile
    op: int  # the first multiply that reads it, by its number in the op list
    source: int  # the rank that holds it
    nbytes: int  # bytes to charge on the route; 0 if it is the rank's own
    seconds: float  # what the step model charges for getting it; 0 if it is the rank's own


class Update(NamedTuple):
    """The accumulate of a component multiply's contribution to a tile of C."""

    target: int
    nbytes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Graph:
    """The computation graph of one rank."""

    rank: int
    first: int  # number of its first op in the op list; component multiply i is op `first + i`
    seconds: tuple[float, ...]  # seconds of each component multiply
    data: tuple[Data, ...]  # what they read
    edges: tuple[tuple[int, int], ...]  # for each component multiply the numbers of its data, A's and B's
    # For each component multiply its accumulate; None if it adds to C in place.
    updates: tuple[Update | None, ...]

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def own(self) -> frozenset[int]:
        """The data whose edges are satisfied from the start."""
        return frozenset(i for i, data in enumerate(self.data) if data.source == self.rank)

    @cached_property
    def needs(self) -> tuple[tuple[int, ...], ...]:
        """For each component multiply the data at the end of its edges that start out unsatisfied."""
        return tuple(tuple(x for x in edges if x not in self.own) for edges in self.edges)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each datum the component multiplies that read it."""
        readers: list[list[int]] = [[] for _ in self.data]
        for i, edges in enumerate(self.edges):
            for x in edges:
                readers[x].append(i)
        return tuple(map(tuple, readers))

    @cached_property
    def shape(self) -> object:
        """The part of a graph that decides its steps: graphs of equal shape have equal steps."""
        costs = tuple((x.seconds, i in self.own) for i, x in enumerate(self.data))
        return self.seconds, costs, self.edges, tuple(x.seconds if x else None for x in self.updates)

    @property
    def communication(self) -> float:
        """Seconds of all gets and accumulates."""
        return sum(x.seconds for x in self.data) + sum(x.seconds for x in self.updates if x)

    def __str__(self) -> str:
        lines = [f"rank {self.rank}: {len(self)} multiplies, {len(self.data)} tiles"]
        for i, edges in enumerate(self.edges):
            ends = (f"{name(self.data[x])} {'own' if x in self.own else 'to get'}" for x in edges)
            lines.append(f"  {i}: {self.seconds[i]:.3g} s, reads {', '.join(ends)}")
        return "\n".join(lines)


def name(data: Data) -> str:
    """Return the matrix and tile of a datum, such as ``A(0,1)``."""
    return f"{'AB'[data.matrix]}({data.tile[0]},{data.tile[1]})"


def graphs(ops: OpList, machine: Machine, options: Options) -> list[Graph]:
    """Return the computation graph of every rank.

    With ``reuse`` every multiply that needs a range shares one datum; without it each has its own.

    Source: Brock & Golin (2025), section 4.3.
    """
    problem, rank, slices = ops.problem, ops.rank, options.granularity == "slice"
    shared = platform(machine, problem.p, options.max_accumulates)

    def per_byte(src: Ints, dst: Ints) -> Floats:
        return seconds_per_byte(shared.links, shared.routes, src, dst)

    m, n, k = ops.sizes
    pace = cost.pace_of(machine, rank, problem.p)
    gemm = cost.multiply_seconds(machine, problem.dtype, m, n, k, problem.itemsize("C"), pace=pace).tolist()
    target, slotted = updates(problem.layouts[2], rank, ops.tiles[2])
    payload = m * n * problem.itemsize("C")
    apart = strided(ops)
    charged = cost.accumulate_bytes(machine, payload, apart)
    local = cost.local_accumulate_seconds(machine, payload, apart, pace)
    carried = np.where(target == rank, local, charged * per_byte(rank, target))
    update = [
        Update(*row) if through else None
        for through, *row in zip(
            slotted.tolist(), target.tolist(), charged.tolist(), carried.tolist(), strict=True
        )
    ]
    sides = []
    for matrix, span in enumerate(spans(ops, slices)):
        layout = problem.layouts[matrix]
        source = owners(layout, rank, ops.tiles[matrix])
        nbytes = cost.transfer_bytes(
            machine, payload_bytes(elements(ops, "AB"[matrix], slices), problem.dtype)
        )
        nbytes = np.where(source == rank, 0, nbytes)
        tile = zip(*(x.tolist() for x in np.divmod(ops.tiles[matrix], layout.grid_shape()[1])), strict=True)
        key: Ints = span if options.reuse else np.where(source == rank, -1 - span, np.arange(len(ops)))
        took = (nbytes * per_byte(source, rank)).tolist()
        sides.append((key.tolist(), list(tile), source.tolist(), nbytes.tolist(), took))

    result = []
    starts = rank.searchsorted(np.arange(problem.p + 1)).tolist()
    for r in range(problem.p):
        data: list[Data] = []
        numbers: dict[tuple[int, int], int] = {}
        edges = []
        for op in range(starts[r], starts[r + 1]):
            ends = []
            for matrix, (key_of, tile_of, source_of, nbytes_of, seconds_of) in enumerate(sides):
                key_ = (matrix, key_of[op])
                if key_ not in numbers:
                    numbers[key_] = len(data)
                    data.append(Data(matrix, tile_of[op], op, source_of[op], nbytes_of[op], seconds_of[op]))
                ends.append(numbers[key_])
            edges.append((ends[0], ends[1]))
        cut = slice(starts[r], starts[r + 1])
        result.append(Graph(r, starts[r], tuple(gemm[cut]), tuple(data), tuple(edges), tuple(update[cut])))
    return result


def seconds_per_byte(links: Links, routes: Routes, src: Ints, dst: Ints) -> Floats:
    """Return the step model's seconds per byte of some transfers; 0 from a rank to itself."""
    pairs, which = np.unique(np.stack([src, dst]), axis=1, return_inverse=True)
    bandwidth = links.bandwidth.tolist()
    inverse = [
        0.0 if s == d else 1.0 / bandwidth[narrowest(routes[s, d], bandwidth)] for s, d in pairs.T.tolist()
    ]
    return np.array(inverse)[which]
