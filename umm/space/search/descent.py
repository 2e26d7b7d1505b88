"""Assignments near a bound below all of them, and those that a program has by name."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import prod

import numpy as np

from umm.errors import InputError
from umm.plans.movement.choice import AHEAD, node_count
from umm.program.schemes import on_nodes
from umm.program.statements.multiply import is_multiply
from umm.program.systems import shards_weights
from umm.space.assignments import Assignments, Place
from umm.space.bounds.program import LayoutProgram
from umm.space.bounds.tables import Tables
from umm.space.pricing.assignments import AssignmentPricer
from umm.space.search.effort import STAGE_WORK, STEP_WORK
from umm.space.search.walk import Incumbents

ATTEMPTS = 16  # assignments near a bound that are simulated, however much that is
MOST_LISTED = 10_000_000
"""Assignments that are listed with their bounds where the solver has ruled out all others."""
STARTS, NEAR = 3, 1.1
"""Assignments from which another search begins; times the best up to which one's neighbours are looked at."""


def attempt_schemes(pricer: AssignmentPricer, incumbents: Incumbents) -> None:
    """Simulate the schemes that people use on nodes, as far as they are in the space and fit."""
    tables, schemes = pricer.tables, on_these_nodes(pricer)
    if schemes:
        schemes |= {name: dict(texts) for name, texts in pricer.points.outline.layouts.items()}
    places = {pricer.points.place(texts) for texts in schemes.values()}
    able = [(pricer.bound(x), x) for x in places if x is not None and tables.memory(x) <= incumbents.limit]
    actions = {place: pricer.actions(place) for _, place in able}
    affordable = [x for x in able if incumbents.effort.affords(actions[x[1]], share=1.0)]
    # Some answer there has to be: where none of them is affordable, that with the fewest actions.
    for bound, place in sorted(affordable or sorted(able, key=lambda x: actions[x[1]])[:1]):
        # Bounds ascend, so no scheme after this one can be faster either.
        if incumbents.first and bound >= incumbents.first.makespan_s:
            return
        if not incumbents.first or incumbents.effort.affords(actions[place]):
            incumbents.attempt(place, bound)


def on_these_nodes(pricer: AssignmentPricer) -> dict[str, dict[str, str]]:
    """Return the layouts of the schemes that people use on the machine's nodes; none on one node."""
    points = pricer.points
    nodes = node_count(pricer.machine, points.ranks)
    if nodes == 1 or points.named is not None:
        return {}
    return _by_name(points, on_nodes(nodes, points.ranks // nodes))


def on_this_node(pricer: AssignmentPricer) -> dict[str, dict[str, str]]:
    """Return the layouts of tensor parallelism in groups of ranks of one node, where nothing was chosen."""
    points, ranks = pricer.points, pricer.points.ranks
    if node_count(pricer.machine, ranks) > 1 or not points.free:
        return {}
    return _by_name(points, (f"tp{ranks // x}-dp{x}" for x in range(2, ranks) if ranks % x == 0))


def _by_name(points: Assignments, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the layouts of schemes; none of a mixture, nor those that a chain lacks."""
    layouts = dict[str, dict[str, str]]()
    for name in names if not points.outline.has_experts else ():
        with suppress(InputError):  # a chain of one's own without the layouts that tell a tensor's kind
            layouts[name] = dict(points.outline.layouts_of(name, points.ranks))
    return layouts


def near_the_bound(pricer: AssignmentPricer, incumbents: Incumbents) -> LayoutProgram:
    """Simulate assignments near a bound below all, then those that differ from the best in one group.

    Return the program whose bound it is, to be made better.
    """
    tables, points, limit = pricer.tables, pricer.points, incumbents.limit
    if not points.ways:
        attempt_schemes(pricer, incumbents)
    # Two bounds from one program: of all assignments by branch and bound, of each choice by the relaxation.
    program = LayoutProgram([(x.groups, x.seconds) for x in tables.all], [x / limit for x in tables.held])
    (incumbents.lowest, lowest), near = program.least(), program.by_choice()
    pricer.work.done += program.work
    if not points.ways and on_these_nodes(pricer):
        near_the_schemes(pricer, incumbents)
    named: list[Place | None] = []
    starts = [lowest]
    if points.ways:  # neighbours are many there, and the best has been looked for
        starts += incumbents.rows[:1]
    else:
        named = [points.place(texts) for texts in points.outline.layouts.values()]
        starts.append(one_by_one(tables, limit))
    # What differs in one group from the best is taken to exceed its bound by as much as that does.
    # Those with a name come first.
    waiting: list[tuple[float, float, Place]] = []
    seen = set[Place]()
    for places, first in ((named, True), ([*starts, *near], False)):
        fitting = {x for x in places if x is not None and tables.memory(x) <= limit}
        bounds = sorted((pricer.bound(place), place) for place in fitting)
        waiting += [(0.0 if first else bound, bound, place) for bound, place in bounds if place not in seen]
        seen |= fitting
    # Those bounded by their busiest resource alone, and what that is multiplied by.
    rough: dict[Place, float] = {}
    work, several = pricer.work, node_count(pricer.machine, points.ranks) > 1
    # A minimum of attempts and of work: whichever lasts longer, or a slow program would get no answer.
    until = work.done + min(STEP_WORK, incumbents.effort.left / STARTS)
    while waiting and not (incumbents.first and incumbents.effort.spent):
        if incumbents.simulated >= ATTEMPTS and work.done > until:
            break
        _, least, place = heapq.heappop(waiting)
        if least > incumbents.last:
            continue
        # The bound by order costs far more than that of the busiest
        # resource, so it is found when a place comes up.
        exceeds = rough.pop(place, None)
        if exceeds is not None and (bound := pricer.bound(place)) > least:
            heapq.heappush(waiting, (bound * exceeds, bound, place))
            continue
        if incumbents.first and not incumbents.affords(place):
            continue
        before = incumbents.first
        choice = incumbents.attempt(place, least)
        if several and incumbents.first is not before:  # bounds are further from makespans between nodes
            until = max(until, work.done + 2 * STEP_WORK)
        incumbents.report()
        if choice is not None and incumbents.first and choice.makespan_s <= incumbents.first.makespan_s:
            # Only the best so far opens its neighbours; its makespan over its bound scales theirs.
            for other in _beside(tables, place):
                if other not in seen and tables.memory(other) <= limit:
                    seen.add(other)
                    busiest, rough[other] = tables.busiest(other), choice.makespan_s / least
                    heapq.heappush(waiting, (busiest * rough[other], busiest, other))
    return program


def near_the_schemes(pricer: AssignmentPricer, incumbents: Incumbents) -> None:
    """Simulate assignments of several nodes near the schemes that people use, the most promising first.

    Beside these comes the one that takes least by the shares of :meth:`Tables.in_turn`; from it and the best
    schemes, estimates are followed down. Those that differ in one group from an assignment that was simulated
    are taken to exceed their estimates by as much as this one.
    """
    tables, work, estimate = pricer.tables, pricer.work, cache(pricer.estimate)
    # Key 0 puts what is simulated already first: attempts are kept, so it costs nothing and opens neighbours.
    waiting = [(0.0, place) for place in incumbents.rows]
    program = LayoutProgram(tables.in_turns(), [x / incumbents.limit for x in tables.held])
    _, least = program.least()
    work.done += program.work
    for place in incumbents.rows[:STARTS] + ([] if least is None else [least]):
        lowest = _lowest(tables, place, incumbents.limit, estimate)
        waiting.append((estimate(lowest), lowest))
    # Reversed, so that of one assignment listed twice the first entry, with the lower key, remains.
    waiting = list({place: (seconds, place) for seconds, place in waiting[::-1]}.values())
    seen, last = {place for _, place in waiting}, work.done
    heapq.heapify(waiting)
    while waiting and not incumbents.effort.spent and work.done < last + STAGE_WORK:
        _, place = heapq.heappop(waiting)
        before, bound = incumbents.first, pricer.bound(place)
        if (before and bound > before.makespan_s) or not incumbents.affords(place):
            continue
        choice = incumbents.attempt(place, bound)
        if choice is None or incumbents.first is None:
            continue
        # Patience counts from the last improvement, in work, so that it is the same on every host.
        last = work.done if incumbents.first is not before else last
        incumbents.report()
        if choice.makespan_s < NEAR * incumbents.first.makespan_s:
            exceeds = choice.makespan_s / estimate(place)
            for other in _beside(tables, place):
                if other not in seen and tables.memory(other) <= incumbents.limit:
                    seen.add(other)
                    heapq.heappush(waiting, (estimate(other) * exceeds, other))


def _lowest(tables: Tables, place: Place, limit: int, estimate: Callable[[Place], float]) -> Place:
    """Return an assignment with the lowest estimate of all that differ in one group, going down from one."""
    least = estimate(place)
    while True:
        lower, beside = min((estimate(x), x) for x in (place, *_beside(tables, place)))
        # A relative margin, since sums in another order differ in their
        # last digits and could go round in circles.
        if lower >= least * (1 - 1e-9) or tables.memory(beside) > limit:
            return place
        least, place = lower, beside


def choose_movements(pricer: AssignmentPricer, incumbents: Incumbents, ways: Sequence[str]) -> Incumbents:
    """Return the best with a movement for the multiplies of each product, near those with one for all.

    One gathered copy serves all that need it, so a single multiply that gathers gains little. From one
    movement for all, the products change theirs one after another, as long as that is faster. Prefetch depths
    of what stays one-sided come last.

    Args:
        pricer: Prices assignments with the first movement for all.
        incumbents: The best of these; their effort is spent further.
    """
    incumbents.effort.allow(STAGE_WORK)
    by_way = pricer.by_way(ways)
    count = len(by_way.points.products)
    # A colon gives a prefetch depth; depths refine a movement, so they are tried after the choice of it.
    shallow = [x for x in ways if ":" not in x]
    better = replace(incumbents, pricer=by_way, lowest=0.0, beside=[], _best=[], _fitting={})

    def attempt(place: Place) -> float:
        """Return the makespan of an assignment; infinite if it cannot be the best, or is too much."""
        bound = by_way.bound(place)
        if better.first and (bound > better.first.makespan_s or better.effort.spent):
            return np.inf
        choice = better.attempt(place, bound)
        better.report()
        return np.inf if choice is None else choice.makespan_s

    starts: list[tuple[float, Place]] = []
    for number, choice in enumerate(incumbents.choices()):
        layouts = pricer.points.place(choice.layouts)
        assert layouts is not None
        usual, *others = ((*layouts, *[ways.index(way)] * count) for way in shallow)
        # The first movement for all is the schedule simulated before: its makespan is taken over.
        by_way.adopt(usual, choice)
        better.attempt(usual, by_way.bound(usual))
        if number < STARTS:
            starts += [(attempt(place), place) for place in others]
    if starts and better.first and min(starts)[0] < NEAR * better.first.makespan_s:
        _changed_one_by_one(by_way, min(starts)[1], attempt, shallow)
    if len(shallow) < len(ways) and better.first:
        incumbents.effort.allow(STEP_WORK)
        place: Place = better.rows[0]
        # Only one-sided products look ahead; a depth says nothing of those by collectives. Their depths are
        # changed all at once, then one by one.
        flat = [x for x in range(len(by_way.points.groups), len(place)) if ways[place[x]] in AHEAD]
        depths = [number for number, way in enumerate(ways) if ":" in way]
        alike = [tuple(depth if x in flat else n for x, n in enumerate(place)) for depth in depths]
        _, place = min((attempt(other), other) for other in (place, *alike))
        _changed_one_by_one(by_way, place, attempt, [x for x in ways if x.partition(":")[0] in AHEAD], flat)
    return better


def _changed_one_by_one(
    pricer: AssignmentPricer,
    place: Place,
    attempt: Callable[[Place], float],
    ways: Sequence[str],
    among: Sequence[int] | None = None,
) -> None:
    """Change the movement of one product after another, until none is faster with another one."""
    # among: groups of products; all if not given.
    able = [number for number, way in enumerate(pricer.points.ways) if way in ways]
    groups = range(len(pricer.points.groups), len(place)) if among is None else among
    least, unchanged = attempt(place), 0
    while unchanged < len(groups):
        for group in groups:
            unchanged += 1
            tried = [(*place[:group], x, *place[group + 1 :]) for x in able if x != place[group]]
            seconds, best = min((attempt(other), other) for other in tried)
            if seconds < least:
                least, place, unchanged = seconds, best, 0


def divide(pricer: AssignmentPricer, incumbents: Incumbents, program: LayoutProgram) -> None:
    """Make the bound better, from the assignments that are left once choices are ruled out, simulating some.

    Each of these gets the bound of its statements' order, the lowest first. It ends at one that is too much
    to simulate, or once none is left that could be faster than the best.
    """
    best, before = incumbents.first, program.work
    if best is None:
        return
    left = program.left(best.makespan_s)
    if prod(map(len, left)) > MOST_LISTED:
        return
    # Listing is exact once few choices are left: the sum of tables gives every bound in one pass.
    bounds, places = program.below(best.makespan_s, left)
    pricer.work.done += program.work - before
    closed = zip(bounds.tolist(), map(tuple, places.tolist()), strict=True)
    waiting, after = list[tuple[float, Place]](), next(closed, None)
    while (after or waiting) and not incumbents.effort.spent:
        least = min(x[0] for x in (after, *waiting[:1]) if x)
        # The bound stands if it is interrupted.
        incumbents.lowest = max(incumbents.lowest, min(least, best.makespan_s))
        if least >= best.makespan_s:
            return
        # A merge of two ascending streams: listed bounds, and those
        # tightened by order, which went back to wait.
        if after and after[0] <= least:
            if pricer.tables.memory(after[1]) <= incumbents.limit:
                heapq.heappush(waiting, (max(after[0], pricer.bound(after[1])), after[1]))
            after = next(closed, None)
            continue
        if not incumbents.affords(waiting[0][1]):
            return
        bound, place = heapq.heappop(waiting)
        if (choice := incumbents.attempt(place, bound)) and choice.makespan_s < best.makespan_s:
            best = choice
        incumbents.report()
    if not after and not waiting:
        incumbents.lowest = best.makespan_s


def one_by_one(tables: Tables, limit: int) -> Place:
    """Return the assignment that is chosen multiply by multiply, each the fastest by itself."""
    # A tensor keeps the layout it has been given by the first multiply it is in; among equals, and for all
    # that no multiply decides, the first that fits with the smallest of all others.
    # The baseline of tools that choose layouts op by op, without regard for what the next one needs.
    chosen: dict[int, int] = {}
    least = [sizes.max(axis=-1).min() for sizes in tables.held]

    def fits(more: dict[int, int]) -> bool:
        # Optimistic: groups without a choice count with the least that any layout of theirs takes.
        known = chosen | more
        rest = (size for group, size in enumerate(least) if group not in known)
        nbytes = sum(float(tables.held[group][x].max()) for group, x in known.items())
        return nbytes + sum(map(float, rest)) <= limit

    for statement, table in zip(tables.points.outline.statements, tables.statements, strict=True):
        if not is_multiply(statement):
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
    for group, sizes in enumerate(tables.held):
        if group not in chosen:
            chosen[group] = int(np.argmin(sizes.max(axis=-1)))
    return tuple(chosen[group] for group in range(len(tables.held)))


def _beside(tables: Tables, place: Place) -> Iterator[Place]:
    """Yield the assignments that differ in the layout of one group."""
    for group, count in enumerate(tables.shape):
        for choice in range(count):
            if choice != place[group]:
                yield (*place[:group], choice, *place[group + 1 :])


FAR, LONG = 4.0, 50_000
"""Of layouts with a name that take this many times the best, or more, those with more actions are bounded."""
ONE_BY_ONE = "multiply by multiply"


def named_layouts(
    pricer: AssignmentPricer, incumbents: Incumbents
) -> tuple[dict[str, float | None], dict[str, float]]:
    """Return the makespans of the program's own layouts; the best of those of the space join the best.

    By name, that of the assignment that is chosen multiply by multiply too; None where one does not fit. Of
    those that were too much to simulate, or that are far from the best, it is a lower bound, apart.
    """
    points, tables = pricer.points, pricer.tables
    layouts = {**points.outline.layouts, **on_these_nodes(pricer), **on_this_node(pricer)}
    # A scheme outside the space has no table, so its work is guessed from the largest schedule so far.
    usual = max((x.actions for x in pricer.choices.values()), default=0)
    places: dict[str, Place | None] = {name: points.place(x) for name, x in layouts.items()}
    places[ONE_BY_ONE] = one_by_one(tables, incumbents.limit)
    makespans, left_out = dict[str, float | None](), dict[str, float]()

    def far(place: Place) -> bool:
        """Whether an assignment cannot be near the best, and takes long to simulate."""
        if incumbents.first is None or pricer.known(place) or pricer.actions(place) <= LONG:
            return False
        return tables.bound(place) > FAR * incumbents.first.makespan_s

    incumbents.effort.allow(incumbents.effort.most)
    for name, place in places.items():
        sharded = shards_weights(name)  # it does more than its layouts say, which may be of the space
        if sharded or place is None:
            # There is no bound of layouts outside, whose schedules may take longer than all of the space.
            if incumbents.effort.affords(usual) and (sharded or points.few):
                choice = None
                with suppress(InputError):  # which cannot be on so many ranks
                    choice = pricer.outside(name if sharded else layouts[name], incumbents.limit)
                makespans[name] = choice.makespan_s if choice else None
                incumbents.beside += [choice] if choice and points.free and not sharded else []
        elif incumbents.affords(place) and not far(place):
            choice = incumbents.attempt(place, pricer.bound(place))
            makespans[name] = choice.makespan_s if choice else None
        else:
            left_out[name] = pricer.bound(place)
    return makespans, left_out
