"""The bound of one schedule: the longest path through it, and each link's and engine's own work.

Tighter than the closed form, because it knows the order: which get comes first, what waits for it, and which
accumulate ends it all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf

import numpy as np

from umm.arrays import Floats, Ints, distinct, group_of_row, in_c
from umm.machines.fabric import narrowest
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, KINDS
from umm.schedules.table.resources import Links, Routes

bound_in_c = in_c("umm.schedules._bound", "bound")

ROUNDING = 1.0 - 1e-9
"""A bound is a sum in another order than the simulator's; this factor keeps it below all the same."""


def schedule_bound(schedule: Schedule) -> float:
    """Return a lower bound of a schedule's makespan in seconds, never above the simulated one.

    Every action takes at least the time it takes alone, so the longest path through dependencies and lanes
    is a bound. A link also has to carry all its bytes one after another, from the first moment one can
    flow to what must still follow the last; so has a shared GEMM engine. A rank whose transfers slow its
    gemms down makes up for that.
    """
    routes = _routes(schedule)
    alone = seconds_alone(schedule, routes.latency, routes.inverse)
    columns = (schedule.rank, schedule.lane, schedule.after_offsets, schedule.after, alone, routes.latency)
    known, lanes = routes.known, schedule.lanes
    given = (
        *map(np.ascontiguousarray, (*columns, schedule.nbytes, routes.number)),
        np.ascontiguousarray(schedule.kind, np.int8),
        *(known.firsts, known.links, schedule.links.bandwidth, lanes.rank, lanes.engine_numbers),
        np.array([schedule.interference.get(kind, 0.0) for kind in KINDS]),
    )
    total = 0.0
    # A barrier ends everything before it, so bounds of the phases between barriers add up. Within one phase
    # the maximum over paths, links and engines is all that can be said.
    for phase in phases(schedule):
        total += bound_in_c(*given, phase.start, phase.stop, schedule.ranks)
    return total * ROUNDING


def earliest_completions(schedule: Schedule, written: Sequence[Ints]) -> Floats:
    """Return when each of some results can be complete at the earliest.

    A result waits for all actions that write it, and an action for all in its ``after``. Those of them that
    cross one link do so one after another, from the first moment one of them can flow.

    Args:
        written: For each result the actions that write it.
    """
    routes = _routes(schedule)
    alone = seconds_alone(schedule, routes.latency, routes.inverse).tolist()
    edges, links = routes.known.firsts.tolist(), routes.known.links.tolist()
    known = [links[start:stop] for start, stop in pairwise(edges)]
    route = [known[x] if x >= 0 else () for x in routes.number.tolist()]
    per_byte = (1.0 / schedule.links.bandwidth).tolist()
    nbytes, wait, lane = schedule.nbytes.tolist(), routes.latency.tolist(), schedule.lane.tolist()
    offsets, after = schedule.after_offsets.tolist(), schedule.after.tolist()
    start, free = [0.0] * len(alone), dict[int, float]()

    def complete(actions: Sequence[int]) -> float:
        """Return when all of some actions can have ended."""
        latest = max((start[x] + alone[x] for x in actions), default=0.0)
        # On one link the awaited transfers flow one after another at best: from the earliest start on, for
        # the sum of their seconds. One alone is covered by its own time.
        flows, busy = dict[int, float](), dict[int, float]()
        for x in actions if len(actions) > 1 else ():
            for link in route[x]:
                flows[link] = min(flows.get(link, inf), start[x] + wait[x])
                busy[link] = busy.get(link, 0.0) + nbytes[x] * per_byte[link]
        return max(latest, max((flows[x] + busy[x] for x in flows), default=0.0))

    for i in range(len(alone)):
        start[i] = complete(after[offsets[i] : offsets[i + 1]])
        if lane[i] >= 0:
            start[i] = max(start[i], free.get(lane[i], 0.0))
            free[lane[i]] = start[i] + alone[i]
    return np.array([complete(x.tolist()) for x in written]) * ROUNDING


def seconds_alone(schedule: Schedule, latency: Floats, inverse: Floats) -> Floats:
    """Return each action's seconds alone, by the latency and the seconds a byte of its route."""
    moving = np.where(schedule.src != schedule.dst, latency + schedule.nbytes * inverse, 0.0)
    return moving + schedule.seconds


class _Pairs:
    """Routes of the pairs of ranks that schedules have used so far."""

    def __init__(self, ranks: int) -> None:
        # Number of each pair, source · ranks + destination; −1 for one not used yet.
        self.number = np.full(ranks * ranks, -1)
        # By its number latency and seconds a byte of each; a zero more.
        self.latency, self.inverse = np.zeros(1), np.zeros(1)
        # The links they cross, and where those of each start; where the last one's end.
        self.firsts, self.links = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def learn(self, schedule: Schedule, pairs: Ints) -> None:
        """Look up pairs that have no number yet."""
        links, routes = schedule.links, [schedule.routes[divmod(x, schedule.ranks)] for x in pairs.tolist()]
        self.number[pairs] = np.arange(len(pairs)) + len(self.firsts) - 1
        latency = [links.latency[list(route)].sum() for route in routes]
        narrow = [links.bandwidth[narrowest(list(route), links.bandwidth)] for route in routes]
        self.latency = np.concatenate((self.latency[:-1], latency, [0.0]))
        self.inverse = np.concatenate((self.inverse[:-1], 1.0 / np.array(narrow), [0.0]))
        counts = np.array([len(route) for route in routes])
        self.firsts = np.concatenate((self.firsts, self.firsts[-1] + counts.cumsum()))
        self.links = np.concatenate((self.links, [x for route in routes for x in route]), dtype=np.int64)


@lru_cache(maxsize=8)
def _pairs(routes: Routes, links: Links, ranks: int) -> _Pairs:
    """Return the record of pairs of ranks for some routes."""
    # Schedules of one machine share their routes, and a search bounds many of them.
    return _Pairs(ranks)


@dataclass(frozen=True)
class _Routes:
    """The routes of a schedule's actions."""

    known: _Pairs  # what is known of pairs of ranks
    number: Ints  # the number of each action's pair there, −1 where nothing crosses a link
    latency: Floats  # seconds before bytes flow
    inverse: Floats  # seconds that a byte takes


def _routes(schedule: Schedule) -> _Routes:
    """Return the routes of a schedule's actions."""
    known = _pairs(schedule.routes, schedule.links, schedule.ranks)
    moving = (schedule.src != schedule.dst).nonzero()[0]
    pairs = schedule.src[moving] * schedule.ranks + schedule.dst[moving]
    # Routes are looked up once a machine: a search bounds thousands of schedules with the same pairs.
    new = pairs[known.number[pairs] < 0]
    if len(new):
        known.learn(schedule, distinct(new))
    number = np.full(len(schedule), -1)
    number[moving] = known.number[pairs]
    return _Routes(known, number, known.latency[number], known.inverse[number])


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
