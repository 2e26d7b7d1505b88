"""A point of a space that was simulated: what was chosen, and what came out."""

from dataclasses import dataclass
from math import prod
from typing import Any

from umm.algorithms.universal.options import Options, known
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.schedule import Schedule
from umm.space.given import schedule
from umm.units import format_bytes


@dataclass(frozen=True)
class Choice:
    """One simulated point.

    Attributes:
        problem: The problem with the point's layouts.
        stationary: The matrix that stays in place.
        options: How its ops become actions.
        makespan_s: Simulated makespan in seconds.
        bound_s: What was known of it before simulating.
        memory_bytes: What the fullest rank allocates.
        pool_bytes: The largest pool of a rank.
        fraction_of_peak: Useful flop over what the devices could do in that time.
        steps_gap: Share of the step model's cost that better steps save at most; None where the policy
            proves nothing of the kind.
        ties: Stationary matrix and options of the other points that are this very schedule.
    """

    problem: Problem
    stationary: str
    options: Options
    makespan_s: float
    bound_s: float
    memory_bytes: int
    pool_bytes: int
    fraction_of_peak: float
    steps_gap: float | None
    ties: tuple[tuple[str, Options], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return layouts, choices and figures as plain values; of ties what they have in its place."""
        layouts = {x: getattr(self.problem, x) for x in "abc"}
        figures = ("makespan_s", "fraction_of_peak", "memory_bytes", "pool_bytes", "bound_s", "steps_gap")
        return {
            **layouts,
            "stationary": self.stationary,
            **self.options.to_dict(),
            **{name: getattr(self, name) for name in figures},
            "ties": [self._unlike(stationary, options) for stationary, options in self.ties],
        }

    def _unlike(self, stationary: str, options: Options) -> dict[str, Any]:
        """Return the stationary matrix of a tie, and its options that are not this point's."""
        own = self.options.to_dict()
        unlike = {name: value for name, value in options.to_dict().items() if value != own[name]}
        return {"stationary": stationary, **unlike}

    @property
    def how(self) -> dict[str, str]:
        """Its stationary matrix and its options as texts, each with those of the same schedule: ``A,B,C``.

        Ties that are not every combination of what they have are not told.
        """
        ways = ((self.stationary, self.options), *self.ties)
        same = [{"stationary": x, **options.to_dict()} for x, options in ways]
        values = {name: {x[name] for x in same} for name in same[0]}
        if prod(len(x) for x in values.values()) != len(same):
            values = {name: {value} for name, value in same[0].items()}
        return {name: ",".join(sorted(map(str, x))) for name, x in values.items()}

    def schedule(self, machine: Machine | str) -> Schedule:
        """Return its schedule, on the machine it was found for or on another."""
        return schedule(self.problem, machine, stationary=self.stationary, **self.options.to_dict())

    @property
    def layouts(self) -> str:
        """The layouts of A, B and C in words."""
        return f"A {self.problem.a}, B {self.problem.b}, C {self.problem.c}"

    @property
    def way(self) -> str:
        """Its stationary matrix and those options that are not the default, in words."""
        unlike = (x for x in known() if getattr(self.options, x.name) != x.default)
        said = (x.words(getattr(self.options, x.name)) for x in unlike)
        return ", ".join([f"stationary {self.stationary}", *(words for words in said if words)])

    def __repr__(self) -> str:
        return f"Choice({self})"

    def __str__(self) -> str:
        return (
            f"{self.layouts}, {self.way}: {self.makespan_s * 1e3:.4g} ms, "
            f"{self.fraction_of_peak:.1%} of peak, {format_bytes(self.memory_bytes)} per rank"
        )
