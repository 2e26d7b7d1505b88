"""What a search finds that is faster than a schedule, or holds less in the same time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umm.algorithms.universal.options import known
from umm.errors import InfeasibleError
from umm.machines import Machine
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.space.budget import DEVICE
from umm.space.choice import Choice
from umm.space.search.front import front
from umm.space.search.search import search
from umm.space.search.walk import Progress
from umm.space.space import Space
from umm.units import format_bytes

MOST_ACTIONS = 20_000
"""No advice is given where finding it would take longer than an answer should: above this many actions."""

MOST_PAIRS = 2e8
"""Nor above this many points times pairs of ranks, which all are priced."""

LEAST = 0.01
"""A smaller share of the makespan or of the memory is not worth a change."""


@dataclass(frozen=True)
class Advice:
    """Layouts and choices that make a problem faster, or take less memory for the same time.

    Attributes:
        choice: What to use.
        saving: Share of the makespan that goes away.
        extra_bytes: What the fullest rank holds more; negative if it holds less.
    """

    choice: Choice
    saving: float
    extra_bytes: int

    def __str__(self) -> str:
        figures = f"{100 * self.saving:.0f}" if self.saving < 0.99 else f"{100 * self.saving:.4g}"
        found = "the same time" if self.saving < LEAST else f"{figures} % less time"
        more = "more" if self.extra_bytes >= 0 else "less"
        return (
            f"search finds {found} with {format_bytes(abs(self.extra_bytes))} {more}: "
            f"{self.choice.words}, {self.choice.way}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the point and what it saves as plain values."""
        return self.choice.to_dict() | {"saving": self.saving, "extra_bytes": self.extra_bytes}


def advise(
    schedule: Schedule,
    machine: Machine,
    makespan: Callable[[Schedule], float],
    progress: Progress | None = None,
) -> Advice | None:
    """Return what the search of a schedule's problem finds that is better; following it ends the advice.

    The space is that of a search where nothing is said, with the schedule's own policy, prefetch and limits,
    within the device less a tenth. Of its points within a hundredth of the fastest it is the one with the
    least memory: so nothing that is left is a hundredth faster, or as fast with less.

    Args:
        schedule: What the advice is about, by the universal algorithm.
        machine: Where it runs.
        makespan: Predicts the seconds of a schedule.
        progress: Called now and then with the number of points settled and of all points.

    Returns:
        None if nothing is better by a hundredth, or if finding it would take too long.

    >>> import umm
    >>> from umm.executor import executor
    >>> slow = umm.Problem(m=8192, n=49152, k=12288, a="row", b="row", c="row", ranks=8)
    >>> h100 = umm.machine("h100-8")
    >>> print(advise(umm.schedule(slow, h100), h100, executor("sim").makespan))
    search finds 6 % less time with 768.0 MiB less: A 2d:2x4, B col, C col, stationary B
    """
    if len(schedule) > MOST_ACTIONS:
        return None
    space = space_around(schedule.problem, schedule.options)
    ranks = schedule.ranks
    if space.searched.points().count * ranks**2 > MOST_PAIRS:
        return None
    now, held = makespan(schedule), int(schedule.memory_bytes.max())
    try:
        found = search(space, machine, memory=DEVICE, makespan=makespan, top=1, progress=progress)
    except InfeasibleError:
        return None
    return advice_among(front(found.pricer, found.limit, reach=1 + LEAST), now, held)


def advice_among(choices: Sequence[Choice], now: float, held: int) -> Advice | None:
    """Return what the points of a front have for a schedule.

    Args:
        choices: By ascending memory; those that take a hundredth longer than the fastest are not looked at.
        now: Makespan of the schedule.
        held: Bytes of its fullest rank.
    """
    if not choices:
        return None
    near = [x for x in choices if x.makespan_s <= (1 + LEAST) * choices[-1].makespan_s]
    best = near[0]
    if best.makespan_s > now * (1 - LEAST):  # as fast as any: what holds less in its time
        as_fast = [x for x in near if x.makespan_s <= now]
        if not as_fast or as_fast[0].memory_bytes > held * (1 - LEAST):
            return None
        best = as_fast[0]
    return Advice(best, 1 - best.makespan_s / now, best.memory_bytes - held)


def space_around(problem: Problem, options: Mapping[str, Any]) -> Space:
    """Return the space of a problem, with these options where a search does not try them all."""
    of_search = {x.name for x in known() if x.searched}
    kept = {x.name: options[x.name] for x in known() if x.name not in of_search}
    sizes = {name: getattr(problem, name) for name in ("m", "n", "k", "dtype", "c_dtype", "given")}
    return Space(**sizes, ranks=problem.p, **kept)
