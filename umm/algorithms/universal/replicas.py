"""What brings the replicas of C together: a reduce into the origin, a broadcast back, or a collective."""

from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any

import numpy as np

from umm import cost
from umm.algorithms.collectives.replicas import Summed, summed
from umm.algorithms.universal.options import Options
from umm.arrays import Ints, numbered_within
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.assemble import Rows, no_data
from umm.schedules.buffers import Buffers, first_tiles, joined
from umm.schedules.details import Details
from umm.schedules.kinds import ACCUMULATE, BARRIER, BROADCAST, PUT, REDUCE
from umm.schedules.platform import Platform, platform

COLLECTIVES = ("all-reduce", "reduce-scatter")
"""Finals that are collectives."""


def platform_for(problem: Problem, machine: Machine, options: Options) -> Platform:
    """Return what the schedules of a problem share, with the lanes that bring replicas of C together."""
    plain = platform(machine, problem.p, options.max_accumulates)
    found = how_summed(problem, machine, options)
    if found is None:
        return plain
    used = dict.fromkeys(found.schedule.lanes.names[lane] for lane in np.unique(found.schedule.lane).tolist())
    more = tuple(name for name in used if name not in plain.lanes.names)
    return platform(machine, problem.p, options.max_accumulates, more)


def how_summed(problem: Problem, machine: Machine, options: Options) -> Summed | None:
    """Return the collective that brings the replicas of C together; None if it is none, or has none."""
    return how_summed_as(problem.layout("C"), problem.c_dtype, machine, options)


def how_summed_as(layout: Layout, dtype: str, machine: Machine, options: Options) -> Summed | None:
    """Return the same, given the layout and the type of C."""
    if layout.replicas == 1 or options.final not in COLLECTIVES:
        return None
    return summed(options.final, layout, dtype, machine, options.max_accumulates)


def said_of(problem: Problem, shared: Platform, options: Options) -> dict[str, Any]:
    """Return the choices of a schedule as plain values, with the way of the collective if there is one."""
    found = how_summed(problem, shared.machine, options)
    return options.to_dict() | ({"sums_by": found.way} if found else {})


def with_replicas_joined(rows: Rows, problem: Problem, shared: Platform, options: Options) -> list[Rows]:
    """Return the rows, and after them what brings a replicated C together.

    A barrier, then every rank of every replica but the origin (replica 0) reduces each of its tiles into
    the origin's owner; with ``final=broadcast`` another barrier, then the origin's owners put the sum
    into the other replicas. Tiles of a rank go in row-major order, ranks take turns. With a collective the
    barrier is followed by its actions, of all tiles at once. A barrier waits for every action that nothing
    else waits for, and so, without looking at lanes, for all before it.

    Source: Brock & Golin (2025), section 4.2 and table 1.
    """
    parts = [rows]
    layout = problem.layout("C")
    if layout.replicas == 1:
        return parts
    found = how_summed(problem, shared.machine, options)
    if found is not None:
        return [rows, _barrier_after(parts), _collective(found, problem, shared, len(rows.kind))]
    used = np.bincount(rows.rank[rows.kind == ACCUMULATE], minlength=problem.p)
    for kind in (REDUCE, BROADCAST) if options.final == "broadcast" else (REDUCE,):
        barrier = _barrier_after(parts)
        count = sum(len(part.kind) for part in parts)
        parts.append(barrier)
        traffic = _replica_traffic(kind, problem, shared, used, options.max_accumulates, count)
        used = used + np.bincount(traffic.rank, minlength=problem.p)
        parts.append(traffic)
    return parts


def _barrier_after(parts: list[Rows]) -> Rows:
    """Return a barrier that waits for every action of some parts that nothing else waits for."""
    waited_for = np.zeros(sum(len(part.kind) for part in parts), dtype=bool)
    waited_for[np.concatenate([part.after for part in parts])] = True
    after = (~waited_for).nonzero()[0]
    none, zero = np.array([-1], dtype=np.int64), np.array([0], dtype=np.int64)
    kind = np.array([BARRIER], dtype=np.int8)
    return Rows(kind, none, none, zero + len(after), after, none, none, zero, np.zeros(1), no_data)


def _collective(found: Summed, problem: Problem, shared: Platform, barrier: int) -> Rows:
    """Return the actions of a collective, those that wait for no other after a barrier.

    What it adds is a reduce and what it puts a broadcast, as those of the other finals.
    """
    part = found.schedule
    kind = part.kind.copy()
    kind[kind == ACCUMULATE], kind[kind == PUT] = REDUCE, BROADCAST
    place = {name: x for x, name in enumerate(shared.lanes.names[: shared.lanes_per_rank])}
    lane = np.array([place.get(name, -1) for name in part.lanes.names], dtype=np.int64)
    own = np.diff(part.after_offsets)
    after = np.full(int(np.maximum(own, 1).sum()), barrier, dtype=np.int64)
    after[np.repeat(own > 0, np.maximum(own, 1))] = barrier + 1 + part.after
    return Rows(
        kind=kind,
        rank=part.rank,
        lane=part.rank * shared.lanes_per_rank + lane[part.lane],
        waits=np.maximum(own, 1),
        after=after,
        src=part.src,
        dst=part.dst,
        nbytes=part.nbytes,
        seconds=part.seconds,
        fill=partial(_fill_collective, part.details, first_tiles(problem.tensors)[2]),
    )


def _fill_collective(part: Details, first_of_c: int, details: Details, first: int) -> Buffers:
    """Write what a collective touches: tiles of C alone; see :class:`Rows`."""
    for column in fields(Details):
        getattr(details, column.name)[:] = getattr(part, column.name)
    details.buffer[part.buffer >= 0] += first_of_c
    return joined([])


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
