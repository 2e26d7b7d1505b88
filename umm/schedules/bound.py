"""The bound of one schedule: the longest path through it, and each link's and engine's own work.

Tighter than the closed form, because it knows the order: which get comes first, what waits for it, and which
accumulate ends it all.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from umm.arrays import Floats, Ints, group_of_row, offsets_of, rows_of_groups
from umm.machines.fabric import narrowest
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, GEMM, KINDS

ROUNDING = 1.0 - 1e-9
"""A bound is a sum in another order than the simulator's; this factor keeps it below all the same."""


def schedule_bound(schedule: Schedule) -> float:
    """Return a lower bound of a schedule's makespan in seconds, never above the simulated one.

    Every action takes at least the time it takes alone, so the longest path through dependencies and lanes
    is a bound. A link also has to carry all its bytes one after another, from the first moment one can
    flow to what must still follow the last; so has a shared GEMM engine. A rank whose transfers slow its
    gemms down makes up for that.
    """
    latency, inverse = _routes(schedule)
    alone = seconds_alone(schedule, latency, inverse)
    total = 0.0
    for phase in phases(schedule):
        paths = _paths(schedule, alone, phase)
        busiest = _resources(schedule, alone, latency, paths)
        total += max(paths.longest, busiest, _slowed(schedule, alone, paths))
    return total * ROUNDING


def earliest_finishes(schedule: Schedule) -> Floats:
    """Return when each action can have finished at the earliest, by what it waits for and its lane."""
    alone = seconds_alone(schedule, *_routes(schedule))
    finishes: Floats = (_paths(schedule, alone, range(len(schedule))).start + alone) * ROUNDING
    return finishes


def seconds_alone(schedule: Schedule, latency: Floats, inverse: Floats) -> Floats:
    """Return what each action takes alone, by the latency and the seconds a byte of its route."""
    moving = np.where(schedule.src != schedule.dst, latency + schedule.nbytes * inverse, 0.0)
    return moving + schedule.seconds


@dataclass(frozen=True)
class _Paths:
    """When the actions of a phase can start at the earliest, and what must follow them.

    Attributes:
        phase: The actions.
        start: Earliest start of each, after the phase's start.
        tail: Least time from its finish to the end of the phase.
        longest: Least duration of the phase.
    """

    phase: range
    start: Floats
    tail: Floats
    longest: float


def _routes(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return the latency and the seconds per byte of each action's route."""
    ranks, links = schedule.ranks, schedule.links
    inverse, latency = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
    for pair in schedule.used_pairs():
        route = list(schedule.routes[pair])
        inverse[pair] = 1.0 / links.bandwidth[narrowest(route, links.bandwidth)]
        latency[pair] = links.latency[route].sum()
    return latency[schedule.src, schedule.dst], inverse[schedule.src, schedule.dst]


def phases(schedule: Schedule) -> list[range]:
    """Return the actions between barriers, of those barriers that part all before them from all after."""
    count = len(schedule)
    barriers = np.nonzero(schedule.kind == BARRIER)[0]
    if len(barriers):
        # All before it lead to a barrier if each is first waited for by an action up to it; all after it
        # follow it if each waits for an action from it on.
        waiting = group_of_row(schedule.after_offsets)
        first, last = np.full(count, count), np.full(count, -1)
        np.minimum.at(first, schedule.after, waiting)
        np.maximum.at(last, waiting, schedule.after)
        leads = np.maximum.accumulate(np.append(-1, first))[barriers] <= barriers
        follows = np.minimum.accumulate(np.append(last, count)[::-1])[::-1][barriers + 1] >= barriers
        barriers = barriers[leads & follows]
    edges = [-1, *barriers.tolist(), count]
    return [range(start + 1, stop) for start, stop in pairwise(edges)]


def _paths(schedule: Schedule, seconds: Floats, phase: range) -> _Paths:
    """Return heads and tails of a phase's actions along dependencies and lanes."""
    first = phase.start
    offsets = schedule.after_offsets[first : phase.stop + 1].tolist()
    after = schedule.after[offsets[0] : offsets[-1]].tolist()
    shift = offsets[0]
    lanes, took = schedule.lane[first : phase.stop].tolist(), seconds[first : phase.stop].tolist()
    before: list[list[int]] = []
    start: list[float] = []
    finish: list[float] = []
    last: dict[int, int] = {}
    for i, lane in enumerate(lanes):
        waits = [a - first for a in after[offsets[i] - shift : offsets[i + 1] - shift] if a >= first]
        if lane >= 0:
            if lane in last:
                waits.append(last[lane])
            last[lane] = i
        earliest = max([finish[a] for a in waits], default=0.0)
        before.append(waits)
        start.append(earliest)
        finish.append(earliest + took[i])
    tail = [0.0] * len(lanes)
    for i in range(len(lanes) - 1, -1, -1):
        follows = tail[i] + took[i]
        for a in before[i]:
            if tail[a] < follows:
                tail[a] = follows
    return _Paths(phase, np.array(start), np.array(tail), max(finish, default=0.0))


def _resources(schedule: Schedule, seconds: Floats, latency: Floats, paths: _Paths) -> float:
    """Return how long the phase's busiest link or engine needs, from its first start to its last tail.

    For the jobs of a resource that can start at some time or later: that time, all their work, and the
    shortest of their tails (the one-machine bound of scheduling theory).
    """
    cut = slice(paths.phase.start, paths.phase.stop)
    src, dst = schedule.src[cut], schedule.dst[cut]
    moving = np.nonzero(src != dst)[0]
    pairs, number = np.unique(src[moving] * schedule.ranks + dst[moving], return_inverse=True)
    routes = [schedule.routes[divmod(pair, schedule.ranks)] for pair in pairs.tolist()]
    offsets = offsets_of([len(route) for route in routes])
    job = moving.repeat(np.diff(offsets)[number])
    links = np.array([link for route in routes for link in route], dtype=np.int64)
    resource = links[rows_of_groups(offsets, number)]
    work = schedule.nbytes[cut][job] / schedule.links.bandwidth[resource]
    release = paths.start[job] + latency[cut][job]

    gemms = np.nonzero(schedule.kind[cut] == GEMM)[0]
    engine = schedule.lanes.engine[schedule.lane[cut][gemms]]
    resource = np.concatenate((resource, len(schedule.links.names) + engine))
    work = np.concatenate((work, seconds[cut][gemms]))
    release = np.concatenate((release, paths.start[gemms]))
    tail = paths.tail[np.concatenate((job, gemms))]
    return _one_machine(resource, release, work, tail)


def _one_machine(resource: Ints, release: Floats, work: Floats, tail: Floats) -> float:
    order = np.lexsort((-release, resource))
    best, current, load, least = 0.0, -1, 0.0, 0.0
    columns = (resource[order].tolist(), release[order].tolist(), work[order].tolist(), tail[order].tolist())
    for which, begins, takes, follows in zip(*columns, strict=True):
        if which != current:
            current, load, least = which, 0.0, follows
        load += takes
        least = min(least, follows)
        best = max(best, begins + load + least)
    return best


def _slowed(schedule: Schedule, seconds: Floats, paths: _Paths) -> float:
    """Return how long the phase lasts for the rank whose gemms its own transfers slow down most."""
    cut = slice(paths.phase.start, paths.phase.stop)
    kind, rank, lane = schedule.kind[cut], schedule.rank[cut], schedule.lane[cut]
    gemms = np.nonzero(kind == GEMM)[0]
    engines = {(int(r), int(e)) for r, e in zip(rank[gemms], schedule.lanes.engine[lane[gemms]], strict=True)}
    if not len(gemms) or len({engine for _, engine in engines}) < len(engines):
        return 0.0
    ranks = schedule.ranks
    compute = np.bincount(rank[gemms], seconds[cut][gemms], ranks)
    head, tail = np.full(ranks, np.inf), np.full(ranks, np.inf)
    np.minimum.at(head, rank[gemms], paths.start[gemms])
    np.minimum.at(tail, rank[gemms], paths.tail[gemms])
    longest = 0.0
    for name, loss in schedule.interference.items():
        moves = np.nonzero((kind == KINDS.index(name)) & (schedule.src[cut] != schedule.dst[cut]))[0]
        if not loss or not len(moves):
            continue
        busy = np.bincount(lane[moves], seconds[cut][moves], len(schedule.lanes))
        busiest = np.zeros(ranks)
        np.maximum.at(busiest, schedule.lanes.rank, busy)
        # Transfers before its first and after its last gemm cost a rank nothing.
        total = compute + loss * busiest + (1 - loss) * (head + tail)
        longest = max(longest, float(total[compute > 0].max(initial=0.0)))
    return longest
