"""What brings the replicas of C together: a reduce into the origin, and a broadcast back if asked for."""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from umm import cost
from umm.algorithms.universal.options import Options
from umm.arrays import Ints, numbered_within
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.assemble import Rows, no_data
from umm.schedules.buffers import Buffers, first_tiles, joined
from umm.schedules.details import Details
from umm.schedules.kinds import ACCUMULATE, BARRIER, BROADCAST, REDUCE
from umm.schedules.platform import Platform


def with_replicas_joined(rows: Rows, problem: Problem, shared: Platform, options: Options) -> list[Rows]:
    """Return the rows, and after them what brings a replicated C together.

    A barrier, then every rank of every replica but the origin (replica 0) reduces each of its tiles into
    the origin's owner; with ``final=broadcast`` another barrier, then the origin's owners put the sum
    into the other replicas. Tiles of a rank go in row-major order, ranks take turns. A barrier waits for
    every action that nothing else waits for, and so, without looking at lanes, for all before it.

    Source: Brock & Golin (2025), section 4.2 and table 1.
    """
    parts = [rows]
    layout = problem.layout("C")
    if layout.replicas == 1:
        return parts
    used = np.bincount(rows.rank[rows.kind == ACCUMULATE], minlength=problem.p)
    for kind in (REDUCE, BROADCAST) if options.final == "broadcast" else (REDUCE,):
        count = sum(len(part.kind) for part in parts)
        waited_for = np.zeros(count, dtype=bool)
        waited_for[np.concatenate([part.after for part in parts])] = True
        parts.append(_barrier((~waited_for).nonzero()[0]))
        traffic = _replica_traffic(kind, problem, shared, used, options.max_accumulates, count)
        used = used + np.bincount(traffic.rank, minlength=problem.p)
        parts.append(traffic)
    return parts


def _barrier(after: Ints) -> Rows:
    none, zero = np.array([-1], dtype=np.int64), np.array([0], dtype=np.int64)
    kind = np.array([BARRIER], dtype=np.int8)
    return Rows(kind, none, none, zero + len(after), after, none, none, zero, np.zeros(1), no_data)


def _replica_traffic(
    kind: int, problem: Problem, shared: Platform, used: Ints, lanes: int, barrier: int
) -> Rows:
    """Return one reduce or broadcast for each tile and replica but the origin, all after a barrier."""
    layout = problem.layout("C")
    traffic = _replica_transfers(kind, layout, str(layout), problem.itemsize("C"), shared.machine)
    src, count = traffic.src, len(traffic.src)
    return Rows(
        kind=np.full(count, kind, dtype=np.int8),
        rank=src,
        lane=src * shared.lanes_per_rank + shared.first_accumulate + (used[src] + traffic.number) % lanes,
        waits=np.ones(count, dtype=np.int64),
        after=np.full(count, barrier, dtype=np.int64),
        src=src,
        dst=traffic.dst,
        nbytes=traffic.nbytes,
        seconds=np.zeros(count),
        fill=partial(traffic.fill, first_tiles(problem.tensors)[2]),
    )


@dataclass(frozen=True, eq=False)
class _Transfers:
    """What moves between the replicas of C; the same for every problem with this layout of C.

    Attributes:
        layout: The layout of C.
        src: Rank each transfer leaves; ranks take turns.
        dst: Rank it arrives at.
        number: Its number among the transfers of its rank.
        nbytes: Bytes on the route.
        target: Tile each is written to, of all replicas of C, row-major; source likewise.
    """

    layout: Layout
    src: Ints
    dst: Ints
    number: Ints
    nbytes: Ints
    target: Ints
    source: Ints

    def fill(self, first_of_c: int, details: Details, first: int) -> Buffers:
        """Write what the transfers move; see :class:`Rows`."""
        layout = self.layout
        i, j = np.divmod(self.target % layout.tile_elements.size, layout.grid_shape()[1])
        rows = np.stack([layout.row_edges[i], layout.row_edges[i + 1]], axis=1)
        cols = np.stack([layout.col_edges[j], layout.col_edges[j + 1]], axis=1)
        every = np.arange(len(self.src))
        details.op[:] = self.number
        details.put(every, 0, first_of_c + self.target, rows, cols)
        details.put(every, 1, first_of_c + self.source, rows, cols)
        return joined([])


@lru_cache(maxsize=256)
def _replica_transfers(kind: int, layout: Layout, text: str, itemsize: int, machine: Machine) -> _Transfers:
    # The text is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    owners = layout.owners
    area = layout.tile_elements.reshape(layout.grid_shape())
    i, j, replica = np.nonzero(np.broadcast_to((area > 0)[:, :, None], (*area.shape, layout.replicas)))
    i, j, replica = (x[replica > 0] for x in (i, j, replica))
    origin = i * area.shape[1] + j
    there = replica * area.size + origin
    source, target = (there, origin) if kind == REDUCE else (origin, there)
    src, dst = (owners.reshape(-1)[tile] for tile in (source, target))
    number = numbered_within(src)
    order = np.lexsort((src, number))
    src, dst, number, target, source, i, j = (x[order] for x in (src, dst, number, target, source, i, j))
    charged = cost.accumulate_bytes if kind == REDUCE else cost.transfer_bytes
    nbytes = charged(machine, area[i, j] * itemsize)
    return _Transfers(layout, src, dst, number, nbytes, target, source)
