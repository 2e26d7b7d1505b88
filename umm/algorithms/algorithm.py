"""What an algorithm for C = AB is: its layouts, its options, and how it writes its actions."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isqrt
from pkgutil import resolve_name
from typing import Any, NamedTuple

from umm.errors import ProblemError, ScheduleError
from umm.files import shown
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.numbers import parse_whole, real_in, whole_in
from umm.program.problem import Problem
from umm.units import counted

# More in flight than this helps nobody, and each takes a slot or a lane of every rank.
MOST = 4096
SWITCH = {"on": True, "none": False}
"""How a switch is typed."""


@dataclass(frozen=True)
class Option:
    """What is to be known of a choice.

    Attributes:
        name: Its keyword and its column; a flag has dashes for underscores.
        default: Its value if nothing is said; it has the type of all its values: text, int, float or bool.
        help: What it sets, in one line.
        choices: The texts it may be, for a text; or as ``module:name`` where they are by name; none if
            the code that uses the option checks it.
        least: The least of its numbers.
        heading: Heading of a column of its values where the name is long; empty for the name.
        words: Returns what a value means in a list of words, empty if it goes without saying.
        searched: The values that a search tries where nothing is said; none if it keeps to the default.
        most: The most of its whole numbers.
    """

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] | str = ()
    least: int = 0
    heading: str = ""
    words: Callable[[Any], str] = str
    searched: tuple[Any, ...] = ()
    most: int = MOST

    @property
    def values(self) -> tuple[str, ...]:
        """The texts it may be; none for a number or a switch."""
        return tuple(_found(self.choices)) if isinstance(self.choices, str) else self.choices

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts it may be typed as; none for a number."""
        return tuple(SWITCH) if isinstance(self.default, bool) else self.values

    def typed(self, value: Any) -> str:
        """Return a value as it is typed: of a switch ``on`` or ``none``."""
        return ("on" if value else "none") if isinstance(value, bool) else str(value)

    def read(self, text: str, flag: str = "") -> Any:
        """Return the value that a text means; whether it is one of its choices is for :meth:`check`.

        Args:
            text: As it is typed.
            flag: What the option is called in a message; its name if empty.

        Raises:
            ScheduleError: if it is neither a number nor on or none, where it has to be.

        >>> Option("reuse", True, "Whether …").read("none"), Option("panel", 64, "Columns of …").read("128")
        (False, 128)
        """
        flag = flag or self.name
        if isinstance(self.default, bool):
            if text not in SWITCH:
                raise ScheduleError(f"{flag} {text[:40]!r} is unknown; choose from {', '.join(SWITCH)}")
            return SWITCH[text]
        if isinstance(self.default, int):
            number = whole_in(text, below=10**12)
            if number is None:
                raise ScheduleError(f"{flag}: {text[:40]!r} is not a whole number; write it like 2 or 1,2,4")
            return number
        if isinstance(self.default, float):
            real = real_in(text)
            if real is None:
                raise ScheduleError(f"{flag}={text[:40]}: {text[:40]!r} is not a number")
            return real
        return text

    def check(self, value: Any) -> None:
        """Refuse a value that means nothing.

        Raises:
            ScheduleError: says which ones do.
        """
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ScheduleError(f"{self.name} = {value!r} is not possible; it must be True or False")
        elif isinstance(self.default, int):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not self.least <= value <= self.most:
                raise ScheduleError(
                    f"{self.name} = {value!r} is not possible; "
                    f"it must be a whole number ≥ {self.least} and ≤ {self.most}"
                )
        elif isinstance(self.default, float):
            if not isinstance(value, int | float) or isinstance(value, bool) or not self.least <= value < inf:
                raise ScheduleError(
                    f"{self.name} = {value!r} is not possible; it must be a number ≥ {self.least}"
                )
        elif not self.choices:
            if not isinstance(value, str):
                raise ScheduleError(f"{self.name} = {value!r} is not possible; it must be a text")
        elif value not in self.values:
            raise ScheduleError(
                f"{self.name} {shown(value)} is unknown; choose from {', '.join(self.values)}"
            )


def check_names(options: Sequence[Option], given: Iterable[str], of: str) -> None:
    """Refuse an unknown option.

    Args:
        options: Those there are.
        given: Names.
        of: Whose they are, for the message.

    Raises:
        ScheduleError: names the nearest, or all.
    """
    names = [option.name for option in options]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            known = f"choose from {', '.join(names)}" if names else "it has none"
            hint = f"did you mean {close[0]!r}?" if close else known
            raise ScheduleError(f"{name!r} is not an option of {of}; {hint}")


def chosen(options: Sequence[Option], given: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Return a value for every option, its default where none is given.

    Raises:
        ScheduleError: for an unknown option, or a value that means nothing.
    """
    check_names(options, given, of)
    values = {option.name: option.default for option in options} | dict(given)
    for option in options:
        option.check(values[option.name])
    return values


@lru_cache
def _found(where: str) -> Iterable[str]:
    """Return what is at ``module:name``; imported only now, for it may import whose option this is."""
    found: Iterable[str] = resolve_name(where)
    return found


Mesh = tuple[int, ...]
"""Lengths of the axes of a mesh of ranks."""


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
    """What an algorithm moves for n×n matrices whose tiles are equal, as it is written and as it is computed.

    Attributes:
        text: As written.
        value: Returns it for n and the lengths of the mesh of ranks.
    """

    text: str
    value: Callable[..., float]


@dataclass(frozen=True)
class Algorithm:
    """A way to multiply on layouts of its own; docs/how-to/add-an-algorithm.md shows how one is added.

    Attributes:
        name: What it is called.
        summary: What it does, in one line.
        source: Where it is described.
        native: Returns the layouts it works on for a problem, with its options.
        write: Writes its actions.
        refuses: Returns why it cannot serve a problem with its options, apart from the number of ranks, and
            what would work; None if it can.
        options: What may be chosen beside the problem.
        takes: The numbers of ranks it takes, in words.
        mesh: Returns the mesh it lays over so many ranks, with its options; None if it cannot.
        words: Elements that reach a rank from others, on the native layouts; those of the rank with most.
        messages: Transfers that reach a rank from others, in the same form.
        published: What the source says of both.
        piped: Returns options with which its users overlap what moves with what is multiplied.
        sees: Returns a problem as it multiplies it, and options that follow from it: of block-cyclic matrices
            all blocks of a rank as one tile, and the size of the blocks.
        compares: Whether it is among a problem's peers; one that is for some layouts alone is not for others.
    """

    name: str
    summary: str
    source: str
    native: Callable[..., Native]
    write: Write
    refuses: Callable[..., str | None] = lambda problem, machine, **options: None
    options: tuple[Option, ...] = ()
    takes: str = "any p"
    mesh: Callable[..., Mesh | None] = lambda ranks, **options: (ranks,)
    words: Formula | None = None
    messages: Formula | None = None
    published: str = ""
    piped: Callable[[Problem], Sequence[Mapping[str, Any]]] = lambda problem: ()
    sees: Callable[[Problem], tuple[Problem, Mapping[str, Any]]] = lambda problem: (problem, {})
    compares: Callable[[Problem], bool] = lambda problem: True

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a value for every option.

        Raises:
            ScheduleError: for an unknown option, or a value that means nothing.
        """
        return chosen(self.options, given, self.name)

    def refusal(self, problem: Problem, machine: Machine, options: Mapping[str, Any]) -> str | None:
        """Return in one line why it cannot serve a problem, and what would work; None if it can."""
        if self.mesh(problem.p, **options) is None:
            return self._other_ranks(problem.p, machine, options)
        return self.refuses(problem, machine, **options)

    def check(self, problem: Problem, machine: Machine, options: Mapping[str, Any]) -> None:
        """Refuse a problem it cannot serve.

        Raises:
            ProblemError: says why, and what would work.
        """
        why = self.refusal(problem, machine, options)
        if why is not None:
            raise ProblemError(f"{self.name} cannot multiply this: {why}")

    def _other_ranks(self, ranks: int, machine: Machine, options: Mapping[str, Any]) -> str:
        """Return that so many ranks do not fit, and which numbers nearest to it do."""

        def nearest(numbers: range) -> int | None:
            return next((p for p in numbers if self.mesh(p, **options) is not None), None)

        most = machine.device_count * machine.ranks_per_device
        near = [str(p) for p in (nearest(range(ranks - 1, 0, -1)), nearest(range(ranks + 1, most + 1))) if p]
        said = [f"{x.name}={options[x.name]}" for x in self.options if options[x.name] != x.default]
        given = f" with {', '.join(said)}" if said else ""
        works = f"choose {' or '.join(near)}" if near else f"nor does another number up to {most}"
        return f"{counted(ranks, 'rank')} do not fit {self.takes}{given}; {works}"


def square_root(ranks: int) -> int | None:
    """Return q where ranks = q², else None."""
    root = isqrt(ranks)
    return root if root * root == ranks else None


def read_mesh(text: str, axes: int) -> Mesh:
    """Return the mesh that a text such as 2x3 means.

    Raises:
        ScheduleError: if it means none of so many axes.

    >>> read_mesh("2x3", 2)
    (2, 3)
    """
    sizes = text.split("x")
    if len(sizes) != axes or not all(re.fullmatch("[1-9][0-9]{0,5}", size) for size in sizes):
        raise ScheduleError(f"grid {text!r} is not possible; write it like {'x'.join('234'[:axes])}")
    return tuple(parse_whole(size) for size in sizes)
