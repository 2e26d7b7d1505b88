"""The design space of a program: layouts of its tensors, stationary matrices, and choices of its schedule."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from umm.dtypes import canonical
from umm.errors import InputError, expect
from umm.files import shown, whole_number
from umm.layouts.layout import Layout
from umm.layouts.places import ORDERS, replication_factors
from umm.machines import Machine
from umm.numbers import as_int, yes_or_no
from umm.plans.movement.choice import AHEAD, FLAT, node_count
from umm.plans.multiply.options import Options, known, showing_options
from umm.program import Outline
from umm.program.layers import repeated
from umm.program.problem import MATRICES, Problem, given_text, read_given
from umm.program.schemes import OVER_NODES, mesh_choices, text_of
from umm.space.assignments import Assignments
from umm.space.axes import Axes, axis, written_layouts
from umm.space.points import MultiplyPoints

Texts = str | Sequence[str]
ALL = "all"
AXES = ("named", "partitions", "replication", "orders", "stationary")  # attributes with several values
STATIONARY = ("auto", "best", *MATRICES)
"""What the multiplies of a program may keep in place: their largest matrix, or the best one."""
_OF_ONE_MULTIPLY: dict[str, Any] = {
    "partitions": ("row", "col", "2d"), "replication": None, "orders": ("blocked",), "grids": None,
    "equal_replication": False, "fully_replicated": True,
}  # fmt: skip
"""Attributes that mean something for one multiply alone, and their usual values."""


@dataclass(frozen=True, init=False)
class Space:
    """Every layout, replication factor, stationary matrix and schedule option that may be chosen.

    ``Space(m=…, n=…, k=…)`` is the space of one multiply, ``Space(chain=umm.chain("mlp", …))`` that of a
    program of several statements. The defaults of a multiply are the space of the paper: {row, col, 2d}³ ×
    replication³ × {A, B, C}; a search tries more where nothing is said, see :attr:`searched`.

    Attributes:
        program: What is computed, without layouts. A chain whose one statement is a plain multiply is that
            multiply, its operands called A, B and C.
        ranks: Processes that share the work; None until a machine says how many it has.
        layouts: For each tensor with a choice of its own the texts of its layouts, ``row@2``; ``all``, alone
            or among them, stands for every partition and replication factor.
        named: Names of layouts that the program has itself: these alone are the points; None for all of
            ``layouts``.
        partitions: What ``all`` means, without replication factors: ``row``, ``2d``, ``2d:3x4``,
            ``cyclic:256x128``, ``row:balanced``, … One that names a process grid is kept for the replication
            factors whose replicas have that many ranks.
        replication: Replication factors; None for all divisors of the ranks.
        orders: Replica orders: ``blocked``, ``interleaved``.
        grids: Process grids of ``2d`` and ``cyclic`` without one: ``square`` or ``all``; None for square,
            and all in a search.
        stationary: Matrices that may stay in place; of several statements one: a matrix, ``auto`` for each
            multiply's largest, or ``best`` for that with which it takes least by itself.
        equal_replication: Only points whose three operands have the same replication factor.
        fully_replicated: Whether an operand may have as many replicas as there are ranks.
        state: Bytes of optimizer state for each element of a weight, which has the layout of the weight.
        layers: How many layers like this one follow each other: a rank holds all, and times are of one in the
            middle.
        meshes: Layouts of tensors beside the usual ones where nothing is said; see :meth:`over`.
        axes: The values of every choice of a schedule.

    Source: Brock & Golin (2025), section 5.2.

    >>> points = Space(m=1024, n=49152, k=12288, ranks=12).points()
    >>> points.written, len(points)
    (17496, 8232)
    """

    program: Problem | Outline
    ranks: int | None
    layouts: tuple[tuple[str, tuple[str, ...]], ...]
    named: tuple[str, ...] | None
    partitions: tuple[str, ...]
    replication: tuple[int, ...] | None
    orders: tuple[str, ...]
    grids: str | None
    stationary: tuple[str, ...]
    equal_replication: bool
    fully_replicated: bool
    state: float
    layers: int
    meshes: tuple[tuple[str, tuple[str, ...]], ...]
    axes: Axes

    @showing_options
    def __init__(
        self,
        m: int | None = None,
        n: int | None = None,
        k: int | None = None,
        dtype: str = "float32",
        ranks: int | None = None,
        *,
        chain: Outline | None = None,
        c_dtype: str = "",
        given: str | Mapping[str, str | Layout] = "",
        layouts: Texts | Mapping[str, Texts] | None = None,
        a: Texts | None = None,
        b: Texts | None = None,
        c: Texts | None = None,
        named: Texts | None = None,
        partitions: Texts = ("row", "col", "2d"),
        replication: int | Sequence[int] | None = None,
        orders: Texts = ("blocked",),
        grids: str | None = None,
        stationary: Texts | None = None,
        equal_replication: bool = False,
        fully_replicated: bool = True,
        state: float = 0.0,
        layers: int = 1,
        axes: Axes | None = None,
        **options: Any,
    ) -> None:
        """Turn single values into axes and refuse unknown names.

        The arguments are the attributes, except those of the program: m, n, k, dtype, c_dtype
        and given as of a ``Problem``, or ``chain``. ``a``, ``b`` and ``c`` are ``layouts`` of these matrices;
        ``layouts`` that names no tensors is of all. Each field of
        :class:`umm.plans.multiply.options.Options` is an argument too, with one value or several:
        ``prefetch=(1, 2)``.
        """
        program: Problem | Outline
        called: Mapping[str, str] = {}
        if chain is None:
            sizes: dict[str, Any] = {"m": m, "n": n, "k": k}
            if missing := [name for name, size in sizes.items() if size is None]:
                lacks = " and ".join(missing)
                raise InputError(f"the space lacks {lacks}; give m, n and k, or chain=umm.chain(…)")
            sizes |= {"dtype": canonical(dtype), "c_dtype": canonical(c_dtype)}
            program = Problem(**sizes, given=given_text(read_given(given)))
        else:
            expect(chain, Outline, "a space", "a chain without layouts, such as umm.chain gives")
            if any(x is not None for x in (m, n, k)) or dtype != "float32" or c_dtype or given:
                raise InputError(
                    "sizes, types and given are the chain's; give them to umm.chain, given to its with_given"
                )
            # A plain multiply has no layouts of its own that could be asked for by name.
            multiply = None if named is not None else Problem.of(chain)
            program = chain if multiply is None else multiply
            if multiply is not None:
                product = chain.statements[0]
                called = dict(zip((*product.reads, product.out), MATRICES, strict=True))
        texts: dict[str, Texts] = {}
        if isinstance(layouts, Mapping):
            texts = {called.get(name, name): of_it for name, of_it in layouts.items()}
        elif layouts is not None:
            texts = {x.name: layouts for x in program.shapes}
        texts |= {x: of_it for x, of_it in zip(MATRICES, (a, b, c), strict=True) if of_it is not None}
        # A multiply tries all three; in a chain the combinations would multiply from statement to statement.
        if stationary is None:
            stationary = MATRICES if program.kind == "problem" else "auto"
        # A frozen dataclass refuses assignment, but its __dict__ may be filled.
        vars(self).update(
            program=program, ranks=as_int(ranks), grids=grids, state=state, layers=layers,
            layouts=tuple((name, axis(of_it)) for name, of_it in texts.items()),
            named=None if named is None else axis(named),
            partitions=axis(partitions), orders=axis(orders),
            replication=None if replication is None else tuple(map(as_int, axis(replication))),
            stationary=axis(stationary),
            equal_replication=yes_or_no(equal_replication, "equal_replication"),
            fully_replicated=yes_or_no(fully_replicated, "fully_replicated"), meshes=(),
            axes=Axes.of(options, axes),
        )  # fmt: skip
        self._check()

    def _check(self) -> None:
        """Refuse unknown names."""
        if self.grids not in ("square", "all", None):
            raise InputError(f"grids {shown(self.grids)} is unknown; choose from square, all")
        known = [x.name for x in self.program.shapes]
        _refuse_unknown("tensor", [name for name, _ in self.layouts], known)
        _refuse_unknown("stationary matrix", self.stationary, MATRICES if self.is_multiply else STATIONARY)
        _refuse_unknown("replica order", self.orders, ORDERS)
        texts = (self.partitions, *(texts for _, texts in self.layouts))
        for text in (text for each in texts for text in each):
            expect(text, str, "a layout of a space", "a text such as col@2")
        for factor in self.replication or ():
            whole_number(factor, "replication", 1)
        expect(self.state, (int, float), "state", "a number of bytes")
        if not self.is_multiply:
            self._refuse_of_multiplies()
        elif self.named is not None and self.program.kind == "problem":
            raise InputError("one multiply has no layouts by name; give layouts, or a, b and c")
        if not self.state >= 0:
            raise InputError(f"{self.state} bytes of optimizer state are not possible; give 0 or more")
        whole_number(self.layers, "layers", 1)
        if self.layers > 1:
            if self.program.kind == "problem":
                raise InputError("layers need a chain, such as umm.chain('transformer-layer')")
            repeated(self.program, 2)  # refuses what is no layer

    def _refuse_of_multiplies(self) -> None:
        """Refuse attributes of one multiply for several statements; InputError names the first."""
        for name, usual in _OF_ONE_MULTIPLY.items():
            if getattr(self, name) != usual:
                raise InputError(f"{name} is for one multiply; give the layouts of a chain's tensors")
        if len(self.stationary) > 1:
            several = ", ".join(self.stationary)
            raise InputError(f"several statements take one stationary matrix, not {several}; or give best")

    def changed(self, **changes: Any) -> "Space":
        """Return it with other values of some attributes, as the constructor takes them.

        Of a multiply its sizes and the layouts of its matrices too: ``m=4096, a="row"``.

        >>> Space(m=64, n=48, k=32).changed(m=128, ranks=4).program.m
        128
        """
        sizes = {name: changes.pop(name) for name in "mnk" if name in changes}
        layouts = {x.upper(): axis(changes.pop(x)) for x in "abc" if x in changes}
        # None keeps its meaning, all of an axis, and must not become an axis with the value None.
        axes = {name: axis(changes.pop(name)) for name in AXES if changes.get(name) is not None}
        # dataclasses.replace would call __init__, whose arguments are not the attributes.
        result = copy(self)
        vars(result).update(changes | axes)
        if sizes:
            vars(result)["program"] = replace(self.program, **sizes)
        if layouts:
            vars(result)["layouts"] = tuple((dict(self.layouts) | layouts).items())
        result._check()
        return result

    def on(self, ranks: int) -> "Space":
        """Return the space on this many ranks if it does not say how many itself."""
        return self if self.ranks is not None else self.changed(ranks=ranks)

    def over(self, machine: Machine) -> "Space":
        """Return the space with layouts over a machine's nodes and inside them, where nothing is said of any.

        >>> import umm
        >>> space = Space(chain=umm.chain("mlp", hidden=64, ffn=64, tokens=64), ranks=16)
        >>> dict(space.over(umm.machine("dgx-h100x4")).meshes)["W2"]
        ('row@2x8:-r', '2d@2x8:cr')
        """
        ranks = self.ranks or machine.default_ranks
        # On one node a mesh of nodes × ranks says nothing that the usual layouts do not.
        nodes = node_count(machine, ranks)
        if nodes == 1:
            return self
        if self.is_multiply:
            if self.replication is not None or self.orders != ORDERS[:1] or not self.fully_replicated:
                return self
            mesh = nodes, ranks // nodes
            texts = tuple(dict.fromkeys(text_of(*pair, mesh) for pair in OVER_NODES))
            return self.changed(meshes=tuple((x, texts) for x in MATRICES))
        assert self.program.kind == "outline"
        shapes = {x.name: (x.rows, x.cols) for x in self.program.shapes}
        choices = mesh_choices(nodes, ranks // nodes, self.program.layouts, shapes)
        return self.changed(meshes=tuple(choices.items()))

    @property
    def searched(self) -> "Space":
        """The space a search looks at.

        Where nothing was said it has all process grids, and all values of the schedule options that a search
        of one multiply tries.
        """
        if not self.is_multiply:
            return self
        return self.changed(grids=self.grids or "all", axes=self.axes.searched)

    @property
    def is_multiply(self) -> bool:
        """Whether the program is one multiply."""
        return self.program.kind == "problem"

    @property
    def options(self) -> Options:
        """The choices of a schedule, where each has one value; of several movements and depths the first.

        InputError if another one has several.
        """
        varied = [x for x in self.axes.varied if x not in ("movement", "prefetch")]
        if varied:
            raise InputError(f"{', '.join(varied)} is not an axis of a chain's space; give it one value")
        return self.axes.combinations[0]

    @property
    def movements(self) -> tuple[str, ...]:
        """How operands and sums may move; where these are several, each multiply of a chain has its own.

        >>> import umm
        >>> mlp = umm.chain("mlp", hidden=64, ffn=64, tokens=64)
        >>> Space(chain=mlp, movement=("flat", "chunks"), prefetch=(2, 8)).movements
        ('flat', 'flat:8', 'chunks')
        """
        values = {x.name: choices for x, choices in zip(known(), self.axes.values, strict=True)}
        # The first depth is that of the options; only further ones need a name.
        flat = [f"{FLAT}:{depth}" for depth in values["prefetch"][1:]]
        ways = [[x, *(flat if x in AHEAD else ())] for x in values["movement"]]
        return tuple(dict.fromkeys(x for of_movement in ways for x in of_movement))

    def points(self) -> "MultiplyPoints | Assignments":
        """Return the points, equal ones merged.

        InputError if the space does not say on how many ranks, or nothing is left in it. LayoutError for a
        layout that does not exist.
        """
        texts = dict(self.layouts)
        if self.program.kind == "outline":
            return Assignments(
                self.program, self.ranks or 1, texts, self.options, self.stationary[0], self.named,
                dict(self.meshes), self.layers > 1 and not self.program.given,
            )  # fmt: skip
        bare = replace(self.program, ranks=self.ranks)
        given = {x: texts.get(x, (ALL,)) for x in MATRICES}
        # Layouts over nodes are extras of an open choice; layouts that a user names stay the only ones.
        beside = {x: dict(self.meshes).get(x, ()) if given[x] == (ALL,) else () for x in MATRICES}
        layouts = tuple(self._layouts(x, bare, (*given[x], *beside[x])) for x in MATRICES)
        return MultiplyPoints(bare, layouts, self.axes.combinations, self.stationary, self.equal_replication)

    def _layouts(self, matrix: str, bare: Problem, written: Sequence[str]) -> list[Layout]:
        """Return the layouts of an operand as written, equal ones not yet merged."""
        factors = self.replication or replication_factors(bare.p)
        family = partial(
            written_layouts, bare.p, self.partitions, factors, self.orders, self.grids or "square"
        )
        texts = [x for text in written for x in (family() if text == ALL else [text])]
        layouts = [Layout.parse(text, bare.shape(matrix), bare.p) for text in texts]
        if not self.fully_replicated and bare.p > 1:
            layouts = [layout for layout in layouts if layout.replicas < bare.p]
        if not layouts:
            raise InputError(f"no layout is left for {matrix}; allow more partitions or replication factors")
        return layouts


def _refuse_unknown(noun: str, given: Sequence[str], known: Sequence[str]) -> None:
    for value in given:
        if value not in known:
            raise InputError(f"{noun} {shown(value)} is unknown; choose from {', '.join(known)}")
