"""Assignments of layouts that fit a memory limit, where none near a bound does."""

import heapq
from collections.abc import Iterator

import numpy as np

from umm.space.assignments import Place
from umm.space.bounds.tables import Tables
from umm.space.pricing.assignments import AssignmentPricer
from umm.space.search.effort import MAX_LISTED, STAGE_WORK
from umm.space.search.walk import Incumbents


def attempt_fitting(pricer: AssignmentPricer, incumbents: Incumbents) -> None:
    """Simulate the first assignment that fits, in the order of their tensors' bytes, where none was yet.

    Tensors alone say what cannot fit; the pools of a schedule are known once it is written. InfeasibleError
    if none of the space fits; not where the effort is spent before that is known.
    """
    incumbents.effort.allow(STAGE_WORK)
    for place in by_memory(pricer.tables, incumbents.limit):
        if place is None or incumbents.effort.spent or incumbents.attempt(place, pricer.tables.bound(place)):
            return
    raise pricer.infeasible(incumbents.limit)


def by_memory(tables: Tables, limit: int) -> Iterator[Place | None]:
    """Yield assignments by ascending bytes of all tensors on the fullest rank, up to a limit.

    Best first over beginnings of assignments: each is bounded by what it has on every rank and the least that
    any choice of the other groups adds there. After ``MAX_LISTED`` beginnings None is the last.
    """
    # Suffix sums of each rank's least bytes: rest[g] is the least that groups g and later add.
    adds = [np.zeros(tables.held[0].shape[-1]), *(x.min(axis=0) for x in tables.held[::-1])]
    rest = np.cumsum(adds, axis=0)[::-1]
    # Of equal ones the longest first, or all beginnings would be opened before any end.
    waiting: list[tuple[float, int, Place]] = [(float(rest[0].max()), 0, ())]
    for _ in range(MAX_LISTED):
        if not waiting or waiting[0][0] > limit:
            return
        _, _, place = heapq.heappop(waiting)
        group = len(place)
        if group == len(tables.held):
            yield place
            continue
        nbytes = np.sum([sizes[x] for sizes, x in zip(tables.held, place, strict=False)], axis=0)
        for choice, more in enumerate(tables.held[group]):
            most = float((nbytes + more + rest[group + 1]).max())
            heapq.heappush(waiting, (most, -group, (*place, choice)))
    yield None
