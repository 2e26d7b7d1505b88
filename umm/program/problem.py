"""One multiply: C = AB with its sizes, its type and the layouts of its three matrices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from umm import dtypes
from umm.errors import ProblemError, expect
from umm.layouts.layout import Layout
from umm.layouts.text import brief, scaled_form
from umm.numbers import as_int
from umm.program.chain import Chain
from umm.program.outline import Outline, Shape
from umm.program.statements.multiply import Multiply
from umm.program.tensors import LARGEST, MOST_RANKS, Tensor

MATRICES = ("A", "B", "C")


@dataclass(frozen=True)
class Problem:
    """A distributed matrix multiply C = AB; A is m×k, B is k×n, C is m×n.

    Attributes:
        m: Rows of A and C.
        n: Columns of B and C.
        k: Columns of A, rows of B.
        a: Layout of A, as text (``col@2``) or as a Layout; kept as text.
        ranks: Processes that share the work; None until a machine says how many it has.
        dtype: Type of A and B: float64, float32, float16, bfloat16, float8_e4m3 or float8_e5m2, or short:
            f64, fp32, bf16, fp8, …; ``fp8xe5m2`` for unlike ones, and ``fp8:128`` for a scale for each 128
            elements along k instead of one for each matrix.
        c_dtype: Type C is kept and accumulated in: unless given that of A and B, bfloat16 for 8 bits.
        given: Where A and B lie before and C shall lie after, ``a=row,c=col@2`` or a mapping; kept as text.
            What is not named lies in its layout already.
        layouts: The layouts in which A, B and C are multiplied.
        outside: The layouts that A and B come from and C ends in: as given, else those of ``layouts``.

    >>> problem = Problem(m=64, n=48, k=32, a="row", b="col", c="2d@2", ranks=4)
    >>> problem.layout("C").process_grid, problem.flop
    ((1, 2), 196608)
    >>> replace(problem, given={"a": "col"}).tensors[0].layout
    Layout('col', shape=(64, 32), ranks=4)
    """

    m: int
    n: int
    k: int
    a: str | Layout = "row"
    b: str | Layout = "row"
    c: str | Layout = "row"
    ranks: int | None = None
    dtype: str = "float32"
    c_dtype: str = ""
    given: str | Mapping[str, str | Layout] = ""
    kind: ClassVar[Literal["problem"]] = "problem"
    _ROLES: ClassVar[tuple[str, str, str]] = ("input", "input", "output")
    layouts: tuple[Layout, Layout, Layout] = field(init=False, repr=False, compare=False)
    outside: tuple[Layout, Layout, Layout] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the sizes and resolve the layouts."""
        for name in ("m", "n", "k", "ranks"):
            object.__setattr__(self, name, as_int(getattr(self, name)))
        for name in "mnk":
            size = getattr(self, name)
            if type(size) is not int or size < 1:
                raise ProblemError(
                    f"{name} = {size!r} is not a matrix dimension; it must be a whole number ≥ 1"
                )
        for name in ("dtype", "c_dtype"):
            object.__setattr__(self, name, dtypes.canonical(getattr(self, name)))
        dtypes.itemsize(self.dtype)
        if max(self.flop, *(self.shape(x)[0] * self.shape(x)[1] for x in MATRICES)) >= LARGEST:
            raise ProblemError(
                f"m, n, k = {self.m}, {self.n}, {self.k} is too large to count with; "
                "2mnk and the elements of each matrix must stay below 2^60"
            )
        if not self.c_dtype:
            object.__setattr__(self, "c_dtype", dtypes.product_type(self.dtype))
        dtypes.itemsize(self.c_dtype, owner="C")
        dtypes.check_product(self.dtype, self.c_dtype)
        given = read_given(self.given)
        for name in "abc":
            works = "a text such as col@2, or a Layout"
            expect(getattr(self, name), (str, Layout), f"{name} of a Problem", works)
        if self.ranks is None:
            ranks = [x.ranks for x in (self.a, self.b, self.c, *given.values()) if isinstance(x, Layout)]
            if not ranks:
                for text in (self.a, self.b, self.c, *given.values()):
                    Layout.check_text(str(text))
                object.__setattr__(self, "given", given_text(given))
                return
            object.__setattr__(self, "ranks", ranks[0])
        if type(self.ranks) is not int or self.ranks < 1:
            raise ProblemError(f"ranks = {self.ranks!r} is not possible; it must be a whole number ≥ 1")
        if self.ranks > MOST_RANKS:
            raise ProblemError(f"{self.ranks} ranks are more than can be laid out; at most {MOST_RANKS}")
        layouts = tuple(self._resolved(name, getattr(self, name.lower())) for name in MATRICES)
        object.__setattr__(self, "layouts", layouts)
        for name, layout in zip("abc", layouts, strict=True):
            object.__setattr__(self, name, str(layout))
        resolved = {x: self._resolved(x.upper(), layout) for x, layout in given.items()}
        object.__setattr__(self, "given", given_text(resolved))
        outside = (resolved.get(x, layout) for x, layout in zip("abc", layouts, strict=True))
        # Equal layouts may number their tiles otherwise, where some are empty; then take those inside.
        same = tuple(x if x == y else y for x, y in zip(layouts, outside, strict=True))
        object.__setattr__(self, "outside", same)

    def _resolved(self, matrix: str, given: "str | Layout") -> Layout:
        assert self.ranks is not None
        shape = self.shape(matrix)
        if isinstance(given, str):
            return Layout.parse(given, shape, self.ranks)
        if given.shape != shape:
            raise ProblemError(
                f"the layout of {matrix} is for a {given.shape} matrix, but {matrix} is {shape}"
            )
        if given.ranks != self.ranks:
            raise ProblemError(f"the layout of {matrix} is for {given.ranks} ranks, not for {self.ranks}")
        return given

    def on(self, ranks: int) -> "Problem":
        """Return the problem on this many ranks if it does not say how many itself."""
        return self if self.ranks is not None else replace(self, ranks=ranks)

    def at_scale(self, factor: float) -> "Problem":
        """Return the problem with every dimension times a factor, rounded, and its layouts cut alike.

        Tiles and edges that a layout names in elements are scaled with the matrix.

        >>> Problem(m=8192, n=4096, k=100, a="cyclic:256x4:2x1", ranks=2).at_scale(1 / 16).a
        'cyclic:16x1:2x1'
        """
        sizes = {x: max(1, round(getattr(self, x) * factor)) for x in "mnk"}
        by = {x: sizes[x] / getattr(self, x) for x in "mnk"}
        axes = {"a": "mk", "b": "kn", "c": "mn"}

        def cut(x: str, layout: str | Layout) -> str:
            return scaled_form(str(layout), by[axes[x][0]], by[axes[x][1]])

        changed: dict[str, Any] = sizes | {x: cut(x, getattr(self, x)) for x in "abc"}
        given = {x: cut(x, layout) for x, layout in read_given(self.given).items()}
        return replace(self, **changed, given=given)

    def shape(self, matrix: str) -> tuple[int, int]:
        """Return the rows and columns of matrix A, B or C."""
        return {"A": (self.m, self.k), "B": (self.k, self.n), "C": (self.m, self.n)}[matrix]

    def layout(self, matrix: str) -> Layout:
        """Return the layout in which matrix A, B or C is multiplied."""
        return self.layouts[MATRICES.index(matrix)]

    def itemsize(self, matrix: str) -> int:
        """Return the bytes of one element of matrix A, B or C."""
        return dtypes.itemsize(self.c_dtype if matrix == "C" else self.dtype)

    @property
    def p(self) -> int:
        """Number of ranks; ProblemError if the problem does not say yet."""
        if self.ranks is None:
            raise ProblemError("the problem does not say on how many ranks it runs; give ranks=…")
        return self.ranks

    @property
    def name(self) -> str:
        """The program's name."""
        return "multiply"

    @property
    def title(self) -> str:
        """The product with its sizes, for a title."""
        return f"C = AB, {self.m}×{self.n}×{self.k}"

    @property
    def words(self) -> str:
        """The sizes, types and layouts, in a line."""
        given = f", given {self.given}" if self.given else ""
        return f"m={self.m} n={self.n} k={self.k} {self.types}, {self.layout_words}{given}"

    @property
    def layout_words(self) -> str:
        """The layouts of A, B and C, in a line."""
        return ", ".join(
            f"{x} {brief(str(y))}" for x, y in zip(MATRICES, (self.a, self.b, self.c), strict=True)
        )

    def facts(self, where: str) -> list[tuple[str, str]]:
        """Return the problem as pairs of a name and its text."""
        return [("problem", f"C = AB with m={self.m}, n={self.n}, k={self.k}, {self.types}, {where}")]

    def record(self) -> dict[str, Any]:
        """Return its sizes, layouts and types as plain values, for reports."""
        return self.to_dict() | {"c_dtype": self.c_dtype, "ranks": self.p}

    @cached_property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and C as tensors where they lie before and after: two inputs and an output.

        ProblemError if the problem does not say yet on how many ranks it runs.
        """
        _ = self.p  # which says so if there are no layouts yet
        a, b, c = self.outside
        return (
            Tensor("A", a, dtypes.factors(self.dtype)[0], "input"),
            Tensor("B", b, dtypes.factors(self.dtype)[1], "input", dtypes.expanded(self.dtype)),
            Tensor("C", c, self.c_dtype, "output"),
        )

    @classmethod
    def of(cls, outline: Outline) -> "Problem | None":
        """Return the multiply that a chain is, without layouts and ranks; None if it is something else.

        >>> problem = Problem(m=4, n=8, k=6, given="a=col")
        >>> Problem.of(problem.outline) == problem
        True
        """
        product, shapes = outline.statements[0], {x.name: x for x in outline.tensors}
        names = (*product.reads, product.out)
        if len(outline.statements) > 1 or not len(names) == len(shapes) == len(MATRICES):
            return None
        a, b, c = (shapes[name] for name in names)
        if product != Multiply(c.name, a.name, b.name) or (a.role, b.role, c.role) != cls._ROLES:
            return None
        letters = {a.name: "a", b.name: "b", c.name: "c"}
        given = {letters[name]: text for name, text in outline.given.items()}
        dtype = dtypes.product_dtype(a.dtype, b.dtype, b.stored)
        return cls(m=a.rows, n=b.cols, k=a.cols, dtype=dtype, c_dtype=c.dtype, given=given)

    @property
    def outline(self) -> Outline:
        """The chain whose one statement is C = AB, without layouts."""
        given = {name.upper(): str(text) for name, text in read_given(self.given).items()}
        return Outline(self.name, self.shapes, (Multiply("C", "A", "B"),), given=given)

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        """A, B and C before they are laid out."""
        a, b, c = (
            Shape(x, *self.shape(x), dtype, role, stored=dtypes.expanded(self.dtype) if x == "B" else "")
            for x, role, dtype in zip(
                MATRICES, self._ROLES, (*dtypes.factors(self.dtype), self.c_dtype), strict=True
            )
        )
        return a, b, c

    @cached_property
    def chain(self) -> Chain:
        """The chain whose one statement is C = AB.

        ProblemError if the problem does not say yet on how many ranks it runs.
        """
        return Chain(self.name, self.tensors, (Multiply("C", "A", "B"),), self.p)

    @property
    def types(self) -> str:
        """The type of A and B, and that of C where it is another, in words."""
        return self.dtype if self.c_dtype == self.dtype else f"{self.dtype}, C {self.c_dtype}"

    @property
    def flop(self) -> int:
        """Floating-point operations of the product, 2mnk."""
        return 2 * self.m * self.n * self.k

    @property
    def flop_of_types(self) -> dict[str, int]:
        """The flop by type of the operands."""
        return {self.dtype: self.flop}

    @property
    def unreplicated_share(self) -> float:
        """Bytes of ``(|A| + |B| + |C|) / p``: the unit of a memory budget such as ``2x``."""
        total = sum(rows * cols * self.itemsize(x) for x in MATRICES for rows, cols in [self.shape(x)])
        return total / self.p

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes, type and layouts as plain values; C's type where a file has to say it."""
        values = {key: getattr(self, key) for key in ("m", "n", "k", "dtype", "a", "b", "c")}
        if self.c_dtype != dtypes.accumulated_in(self.dtype):
            values["c_dtype"] = self.c_dtype
        return values | ({"given": self.given} if self.given else {})


def read_given(given: str | Mapping[str, str | Layout]) -> dict[str, str | Layout]:
    """Return the layouts that a text such as ``a=row,c=col@2`` or a mapping names, by a, b and c.

    ProblemError for another form or another matrix.

    >>> read_given("c=col@2, a=row")
    {'a': 'row', 'c': 'col@2'}
    """
    if isinstance(given, str):
        split = re.split(r"[,\s]+(?=\w+=)", given.strip())  # a layout may have commas of its own
        parts = [part.partition("=") for part in split if part]
        layouts: dict[str, str | Layout] = {}
        for name, equals, layout in parts:
            if not equals or not layout or name in layouts:
                raise ProblemError(
                    f"given {given!r} does not say where operands are; write it like a=row,c=col@2"
                )
            layouts[name] = layout
    elif isinstance(given, Mapping):
        layouts = dict(given)
    else:
        raise ProblemError(f"given is {type(given).__name__}; write it like given='a=row,c=col@2'")
    for name in layouts:
        if name not in ("a", "b", "c"):
            raise ProblemError(f"given {name!r} is not a matrix; choose from a, b, c")
        expect(layouts[name], (str, Layout), f"given {name}", "a text such as col@2, or a Layout")
    return {name: layouts[name] for name in "abc" if name in layouts}


def given_text(given: Mapping[str, str | Layout]) -> str:
    """Return the text of layouts by a, b and c."""
    return ",".join(f"{name}={layout}" for name, layout in given.items())


def largest_matrix(problem: Problem) -> str:
    """Return the matrix with the most elements, the usual choice to stay in place.

    Of equal ones C goes first, because a stationary C needs no accumulates, then B, then A.

    Source: Brock & Golin (2025), section 4.
    """
    sizes = {"C": problem.m * problem.n, "B": problem.k * problem.n, "A": problem.m * problem.k}
    return max(sizes, key=lambda x: sizes[x])
