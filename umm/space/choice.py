"""A simulated point of a space: its choices, and its figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from umm.algorithms.scheduling import schedule
from umm.errors import InputError
from umm.machines import Machine
from umm.plans.multiply.options import MOVEMENTS, Options, known
from umm.program import Chain
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.units import format_bytes, format_seconds, percent

FIGURES = ("makespan_s", "bound_s", "fraction_of_peak", "memory_bytes")
OF_A_MULTIPLY = ("makespan_s", "fraction_of_peak", "memory_bytes", "pool_bytes", "bound_s", "steps_gap")


@dataclass(frozen=True)
class Choice:
    """One simulated point."""

    program: Problem | Chain = field(repr=False)  #: the program in the point's layouts
    layouts: Mapping[str, str] = field(hash=False)  #: the layout of each tensor as text
    #: The matrix that stays in place; of several multiplies by what they write.
    stationary: str | Mapping[str, str] = field(hash=False)
    options: Options  #: how ops become actions
    makespan_s: float  #: simulated makespan in seconds
    bound_s: float  #: what was known of it before simulating
    memory_bytes: int  #: what the fullest rank holds: what it allocates, and the optimizer's state
    pool_bytes: int  #: the largest pool of a rank
    fraction_of_peak: float  #: useful flop over what the devices could do in that time
    #: Share of the step model's cost that better steps save at most; None where the policy proves nothing of
    #: the kind.
    steps_gap: float | None = None
    actions: int = field(default=0, compare=False)  #: how many actions its schedule has
    #: Its makespan over that of its schedule: of one of many layers, the schedule is one by itself.
    times: float = field(default=1.0, compare=False)
    #: Stationary matrix and options of the other points that are this very schedule.
    ties: tuple[tuple[str, Options], ...] = ()
    #: How operands and sums move, of several multiplies by what they write; empty where the options say it
    #: for all.
    movement: Mapping[str, str] = field(default_factory=dict, hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Return layouts, choices and figures as plain values: the keys of ``--json`` and of columns."""
        # A multiply has its layouts as a, b and c and each option by name, with what ties have in its place;
        # a program of several statements has its layouts, and stationary matrices, by tensor.
        if isinstance(self.stationary, Mapping):
            figures = {name: getattr(self, name) for name in FIGURES}
            choices = {"layouts": dict(self.layouts), "stationary": dict(self.stationary)}
            return {**choices, "movement": dict(self.movement) or self.options.movement, **figures}
        here = self.options.to_dict()
        ties = [({"stationary": stationary}, options.to_dict()) for stationary, options in self.ties]
        return {
            **{name.lower(): text for name, text in self.layouts.items()},
            "stationary": self.stationary,
            **here,
            **{name: getattr(self, name) for name in OF_A_MULTIPLY},
            "ties": [x | {name: y for name, y in ys.items() if y != here[name]} for x, ys in ties],
        }

    @property
    def how(self) -> dict[str, str]:
        """Its stationary matrix and its options as texts, each with those of the same schedule: ``A,B,C``.

        Ties that are not every combination of what they have are left out.
        """
        ways = ((self.kept, self.options), *self.ties)
        same = [{"stationary": x, **options.to_dict()} for x, options in ways]
        values = {name: {x[name] for x in same} for name in same[0]}
        # Comma lists mean every combination. Where the ties are fewer than that, the lists would claim
        # schedules that are not the same.
        if prod(len(x) for x in values.values()) != len(same):
            values = {name: {value} for name, value in same[0].items()}
        return {name: ",".join(sorted(map(str, x))) for name, x in values.items()}

    @property
    def problem(self) -> Problem:
        """The program, of one multiply; InputError for a program of several statements."""
        if not isinstance(self.program, Problem):
            raise InputError(f"chain {self.program.name} is not a single multiply")
        return self.program

    @property
    def kept(self) -> str:
        """The matrix that stays in place as a text, of several multiplies ``H=A,Y=B``."""
        if isinstance(self.stationary, str):
            return self.stationary
        if len(set(self.stationary.values())) == 1:
            return next(iter(self.stationary.values()))
        return ",".join(f"{name}={matrix}" for name, matrix in self.stationary.items())

    @property
    def name(self) -> tuple[Any, ...]:
        """Identity of the point: equal for one point on two machines."""
        return (*self.layouts.items(), self.kept, self.options, *self.movement.items())

    def schedule(self, machine: Machine | str) -> Schedule:
        """Return its schedule, on the machine it was found for or on another."""
        movement = {"movement": self.movement} if self.movement else {}
        return schedule(
            self.program, machine, stationary=self.stationary, **self.options.to_dict() | movement
        )

    @property
    def words(self) -> str:
        """The layout of each tensor in words."""
        return ", ".join(f"{name} {layout}" for name, layout in self.layouts.items())

    @property
    def way(self) -> str:
        """Its stationary matrix and those options that are not the default, in words."""
        return self.beside(None)

    def beside(self, other: "Choice | None") -> str:
        """Return its stationary matrix and its options that are not the default, or not another's."""
        words_of = [f"stationary {self.kept}"]
        for x in known():
            value = getattr(self.options, x.name)
            # An option at its default is worth a word only where the other point has another value.
            if value != x.default or (other and value != getattr(other.options, x.name)):
                words_of.append(x.words(value))
        before = other.movement if other else self.movement
        moved = (
            f"{product} {MOVEMENTS[way] or way}"
            for product, way in self.movement.items()
            if before.get(product) != way
        )
        return ", ".join(words for words in (*words_of, *moved) if words)

    def __repr__(self) -> str:
        return f"Choice({self})"

    def __str__(self) -> str:
        return (
            f"{self.words}, {self.way}: {format_seconds(self.makespan_s)}, "
            f"{percent(self.fraction_of_peak, 1)} of peak, {format_bytes(self.memory_bytes)} per rank"
        )
