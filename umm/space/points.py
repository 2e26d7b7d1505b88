"""The design space: the axes people ask about, and its points after equal ones are merged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Signature, signature
from typing import Any

import numpy as np

from umm.algorithms import registry
from umm.algorithms.universal.options import COMPLETE, Options, showing_options
from umm.arrays import Bools, Ints
from umm.chains import Outline
from umm.dtypes import canonical
from umm.errors import InputError
from umm.files import shown
from umm.layouts.layout import Layout
from umm.layouts.places import ORDERS, replication_factors
from umm.machines import Machine
from umm.problem import MATRICES, Problem, given_text, read_given
from umm.schedules.schedule import Schedule
from umm.space.chain_space import ChainSpace
from umm.space.given import schedule
from umm.space.layouts import written_layouts
from umm.space.options import Axes, axis

Texts = str | Sequence[str]
ALL = "all"


@dataclass(frozen=True, init=False)
class Space:
    """Every layout, replication factor, stationary matrix and schedule option that may be chosen.

    The defaults are the space of the paper: {row, col, 2d}³ × replication³ × {A, B, C}. A search tries more
    where nothing is said, see :attr:`searched`.

    Attributes:
        m: Rows of A and C.
        n: Columns of B and C.
        k: Columns of A, rows of B.
        dtype: Type of A and B.
        ranks: Processes that share the work; None until a machine says how many it has.
        c_dtype: Type of C; for half-precision inputs float32 unless given.
        given: Where A and B lie before and C shall lie after, as in ``Problem``; bringing them is part of
            every point. What is not named lies in each point's layout already.
        partitions: Partitions of every operand without a replication factor: ``row``, ``2d``,
            ``2d:3x4``, ``cyclic:256x128``, ``row:balanced``, ``2d:colmajor``, … One that names a process
            grid is kept for the replication factors whose replicas have that many ranks.
        replication: Replication factors; None for all divisors of the ranks.
        orders: Replica orders: ``blocked``, ``interleaved``.
        grids: Process grids of ``2d`` and ``cyclic`` without one: ``square`` or ``all``; None for square,
            and all in a search.
        a: Layouts of A: given as ``col``, ``row@2,col@2`` or a list. ``all``, alone or among them, stands
            for every partition and factor; so does None.
        b: The same for B.
        c: The same for C.
        stationary: Matrices that may stay in place.
        equal_replication: Only points whose three operands have the same replication factor.
        fully_replicated: Whether an operand may have as many replicas as there are ranks.
        axes: The values of every choice of a schedule.

    Source: Brock & Golin (2025), section 5.2.

    >>> points = Space(m=1024, n=49152, k=12288, ranks=12).points()
    >>> points.written, len(points)
    (17496, 8232)
    """

    m: int
    n: int
    k: int
    dtype: str
    ranks: int | None
    c_dtype: str
    given: str
    partitions: tuple[str, ...]
    replication: tuple[int, ...] | None
    orders: tuple[str, ...]
    grids: str | None
    a: tuple[str, ...]
    b: tuple[str, ...]
    c: tuple[str, ...]
    stationary: tuple[str, ...]
    equal_replication: bool
    fully_replicated: bool
    axes: Axes

    def __new__(cls, *args: Any, chain: Outline | None = None, **named: Any) -> "Space":
        """Return the space of a chain if one is given: ``Space(chain=umm.chain("mlp", …), ranks=8)``."""
        if chain is None:
            return super().__new__(cls)
        return ChainSpace(chain, *args, **named)  # type: ignore[return-value]

    @showing_options
    def __init__(
        self,
        m: int,
        n: int,
        k: int,
        dtype: str = "float32",
        ranks: int | None = None,
        *,
        c_dtype: str = "",
        given: str | Mapping[str, str | Layout] = "",
        partitions: Texts = ("row", "col", "2d"),
        replication: int | Sequence[int] | None = None,
        orders: Texts = ("blocked",),
        grids: str | None = None,
        a: Texts | None = None,
        b: Texts | None = None,
        c: Texts | None = None,
        stationary: Texts = MATRICES,
        equal_replication: bool = False,
        fully_replicated: bool = True,
        axes: Axes | None = None,
        **options: Any,
    ) -> None:
        """Turn single values into axes and refuse what names nothing.

        The arguments are the attributes. Each field of :class:`umm.algorithms.universal.options.Options` is
        one too, with one value or several: ``prefetch=(1, 2)``.
        """
        vars(self).update(
            m=m, n=n, k=k, dtype=canonical(dtype), ranks=ranks, grids=grids,
            c_dtype=canonical(c_dtype), given=given_text(read_given(given)),
            partitions=axis(partitions), orders=axis(orders), stationary=axis(stationary),
            replication=None if replication is None else axis(replication),
            a=axis(ALL if a is None else a), b=axis(ALL if b is None else b), c=axis(ALL if c is None else c),
            equal_replication=equal_replication, fully_replicated=fully_replicated,
            axes=Axes.of(options, axes),
        )  # fmt: skip
        if grids not in ("square", "all", None):
            raise InputError(f"grids {shown(grids)} is unknown; choose from square, all")
        _refuse_unknown("stationary matrix", self.stationary, MATRICES)
        _refuse_unknown("replica order", self.orders, ORDERS)

    # What help shows; Python would take it from __new__.
    __signature__ = Signature(list(signature(__init__).parameters.values())[1:])

    def on(self, ranks: int) -> "Space":
        """Return the space on this many ranks if it does not say how many itself."""
        return self if self.ranks is not None else replace(self, ranks=ranks)

    @property
    def searched(self) -> "Space":
        """The space a search looks at.

        Where nothing was said it has all process grids, and all values of the schedule options that a search
        tries: ``granularity``, ``final``.
        """
        return replace(self, grids=self.grids or "all", axes=self.axes.searched)

    @property
    def bare(self) -> Problem:
        """The problem without its layouts: sizes, types and ranks."""
        return Problem(
            m=self.m, n=self.n, k=self.k, dtype=self.dtype, ranks=self.ranks, c_dtype=self.c_dtype,
            given=self.given,
        )  # fmt: skip

    def points(self) -> "Points":
        """Return the points, equal ones merged.

        Raises:
            InputError: if the space does not say on how many ranks, or nothing is left in it.
            LayoutError: for a layout that does not exist.
        """
        bare = self.bare
        layouts = [self._layouts(x, bare.shape(x), bare.p) for x in MATRICES]
        return Points(self, bare, tuple(layouts), self.axes.combinations)

    def _layouts(self, matrix: str, shape: tuple[int, int], ranks: int) -> list[Layout]:
        """Return the layouts of an operand as written, equal ones not yet merged."""
        texts: list[str] = []
        for text in getattr(self, matrix.lower()):
            texts += self._all(ranks) if text == ALL else [text]
        found = [Layout.parse(text, shape, ranks) for text in texts]
        if not self.fully_replicated and ranks > 1:
            found = [layout for layout in found if layout.replicas < ranks]
        if not found:
            raise InputError(f"no layout is left for {matrix}; allow more partitions or replication factors")
        return found

    def _all(self, ranks: int) -> Iterable[str]:
        factors = self.replication or replication_factors(ranks)
        return written_layouts(ranks, self.partitions, factors, self.orders, self.grids or "square")


class Points:
    """The distinct points of a space, numbered by options, stationary matrix, A, B and C, in this order.

    Attributes:
        space: Where they come from.
        bare: The problem without layouts.
        layouts: The distinct layouts of A, B and C, each by the first text that means it.
        options: Every combination of schedule options.
        written: How many points there were before equal layouts were merged.
        shape: Numbers of options, stationary matrices and layouts of A, B and C.
        allowed: The numbers of the points that the space's rules allow, ascending.
    """

    def __init__(
        self, space: Space, bare: Problem, written: tuple[list[Layout], ...], options: list[Options]
    ) -> None:
        self.space = space
        self.bare = bare
        self.options = options
        self.layouts = tuple(tuple(dict.fromkeys(layouts)) for layouts in written)
        self.shape = (len(options), len(space.stationary), *(len(layouts) for layouts in self.layouts))
        rest = len(options) * len(space.stationary)
        self.written = rest * int(_allowed(space, written).sum())
        allowed = np.broadcast_to(_allowed(space, self.layouts), self.shape)
        allowed = allowed & (_first(options).reshape(-1, 1, 1, 1, 1) | (_replicas(self.layouts[2]) > 1))
        self.allowed: Ints = np.nonzero(allowed.reshape(-1))[0]
        if not len(self.allowed):
            raise InputError("no point of the space has equal replication factors; allow more of them")

    def __len__(self) -> int:
        return len(self.allowed)

    def parts(self, point: int) -> tuple[Options, str, Layout, Layout, Layout]:
        """Return the options, stationary matrix and layouts of a point; one replica of C just is complete."""
        o, s, a, b, c = (int(i) for i in np.unravel_index(point, self.shape))
        of_a, of_b, of_c = self.layouts
        options = self.options[o] if of_c[c].replicas > 1 else replace(self.options[o], final=COMPLETE)
        return options, self.space.stationary[s], of_a[a], of_b[b], of_c[c]

    def problem(self, point: int) -> Problem:
        """Return the problem of a point."""
        _, _, a, b, c = self.parts(point)
        return replace(self.bare, a=a, b=b, c=c)

    def schedule(self, point: int, machine: Machine) -> Schedule:
        """Return the schedule of a point on a machine, with what brings operands that are given elsewhere."""
        options, stationary, *_ = self.parts(point)
        return schedule(self.problem(point), machine, stationary=stationary, **options.to_dict())

    def multiply(self, point: int, machine: Machine) -> Schedule:
        """Return the schedule of a point on a machine from where all operands lie as it wants them."""
        options, stationary, *_ = self.parts(point)
        problem = replace(self.problem(point), given="")
        return registry.schedule(problem, machine, stationary=stationary, **options.to_dict())

    @cached_property
    def given(self) -> dict[str, Layout]:
        """The layouts of A, B and C where they are given, those of them that are."""
        named = read_given(self.bare.given)
        return {x: self.bare.outside[i] for i, x in enumerate(MATRICES) if x.lower() in named}

    def layout_numbers(self, point: int) -> tuple[int, int, int]:
        """Return which layouts of A, B and C a point has."""
        _, _, a, b, c = np.unravel_index(point, self.shape)
        return int(a), int(b), int(c)

    def text(self, point: int) -> tuple[Any, ...]:
        """Return layouts, stationary matrix and the number of its options; a ranking's last tie-break."""
        _, stationary, a, b, c = self.parts(point)
        return (str(a), str(b), str(c), stationary, int(np.unravel_index(point, self.shape)[0]))

    @cached_property
    def bare_share(self) -> float:
        """Bytes of (|A| + |B| + |C|) / p."""
        return self.bare.unreplicated_share


def _allowed(space: Space, layouts: Sequence[Sequence[Layout]]) -> Bools:
    """Return which combinations of layouts of A, B and C the rules allow."""
    a, b, c = map(_replicas, layouts)
    if not space.equal_replication:
        return np.ones((len(a), len(b), len(c)), dtype=bool)
    equal: Bools = (a[:, None, None] == b[:, None]) & (b[:, None] == c)
    return equal


def _replicas(layouts: Sequence[Layout]) -> Ints:
    return np.array([layout.replicas for layout in layouts])


def _first(options: Sequence[Options]) -> Bools:
    """Return which options differ from all before in more than what becomes of a replicated C."""
    rest = [replace(x, final=options[0].final) for x in options]
    return np.array([x not in rest[:number] for number, x in enumerate(rest)])


def _refuse_unknown(noun: str, given: Sequence[str], known: Sequence[str]) -> None:
    for value in given:
        if value not in known:
            raise InputError(f"{noun} {shown(value)} is unknown; choose from {', '.join(known)}")
