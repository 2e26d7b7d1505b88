"""How the replicas of C are summed: a reduce into the origin, a broadcast back, or a collective."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm import cost
from umm.arrays import Ints, numbered_within, offsets_of
from umm.dtypes import itemsize
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.multiply.options import COMPLETE, Options
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, first_tiles, joined
from umm.schedules.table.details import ACCUMULATE, BROADCAST, PUT, REDUCE, Details
from umm.schedules.table.resources import Platform, platform
from umm.schedules.table.table import Function

if TYPE_CHECKING:
    from umm.plans.collectives.replicas import Summed

COLLECTIVES = ("all-reduce", "reduce-scatter")
"""Finals that are collectives."""
_NO_TURNS = np.zeros(0, dtype=np.int64)


def ended(layout: Layout, dtype: str, machine: Machine, options: Options) -> Options:
    """Return the options with the ending that completes every replica of C named, where they leave it open.

    With one replica there is nothing to choose, and they stay as they are.
    """
    if options.final != COMPLETE or layout.replicas == 1:
        return options
    from umm.plans.collectives.replicas import quickest_ending

    return replace(options, final=quickest_ending(layout, dtype, machine, options.max_accumulates))


class Stage(NamedTuple):
    """Rows that sum replicas of C, behind a barrier."""

    # Kind, numbers, offsets, after and seconds as `rows.Rows` has them, with −1 in `after` for the barrier,
    # else a number within the stage; and turns: number of each transfer among those of its rank, which
    # accumulate lanes are dealt out by, or none if rows have their lanes.
    columns: tuple[NDArray[Any], ...]
    payload: Ints  # bytes that each moves
    fill: Callable[[Problem, Details, int], Buffers]  # writes their operands; see `rows.assemble`
    # By rank the bytes of the pool slots of its temporaries, which come after those of all others; none if it
    # has no temporaries.
    pools: Sequence[Ints] = ()
    functions: tuple[Function, ...] = ()  # what its maps do


@dataclass(frozen=True, eq=False)
class Ending:
    """How the replicas of C are summed; the same for every problem with this C.

    A barrier, then every rank of every replica but the origin (replica 0) reduces each of its tiles into
    the origin's owner; with ``final=broadcast`` another barrier, then the origin's owners put the sum
    into the other replicas. Tiles of a rank go in row-major order, ranks take turns. With a collective
    the barrier is followed by its actions, of all tiles at once.

    Source: Brock & Golin (2025), section 4.2 and table 1.
    """

    options: Options  # with the ending named
    shared: Platform  # what the schedules share, with the lanes of that sum
    chosen: Mapping[str, Any]  # the choices as plain values, with the way of the collective if there is one
    stages: tuple[Stage, ...]  # the rows of each barrier and what follows it


def ending_of(problem: Problem, machine: Machine, options: Options) -> Ending:
    """Return how the replicas of a problem's C are summed."""
    layout = problem.layout("C")
    return _ending_of(layout, (str(layout), layout.cuts), problem.c_dtype, machine, options)


@lru_cache(maxsize=512)
def _ending_of(layout: Layout, key: object, dtype: str, machine: Machine, options: Options) -> Ending:
    # The key is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    options = ended(layout, dtype, machine, options)
    collective = how_summed(layout, dtype, machine, options)
    plain = platform(machine, layout.ranks, options.max_accumulates)
    if collective is None:
        kinds = (REDUCE, BROADCAST) if options.final == "broadcast" else (REDUCE,)
        stages = [_replica_traffic(kind, layout, key, itemsize(dtype), machine) for kind in kinds]
        return Ending(options, plain, options.to_dict(), tuple(stages if layout.replicas > 1 else ()))
    used = dict.fromkeys(
        collective.schedule.lanes.names[lane] for lane in np.unique(collective.schedule.lane).tolist()
    )
    more = tuple(name for name in used if name not in plain.lanes.names)
    shared = platform(machine, layout.ranks, options.max_accumulates, more)
    chosen = options.to_dict() | {"sums_by": collective.way}
    return Ending(options, shared, chosen, (_collective(collective.schedule, shared),))


def how_summed(layout: Layout, dtype: str, machine: Machine, options: Options) -> "Summed | None":
    """Return the collective that sums the replicas of a C of a layout; None if it is none, or has none."""
    options = ended(layout, dtype, machine, options)
    if layout.replicas == 1 or options.final not in COLLECTIVES:
        return None
    from umm.plans.collectives.replicas import summed

    return summed(options.final, layout, dtype, machine, options.max_accumulates)


def _collective(part: Schedule, shared: Platform) -> Stage:
    """Return the actions of a collective.

    What it adds is a reduce and what it puts a broadcast, as those of the other finals.
    """
    kind = part.kind.copy()
    kind[kind == ACCUMULATE], kind[kind == PUT] = REDUCE, BROADCAST
    # The collective was written for itself, with lanes numbered in its own way; renumber them by name.
    place = {name: x for x, name in enumerate(shared.lanes.names[: shared.lanes_per_rank])}
    lane = np.array([place.get(name, -1) for name in part.lanes.names], dtype=np.int64)
    count = np.diff(part.after_offsets)
    # Actions that wait for nothing get −1, the barrier.
    after = np.full(int(np.maximum(count, 1).sum()), -1, dtype=np.int64)
    after[np.repeat(count > 0, np.maximum(count, 1))] = part.after
    lanes = part.rank * shared.lanes_per_rank + lane[part.lane]
    numbers = np.stack((part.rank, lanes, part.src, part.dst, part.nbytes))
    columns = (kind, numbers, offsets_of(np.maximum(count, 1)), after, part.seconds, _NO_TURNS)
    pools = part.pools if any(map(len, part.pools)) else ()
    return Stage(columns, part.payload, partial(_fill_collective, part), pools, part.functions)


def _fill_collective(part: Schedule, problem: Problem, details: Details, first: int) -> Buffers:
    """Write the operands of a collective: tiles of C, and temporaries of it; see :class:`Stage`."""
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


@lru_cache(maxsize=256)
def _replica_traffic(kind: int, layout: Layout, key: object, c_itemsize: int, machine: Machine) -> Stage:
    """Return one reduce or broadcast for each tile and replica but the origin."""
    # The key is there for the cache; see `_ending_of`.
    elements, owners = layout.tile_elements, layout.owners.reshape(-1)
    # Empty tiles have nothing to sum and get no transfer.
    origin = elements.nonzero()[0].repeat(layout.replicas - 1)
    replica = np.arange(len(origin)) % max(layout.replicas - 1, 1) + 1
    copy = replica * elements.size + origin
    number = numbered_within(owners[copy if kind == REDUCE else origin])
    # Rank-major lists would let the first rank start all its transfers first; sort so that ranks take turns.
    order = np.lexsort((owners[copy if kind == REDUCE else origin], number))
    number, origin, copy = number[order], origin[order], copy[order]
    source, target = (copy, origin) if kind == REDUCE else (origin, copy)
    src, dst = owners[source], owners[target]
    charged = cost.accumulate_bytes if kind == REDUCE else cost.transfer_bytes
    payload, count = elements[origin] * c_itemsize, len(src)
    numbers = np.stack((src, np.zeros_like(src), src, dst, charged(machine, payload)))
    kinds, barrier = np.full(count, kind, dtype=np.int8), np.full(count, -1, dtype=np.int64)
    columns = (kinds, numbers, np.arange(count + 1), barrier, np.zeros(count), number)

    def fill(problem: Problem, details: Details, first: int) -> Buffers:
        first_of_c = first_tiles(problem.tensors)[2]
        i, j = np.divmod(target % layout.tile_elements.size, layout.grid_shape()[1])
        rows = np.stack([layout.row_edges[i], layout.row_edges[i + 1]], axis=1)
        cols = np.stack([layout.col_edges[j], layout.col_edges[j + 1]], axis=1)
        details.op[:] = number
        details.put(np.arange(count), 0, first_of_c + target, rows, cols)
        details.put(np.arange(count), 1, first_of_c + source, rows, cols)
        return joined([])

    return Stage(columns, payload, fill)
