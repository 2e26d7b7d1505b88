"""What a program is emitted for: a multiply, its layouts, and how umm would schedule it."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import indent, wrap
from typing import Any

from umm.checks import TOLERANCE
from umm.layouts.layout import Layout
from umm.program.problem import MATRICES, Problem

WIDTH = 88


@dataclass(frozen=True)
class Described:
    """A multiply as a program needs it.

    Attributes:
        problem: Sizes, type and layouts.
        machine: Name of the machine it was chosen for, or its file.
        stationary: The matrix that stays in place.
        options: How umm makes the schedule, as keywords of ``umm.schedule``; defaults left out.
        note: What is known of it, in a line or several.
    """

    problem: Problem
    machine: str
    stationary: str
    options: Mapping[str, Any]
    note: str

    def filled(self, template: str, **more: object) -> str:
        """Return a template with what is in ``<angles>`` filled in: sizes, types, layouts, and more.

        What a check allows goes by the operands' type: in it frameworks sum the parts of C.
        """
        problem = self.problem
        texts: dict[str, object] = {
            **{x: getattr(problem, x) for x in ("m", "n", "k", "dtype", "c_dtype", "a", "b", "c")},
            "ranks": problem.p,
            "tolerance": TOLERANCE[problem.dtype],
            "stationary": self.stationary,
            "what": self.what,
            **more,
        }
        for name, text in texts.items():
            template = template.replace(f"<{name}>", str(text))
        return template

    @property
    def stays(self) -> Layout:
        """The layout of the matrix that stays in place while ranks multiply."""
        return self.problem.layout(self.stationary)

    @property
    def what(self) -> str:
        """The first lines of a program: what it multiplies, and what is known of it."""
        problem = self.problem
        outside = dict(zip(MATRICES, problem.outside, strict=True))
        layouts = ", ".join(f"{x} {outside[x]}" for x in MATRICES)
        moved = outside[self.stationary] != self.stays
        place = f"{self.stationary} {f'is brought to {self.stays} and ' if moved else ''}stays in place."
        said = [
            f"C = AB on {problem.p} ranks: m={problem.m}, n={problem.n}, k={problem.k}, {problem.dtype}.",
            "",
            *wrap(f"{layouts}; {place} {self.note}", WIDTH),
        ]
        return "\n".join(said)


def listed(values: object, name: str) -> str:
    """Return an assignment of a list, a line for each of its members where it is long.

    >>> listed([1, 2], "RANKS")
    'RANKS = [1, 2]'
    """
    line = f"{name} = {values!r}"
    if len(line) <= WIDTH + 12 or not isinstance(values, list):
        return line
    return f"{name} = [\n" + "".join(indent(f"{value!r},\n", "    ") for value in values) + "]"
