"""Replicas of a matrix that hold partial sums, brought together by the way that takes least on a machine."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives.collective import able, ways
from umm.plans.collectives.way import Exchange, Own, Writer
from umm.program import Chain, Sum
from umm.program.tensors import Tensor
from umm.schedules.bound import earliest_completions, schedule_bound
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

SUMMED = "C"  # the one tensor of the schedules made here; each sum lies where its parts are given
MOST_COMPARED = 1024
"""Tiles by which ways are compared, the first of a layout; their owners come round many times among those."""


class Summed(NamedTuple):
    """How replicas are summed."""

    way: str  # the way to do collectives that takes least
    schedule: Schedule  # its actions alone
    # By way, what it takes at least, the least of them chose; of more than 1,024 tiles the chosen.
    seconds: dict[str, float]
    ready: float  # seconds before which no element of the sum is complete anywhere
    whole: float  # seconds before which no tile of the sum is complete anywhere


def summed(what: str, layout: Layout, dtype: str, machine: Machine, lanes: int) -> Summed:
    """Return how the replicas of a matrix are summed fastest.

    Every tile is summed among its owners, all tiles at once. Ways are compared by the bounds of their
    schedules: the longest path, the busiest link; of more than 1,024 tiles, by those of the first 1,024.

    Args:
        what: ``all-reduce``: every replica holds the sum; ``reduce-scatter``: of each tile's rows, cut into
            as many parts as there are replicas, replica r holds part r of the sum, and the rest is spoilt.
        lanes: Accumulates a rank has in flight.
    """
    return _summed(what, layout, (str(layout), layout.cuts), dtype, machine, lanes)


@lru_cache(maxsize=512)
def _summed(what: str, layout: Layout, key: object, dtype: str, machine: Machine, lanes: int) -> Summed:
    # The key is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    groups = _owners(layout)

    def fastest(names: Iterable[str], most: int | None) -> tuple[dict[str, float], str, Schedule]:
        writers = {name: ways()[name].writers[what] for name in names}
        made = {x: _written(what, write, layout, dtype, machine, lanes, most) for x, write in writers.items()}
        seconds = {name: schedule_bound(schedule) for name, schedule in made.items()}
        best = min(seconds, key=seconds.__getitem__)
        return seconds, best, made[best]

    # Bounds, not simulations: searches ask for many layouts of C.
    seconds, best, schedule = fastest(able(what, machine, list(groups), layout.ranks), MOST_COMPARED)
    # Only a sample was written for the comparison; write the chosen way for all tiles.
    if (layout.tile_elements > 0).sum() > MOST_COMPARED:
        seconds, best, schedule = fastest([best], None)
    details, buffer = schedule.details, schedule.details.buffer[:, 0]
    tiles = (buffer >= 0) & (buffer < schedule.first_temporary)  # all else writes no element of the sum
    columns = buffer, *details.rows[:, 0].T, *details.cols[:, 0].T
    slices = np.stack(columns, axis=1).astype(np.int64)[tiles]
    rows = np.flatnonzero(tiles)
    ready, complete = (_first(schedule, x, rows) for x in (slices, slices[:, :1]))
    return Summed(best, schedule, seconds, ready, complete)


def quickest_ending(layout: Layout, dtype: str, machine: Machine, lanes: int) -> str:
    """Return how every replica of a matrix gets the sum of all fastest: ``all-reduce`` or ``broadcast``.

    The second is a reduce of every tile into replica 0, a barrier, and a broadcast from there. The endings
    alone are compared, by the bounds of their schedules, as the ways of the collective are.
    """
    return _quickest_ending(layout, (str(layout), layout.cuts), dtype, machine, lanes)


@lru_cache(maxsize=512)
def _quickest_ending(layout: Layout, key: object, dtype: str, machine: Machine, lanes: int) -> str:
    by_collective = summed("all-reduce", layout, dtype, machine, lanes)
    through_origin = schedule_bound(_through_origin(layout, dtype, machine, lanes))
    at_once = by_collective.seconds[by_collective.way]
    return "all-reduce" if at_once <= through_origin else "broadcast"


def _through_origin(layout: Layout, dtype: str, machine: Machine, lanes: int) -> Schedule:
    """Return the schedule that sums every tile into replica 0 and copies it to the others."""
    build, tiles = _start("broadcast", layout, dtype, machine, lanes)
    turns: Counter[int] = Counter()

    # Lanes are dealt out in turn per rank, as `_replica_traffic` does for a multiply, so that the bounds
    # agree.
    def lane(rank: int) -> str:
        turns[rank] += 1
        return f"accumulate.{(turns[rank] - 1) % lanes}"

    for origin, *others in tiles:
        for tile in others:
            build.reduce(tile, origin, lane=lane(tile.rank))
    build.barrier()
    for origin, *others in tiles:
        for tile in others:
            build.broadcast(origin, tile, lane=lane(origin.rank))
    return build.schedule()


def _first(schedule: Schedule, written: Ints, actions: Ints) -> float:
    """Return the least time, over the written slices, at which the last of a slice's writers can end."""
    # written: slice that each of some actions writes, a row each.
    number = np.unique(written, axis=0, return_inverse=True)[1].reshape(-1)
    by_result = actions[number.argsort(kind="stable")]
    each = np.split(by_result, np.cumsum(np.bincount(number))[:-1])
    return float(earliest_completions(schedule, each).min(initial=np.inf))


def _owners(layout: Layout) -> Iterable[tuple[int, ...]]:
    """Return the different groups of ranks that own a tile, a rank for each replica."""
    tiles = (layout.tile_elements > 0).reshape(layout.grid_shape())
    return dict.fromkeys(map(tuple, layout.owners[:, tiles].T.tolist()))


def _written(
    what: str, write: Writer, layout: Layout, dtype: str, machine: Machine, lanes: int, most: int | None
) -> Schedule:
    """Return the schedule of the sums of all tiles, or of the first of them, in one way."""
    build, tiles = _start(what, layout, dtype, machine, lanes)
    for replicas in tiles[:most]:
        _sum_tile(build, what, write, replicas)
    return build.schedule()


def _start(
    what: str, layout: Layout, dtype: str, machine: Machine, lanes: int
) -> tuple[Builder, list[list[Slice]]]:
    """Return where the actions go, and the replicas of every tile that is not empty, row-major."""
    tensor = Tensor(SUMMED, layout, dtype, "both")
    program = Chain(what, (tensor,), (Sum(SUMMED, SUMMED),), layout.ranks)
    build = Builder(what, program, machine, accumulate_lanes=lanes)
    rows, cols = layout.grid_shape()
    places = [(i, j) for i in range(rows) for j in range(cols) if all(layout.tile_shape((i, j)))]
    return build, [[build.tile(SUMMED, *x, replica) for replica in range(layout.replicas)] for x in places]


def _sum_tile(build: Builder, what: str, write: Writer, tiles: Sequence[Slice]) -> None:
    tile_of = {tile.rank: tile for tile in tiles}
    if what == "all-reduce":
        write(Exchange(build, list(tile_of), tile_of.__getitem__, tile_of.__getitem__))
        return
    number = {rank: replica for replica, rank in enumerate(tile_of)}

    def part(rank: int, owner: int) -> Slice:
        return tile_of[rank].part(number[owner], len(tile_of))

    write(Exchange(build, list(tile_of), part, Own(part), part))
