"""What an algorithm for C = AB is: its own layouts, what it can serve, and how it writes its actions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from umm.algorithms.option import Option, chosen
from umm.errors import ProblemError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.builder import Builder


class Names(NamedTuple):
    """Names of the tensors that an algorithm multiplies, in the layouts it asked for."""

    a: str
    b: str
    c: str


class Native(NamedTuple):
    """The layouts of A, B and C that an algorithm works on."""

    a: Layout
    b: Layout
    c: Layout


class Write(Protocol):
    """Writes an algorithm's actions.

    A and B lie complete in every replica of their native layouts; C is zero, and every replica of it must
    hold the product at the end.
    """

    def __call__(self, build: Builder, names: Names, **options: Any) -> None:
        """Write the actions of one multiply."""


@dataclass(frozen=True)
class Algorithm:
    """A way to multiply on layouts of its own; see :mod:`umm.algorithms.registry` for how one is added.

    Attributes:
        name: What it is called.
        summary: What it does, in one line.
        source: Where it is described.
        native: Returns the layouts it works on for a problem, with its options.
        write: Writes its actions.
        refuses: Returns why it cannot serve a problem with its options, and what would work; None if it can.
        options: What may be chosen beside the problem.
    """

    name: str
    summary: str
    source: str
    native: Callable[..., Native]
    write: Write
    refuses: Callable[..., str | None] = lambda problem, machine, **options: None
    options: tuple[Option, ...] = ()

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every option.

        Raises:
            ScheduleError: for an option that there is none of, or a value that means nothing.
        """
        return chosen(self.options, given, self.name)

    def check(self, problem: Problem, machine: Machine, options: Mapping[str, Any]) -> None:
        """Refuse a problem it cannot serve.

        Raises:
            ProblemError: says why, and what would work.
        """
        why = self.refuses(problem, machine, **options)
        if why is not None:
            raise ProblemError(f"{self.name} cannot multiply this: {why}")


def square_root(ranks: int) -> int | None:
    """Return q where ranks = q², else None."""
    root = round(ranks**0.5)
    return root if root * root == ranks else None
