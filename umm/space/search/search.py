"""The search of a space: its best points, with proof."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from umm.errors import EndedEarlyError, InfeasibleError, InputError, expect
from umm.files import whole_number
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.numbers import as_int, real_from_0
from umm.plans.movement.choice import AUTO, FLAT, GATHERED, LIBRARY, WAYS, node_count, one_sided
from umm.plans.multiply.options import delivers, known
from umm.space.budget import DEVICE, limit_of
from umm.space.choice import Choice
from umm.space.pricing.multiplies import assigns, pricer_of
from umm.space.pricing.pricer import Makespan, Pricer
from umm.space.search.effort import (
    LATER_STAGE_FACTOR,
    LISTED_RANKS,
    MAX_LISTED,
    STAGE_WORK,
    STEP_WORK,
    Effort,
    deadline,
)
from umm.space.search.found import Found
from umm.space.search.uncertainty import TOLERANCE
from umm.space.search.walk import BestFirst, Incumbents, Progress, Standing
from umm.space.space import Space
from umm.units import format_bytes

if TYPE_CHECKING:
    from umm.space.pricing.assignments import AssignmentPricer

Report = Callable[[str, int, int], None]
"""Called with the stage, how much of it is done, and how much there is; 0 if that is not known."""
LEAST_GAIN = 0.01  # share of a makespan that more memory has to save to be worth a word


class SearchInterruptedError(EndedEarlyError):
    """A search that was ended early."""

    found: Found  # the best points so far, not proven


def search(
    space: Space,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = DEVICE,
    top: int = 10,
    progress: Progress | None = None,
    standing: Standing | None = None,
    most: float | None = None,
    seconds: float | None = None,
    otherwise: Sequence[str] = (),
) -> Found:
    """Return the best points of a space, with proof.

    All points get a lower bound at once: of one multiply in closed form, of several statements from what each
    takes for all layouts of its tensors. From the lowest up, a point gets tighter bounds, then it is
    simulated, until no bound left is below the top's last makespan. Points that are one schedule, as
    stationary A, B and C are where nothing is communicated, are one of the top, and its ``ties``. Of more
    than 100,000 assignments of layouts to several tensors a bound below all is that of an integer linear
    program, and what is simulated is near it. On a machine with nodes the schemes that people use there come
    first.

    InfeasibleError if no point fits the budget and the device; says the smallest that would do. InputError
    for a budget, layout or machine that does not exist. SearchInterruptedError on Ctrl-C, with the best found
    so far.

    Args:
        space: What may be chosen, see :attr:`Space.searched`; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its machine file.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``. The proof holds
            for anything that never beats the bounds.
        memory: Budget per rank: bytes (``16GiB``), a multiple of the unreplicated share (``2x``), ``device``
            for what a rank has of its device less a tenth for all else, or None for all of that.
        top: How many of the best to find.
        progress: Called now and then with the number of points settled and of all points.
        standing: Called now and then with the best makespan so far and a bound below all, in seconds.
        most: Work after which it stops with a gap, in actions simulated: see :mod:`umm.space.search.effort`,
            which has what several statements get if it is not given. One multiply goes on without end then.
        seconds: Of processor time after which it does too, and says so; its answer then depends on the host.
        otherwise: Movements that each multiply of several statements may choose from too where the best of
            the space is not proven, and these make it faster; the bound is then below all of them. Not
            between nodes, nor beside experts.
    """
    expect(space, Space, "search", "a Space, such as umm.Space(m=8192, n=49152, k=12288)")
    top = whole_number(as_int(top), "top", 1)
    most = None if most is None else real_from_0(most, "most")
    _check(space)
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    # The user's space fixes what was said; only choices of which nothing was said get several values.
    space = space.searched.on(machine.default_ranks).over(machine)
    reserves, ends = memory == DEVICE, deadline(seconds)
    try:
        pricer = pricer_of(space, machine, makespan, progress)
    except EndedEarlyError as early:
        pricer = pricer_of(space, machine, makespan, bounds=early.found)
        limit = limit_of(memory, pricer.points.share, machine, pricer.points.ranks)
        raise SearchInterruptedError(_hasty(space, pricer, limit, top, reserves)) from None
    limit = limit_of(memory, pricer.points.share, machine, pricer.points.ranks)
    effort = Effort(pricer.work, usual_work(pricer) if most is None else most, ends)
    return best_of(
        space, pricer, limit, top, reserves=reserves, progress=progress, standing=standing, effort=effort,
        otherwise=otherwise,
    )  # fmt: skip


def faster(
    space: Space,
    machine: Machine,
    than: float,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = DEVICE,
    progress: Progress | None = None,
) -> Choice | None:
    """Return the best point of one multiply that takes less than some seconds; None if there is none.

    Points whose bounds are no lower are not simulated, so it takes less than a :func:`search`.

    Args:
        than: Seconds.
    """
    pricer = pricer_of(space.searched.on(machine.default_ranks).over(machine), machine, makespan)
    limit = limit_of(memory, pricer.points.share, machine, pricer.points.ranks)
    # The time to beat acts as an incumbent from the start, so that most
    # points end at their closed-form bound.
    walk = BestFirst(pricer, limit, 1, within=than)
    walk.run(progress)
    return next((x for x in walk.found.choices() if x.makespan_s < than), None)


def _check(space: Space) -> None:
    """Refuse to compare endings that leave other replicas of C complete, and a movement without bounds."""
    finals = dict(zip((x.name for x in known()), space.searched.axes.values, strict=True))["final"]
    left = {delivers(final): final for final in finals}
    if len(left) > 1:
        ends = ", ".join(f"{final} in {where}" for where, final in left.items())
        raise InputError(f"these endings do not leave the same C complete: {ends}; search one at a time")
    if LIBRARY in space.movements:
        able = ", ".join(x for x in WAYS if x != LIBRARY)
        raise InputError(f"movement {LIBRARY} has no bounds to search by; choose from {able}")


def best_of(
    space: Space,
    pricer: Pricer,
    limit: int,
    top: int,
    *,
    reserves: bool = False,
    progress: Progress | None = None,
    standing: Standing | None = None,
    effort: Effort | None = None,
    otherwise: Sequence[str] = (),
) -> Found:
    """Return the best of some points, with proof.

    InfeasibleError if none fits. SearchInterruptedError on Ctrl-C, with the best found so far.

    Args:
        limit: Bytes a rank may hold.
        top: How many of the best to find.
        reserves: Whether the limit is the device less a reserve, because no budget was given.
        effort: What may be spent; without end if None.
    """
    effort = effort or Effort(pricer.work)
    if assigns(pricer) and pricer.points.count > MAX_LISTED:
        incumbents = Incumbents(pricer, limit, top, effort, progress=progress, standing=standing)
        return _near(space, pricer, incumbents, reserves, otherwise)
    walk = BestFirst(pricer, limit, top, effort=effort)
    try:
        if assigns(pricer):
            from umm.space.search.descent import attempt_schemes, choose_movements

            # A good incumbent early on rules out most of the space before it is built.
            attempt_schemes(pricer, walk.found)
        walk.run(progress, standing)
    except KeyboardInterrupt:
        raise SearchInterruptedError(_found(space, walk.found, reserves, walk.settled)) from None
    ended = _ended(space, walk.found, reserves, walk.settled)
    if not assigns(pricer):
        return ended
    # A proven best needs no other movements, and its proof would not cover them.
    ways = _ways(space, pricer, () if ended.proven else otherwise)
    if len(ways) < 2:
        return ended
    walk.found.standing = standing
    try:
        better = choose_movements(pricer, walk.found, ways)
    except KeyboardInterrupt:
        raise SearchInterruptedError(replace(ended, proven=False, whole=False)) from None
    return _with_movements(ended, pricer, better) if _gains(space, better, walk.found) else ended


def more_memory(result: Found) -> list[Choice]:
    """Return the gains of more memory than the limit, by ascending memory; nothing where no budget was given.

    The best within all of the device, then within half of what that takes more, and so on; each is a
    hundredth faster than the one before, the first than the best within the limit. Ended early, by Ctrl-C or
    after a stage's work, it returns those of the largest budgets.

    >>> from umm.units import format_seconds
    >>> found = search(Space(m=4096, n=8192, k=8192, ranks=8), "h100-8", memory="1.25x")
    >>> [(x.memory_bytes >> 20, format_seconds(x.makespan_s)) for x in (found.top[0], *more_memory(found))]
    [(80, '1.81 ms'), (88, '1.67 ms'), (96, '1.60 ms'), (128, '1.45 ms'), (176, '1.43 ms')]
    """
    best, steps, effort = result.top[0], list[Choice](), Effort(result.pricer.work, STAGE_WORK)
    most = 0 if result.reserves or not result.whole else result.device
    with suppress(KeyboardInterrupt):
        while most > result.limit and not effort.spent:
            step = _best(result.pricer, most, effort)
            if step is None or step.makespan_s > (1 - LEAST_GAIN) * best.makespan_s:
                break
            steps.append(step)
            # Halving what is added beyond the limit finds steps in a logarithmic number of searches.
            most = result.limit + (step.memory_bytes - result.limit) // 2
    bought: list[Choice] = []
    # Steps came by descending memory, and a search with little effort may find less with more memory.
    for step in reversed(steps):
        if step.makespan_s <= (1 - LEAST_GAIN) * (bought[-1] if bought else best).makespan_s:
            bought.append(step)
    return bought


def _best(pricer: Pricer, limit: int, effort: Effort) -> Choice | None:
    """Return the best point within a limit that some effort finds; None if none fits."""
    each = Effort(pricer.work, min(STEP_WORK, effort.left))
    if assigns(pricer) and pricer.points.count > MAX_LISTED:
        from umm.space.search.descent import divide, near_the_bound

        incumbents = Incumbents(pricer, limit, 1, each)
        program = near_the_bound(pricer, incumbents)
        each.allow(effort.left)
        divide(pricer, incumbents, program)
        return incumbents.first
    walk = BestFirst(pricer, limit, 1, effort=each)
    walk.run()
    return walk.found.first


def _hasty(space: Space, pricer: Pricer, limit: int, top: int, reserves: bool) -> Found:
    """Return the best that a moment finds among points of which only some have a bound."""
    walk = BestFirst(pricer, limit, top, effort=Effort(pricer.work, STEP_WORK))
    with suppress(KeyboardInterrupt):
        walk.run()
    walk.found.lowest = 0.0  # none is known of the others
    return _found(space, walk.found, reserves, walk.found.simulated)


def _near(
    space: Space, pricer: "AssignmentPricer", incumbents: Incumbents, reserves: bool, otherwise: Sequence[str]
) -> Found:
    """Return the best of too many points to go through all."""
    from umm.space.search.descent import choose_movements, divide, near_the_bound
    from umm.space.search.fitting import attempt_fitting

    better, ways = None, _ways(space, pricer, otherwise)
    try:
        program = near_the_bound(pricer, incumbents)
        if incumbents.first is None:  # in so little memory no copies fit that other movements would gather
            attempt_fitting(pricer, incumbents)
        elif len(ways) > 1:
            better = choose_movements(pricer, incumbents, ways)
        # Without a gain the answer stays in the space asked for, whose bound
        # is tighter than that of all movements.
        if better is None or not _gains(space, better, incumbents):
            better = None
            incumbents.effort.allow(STAGE_WORK)
            divide(pricer, incumbents, program)
    except KeyboardInterrupt:
        raise SearchInterruptedError(_found(space, incumbents, reserves, incumbents.simulated)) from None
    if incumbents.first is None:
        least = pricer.least_memory
        enough = f"; {least}B ({format_bytes(least)}) is enough" if least else ""
        raise InfeasibleError(
            f"no layouts of chain {pricer.points.outline.name} were found that fit "
            f"{format_bytes(incumbents.limit)} a rank, but not all of {pricer.points.count:,} were "
            f"tried{enough}"
        )
    ended = _ended(space, incumbents, reserves, pricer.points.count)
    return ended if better is None else _with_movements(ended, pricer, better)


def _ways(space: Space, pricer: "AssignmentPricer", otherwise: Sequence[str]) -> list[str]:
    """Return the movements to choose from that are not the same on the machine, the space's first."""
    machine, ranks = pricer.machine, pricer.points.ranks
    # Automatic means one of the others on this machine: listed twice it would double the space.
    auto = FLAT if one_sided(machine, ranks, AUTO) else GATHERED
    able = node_count(machine, ranks) == 1 and not pricer.points.outline.has_experts
    asked = (*space.movements, *(otherwise if able else ()))
    return list({auto if x == AUTO else x: x for x in reversed(asked)}.values())[::-1]


def _gains(space: Space, better: Incumbents, incumbents: Incumbents) -> bool:
    """Whether a movement for each product was asked for, or is faster by more than makespans are sure to."""
    assert better.first is not None
    assert incumbents.first is not None
    seconds = better.first.makespan_s
    return len(space.movements) > 1 or seconds < (1 - TOLERANCE) * incumbents.first.makespan_s


def _with_movements(ended: Found, pricer: "AssignmentPricer", better: Incumbents) -> Found:
    """Return the result of a search with a movement for each product, bounded below all of these."""
    # better: the best with a movement for each product.
    from umm.space.search.descent import divide, near_the_bound

    by_way = better.pricer
    assert assigns(by_way)
    stopped = False
    try:
        program = near_the_bound(by_way, better)
        better.effort.allow(STEP_WORK)
        divide(by_way, better, program)
    except KeyboardInterrupt:
        stopped = True
    # Layouts outside the space have no place to compare, so they travel along as finished choices.
    better.beside = [x for x in ended.top if pricer.points.place(x.layouts) is None]
    top, count = better.choices(), by_way.points.count
    gap = max(0.0, 1 - better.lowest / top[0].makespan_s)
    result = replace(
        ended, top=top, gap=gap, proven=by_way.respected and gap == 0.0, moved=pricer.moved(top[0]),
        priced=count, distinct=count, pruned=count - better.simulated, simulated=better.simulated,
        whole=not stopped,
    )  # fmt: skip
    if stopped:
        raise SearchInterruptedError(result)
    return result


def _ended(space: Space, incumbents: Incumbents, reserves: bool, settled: int) -> Found:
    """Return the result of a search at its end; InfeasibleError if nothing fits."""
    if incumbents.first is None:
        raise incumbents.pricer.infeasible(incumbents.limit)
    named: Named = {}, {}
    if assigns(incumbents.pricer):
        from umm.space.search.descent import named_layouts

        named = named_layouts(incumbents.pricer, incumbents)
    return _found(space, incumbents, reserves, settled, named)


Named = tuple[dict[str, float | None], dict[str, float]]  # what the program's own layouts take, and at least


def _found(
    space: Space, incumbents: Incumbents, reserves: bool, settled: int, named: Named | None = None
) -> Found:
    """Return the result so far; before the end, points yet open count as neither."""
    # named: of the program's own layouts; None before the end.
    pricer, best, first = incumbents.pricer, incumbents.choices(), incumbents.first
    # The gap is a share of the best makespan, so 0 means that the bound has met it.
    gap = max(0.0, 1 - incumbents.lowest / first.makespan_s) if first else 1.0
    return Found(
        space=space,
        machine=pricer.machine.name,
        limit=incumbents.limit,
        top=best,
        priced=pricer.points.written,
        distinct=pricer.points.count,
        pruned=max(0, settled - incumbents.simulated),  # schemes are simulated before they are settled
        bounded=pricer.built,
        simulated=incumbents.simulated,
        proven=named is not None and pricer.respected and gap == 0.0,
        gap=gap,
        reserves=reserves,
        named=named[0] if named else {},
        left_out=named[1] if named else {},
        moved=pricer.moved(best[0]) if best else [],
        pricer=pricer,
        whole=named is not None,
        cut=incumbents.effort.cut,
    )


def usual_work(pricer: Pricer) -> float:
    """Return the work that a search may do before its last stages; infinite for one multiply."""
    if not assigns(pricer):
        return math.inf
    points = pricer.points
    if points.outline.has_experts:  # their many small messages take twice as long to write
        return STEP_WORK / 2
    most = LATER_STAGE_FACTOR * STAGE_WORK
    if points.count <= MAX_LISTED:
        return min(STAGE_WORK * max(1.0, points.ranks / LISTED_RANKS), most)
    return most if node_count(pricer.machine, points.ranks) > 1 else STEP_WORK
