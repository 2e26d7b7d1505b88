"""The bandwidth, peak, latency or memory that would change a choice, and by how much."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from umm.errors import EndedEarlyError, expect
from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.notebook import Shown
from umm.numbers import real_from_0
from umm.space.budget import DEVICE, limit_of
from umm.space.choice import Choice
from umm.space.pricing.multiplies import pricer_of
from umm.space.pricing.pricer import Pricer
from umm.space.search.found import front
from umm.space.search.search import Report, faster, search
from umm.space.search.walk import BestFirst, Progress
from umm.space.space import Space
from umm.space.vary import Knob, Makespan, knobs
from umm.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd


Budget = str | int | None


@dataclass(frozen=True)
class Question:
    """The best point of a space is asked for."""

    space: Space  # the points
    machine: Machine  # as it is
    memory: Budget  # budget per rank as in `umm.space.search`
    makespan: Makespan  # simulates a schedule

    @classmethod
    def asked(
        cls, space: Space, machine: Machine | str, memory: Budget = DEVICE, makespan: Makespan | None = None
    ) -> "Question":
        """Return the question of a public function: the machine by name, the simulator if none is given."""
        if not isinstance(machine, Machine):
            machine = find_machine(machine)
        return cls(space.on(machine.default_ranks), machine, memory, makespan or executor("sim").makespan)

    def best(self, machine: Machine, progress: Progress | None = None) -> Choice:
        """Return the best point on a machine."""
        memory, makespan = self.memory, self.makespan
        return search(self.space, machine, memory=memory, makespan=makespan, top=1, progress=progress).top[0]

    def seconds(self, choice: Choice, machine: Machine) -> float:
        """Return how long a point takes on a machine."""
        return choice.times * self.makespan(choice.schedule(machine))

    @property
    def pricer(self) -> Pricer:
        """Prices of the points on the machine as it is."""
        return pricer_of(self.space.searched, self.machine, self.makespan)

    def front(self, most: Budget) -> list[Choice]:
        """Return the points that no other beats in time and memory up to a budget, by ascending memory."""
        pricer = self.pricer
        return front(pricer, limit_of(most, pricer.points.share, self.machine, pricer.points.ranks))


@dataclass(frozen=True)
class Flip:
    """Where one number changes the choice."""

    what: str  # the number that changes
    now: str  # its value now, with its unit
    factor: float | None  # What it has to be multiplied by; None if nothing within reach changes the choice.
    then: str  # its value there, with its unit
    choice: Choice | None  # the best point there
    instead_of: Choice | None = None  # the best point as the machine is

    @property
    def words(self) -> str:
        """The best point there: layouts, the stationary matrix and other differences."""
        return f"{self.choice.words}, {self.choice.beside(self.instead_of)}" if self.choice else ""

    def __str__(self) -> str:
        if self.factor is None or self.choice is None:
            return f"{self.what} {self.now}: no change {self.then}"
        return f"{self.what} {self.now} → {self.then} (x{self.factor:.3g}): {self.words}"


@dataclass(frozen=True)
class Move:
    """How much one number moves the time of a choice."""

    what: str  # the number that changes
    now: str  # its value now, with its unit
    half_s: float  # seconds the choice takes with half of it
    most: float  # the factor of the largest that was tried: 2, or less for a share that would exceed 1
    most_s: float  # seconds with that


@dataclass(frozen=True)
class Sensitivity(Shown):
    """A choice and the changes of numbers that would replace it."""

    choice: Choice  # the best point as things are
    margin: float  # by how much another has to be better to count
    moves: list[Move]  # how much each number moves its time, the one that moves it most first
    flips: list[Flip]  # where each number changes the choice, downwards and upwards; last the memory
    complete: bool = True  # Whether all numbers are there; False if it was ended early.

    def __post_init__(self) -> None:
        """Let each flip know the choice it replaces."""
        known = [replace(flip, instead_of=self.choice) for flip in self.flips]
        object.__setattr__(self, "flips", known)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row per number and direction: its name, now, factor, then, and the choice there."""
        import pandas as pd

        names = ("what", "now", "factor", "then")
        nothing = dict.fromkeys([*map(str.lower, self.choice.layouts), "stationary"])
        rows = []
        for flip in self.flips:
            row = {name: getattr(flip, name) for name in names} | nothing
            if flip.choice is not None:
                row |= {name.lower(): text for name, text in flip.choice.layouts.items()}
                row["stationary"] = flip.choice.beside(self.choice).removeprefix("stationary ")
            rows.append(row)
        return pd.DataFrame(rows)

    def moves_frame(self) -> "pd.DataFrame":
        """Return a row per number: its name, now, half_s, most, most_s."""
        import pandas as pd

        return pd.DataFrame([vars(move) for move in self.moves])

    def __repr__(self) -> str:
        return f"Sensitivity({self.choice}: {len(self.moves)} numbers)"

    def __str__(self) -> str:
        return "\n".join([str(self.choice), *(f"  {flip}" for flip in self.flips)])


def sensitivity(
    space: Space,
    machine: Machine | str,
    *,
    memory: Budget = DEVICE,
    makespan: Makespan | None = None,
    margin: float = 0.01,
    reach: float = 16.0,
    progress: Report | None = None,
) -> Sensitivity:
    """Return the best point of a space and the nearest changes that make another one better.

    Each number of the machine that can change a time (:func:`umm.space.vary.knobs`) is scaled by itself, in
    steps of two away from 1, then narrowed down to a hundredth; a flip back inside a step is not seen. Every
    step is a proven search; there is none where nobody can gain the margin with the most of a number, or the
    choice loses none with the least, for nothing gets faster with slower links. Memory's answer is exact.

    EndedEarlyError on Ctrl-C, with the numbers so far.

    Args:
        machine: A machine, its name, or the path of its machine file.
        memory: Budget per rank as in :func:`umm.space.search`.
        makespan: Simulates a schedule; None for the executor ``sim``.
        margin: How much better than the choice another point has to be, as a share of its makespan.
        reach: Largest factor that is tried, and one over the smallest.
        progress: Called with the number looked at, how much of it is done, and of how much; 0 if unknown.
    """
    expect(space, Space, "sensitivity", "a Space, such as umm.Space(m=8192, n=49152, k=12288)")
    margin, reach = real_from_0(margin, "margin"), real_from_0(reach, "reach")
    question = Question.asked(space, machine, memory, makespan)
    machine, report = question.machine, progress or (lambda what, done, total: None)
    choice = question.best(machine, partial(report, "the best choice"))
    known = knobs(machine, choice.program.p, space.program.shapes[0].dtype)
    moves: list[Move] = []
    flips: list[Flip] = []
    try:
        for number, knob in enumerate(known):
            report(f"half and twice the {knob.name}", number, len(known))
            most = min(2.0, knob.most)
            half_s, most_s = (question.seconds(choice, knob.on(machine, x)) for x in (0.5, most))
            moves.append(Move(knob.name, knob.at(1.0), half_s, most, most_s))
        # The logarithm ranks gains and losses by their ratio alike.
        moves.sort(key=lambda move: -abs(math.log(move.half_s / choice.makespan_s)))
        # A share that is at its most cannot be turned up.
        turned = [(knob, up) for knob in known for up in (False, True) if knob.most > 1 or not up]
        for number, (knob, up) in enumerate(turned):
            turning = f"{'more' if up else 'less'} {knob.name}, {number + 1} of {len(turned)}"
            report(turning, 0, 0)
            flips.append(_Turned(question, choice, margin, reach, knob, up, turning, report).flip())
        flips += _memory_flips(question, choice, margin, partial(report, "more and less memory"))
    except KeyboardInterrupt:
        if not moves:
            raise
        raise EndedEarlyError(Sensitivity(choice, margin, moves, flips, complete=False)) from None
    return Sensitivity(choice, margin, moves, flips)


@dataclass(frozen=True)
class _Turned:
    """A number turned up or down, until another point beats a choice by a margin."""

    question: Question
    choice: Choice
    margin: float
    reach: float
    knob: Knob
    up: bool
    words: str  # for the report
    report: Report

    def flip(self) -> Flip:
        """Return where another point is first better, or that none is within reach."""
        knob = self.knob
        if self._settled:
            return self._none
        # Invariant: at `same` the choice still stands, at `factor` another beats it.
        same, step = 1.0, 2.0 if self.up else 0.5
        while True:
            factor = min(same * step, knob.most)
            # The slack lets a reach that is a power of two be tried in spite of rounding.
            if max(factor, 1 / factor) > self.reach * (1 + 1e-9) or factor == same:
                return self._none
            nearest = self._rival(factor)
            if nearest:
                break
            same = factor
        # Bisection in the logarithm, down to a hundredth of the factor.
        while abs(math.log(factor / same)) > 0.01:
            middle = math.sqrt(factor * same)
            nearer = self._rival(middle)
            if nearer:
                factor, nearest = middle, nearer
            else:
                same = middle
        return Flip(knob.name, knob.at(1.0), factor, knob.at(factor), nearest)

    @property
    def _end(self) -> float:
        """The last factor within reach."""
        return min(self.reach, self.knob.most) if self.up else 1 / self.reach

    @property
    def _none(self) -> Flip:
        """The answer that nothing within reach changes the choice."""
        bound = f"{'up' if self.up else 'down'} to {self.knob.at(self._end)}"
        return Flip(self.knob.name, self.knob.at(1.0), None, bound, None)

    @property
    def _settled(self) -> bool:
        """Whether nothing can change up to the last factor: nobody gains by it, or the choice loses."""
        # One search at the far end settles a direction, for times are monotone in a number. Where it speeds
        # things up, a rival has its best chance there. Where it slows them, rivals get no faster either, so
        # one can only win if the choice loses more than the margin.
        now = self.choice.makespan_s
        if self.up == self.knob.more_is_faster:
            return self._better(self._end, now * (1 - self.margin)) is None
        return self._seconds(self._end) * (1 - self.margin) <= now

    def _rival(self, factor: float) -> Choice | None:
        """Return the best point on the changed machine if it beats the choice by the margin."""
        return self._better(factor, self._seconds(factor) * (1 - self.margin))

    def _seconds(self, factor: float) -> float:
        """Return the seconds of the choice on the changed machine."""
        return self.question.seconds(self.choice, self.knob.on(self.question.machine, factor))

    def _better(self, factor: float, than: float) -> Choice | None:
        """Return the best point on the changed machine if it takes less than some seconds."""
        asked, news = self.question, partial(self.report, f"{self.words}, x{factor:.3g}")
        changed = self.knob.on(asked.machine, factor)
        # With a time to beat a search prunes from the start, so a negative answer comes sooner.
        return faster(asked.space, changed, than, memory=asked.memory, makespan=asked.makespan, progress=news)


def frontier(
    space: Space, machine: Machine | str, *, most: Budget = None, makespan: Makespan | None = None
) -> list[Choice]:
    """Return the points that no other beats in both time and memory, by ascending memory.

    Each is the best choice for every budget from its own memory up to the next one's.

    Args:
        machine: A machine, its name, or the path of its machine file.
        most: Largest budget of interest, as in :func:`umm.space.search`.
        makespan: Simulates a schedule; None for the executor ``sim``.
    """
    return Question.asked(space, machine, makespan=makespan).front(most)


def _memory_flips(question: Question, choice: Choice, margin: float, progress: Progress) -> list[Flip]:
    """Return the budget below which the choice no longer fits, and the first above that a better one does."""
    pricer, memory = question.pricer, question.memory
    limit, most = (
        limit_of(x, pricer.points.share, question.machine, pricer.points.ranks) for x in (memory, None)
    )
    now = "without a budget" if memory is None else format_bytes(limit)
    base = choice.memory_bytes if memory is None else limit
    # One byte less rules the choice out, so this search finds its successor. Upwards the front beyond the
    # limit is enough, cut at the time to beat: no search by trial budgets is needed.
    less, than = BestFirst(pricer, choice.memory_bytes - 1, 1), choice.makespan_s * (1 - margin)
    less.run(progress)
    better = [x for x in front(pricer, most, base, within=than) if x.makespan_s < than]
    if smaller := less.found.choices():
        then = f"below {format_bytes(choice.memory_bytes)}"
        down = Flip("memory", now, choice.memory_bytes / base, then, smaller[0])
    else:
        down = Flip("memory", now, None, "downwards; nothing needs less", None)
    if not better:
        return [down, Flip("memory", now, None, "upwards", None)]
    then = f"from {format_bytes(better[0].memory_bytes)}"
    return [down, Flip("memory", now, better[0].memory_bytes / base, then, better[0])]
