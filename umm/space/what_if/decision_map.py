"""Decision maps: the best point over m and memory or a number of the machine; or by an old and a new file."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from umm.errors import EndedEarlyError, InfeasibleError
from umm.machines import Machine
from umm.notebook import Shown
from umm.space.budget import DEVICE
from umm.space.choice import Choice
from umm.space.search.search import Report
from umm.space.space import Space
from umm.space.vary import LINKS, Makespan, borders, knob
from umm.space.what_if.sensitivity import Budget, Question

if TYPE_CHECKING:
    import pandas as pd

Step = tuple[float, float, Choice]


@dataclass(frozen=True)
class Stretch:
    """One choice, best for one m from one value to another."""

    m: int  # rows of A and C
    start: float  # where it becomes the best: a multiple of the unreplicated share, or a factor of the number
    stop: float  # where something else does, or the end of the map
    choice: Choice  # the point; its makespan is that at `start`

    @property
    def label(self) -> str:
        """The layouts of A, B and C, and the stationary matrix."""
        return f"{', '.join(self.choice.layouts.values())}; {self.choice.kept}"


@dataclass(frozen=True)
class DecisionMap(Shown):
    """The best point over m and one other quantity."""

    machine: str  # name of the machine
    over: str  # `memory`, or a number of the machine
    unit: str  # the meaning of a value of 1
    # For each m the best point, from the lowest value to the highest; where the first does not start at the
    # map's edge, nothing fits below it.
    stretches: list[Stretch]
    without: tuple[int, ...] = ()  # values of m for which nothing fits at all
    complete: bool = True  # Whether all m are there; False if it was ended early.

    def __repr__(self) -> str:
        return f"DecisionMap({self.machine}: {len(self.stretches)} stretches over m and {self.over})"

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain values; a stretch has the values of its choice."""
        stretches = [
            {"m": x.m, "start": x.start, "stop": x.stop, **x.choice.to_dict()} for x in self.stretches
        ]
        without = list(self.without)
        return {"over": self.over, "unit": self.unit, "stretches": stretches, "without": without}

    def to_frame(self) -> "pd.DataFrame":
        """Return a row per stretch: m, start, stop, a, b, c, stationary, makespan_s, memory_bytes."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for x in self.stretches:
            row: dict[str, Any] = {"m": x.m, "start": x.start, "stop": x.stop}
            row |= {name.lower(): text for name, text in x.choice.layouts.items()}
            row |= {"stationary": x.choice.kept, "makespan_s": x.choice.makespan_s}
            rows.append(row | {"memory_bytes": x.choice.memory_bytes})
        return pd.DataFrame(rows)


def map_over_memory(
    space: Space,
    machine: Machine | str,
    rows: Sequence[int],
    *,
    most: float = 4.0,
    makespan: Makespan | None = None,
    progress: Report | None = None,
) -> DecisionMap:
    """Return the best point for every m and every memory budget, exactly.

    InfeasibleError if nothing fits for any m.

    Args:
        space: The points; its m is replaced.
        machine: A machine, its name, or the path of its machine file.
        rows: Values of m.
        most: Largest budget, as a multiple of the unreplicated share.
        makespan: Simulates a schedule; None for the executor ``sim``.
        progress: Called with an m, the number of values of m done and of all.
    """

    def stretches(question: Question) -> Iterable[Step]:
        share, best = question.space.points().share, question.front(f"{most}x")
        # A point of the front is the best from its own memory up to that of the next.
        starts = [choice.memory_bytes / share for choice in best]
        return zip(starts, [*starts, most][1:], best, strict=True)

    unit = "the unreplicated share, (|A| + |B| + |C|) / p"
    question = Question.asked(space, machine, makespan=makespan)
    return _map(question, "memory", unit, rows, stretches, progress)


def map_over_number(
    space: Space,
    machine: Machine | str,
    rows: Sequence[int],
    *,
    number: str = LINKS,
    memory: Budget = DEVICE,
    reach: float = 8.0,
    makespan: Makespan | None = None,
    progress: Report | None = None,
) -> DecisionMap:
    """Return the best point for every m and every value of a number of the machine, all links' bandwidth say.

    The number is scaled in steps of two; where two neighbours differ, the crossover is narrowed down to a
    hundredth. A choice that comes and goes inside a step is not seen.

    InfeasibleError if nothing fits for any m.

    Args:
        space: The points; its m is replaced.
        machine: A machine, its name, or the path of its machine file.
        rows: Values of m.
        number: Its name, or a pattern whose numbers are scaled together, as ``--set`` takes it.
        memory: Budget per rank as in :func:`umm.space.search`.
        reach: Largest factor, and one over the smallest.
        makespan: Simulates a schedule; None for the executor ``sim``.
        progress: Called with an m, the number of values of m done and of all.
    """
    asked = Question.asked(space, machine, memory, makespan)
    # Powers of two around 1, so that the machine as it is stands on the grid.
    turned, steps = knob(asked.machine, number), math.ceil(math.log2(reach))
    factors = [2.0**i for i in range(-steps, steps + 1) if 2.0**i <= turned.most]

    def stretches(question: Question) -> Iterable[Step]:
        # A row where nothing fits is left empty, and reported as such by _map.
        with suppress(InfeasibleError):
            return _steps(lambda factor: question.best(turned.on(question.machine, factor)), factors)
        return []

    return _map(asked, number, turned.at(1.0), rows, stretches, progress)


def _map(
    question: Question,
    over: str,
    unit: str,
    rows: Sequence[int],
    steps: Callable[[Question], Iterable[Step]],
    progress: Report | None,
) -> DecisionMap:
    """Return the map of all rows.

    InfeasibleError if nothing fits for any m. EndedEarlyError on Ctrl-C, with the rows so far.
    """
    machine = question.machine.name
    stretches: list[Stretch] = []
    for done, m in enumerate(rows):
        if progress:
            progress(f"m = {m}", done, len(rows))
        try:
            row = replace(question, space=question.space.changed(m=m))
            stretches += [Stretch(m, *step) for step in steps(row)]
        except KeyboardInterrupt:
            if not stretches:
                raise
            without = _without(stretches, rows[:done])
            raise EndedEarlyError(DecisionMap(machine, over, unit, stretches, without, False)) from None
    return DecisionMap(machine, over, unit, stretches, _without(stretches, rows))


def _without(stretches: Sequence[Stretch], rows: Sequence[int]) -> tuple[int, ...]:
    """Return the values of m that have no stretch; InfeasibleError if none has."""
    if not stretches:
        raise InfeasibleError(f"nothing fits for m = {', '.join(map(str, rows))}; allow more memory or ranks")
    fitting = {x.m for x in stretches}
    return tuple(m for m in rows if m not in fitting)


def _steps(best: Callable[[float], Choice], factors: Sequence[float]) -> list[Step]:
    """Return the best choices over ascending factors, each with its start and stop."""
    best = cache(best)

    def between(low: float, high: float) -> float | None:
        # In the logarithm, as factors multiply.
        return None if math.log(high / low) < 0.01 else math.sqrt(low * high)

    # The same best at both ends is taken to be the best between them: the limit that map_over_number names.
    pairs = pairwise(factors)
    starts = [factors[0], *(x for pair in pairs for x in borders(*pair, lambda x: best(x).name, between))]
    return [(start, stop, best(start)) for start, stop in pairwise([*starts, factors[-1]])]


# MLP-1 and MLP-2 at one sixteenth of the paper's n and k, a square, and a long sum; m, n, k.
PROBLEMS = ((1024, 3072, 768), (1024, 768, 3072), (2048, 2048, 2048), (512, 512, 8192))


class Decision(NamedTuple):
    """The best layouts of one problem by two files."""

    problem: tuple[int, int, int]  # m, n, k
    before: Choice  # the old file's choice
    after: Choice  # the new one's
    costs: float  # time of the old choice over that of the new one, by the new file: 1.03 is 3 % longer

    @property
    def flips(self) -> bool:
        """Whether the old choice takes longer than the new one by the new file."""
        return self.costs > 1.0


def decisions(
    old: Machine, new: Machine, dtype: str, problems: Sequence[tuple[int, int, int]] = PROBLEMS
) -> list[Decision]:
    """Return the best layouts of some problems by two files of as many devices."""
    result = []
    for m, n, k in problems:
        space = Space(m=m, n=n, k=k, ranks=new.default_ranks, dtype=dtype)
        question = Question.asked(space, new)
        before, after = (question.best(machine) for machine in (old, new))
        # The layouts of the old choice, lowered anew for the new file: what one pays for not choosing again.
        again = question.makespan(before.schedule(new))
        result.append(Decision((m, n, k), before, after, max(1.0, again / after.makespan_s)))
    return result
