"""Advice on a schedule: a better point, the assumptions that decide, and the certainty of its prediction."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from umm.errors import InfeasibleError
from umm.kept import kept
from umm.machines import Machine
from umm.plans.movement.choice import LIBRARY
from umm.plans.multiply.options import known
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.space.budget import DEVICE
from umm.space.choice import Choice
from umm.space.search.found import front
from umm.space.search.search import search
from umm.space.search.uncertainty import TOLERANCE, unused
from umm.space.search.walk import Progress
from umm.space.space import Space
from umm.space.vary import Lower, Makespan, assumed, vary
from umm.space.what_if.beside import LEAST, MOST_ACTIONS, Advice, Decides

MOST_WORK = 500_000
"""Nor where its search writes more actions, as it may by ways of moving that bounds know little of."""

MOST_PAIRS = 2e8  # nor above this many points times pairs of ranks, which all are priced


def advise(
    schedule: Schedule, machine: Machine, makespan: Makespan, progress: Progress | None = None
) -> Advice | None:
    """Return a better point of the schedule's problem, as :func:`looked_for` finds it; None if none is known.

    >>> import umm
    >>> from umm.executor import executor
    >>> slow = umm.Problem(m=8192, n=49152, k=12288, a="row", b="row", c="row", ranks=8)
    >>> h100 = umm.machine("h100-8")
    >>> print(advise(umm.schedule(slow, h100), h100, executor("sim").makespan))
    search finds 6 % less time with 768.0 MiB less: A 2d:2x4, B col, C col, stationary B
    """
    return looked_for(schedule, machine, makespan, progress)[0]


def looked_for(
    schedule: Schedule, machine: Machine, makespan: Makespan, progress: Progress | None = None
) -> tuple[Advice | None, bool]:
    """Search a schedule's problem for a better point, and say whether that was left out since it takes long.

    The space is that of a search without options, with the schedule's own policy, prefetch and limits, within
    the device less a tenth. Of its points within a hundredth of the fastest the advice is the one with the
    least memory: so nothing that is left is a hundredth faster, or as fast with less. Following it ends it.

    Args:
        progress: Called now and then with the number of points settled and of all points.
    """
    left_out = None, True
    if len(schedule) > MOST_ACTIONS or schedule.options.get("movement") == LIBRARY:  # which has no bounds
        return left_out
    space = space_around(schedule.problem, schedule.options)
    # Bounding a point looks at all pairs of ranks, and a search bounds every point.
    if space.searched.points().count * schedule.ranks**2 > MOST_PAIRS:
        return left_out
    # The sets in a space's repr have another order in each process.
    axes = [(x.name, schedule.options[x.name]) for x in known() if not x.searched]
    sizes = [getattr(schedule.problem, x) for x in (*OF_SPACE, "p")]
    key = sizes, axes, machine.name, machine.sha
    near = kept("near", key, lambda: _near(space, machine, makespan, progress))
    if near is None:
        return left_out
    return advice_among(near, makespan(schedule), int(schedule.memory_bytes.max())), False


def _near(
    space: Space, machine: Machine, makespan: Makespan, progress: Progress | None
) -> list[Choice] | None:
    """Return the points within a hundredth of a space's fastest; None where that is not proven."""
    try:
        result = search(
            space, machine, memory=DEVICE, makespan=makespan, top=1, progress=progress, most=MOST_WORK
        )
    except InfeasibleError:
        return []
    # An unproven best may be beaten itself: a user who follows it would get advice again.
    return None if result.gap > 0 else front(result.pricer, result.limit, reach=1 + LEAST)


def advice_among(choices: Sequence[Choice], now: float, memory: int) -> Advice | None:
    """Return the best advice that the points of a front have for a schedule.

    Args:
        choices: By ascending memory; those that take a hundredth longer than the fastest are left aside.
        memory: Bytes of its fullest rank.
    """
    if not choices:
        return None
    # Along a front more memory means less time: the last is the fastest, and the first of those near it needs
    # least memory.
    near = [x for x in choices if x.makespan_s <= (1 + LEAST) * choices[-1].makespan_s]
    best = near[0]
    if best.makespan_s > now * (1 - LEAST):  # as fast as any: less memory in no more time
        as_fast = [x for x in near if x.makespan_s <= now]
        if not as_fast or as_fast[0].memory_bytes > memory * (1 - LEAST):
            return None
        best = as_fast[0]
    return Advice(best, 1 - best.makespan_s / now, best.memory_bytes - memory)


OF_SPACE = ("m", "n", "k", "dtype", "c_dtype", "given")
"""The sizes and types of a problem that make a space of its layouts, with its ranks."""


def space_around(problem: Problem, options: Mapping[str, Any]) -> Space:
    """Return the space of a problem, with these options where a search does not try them all."""
    # What a search tries is left free; the rest must stay, or the comparison would be with another setup.
    of_search = {x.name for x in known() if x.searched}
    kept = {x.name: options[x.name] for x in known() if x.name not in of_search}
    sizes = {name: getattr(problem, name) for name in OF_SPACE}
    return Space(**sizes, ranks=problem.p, **kept)


MOST_ACTIONS_CHANGED = 4000
"""Above this many actions of all schedules together nothing is tried: it would take seconds."""

MAX_EFFECT = 2.0  # one number at half or twice what it is moves no makespan by more than this factor


def deciding(
    machine: Machine,
    problem: Problem,
    lower: Callable[..., Schedule],
    better: Lower | None,
    makespan: Makespan,
) -> Decides | None:
    """Return the assumed number that decides between stationary matrices, or else a search's better point.

    Args:
        lower: Makes the schedule that was asked for; takes another stationary matrix by keyword.
        better: Makes the better one that a search finds, if there is one.
    """
    ways = {f"stationary {x}": partial(lower, stationary=x) for x in MATRICES}
    # A stationary matrix is easily changed, so that comes before the layouts that a search suggests.
    number = decides(machine, problem.dtype, ways, makespan)
    if number or better is None:
        return number
    both = {"what was asked": lower, "what the search finds now": better}
    return decides(machine, problem.dtype, both, makespan)


def decides(machine: Machine, dtype: str, lower: Mapping[str, Lower], makespan: Makespan) -> Decides | None:
    """Return the assumed number that changes which schedule is fastest; of several the one that saves most.

    Each assumed number goes to half and twice what it is, or to the ends of its range, alone.

    Args:
        dtype: Of the problem; peaks and efficiencies of others do not matter.
        lower: Makes each schedule for a machine, by name.
    """
    now = {name: lowered(machine) for name, lowered in lower.items()}
    if len(now) < 2 or sum(map(len, now.values())) > MOST_ACTIONS_CHANGED:
        return None
    seconds = {name: makespan(schedule) for name, schedule in now.items()}
    first = min(seconds, key=seconds.__getitem__)
    # Closer than TOLERANCE is a tie already, and a rival slower by MAX_EFFECT cannot catch up through one
    # number: leaving both out saves simulations.
    rivals = [first, *(x for x in lower if 1 + TOLERANCE < seconds[x] / seconds[first] < MAX_EFFECT)]
    if len(rivals) < 2:
        return None
    # A number may be left out only if it matters to none of the schedules.
    without = set.intersection(*(set(unused(x)) for x in now.values()))

    def timed(changed: Machine) -> dict[str, float]:
        # Lowered anew: a policy may write another schedule for the changed machine.
        return {name: makespan(lower[name](changed)) for name in rivals}

    turns: list[Decides] = []
    for change, takes in vary(timed, assumed(machine, dtype, without)):
        best = min(takes, key=takes.__getitem__)
        saving = 1 - takes[best] / takes[first]
        if saving > TOLERANCE:
            turns.append(Decides(*change[:3], best, first, saving))
    return max(turns, key=lambda x: x.saving, default=None)
