"""The points of a space, numbered: those of one multiply after equal ones are merged."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from umm.algorithms.scheduling import schedule
from umm.arrays import Bools, Ints
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.multiply.options import COMPLETE, Options
from umm.program.problem import MATRICES, Problem, read_given
from umm.schedules.schedule import Schedule

Point = Any  # what identifies a point: a number, or its place, a number for each group of tensors
MOST_KEPT = 2**13  # problems that points keep, one for each three layouts


class MultiplyPoints:
    """The distinct points of one multiply, numbered by options, stationary matrix, A, B and C, in this order.

    Attributes:
        bare: The problem without layouts.
        options: Every combination of schedule options.
        stationary: Matrices that may stay in place.
    """

    def __init__(
        self,
        bare: Problem,
        written: tuple[list[Layout], ...],
        options: list[Options],
        stationary: Sequence[str],
        equal_replication: bool,
    ) -> None:
        self.bare, self.options, self.stationary = bare, options, tuple(stationary)
        # Several texts may mean one layout: the first stands for all, so that none is simulated twice.
        # The distinct layouts of A, B and C, each by the first text that means it.
        self.choices = tuple(tuple(dict.fromkeys(layouts)) for layouts in written)
        # Numbers of options, stationary matrices and layouts of A, B and C.
        self.shape = (len(options), len(stationary), *(len(layouts) for layouts in self.choices))
        rest = len(options) * len(stationary)
        # How many points there were before equal layouts were merged.
        self.written = rest * int(_allowed(equal_replication, written).sum())
        allowed = np.broadcast_to(_allowed(equal_replication, self.choices), self.shape)
        # The ending of a replicated C is no choice where C has one replica: keep one of those options.
        allowed = allowed & (_first(options).reshape(-1, 1, 1, 1, 1) | (_replicas(self.choices[2]) > 1))
        # The numbers of the points that the space's rules allow, ascending.
        self.allowed: Ints = np.nonzero(allowed.reshape(-1))[0]
        self._programs: dict[tuple[int, int, int], Problem] = {}
        if not len(self.allowed):
            raise InputError("no point of the space has equal replication factors; allow more of them")

    def __len__(self) -> int:
        return len(self.allowed)

    @property
    def count(self) -> int:
        """How many points there are."""
        return len(self.allowed)

    @property
    def ranks(self) -> int:
        """Ranks that share the work."""
        return self.bare.p

    @cached_property
    def share(self) -> float:
        """Bytes of (|A| + |B| + |C|) / p."""
        return self.bare.unreplicated_share

    @property
    def words(self) -> str:
        """The multiply in a line."""
        bare = self.bare
        return f"C = AB with m={bare.m}, n={bare.n}, k={bare.k}, {bare.types}, {bare.p} ranks"

    def to_dict(self) -> dict[str, Any]:
        """Return the multiply, without layouts, as plain values."""
        names = ("m", "n", "k", "dtype", "c_dtype", "given")
        return {name: getattr(self.bare, name) for name in names} | {"ranks": self.bare.p}

    def parts(self, point: int) -> tuple[Options, str, Layout, Layout, Layout]:
        """Return the options, stationary matrix and layouts of a point; one replica of C just is complete."""
        o, s, a, b, c = self._numbers(point)
        of_a, of_b, of_c = self.choices
        options = (self.options if of_c[c].replicas > 1 else self._complete)[o]
        return options, self.stationary[s], of_a[a], of_b[b], of_c[c]

    def _numbers(self, point: int) -> tuple[int, int, int, int, int]:
        """Return the numbers of its options, stationary matrix and layouts; NumPy takes ten times as long."""
        # Row-major in `shape`: C varies fastest, options slowest.
        _, stationary, a, b, c = self.shape
        point, of_c = divmod(int(point), c)
        point, of_b = divmod(point, b)
        point, of_a = divmod(point, a)
        return (*divmod(point, stationary), of_a, of_b, of_c)

    @cached_property
    def _complete(self) -> list[Options]:
        return [replace(options, final=COMPLETE) for options in self.options]

    def program(self, point: int) -> Problem:
        """Return the problem in the layouts of a point, one for all points with these."""
        layouts = self.layout_numbers(point)
        problem = self._programs.get(layouts)
        if problem is None:
            a, b, c = (texts[number] for texts, number in zip(self.choices, layouts, strict=True))
            problem = replace(self.bare, a=a, b=b, c=c)
            # Bounded, so that a space of very many layouts does not fill memory with problems.
            if len(self._programs) < MOST_KEPT:
                self._programs[layouts] = problem
        return problem

    def layouts(self, point: int) -> dict[str, str]:
        """Return the layouts of A, B and C at a point."""
        return {x: str(layout) for x, layout in zip(MATRICES, self.parts(point)[2:], strict=True)}

    def schedule(self, point: int, machine: Machine, moves: bool = True) -> Schedule:
        """Return the schedule of a point on a machine, with its moves of given operands or without."""
        options, stationary, *_ = self.parts(point)
        problem = self.program(point)
        problem = problem if moves or not problem.given else replace(problem, given="")
        return schedule(problem, machine, stationary=stationary, **options.to_dict())

    def listed(self, place: int, machine: Machine) -> Schedule:
        """Return the schedule of the point at a place among all, from 0."""
        return self.schedule(int(self.allowed[place]), machine)

    def asked(self, place: int) -> dict[str, Any]:
        """Return the identity of a run of the point at a place, by the columns of a store."""
        point = int(self.allowed[place])
        options, stationary, *layouts = self.parts(point)
        bare, optional = self._said
        return {
            **bare,
            **{x.lower(): str(layout) for x, layout in zip(MATRICES, layouts, strict=True)},
            "stationary": stationary,
            **optional,
            **options.to_dict(),
        }

    @cached_property
    def _said(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The values that all points share, by the columns of a store, without defaults."""
        values = self.bare.to_dict()
        # Later columns at their defaults stay out, so that the keys of older runs still hold.
        always, if_said = ("m", "n", "k", "dtype"), ("c_dtype", "given")
        return {x: values[x] for x in always}, {x: values[x] for x in if_said if x in values}

    @cached_property
    def given(self) -> dict[str, Layout]:
        """The layouts of A, B and C where they are given, those of them that are."""
        named = read_given(self.bare.given)
        return {x: self.bare.outside[i] for i, x in enumerate(MATRICES) if x.lower() in named}

    def layout_numbers(self, point: int) -> tuple[int, int, int]:
        """Return which layouts of A, B and C a point has."""
        return self._numbers(point)[2:]

    def text(self, point: int) -> tuple[Any, ...]:
        """Return layouts, stationary matrix and the number of its options; a ranking's last tie-break."""
        _, stationary, a, b, c = self.parts(point)
        return (str(a), str(b), str(c), stationary, self._numbers(point)[0])


def _allowed(equal: bool, layouts: Sequence[Sequence[Layout]]) -> Bools:
    """Return which combinations of layouts of A, B and C are allowed, all or those of equal replication."""
    a, b, c = map(_replicas, layouts)
    if not equal:
        return np.ones((len(a), len(b), len(c)), dtype=bool)
    alike: Bools = (a[:, None, None] == b[:, None]) & (b[:, None] == c)
    return alike


def _replicas(layouts: Sequence[Layout]) -> Ints:
    return np.array([layout.replicas for layout in layouts])


def _first(options: Sequence[Options]) -> Bools:
    """Return which options differ from all before in more than the ending of a replicated C."""
    rest = [replace(x, final=options[0].final) for x in options]
    return np.array([x not in rest[:number] for number, x in enumerate(rest)])
