"""From a request to a schedule."""

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from umm.algorithms.scheduling import schedule as build
from umm.cli.flags.chain import CHAIN, LaidOut
from umm.cli.flags.declared import names_of
from umm.cli.flags.options import OfProblem
from umm.cli.flags.schedule import SCHEDULE, Scheduled
from umm.machines import Machine
from umm.program.chain import Chain
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule

PROBLEM = [x for x in names_of(OfProblem) if x != "config"]
"""Flags that describe one multiply, and where it runs."""


@dataclass(frozen=True)
class Request:
    """A program and how it is scheduled."""

    problem: Problem | Chain  # the problem or the chain, with its number of ranks
    machine: Machine
    choices: dict[str, Any]  # the keyword arguments of `umm.schedule`
    by_library: bool = False  # whether --movement library was given: what moves otherwise is named

    def on(self, machine: Machine, **choices: Any) -> Schedule:
        """Return the schedule of the problem on another machine, or with some other choices."""
        # A schedule with a remark on tensors that --movement library leaves to other ways.
        schedule = build(self.problem, machine, **(self.choices | choices))
        if not self.by_library:
            return schedule
        from umm.plans.movement.choice import without_library
        from umm.plans.multiply.options import REMARK

        remark = without_library(schedule, machine)
        return replace(schedule, options={**schedule.options, REMARK: remark}) if remark else schedule

    @property
    def schedule(self) -> Schedule:
        """The schedule that was asked for."""
        return self.on(self.machine)


class ToSchedule(LaidOut, Scheduled, heading="Schedule"):
    """A multiply or a chain in layouts, and how it is scheduled."""

    def request(self, scale: Fraction | None = None) -> Request:
        """Return the program and how it is scheduled.

        InputError if a dimension is missing, or what is asked cannot be.

        Args:
            scale: Factor of every dimension.
        """
        machine, chain, choices = self.hardware, self.laid_out(scale), self.choices_asked
        if chain is not None and "stationary" in choices:
            from umm.program.systems import choices_left

            typed = {"stationary": self.stationary, **self.how}
            choices |= choices_left(chain, typed, self.scheme)
        problem = self.problem if chain is None else chain
        if scale is not None and chain is None:
            problem = self.problem.at_scale(float(scale))
        return Request(problem, machine, choices, self.how["movement"] == "library")

    def saved_or_asked(
        self, path: Path | None, scale: Fraction | None = None
    ) -> tuple[Schedule, Request | None]:
        """Return the schedule of a file, or the one asked for together with the request.

        InputError if a file is given and flags that it already decides, or either cannot be.

        Args:
            scale: Factor of every dimension.
        """
        if path is None:
            request = self.request(scale)
            return request.schedule, request
        decided = (*PROBLEM, *CHAIN, *SCHEDULE, "scale")
        self.refuse(decided, f"the schedule in {path} already decides {{}}; leave out one or the other")
        from umm.schedules.files import load

        return load(path), None
