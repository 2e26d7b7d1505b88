"""The design space: the axes people ask about, and its points after equal ones are merged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from umm.algorithms.registry import schedule
from umm.algorithms.universal.options import Options
from umm.arrays import Bools, Ints
from umm.errors import InputError
from umm.layouts.layout import ORDERS, Layout, square_grid
from umm.machines import Machine
from umm.problem import MATRICES, Problem
from umm.schedules.table import Schedule

Texts = str | Sequence[str] | None
ALL = "all"


@dataclass(frozen=True)
class Space:
    """Every layout, replication factor, stationary matrix and schedule option that may be chosen.

    The defaults are the space of the paper: {row, col, 2d}³ × replication³ × {A, B, C}.

    Attributes:
        m: Rows of A and C.
        n: Columns of B and C.
        k: Columns of A, rows of B.
        dtype: Type of A and B.
        ranks: Processes that share the work; None until a machine says how many it has.
        partitions: Partitions of every operand without a replication factor: ``row``, ``2d``,
            ``2d:3x4``, ``cyclic:256x128``, ``row:balanced``, … One that names a process grid is kept
            for the replication factors whose replicas have that many ranks.
        replication: Replication factors; None for all divisors of the ranks.
        orders: Replica orders: ``blocked``, ``interleaved``.
        grids: Process grids of ``2d`` and ``cyclic`` without one: ``square`` or ``all``.
        a: Fixes A to a layout or to some: ``col``, ``row@2,col@2`` or a list. ``all``, alone or among
            them, stands for every partition and factor; so does None.
        b: The same for B.
        c: The same for C.
        stationary: Matrices that may stay in place.
        equal_replication: Only points whose three operands have the same replication factor.
        fully_replicated: Whether an operand may have as many replicas as there are ranks.
        policy: Schedule policies; this and the rest are values of the universal ``Options``,
            one or several.

    Source: Brock & Golin (2025), section 5.2.

    >>> points = Space(m=1024, n=49152, k=12288, ranks=12).points()
    >>> points.written, len(points)
    (17496, 8232)
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    ranks: int | None = None
    partitions: Sequence[str] = ("row", "col", "2d")
    replication: Sequence[int] | None = None
    orders: Sequence[str] = ("blocked",)
    grids: str = "square"
    a: Texts = None
    b: Texts = None
    c: Texts = None
    stationary: Sequence[str] = MATRICES
    equal_replication: bool = False
    fully_replicated: bool = True
    policy: str | Sequence[str] = "direct"
    prefetch: int | Sequence[int] = 2
    max_gemms: int | Sequence[int] = 2
    max_accumulates: int | Sequence[int] = 2
    offset: str | Sequence[str] = "index"
    granularity: str | Sequence[str] = "tile"
    reuse: bool | Sequence[bool] = True
    final: str | Sequence[str] = "reduce"

    def __post_init__(self) -> None:
        """Turn single values into axes and refuse what names nothing."""
        for name in ("partitions", "orders", "stationary", *(f.name for f in fields(Options))):
            object.__setattr__(self, name, _axis(getattr(self, name)))
        if self.replication is not None:
            object.__setattr__(self, "replication", _axis(self.replication))
        for name in "abc":
            given = getattr(self, name)
            object.__setattr__(self, name, (ALL,) if given is None else _axis(given))
        if self.grids not in ("square", "all"):
            raise InputError(f"grids {self.grids!r} is unknown; choose from square, all")
        _refuse_unknown("stationary matrix", self.stationary, MATRICES)
        _refuse_unknown("replica order", self.orders, ORDERS)

    def on(self, ranks: int) -> "Space":
        """Return the space on this many ranks if it does not say how many itself."""
        return self if self.ranks is not None else replace(self, ranks=ranks)

    @property
    def options(self) -> list[Options]:
        """Every combination of schedule options."""
        names = [f.name for f in fields(Options)]
        return [
            Options(**dict(zip(names, values, strict=True)))
            for values in product(*(getattr(self, name) for name in names))
        ]

    @property
    def bare(self) -> Problem:
        """The problem without its layouts: sizes, types and ranks."""
        return Problem(m=self.m, n=self.n, k=self.k, dtype=self.dtype, ranks=self.ranks)

    def points(self) -> "Points":
        """Return the points, equal ones merged.

        Raises:
            InputError: if the space does not say on how many ranks, or nothing is left in it.
            LayoutError: for a layout that does not exist.
        """
        bare = self.bare
        layouts = [self._layouts(x, bare.shape(x), bare.p) for x in MATRICES]
        return Points(self, bare, tuple(layouts), self.options)

    def _layouts(self, matrix: str, shape: tuple[int, int], ranks: int) -> list[Layout]:
        """Return the layouts of an operand as written, equal ones not yet merged."""
        texts: list[str] = []
        for text in getattr(self, matrix.lower()):
            texts += self._texts(ranks) if text == ALL else [text]
        found = [Layout.parse(text, shape, ranks) for text in texts]
        if not self.fully_replicated and ranks > 1:
            found = [layout for layout in found if layout.replicas < ranks]
        if not found:
            raise InputError(f"no layout is left for {matrix}; allow more partitions or replication factors")
        return found

    def _texts(self, ranks: int) -> Iterable[str]:
        factors = self.replication or [c for c in range(1, ranks + 1) if ranks % c == 0]
        for factor, partition, order in product(factors, self.partitions, self.orders):
            if factor == 1 and order != self.orders[0]:
                continue  # one replica has no order
            suffix = "" if factor == 1 else f"@{factor}" + (f":{order}" if order != "blocked" else "")
            if ranks % factor:
                yield partition + f"@{factor}"  # parsing it says which factors there are
                continue
            for written in _with_grid(partition, ranks // factor, self.grids):
                yield written + suffix


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
        self.allowed: Ints = np.nonzero(allowed.reshape(-1))[0]
        if not len(self.allowed):
            raise InputError("no point of the space has equal replication factors; allow more of them")

    def __len__(self) -> int:
        return len(self.allowed)

    def parts(self, point: int) -> tuple[Options, str, Layout, Layout, Layout]:
        """Return the options, stationary matrix and layouts of a point."""
        o, s, a, b, c = (int(i) for i in np.unravel_index(point, self.shape))
        of_a, of_b, of_c = self.layouts
        return self.options[o], self.space.stationary[s], of_a[a], of_b[b], of_c[c]

    def problem(self, point: int) -> Problem:
        """Return the problem of a point."""
        _, _, a, b, c = self.parts(point)
        return replace(self.bare, a=a, b=b, c=c)

    def schedule(self, point: int, machine: Machine) -> Schedule:
        """Return the schedule of a point on a machine."""
        options, stationary, *_ = self.parts(point)
        return schedule(self.problem(point), machine, stationary=stationary, **options.to_dict())

    def text(self, point: int) -> tuple[Any, ...]:
        """Return what a point is called; the last tie-break of a ranking."""
        options, stationary, a, b, c = self.parts(point)
        return (str(a), str(b), str(c), stationary, *options.to_dict().values())

    @cached_property
    def bare_share(self) -> float:
        """Bytes of (|A| + |B| + |C|) / p."""
        return self.bare.unreplicated_share


def _allowed(space: Space, layouts: Sequence[Sequence[Layout]]) -> Bools:
    """Return which combinations of layouts of A, B and C the rules allow."""
    a, b, c = (np.array([layout.replicas for layout in of]) for of in layouts)
    if not space.equal_replication:
        return np.ones((len(a), len(b), len(c)), dtype=bool)
    equal: Bools = (a[:, None, None] == b[:, None]) & (b[:, None] == c)
    return equal


def _axis(value: Any) -> tuple[Any, ...]:
    """Return an axis: one value, a comma list or a sequence of values, each once."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    return tuple(dict.fromkeys(values))


def _refuse_unknown(noun: str, given: Sequence[str], known: Sequence[str]) -> None:
    for value in given:
        if value not in known:
            raise InputError(f"{noun} {value!r} is unknown; choose from {', '.join(known)}")


def _with_grid(partition: str, places: int, grids: str) -> Iterable[str]:
    """Yield a partition with the process grids it may have on the places of a replica."""
    name, *rest = partition.split(":")
    balanced = rest[-1:] == ["balanced"]
    inner = rest[: len(rest) - balanced]
    tail = ":balanced" if balanced else ""
    given = len(inner) == {"2d": 1, "cyclic": 2, "edges": 2}.get(name, -1)
    if given:
        rows, _, cols = inner[-1].partition("x")
        if not (rows.isdecimal() and cols.isdecimal()) or int(rows) * int(cols) == places:
            yield partition
        return
    if name not in ("2d", "cyclic"):
        yield partition
        return
    if grids == "square" and name == "2d":
        yield partition
        return
    square = (square_grid(places),)
    pairs = (
        square if grids == "square" else [(r, places // r) for r in range(1, places + 1) if places % r == 0]
    )
    for rows_, cols_ in pairs:
        yield ":".join([name, *inner, f"{rows_}x{cols_}"]) + tail
