"""A way to multiply that competes: its schedule for any problem, and what a simulation shows of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from umm.algorithms.registry import UNIVERSAL, choices_in_words, find_algorithm
from umm.algorithms.universal.options import Options
from umm.executor import executor, run
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.schedule import Schedule
from umm.space.given import schedule
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind


@dataclass(frozen=True)
class Contender:
    """A way to multiply operands that lie somewhere already, and to leave C somewhere.

    Attributes:
        name: What its row is called.
        algorithm: Name of the algorithm.
        options: Its options, and of the universal one the stationary matrix.
        layouts: Where the universal algorithm multiplies; None where A, B and C lie.
    """

    name: str
    algorithm: str = UNIVERSAL
    options: Mapping[str, Any] = field(default_factory=dict)
    layouts: tuple[str, str, str] | None = None

    def schedule(self, start: Problem, machine: Machine) -> Schedule:
        """Return its schedule for a problem whose operands lie, and whose C shall lie, as it says."""
        if self.layouts is not None:
            given = dict(zip("abc", start.layouts, strict=True))
            a, b, c = self.layouts
            start = replace(start, a=a, b=b, c=c, given=given)
        return schedule(start, machine, algorithm=self.algorithm, **self.options)

    def works_in(self, start: Problem) -> tuple[str, str, str]:
        """Return the layouts of A, B and C in which it multiplies."""
        if self.layouts is not None:
            return self.layouts
        layouts = start.layouts
        if self.algorithm != UNIVERSAL:
            algorithm = find_algorithm(self.algorithm)
            layouts = algorithm.native(start, **algorithm.chosen(self.options))
        a, b, c = (_shortest(x, now) for x, now in zip(layouts, start.layouts, strict=True))
        return a, b, c

    def own(self, start: Problem) -> Problem:
        """Return the problem with operands that lie as it multiplies them."""
        a, b, c = self.works_in(start)
        return replace(start, a=a, b=b, c=c, given="")


def _shortest(layout: Layout, now: Layout) -> str:
    """Return the text of a layout: that of another if they are equal, else the shortest of its own."""
    usual = (Layout.parse(text, layout.shape, layout.ranks) for text in ("row", "col", "2d"))
    return str(next((x for x in (now, *usual) if x == layout), layout))


class Timed(NamedTuple):
    """What is needed of a contender to choose.

    Attributes:
        contender: Which.
        makespan_s: Seconds from where operands lie to where C shall lie.
        fits: Whether what the fullest rank holds is within the budget.
    """

    contender: Contender
    makespan_s: float
    fits: bool


@dataclass(frozen=True)
class Figures:
    """What a simulation shows of one who competes.

    Attributes:
        makespan_s: Seconds from where operands lie to where the results shall lie.
        exposed_s: Seconds in which a rank moves or adds up data and computes nothing; the mean of all ranks.
        bytes: Payload between ranks, all together.
        memory_bytes: What the fullest rank holds.
        fits: Whether that is within the budget.
    """

    makespan_s: float
    exposed_s: float
    bytes: int
    memory_bytes: int
    fits: bool


def figures_of(trace: Trace, limit: int) -> dict[str, Any]:
    """Return the figures of a trace by name, within so many bytes a rank."""
    parts = trace.breakdown().mean
    return {
        "makespan_s": trace.makespan_s,
        "exposed_s": parts["exposed_communication"] + parts["reduce"],
        "bytes": sum(bytes_by_kind(trace.schedule).values()),
        "memory_bytes": trace.memory_bytes,
        "fits": trace.memory_bytes <= limit,
    }


@dataclass(frozen=True)
class Row(Figures):
    """A contender on one machine, in full.

    Attributes:
        contender: Which.
        a: Layout of A in which it multiplies.
        b: Layout of B.
        c: Layout of C.
        how: Its choices in words.
        own_s: Seconds if A, B and C lay as it multiplies them.
    """

    contender: Contender
    a: str
    b: str
    c: str
    how: str
    own_s: float

    @property
    def algorithm(self) -> str:
        """What the row is called."""
        return self.contender.name

    @property
    def timed(self) -> Timed:
        """What is needed of it to choose."""
        return Timed(self.contender, self.makespan_s, self.fits)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("algorithm", "a", "b", "c", "makespan_s", "exposed_s", "bytes", "memory_bytes")
        more = ("own_s", "fits", "how")
        return {name: getattr(self, name) for name in (*names, *more)}


def timed(contender: Contender, start: Problem, machine: Machine, limit: int) -> Timed:
    """Return how long a contender takes, and whether it fits; see :func:`row_of`."""
    made = contender.schedule(start, machine)
    return Timed(contender, executor("sim").makespan(made), int(made.memory_bytes.max()) <= limit)


def row_of(contender: Contender, start: Problem, machine: Machine, limit: int) -> Row:
    """Return what a simulation shows of a contender.

    Args:
        contender: Which.
        start: The problem, and where its operands lie.
        machine: Where it runs.
        limit: Bytes that a rank may hold.
    """
    trace = performed(contender, start, machine)
    own = contender.own(start)
    moved = any(x != y for x, y in zip(own.layouts, start.layouts, strict=True))
    there = performed(replace(contender, layouts=None), own, machine) if moved else trace
    a, b, c = contender.works_in(start)
    return Row(
        **figures_of(trace, limit),
        contender=contender,
        a=a,
        b=b,
        c=c,
        how=_how(trace.schedule),
        own_s=there.makespan_s,
    )


def _how(made: Schedule) -> str:
    """Return the choices of a schedule in words; of the universal algorithm those that are not usual."""
    if "policy" not in made.options:
        return choices_in_words(made)
    usual = Options().to_dict()
    others = [f"{x} {made.options[x]}" for x, value in usual.items() if made.options[x] != value]
    return ", ".join([f"stationary {made.stationary}", *others])


def performed(contender: Contender, start: Problem, machine: Machine) -> Trace:
    """Return the simulated trace of a contender."""
    return run(contender.schedule(start, machine))
