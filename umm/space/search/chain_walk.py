"""Which assignments of a chain's layouts are simulated, and what no other can beat."""

import heapq
import math
from collections.abc import Callable, Iterator

import numpy as np

from umm.arrays import Ints
from umm.chains import Multiply
from umm.space.bounds.chain_dual import ROUNDS, Relaxed, by_cases
from umm.space.bounds.chain_tables import ChainTables, Place
from umm.space.search.chain_tries import Tries

Progress = Callable[[int, int], None] | None


def all_from_the_lowest(tries: Tries, progress: Progress) -> float:
    """Simulate from the lowest bound up until no bound is below the best; return the lowest bound left.

    All assignments have a bound by their busiest resource; from the lowest up they get a better one.
    """
    tables = tries.tables
    busiest = tables.all_busiest()
    order: Ints = np.argsort(np.where(tables.all_memory() <= tries.limit, busiest, math.inf), kind="stable")
    waiting: list[tuple[float, int]] = []
    next_one, count = 0, int(np.count_nonzero(tables.all_memory() <= tries.limit))
    while waiting or next_one < count:
        first = float(busiest[order[next_one]]) if next_one < count else math.inf
        lowest = min(first, waiting[0][0] if waiting else math.inf)
        if lowest >= tries.last:
            break
        if tries.best and tries.exhausted:
            return lowest
        if waiting and waiting[0][0] <= first:
            tries.makespan(_place(heapq.heappop(waiting)[1], tables))
            if progress is not None:
                progress(next_one - len(waiting), count)
        else:
            number = int(order[next_one])
            bound = max(first, tables.in_order(_place(number, tables)))
            heapq.heappush(waiting, (bound, number))
            next_one += 1
    return math.inf


def near_the_bound(tries: Tries, progress: Progress) -> float:
    """Simulate assignments near a bound below all, then those that differ from the best in one group.

    Returns:
        The bound.
    """
    tables, space = tries.tables, tries.tables.space
    relaxed = Relaxed.of(tables, tries.limit)
    rounds = list(relaxed.rounds(ROUNDS))
    starts = dict.fromkeys(x.place for x in rounds)
    bound = by_cases(relaxed, max(rounds, key=lambda x: x.bound))
    own = (space.place(texts) for texts in space.chain.layouts.values())
    starts |= dict.fromkeys(place for place in own if place is not None)
    starts[one_by_one(tables, tries.limit)] = None
    fitting = [place for place in starts if _fits(tables, place, tries.limit)]
    fitting += [_descended(tables, place, tries.limit) for place in fitting]
    waiting = sorted((tables.bound(place), place) for place in dict.fromkeys(fitting))
    seen = {place for _, place in waiting}
    while waiting and not (tries.best and tries.exhausted):
        least, place = heapq.heappop(waiting)
        if least >= tries.last:
            break
        if tries.best and not tries.affords(place):
            continue
        found = tries.makespan(place)
        if progress is not None:
            progress(tries.simulated, space.assignments)
        if found is not None and found <= tries.best[0].makespan_s:
            for other in _beside(tables, place):
                if other not in seen and _fits(tables, other, tries.limit):
                    seen.add(other)
                    heapq.heappush(waiting, (tables.bound(other), other))
    return bound


def one_by_one(tables: ChainTables, limit: int) -> Place:
    """Return the assignment that is chosen multiply by multiply, each the fastest by itself.

    A tensor keeps the layout it has been given by the first multiply it is in; among equals, and for all that
    no multiply decides, the first that fits with the smallest of all others.
    """
    chosen: dict[int, int] = {}
    least = [of.max(axis=-1).min() for of in tables.held]

    def fits(more: dict[int, int]) -> bool:
        known = chosen | more
        rest = (size for group, size in enumerate(least) if group not in known)
        held = sum(float(tables.held[group][x].max()) for group, x in known.items())
        return held + sum(map(float, rest)) <= limit

    for statement, table in zip(tables.space.chain.statements, tables.statements, strict=True):
        if not isinstance(statement, Multiply):
            continue
        able = [
            (float(np.max(work.seconds)), float(np.max(work.span)) + work.summed, place)
            for place, work in table.works.items()
            if all(chosen.get(group, x) == x for group, x in zip(table.groups, place, strict=True))
            and fits(dict(zip(table.groups, place, strict=True)))
        ]
        if able:
            best = min(able, key=lambda x: (max(x[:2]), x[2]))
            chosen |= dict(zip(table.groups, best[2], strict=True))
    for group, of in enumerate(tables.held):
        if group not in chosen:
            chosen[group] = int(np.argmin(of.max(axis=-1)))
    return tuple(chosen[group] for group in range(len(tables.held)))


def _descended(tables: ChainTables, place: Place, limit: int) -> Place:
    """Return an assignment none of whose neighbours that fit has a lower bound."""
    least = tables.bound(place)
    better = True
    while better:
        better = False
        for other in _beside(tables, place):
            bound = tables.bound(other)
            if bound < least * (1 - 1e-9) and _fits(tables, other, limit):
                least, place, better = bound, other, True
                break
    return place


def _beside(tables: ChainTables, place: Place) -> Iterator[Place]:
    """Yield the assignments that differ in the layout of one group."""
    for group, count in enumerate(tables.shape):
        for choice in range(count):
            if choice != place[group]:
                yield (*place[:group], choice, *place[group + 1 :])


def _fits(tables: ChainTables, place: Place, limit: int) -> bool:
    return tables.memory(place) <= limit


def _place(number: int, tables: ChainTables) -> Place:
    return tuple(int(x) for x in np.unravel_index(number, tables.shape))
