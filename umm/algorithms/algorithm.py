"""An algorithm for C = AB: its layouts, its options, and the writer of its actions."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

from umm.errors import ProblemError, ScheduleError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.numbers import parse_whole
from umm.plans.option import Option, chosen
from umm.program.problem import Problem
from umm.units import counted

Mesh = tuple[int, ...]  # lengths of the axes of a mesh of ranks


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


Write = Callable[..., None]
"""Writes an algorithm's actions, given a Builder, Names and a value of each option as a keyword.

A and B lie complete in every replica of their native layouts; C is zero, and every replica of it must hold
the product at the end.
"""


class Formula(NamedTuple):
    """Elements moved by an algorithm for n×n matrices with equal tiles, as text and as a function."""

    text: str  # as written
    value: Callable[..., float]  # returns it for n and the lengths of the mesh of ranks


@dataclass(frozen=True)
class Algorithm:
    """A way to multiply on layouts of its own; docs/how-to/add-an-algorithm.md shows how one is added."""

    name: str  # what it is called
    summary: str  # what it does, in one line
    source: str  # where it is described
    native: Callable[..., Native]  # returns the layouts it works on for a problem, with its options
    write: Write  # writes its actions
    # Returns why it cannot serve a problem with its options, apart from the number of ranks, and what would
    # work; None if it can.
    refuses: Callable[..., str | None] = lambda problem, machine, **options: None
    options: tuple[Option, ...] = ()  # what may be chosen beside the problem
    takes: str = "any p"  # the numbers of ranks it takes, in words
    # Returns the mesh it lays over so many ranks, with its options; None if it cannot.
    mesh: Callable[..., Mesh | None] = lambda ranks, **options: (ranks,)
    # Elements that reach a rank from others, on the native layouts; those of the rank with most.
    words: Formula | None = None
    messages: Formula | None = None  # transfers that reach a rank from others, in the same form
    published: str = ""  # what the source says of both
    # Returns options with which its users overlap what moves with what is multiplied.
    piped: Callable[[Problem], Sequence[Mapping[str, Any]]] = lambda problem: ()
    # Returns a problem as it multiplies it, and options that follow from it: of block-cyclic matrices all
    # blocks of a rank as one tile, and the size of the blocks.
    sees: Callable[[Problem], tuple[Problem, Mapping[str, Any]]] = lambda problem: (problem, {})
    # Whether it is among a problem's peers; one that is for some layouts alone is not for others.
    compares: Callable[[Problem], bool] = lambda problem: True

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every option.

        ScheduleError for an unknown option, or a value that means nothing.
        """
        return chosen(self.options, given, self.name)

    def refusal(self, problem: Problem, machine: Machine, options: Mapping[str, Any]) -> str | None:
        """Return in one line why it cannot serve a problem, and a remedy; None if it can."""
        # The number of ranks first: `refuses` may assume that a mesh exists.
        if self.mesh(problem.p, **options) is not None:
            return self.refuses(problem, machine, **options)

        def nearest(numbers: range) -> int | None:
            return next((p for p in numbers if self.mesh(p, **options) is not None), None)

        # Look downwards first, then up to what the machine has: the error offers only sizes that would run.
        ranks, most = problem.p, machine.device_count * machine.ranks_per_device
        near = [str(p) for p in (nearest(range(ranks - 1, 0, -1)), nearest(range(ranks + 1, most + 1))) if p]
        # An option that differs from its default may be why the ranks do not fit, so the error names it.
        changed = [f"{x.name}={options[x.name]}" for x in self.options if options[x.name] != x.default]
        given = f" with {', '.join(changed)}" if changed else ""
        works = f"choose {' or '.join(near)}" if near else f"nor does another number up to {most}"
        return f"{counted(ranks, 'rank')} do not fit {self.takes}{given}; {works}"

    def check(self, problem: Problem, machine: Machine, options: Mapping[str, Any]) -> None:
        """Refuse a problem it cannot serve; ProblemError gives the reason and a remedy."""
        why = self.refusal(problem, machine, options)
        if why is not None:
            raise ProblemError(f"{self.name} cannot multiply this: {why}")


def square_root(ranks: int) -> int | None:
    """Return q where ranks = q², else None."""
    # isqrt is exact; the square root as a float would misjudge large numbers.
    root = isqrt(ranks)
    return root if root * root == ranks else None


def read_mesh(text: str, axes: int) -> Mesh:
    """Return the mesh that a text such as 2x3 means; ScheduleError if it means none of so many axes.

    >>> read_mesh("2x3", 2)
    (2, 3)
    """
    sizes = text.split("x")
    if len(sizes) != axes or not all(re.fullmatch("[1-9][0-9]{0,5}", size) for size in sizes):
        raise ScheduleError(f"grid {text!r} is not possible; write it like {'x'.join('234'[:axes])}")
    return tuple(parse_whole(size) for size in sizes)
