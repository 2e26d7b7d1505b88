"""Consecutive rows of a schedule table while it is being built, and how parts become one schedule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from umm import cost
from umm.algorithms.universal.options import Options
from umm.arrays import Ints, numbered_within
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.kinds import ACCUMULATE, BARRIER, BROADCAST, REDUCE
from umm.schedules.resources import Lanes, Links, Routes, machine_lanes
from umm.schedules.table import Details, Schedule


@dataclass(frozen=True, eq=False)
class Fabric:
    """What all schedules for some ranks of a machine share.

    Attributes:
        machine: The machine.
        links: Its links.
        routes: The links between its ranks.
        lanes: A compute lane, the copy_in lanes and the accumulate lanes of each rank.
        lanes_per_rank: Lanes of one rank.
        first_accumulate: Place of accumulate.0 among a rank's lanes; copy_in.0 is at 1.
        devices: Devices the ranks use.
    """

    machine: Machine
    links: Links
    routes: Routes
    lanes: Lanes
    lanes_per_rank: int
    first_accumulate: int
    devices: int


@lru_cache(maxsize=64)
def fabric(machine: Machine, ranks: int, accumulate_lanes: int) -> Fabric:
    """Return what all schedules for these ranks of a machine share."""
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    return Fabric(
        machine,
        Links(machine.link_names, machine.link_bandwidth, machine.link_latency),
        Routes(lambda src, dst: machine.route(devices[src], devices[dst])),
        machine_lanes(ranks, devices, machine.copy_engines, accumulate_lanes),
        1 + machine.copy_engines + accumulate_lanes,
        1 + machine.copy_engines,
        len(set(devices)),
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive actions as columns; see :class:`umm.schedules.table.Schedule` for their meaning.

    Attributes:
        waits: Number of dependencies of each action.
        after: The dependencies, one action's after another's, as table rows.
        fill: Writes the rows' details; called with the details' columns cut to these rows.
    """

    kind: NDArray[np.int8]
    rank: Ints
    lane: Ints
    waits: Ints
    after: Ints
    src: Ints
    dst: Ints
    nbytes: Ints
    seconds: NDArray[np.float64]
    fill: Callable[[Details], None]


def with_replica_traffic(rows: Rows, problem: Problem, shared: Fabric, options: Options) -> list[Rows]:
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
    return Rows(
        kind, none, none, zero + len(after), after, none, none, zero, np.zeros(1), lambda details: None
    )


def _replica_traffic(
    kind: int, problem: Problem, shared: Fabric, used: Ints, lanes: int, barrier: int
) -> Rows:
    """Return one reduce or broadcast for each tile and replica but the origin, all after a barrier."""
    layout = problem.layout("C")
    traffic = _replica_transfers(kind, layout, layout.cuts, problem.itemsize("C"), shared.machine)
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
        fill=traffic.fill,
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
        i: Tile row; j is the tile column.
    """

    layout: Layout
    src: Ints
    dst: Ints
    number: Ints
    nbytes: Ints
    i: Ints
    j: Ints

    def fill(self, details: Details) -> None:
        """Write what the transfers move."""
        layout = self.layout
        details.op[:], details.matrix[:] = self.number, 2
        details.tile[:] = np.stack([self.i, self.j], axis=1)
        details.rows[:] = np.stack([layout.row_edges[self.i], layout.row_edges[self.i + 1]], axis=1)
        details.cols[:] = np.stack([layout.col_edges[self.j], layout.col_edges[self.j + 1]], axis=1)


@lru_cache(maxsize=256)
def _replica_transfers(
    kind: int, layout: Layout, cuts: tuple[bytes, bytes], itemsize: int, machine: Machine
) -> _Transfers:
    """Return what moves between the replicas of C; by its cuts too, for they number the tiles."""
    owners = layout.owners
    area = layout.tile_elements.reshape(layout.grid_shape())
    i, j, replica = np.nonzero(np.broadcast_to((area > 0)[:, :, None], (*area.shape, layout.replicas)))
    i, j, replica = (x[replica > 0] for x in (i, j, replica))
    there, origin = owners[replica, i, j], owners[0, i, j]
    src, dst = (there, origin) if kind == REDUCE else (origin, there)
    number = numbered_within(src)
    order = np.lexsort((src, number))
    src, dst, number, i, j = (x[order] for x in (src, dst, number, i, j))
    charged = cost.accumulate_bytes if kind == REDUCE else cost.transfer_bytes
    return _Transfers(layout, src, dst, number, charged(machine, area[i, j] * itemsize), i, j)


def assemble(
    parts: Sequence[Rows],
    problem: Problem,
    stationary: str,
    shared: Fabric,
    options: Options,
    pools: Callable[[], list[Ints]],
) -> Schedule:
    """Return the schedule whose table is these parts, one below the other."""

    def column(name: str) -> NDArray[np.generic]:
        columns = [getattr(part, name) for part in parts]
        return columns[0] if len(columns) == 1 else np.concatenate(columns)

    def make_details() -> tuple[Details, list[Ints]]:
        details = Details.empty(sum(len(part.kind) for part in parts))
        start = 0
        for part in parts:
            stop = start + len(part.kind)
            part.fill(details.cut(start, stop))
            start = stop
        return details, pools()

    machine = shared.machine
    waits = column("waits")
    offsets = np.zeros(len(waits) + 1, dtype=np.int64)
    waits.cumsum(out=offsets[1:])
    names = ("kind", "rank", "lane", "after", "src", "dst", "nbytes", "seconds")
    columns = {name: column(name) for name in names}
    return Schedule(
        problem=problem,
        stationary=stationary,
        machine=machine.name,
        ranks=problem.p,
        interference=machine.interference,
        links=shared.links,
        routes=shared.routes,
        lanes=shared.lanes,
        after_offsets=offsets,
        make_details=make_details,
        options=options.to_dict(),
        peak=machine.peak(problem.dtype) * shared.devices,
        **columns,  # type: ignore[arg-type]
    )
