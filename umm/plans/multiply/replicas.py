"""How the replicas of C are summed: a reduce into the origin, a broadcast back, or a collective."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm import cost
from umm.arrays import Floats, Ints, numbered_within
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives.replicas import Summed, quickest_ending, summed
from umm.plans.multiply.options import COMPLETE, Options
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, first_tiles, joined
from umm.schedules.table.details import ACCUMULATE, BARRIER, BROADCAST, PUT, REDUCE, Details
from umm.schedules.table.resources import Platform, platform
from umm.schedules.table.table import Amounts
from umm.schedules.writer.assembly import Rows, no_data

COLLECTIVES = ("all-reduce", "reduce-scatter")  # finals that are collectives
_OF_BARRIER = np.array([[-1], [-1], [-1], [-1], [0]], dtype=np.int64)  # the numbers of a barrier
_BARRIERS, _NO_SECONDS = np.array([BARRIER], dtype=np.int8), np.zeros(1)


def ended(problem: Problem, machine: Machine, options: Options) -> Options:
    """Return the options with the ending that completes every replica of C named, where they leave it open.

    With one replica there is nothing to choose, and they stay as they are.
    """
    return ended_as(problem.layout("C"), problem.c_dtype, machine, options)


def ended_as(layout: Layout, dtype: str, machine: Machine, options: Options) -> Options:
    """Return the same, given the layout and the type of C."""
    if options.final != COMPLETE or layout.replicas == 1:
        return options
    return replace(options, final=quickest_ending(layout, dtype, machine, options.max_accumulates))


@dataclass(frozen=True, eq=False)
class Ending:
    """How the replicas of C are summed; the same for every problem with this C."""

    options: Options  # the options, with the ending named
    shared: Platform  # what the schedules share, with the lanes of that sum
    chosen: Mapping[str, Any]  # the choices as plain values, with the way of the collective if there is one
    collective: Schedule | None  # The schedule of the collective; None if it is none.
    # Its actions, which wait for the barrier before them where `after` is −1, else for each other.
    sums: Rows | None

    def joined(self, rows: Rows, problem: Problem) -> list[Rows]:
        """Return the rows, and after them those that sum a replicated C.

        A barrier, then every rank of every replica but the origin (replica 0) reduces each of its tiles into
        the origin's owner; with ``final=broadcast`` another barrier, then the origin's owners put the sum
        into the other replicas. Tiles of a rank go in row-major order, ranks take turns. With a collective
        the barrier is followed by its actions, of all tiles at once. A barrier waits for every action that
        nothing else waits for, and so, without looking at lanes, for all before it.

        Source: Brock & Golin (2025), section 4.2 and table 1.
        """
        parts = [rows]
        if problem.layout("C").replicas == 1:
            return parts
        if self.sums is not None and self.collective is not None:
            after = self.sums.after + (len(rows.kind) + 1)  # from the barrier's row on
            # Operands are written only when asked for: comparing schedules needs times, not slices.
            fill = partial(_fill_collective, self.collective, problem)
            collective = replace(self.sums, after=after, fill=fill)
            return [rows, _barrier(_unawaited(parts)), collective]
        # Lanes are dealt out in turn; the reduces continue where the rank's accumulates stopped.
        used = np.bincount(rows.numbers[0, rows.kind == ACCUMULATE], minlength=problem.p)
        lanes = self.options.max_accumulates
        for kind in (REDUCE, BROADCAST) if self.options.final == "broadcast" else (REDUCE,):
            if kind == BROADCAST:
                used = used + np.bincount(parts[-1].numbers[0, 1:], minlength=problem.p)
            parts.append(_replica_traffic(kind, problem, self.shared, used, lanes, parts))
        return parts


def ending_of(problem: Problem, machine: Machine, options: Options) -> Ending:
    """Return how the replicas of a problem's C are summed."""
    layout = problem.layout("C")
    return _ending_of(layout, (str(layout), layout.cuts), problem.c_dtype, machine, options)


@lru_cache(maxsize=512)
def _ending_of(layout: Layout, key: object, dtype: str, machine: Machine, options: Options) -> Ending:
    # The key is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    options = ended_as(layout, dtype, machine, options)
    collective = how_summed_as(layout, dtype, machine, options)
    plain = platform(machine, layout.ranks, options.max_accumulates)
    if collective is None:
        return Ending(options, plain, options.to_dict(), None, None)
    used = dict.fromkeys(
        collective.schedule.lanes.names[lane] for lane in np.unique(collective.schedule.lane).tolist()
    )
    more = tuple(name for name in used if name not in plain.lanes.names)
    shared = platform(machine, layout.ranks, options.max_accumulates, more)
    chosen = options.to_dict() | {"sums_by": collective.way}
    return Ending(options, shared, chosen, collective.schedule, _collective(collective.schedule, shared))


def how_summed(problem: Problem, machine: Machine, options: Options) -> Summed | None:
    """Return the collective that sums the replicas of C; None if it is none, or has none."""
    return how_summed_as(problem.layout("C"), problem.c_dtype, machine, options)


def how_summed_as(layout: Layout, dtype: str, machine: Machine, options: Options) -> Summed | None:
    """Return the same, given the layout and the type of C."""
    options = ended_as(layout, dtype, machine, options)
    if layout.replicas == 1 or options.final not in COLLECTIVES:
        return None
    return summed(options.final, layout, dtype, machine, options.max_accumulates)


def _unawaited(parts: list[Rows]) -> Ints:
    """Return every action of some parts that nothing else waits for."""
    # Waiting for the sinks of the graph is waiting for everything, with the fewest edges.
    awaited = np.zeros(sum(len(part.kind) for part in parts), dtype=bool)
    for part in parts:
        awaited[part.after] = True
    return (~awaited).nonzero()[0]


def _only_moved(payload: Ints) -> Amounts:
    """Return the amounts of actions none of which multiplies."""
    moved = np.where(payload > 0, MATRICES.index("C"), -1)
    return Amounts(payload, np.zeros((3, len(payload)), dtype=np.int64), moved)


def _barrier(after: Ints) -> Rows:
    """Return a barrier that waits for some actions."""
    amounts = partial(_only_moved, np.zeros(1, dtype=np.int64))
    return Rows(_BARRIERS, _OF_BARRIER, np.array([len(after)]), after, _NO_SECONDS, no_data, amounts)


def _collective(part: Schedule, shared: Platform) -> Rows:
    """Return the actions of a collective; see :class:`Ending`."""
    # What it adds is a reduce and what it puts a broadcast, as those of the other finals.
    kind = part.kind.copy()
    kind[kind == ACCUMULATE], kind[kind == PUT] = REDUCE, BROADCAST
    # The collective was written for itself, with lanes numbered in its own way; renumber them by name.
    place = {name: x for x, name in enumerate(shared.lanes.names[: shared.lanes_per_rank])}
    lane = np.array([place.get(name, -1) for name in part.lanes.names], dtype=np.int64)
    count = np.diff(part.after_offsets)
    # Actions that wait for nothing get −1, which `joined` turns into the row of the barrier.
    after = np.full(int(np.maximum(count, 1).sum()), -1, dtype=np.int64)
    after[np.repeat(count > 0, np.maximum(count, 1))] = part.after
    lanes = part.rank * shared.lanes_per_rank + lane[part.lane]
    numbers = np.stack((part.rank, lanes, part.src, part.dst, part.nbytes))
    waits = np.maximum(count, 1)
    amounts = partial(_only_moved, part.payload)
    pools = part.pools if any(map(len, part.pools)) else ()
    return Rows(kind, numbers, waits, after, part.seconds, no_data, amounts, pools, part.functions)


def _fill_collective(part: Schedule, problem: Problem, details: Details, first: int) -> Buffers:
    """Write the operands of a collective: tiles of C, and temporaries of it; see :class:`Rows`."""
    for column in fields(Details):
        getattr(details, column.name)[:] = getattr(part.details, column.name)
    # Buffers of the collective number its one tensor's tiles from 0; shift them to C's tiles and to the
    # temporaries of this schedule.
    buffer = part.details.buffer
    tiles, temporary = (buffer >= 0) & (buffer < part.first_temporary), buffer >= part.first_temporary
    details.buffer[tiles] += first_tiles(problem.tensors)[2]
    details.buffer[temporary] += first - part.first_temporary
    temporaries = part.buffers.taken(slice(part.first_temporary, None))
    return replace(temporaries, tensor=temporaries.tensor + MATRICES.index("C"))


def _replica_traffic(
    kind: int, problem: Problem, shared: Platform, used: Ints, lanes: int, before: list[Rows]
) -> Rows:
    """Return a barrier, and one reduce or broadcast for each tile and replica but the origin."""
    layout = problem.layout("C")
    x = _replica_transfers(kind, layout, str(layout), problem.itemsize("C"), shared.machine)
    after, barrier = _unawaited(before), sum(len(part.kind) for part in before)
    numbers, waits = x.numbers.copy(), x.waits.copy()
    src, lane = numbers[2, 1:], numbers[1, 1:]
    lane[:] = src * shared.lanes_per_rank + shared.first_accumulate + (used[src] + x.number) % lanes
    waits[0] = len(after)
    after = np.concatenate((after, np.full(len(src), barrier, dtype=np.int64)))
    amounts = partial(_only_moved, x.payload)
    return Rows(x.kind, numbers, waits, after, x.seconds, partial(x.fill, problem), amounts)


@dataclass(frozen=True, eq=False)
class _Transfers:
    """Transfers between the replicas of C after a barrier; the same for every problem with this C."""

    layout: Layout  # the layout of C
    number: Ints  # number of each transfer among those of its rank
    target: Ints  # tile each is written to, of all replicas of C, row-major; source the same
    source: Ints
    kind: NDArray[np.int8]  # the kinds of the barrier and the transfers
    numbers: Ints  # their numbers, except the lanes of transfers; see `Rows`
    waits: Ints  # how many actions each waits for, except the barrier
    seconds: Floats  # none of them takes any
    payload: Ints  # bytes that each moves, 0 for the barrier

    def fill(self, problem: Problem, details: Details, first: int) -> Buffers:
        """Write the operands of the transfers; see :class:`Rows`."""
        layout, first_of_c = self.layout, first_tiles(problem.tensors)[2]
        i, j = np.divmod(self.target % layout.tile_elements.size, layout.grid_shape()[1])
        rows = np.stack([layout.row_edges[i], layout.row_edges[i + 1]], axis=1)
        cols = np.stack([layout.col_edges[j], layout.col_edges[j + 1]], axis=1)
        every = np.arange(1, len(self.kind))
        details.op[1:] = self.number
        details.put(every, 0, first_of_c + self.target, rows, cols)
        details.put(every, 1, first_of_c + self.source, rows, cols)
        return joined([])


@lru_cache(maxsize=256)
def _replica_transfers(kind: int, layout: Layout, text: str, itemsize: int, machine: Machine) -> _Transfers:
    # The text is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    elements, owners = layout.tile_elements, layout.owners.reshape(-1)
    # Empty tiles have nothing to sum and get no transfer.
    origin = elements.nonzero()[0].repeat(layout.replicas - 1)
    replica = np.arange(len(origin)) % (layout.replicas - 1) + 1
    copy = replica * elements.size + origin
    number = numbered_within(owners[copy if kind == REDUCE else origin])
    # Rank-major lists would let the first rank start all its transfers first; sort so that ranks take turns.
    order = np.lexsort((owners[copy if kind == REDUCE else origin], number))
    number, origin, copy = number[order], origin[order], copy[order]
    source, target = (copy, origin) if kind == REDUCE else (origin, copy)
    src, dst = owners[source], owners[target]
    charged = cost.accumulate_bytes if kind == REDUCE else cost.transfer_bytes
    payload = elements[origin] * itemsize
    nbytes = charged(machine, payload)
    count = len(src)
    return _Transfers(
        layout,
        number,
        target,
        source,
        np.array([BARRIER] + [kind] * count, dtype=np.int8),
        np.concatenate((_OF_BARRIER, np.stack((src, np.zeros_like(src), src, dst, nbytes))), axis=1),
        np.ones(count + 1, dtype=np.int64),
        np.zeros(count + 1),
        np.append(0, payload),
    )
