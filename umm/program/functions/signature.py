"""A function's properties: its signature, its parameters and how it may be cut."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.errors import ProblemError
from umm.files import real_number, whole_number
from umm.interval import Interval

Array = NDArray[np.floating[Any]]
Shape = tuple[int, int]
Spans = Sequence[tuple[Interval, Interval]]  # rows and columns of every operand, the result first
ONE = Interval(0, 1)


@dataclass(frozen=True)
class Parameter:
    """A number that a function takes beside its operands."""

    default: float | None = None  # What it is where nothing is said; None if it must be said.
    whole: bool = False  # whether it is a whole number
    least: float = -inf  # smallest value; a whole number is never negative
    below: float = inf  # what it must stay below, if not whole
    multiple: int = 1  # what it must be a multiple of, if whole

    def checked(self, value: Any, what: str) -> float:
        """Return a value of this parameter: an int if it is whole, else a float.

        InputError saying what would work.
        """
        if self.whole:
            number = whole_number(value, what, int(max(self.least, 0)))
            if number % self.multiple:
                raise ProblemError(
                    f"{what} = {value} is not possible; it must be a multiple of {self.multiple}"
                )
            return number
        real = real_number(value, what)
        if not self.least <= real < self.below:
            below = "" if self.below == inf else f" and < {self.below:g}"
            raise ProblemError(f"{what} = {value} is not possible; it must be ≥ {self.least:g}{below}")
        return real


class Place(NamedTuple):
    """Where a piece lies: the rows r and columns c of the signature, in the whole of this shape.

    ``like`` is an array of the kind that is wanted, for a function that reads none; NumPy's own if None.
    ``spans`` are the rows and columns of every operand, the result first, for a function with more letters.
    """

    rows: Interval
    cols: Interval
    shape: Shape
    like: Any = None
    spans: Spans = ()


@dataclass(frozen=True)
class Function:
    """A function from matrices to a matrix."""

    name: str  # what a schedule calls it
    signature: str  # shapes of its reads and of its result
    # Takes the reads and the parameters (and `at`, a `Place`, if `indexed`); returns the result.
    form: Callable[..., Array]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)  # what it takes beside its operands
    indexed: bool = False  # whether it depends on where a piece lies
    # Columns are cut only at multiples of this; 0 if rows must stay whole. By the name of a parameter it is
    # what that says.
    column_unit: int | str = 1
    # Says why a whole of this shape cannot be had with these parameters, or None.
    refuses: Callable[[Shape, Mapping[str, Any]], str | None] = lambda shape, parameters: None
    # Says why some slices do not belong together with these parameters, or None.
    misfit: Callable[[Spans, Mapping[str, Any]], str | None] = lambda spans, parameters: None
    inner: str = ""  # a letter besides r and c over whose lines a map of a chain adds up, such as `k`
    looks_up: bool = False  # whether of its first read it reads no more than it writes

    @property
    def is_plain(self) -> bool:
        """Whether its operands have rows r and columns c alone."""
        return set("".join(self.operands)) <= set("rc1")

    @property
    def is_map(self) -> bool:
        """Whether a map of a chain can cut its operands."""
        return set("".join(self.operands)) <= {*"rc1", self.inner}

    @property
    def operands(self) -> tuple[str, ...]:
        """Shape of each operand by its two letters, the result first.

        >>> Function("bias", "rc,1c->rc", lambda x, y: x + y).operands
        ('rc', 'rc', '1c')
        """
        reads, _, result = self.signature.partition("->")
        return (result, *(reads.split(",") if reads else ()))

    @property
    def adds_over(self) -> str:
        """The letters that a read has and the result lacks: results of pieces cut along these add up.

        >>> Function("row_sum", "rc->r1", lambda x: x.sum(axis=1)).adds_over
        'c'
        """
        result, *reads = self.operands
        return "".join(x for x in f"rc{self.inner}" if x not in result and any(x in read for read in reads))

    def unit(self, parameters: Mapping[str, Any]) -> int:
        """Return the multiples at which columns are cut with these parameters; 0 if rows must stay whole."""
        if isinstance(self.column_unit, int):
            return self.column_unit
        return int(parameters.get(self.column_unit, self.parameters[self.column_unit].default))

    def ranges(
        self, rows: Interval, cols: Interval, inner: Interval = ONE
    ) -> list[tuple[Interval, Interval]]:
        """Return the rows and columns of each operand, the result first, for a piece of r, c and inner.

        >>> Function("row_sum", "rc->r1", lambda x: x.sum(axis=1)).ranges(Interval(2, 4), Interval(0, 8))[0]
        (Interval(start=2, stop=4), Interval(start=0, stop=1))
        """
        lines = {"r": rows, "c": cols, self.inner: inner}
        return [(lines.get(x[0], ONE), lines.get(x[1], ONE)) for x in self.operands]

    def whole(self, shapes: Sequence[Shape]) -> Shape:
        """Return r and c, given the shapes of the operands, the result first.

        ProblemError if these are not the shapes that the signature says.
        """
        size: dict[str, int] = {"1": 1}
        fits = len(shapes) == len(self.operands) and all(
            size.setdefault(letter, length) == length
            for letters, shape in zip(self.operands, shapes, strict=False)
            for letter, length in zip(letters, shape, strict=True)
        )
        if not fits:
            out, *reads = (f"{rows}x{cols}" for rows, cols in shapes)
            raise ProblemError(
                f"{self.name} is {self.signature}, not {', '.join(reads)} -> {out}; "
                "r and c must each be one size, and 1 must be 1"
            )
        return size.get("r", 1), size.get("c", 1)

    def checked(self, parameters: Mapping[str, Any], shape: Shape | None = None) -> dict[str, float]:
        """Return all parameters, defaults filled in.

        InputError for one that is unknown, missing or out of its range, or does not fit the shape.

        Args:
            shape: r and c of the whole, if known.
        """
        for name in parameters:
            if name not in self.parameters:
                choices = f"choose from {', '.join(self.parameters)}" if self.parameters else "it takes none"
                raise ProblemError(f"{self.name} has no parameter {name!r}; {choices}")
        full: dict[str, float] = {}
        for name, parameter in self.parameters.items():
            value = parameters.get(name, parameter.default)
            if value is None:
                raise ProblemError(f"{self.name} needs a parameter {name}")
            full[name] = parameter.checked(value, f"{name} of {self.name}")
        why = None if shape is None else self.refuses(shape, full)
        if why is not None:
            raise ProblemError(f"{self.name} cannot work on {shape}: {why}")
        return full

    def __call__(
        self,
        *reads: Array,
        rows: tuple[int, int],
        cols: tuple[int, int],
        shape: Shape,
        like: Any = None,
        spans: Spans = (),
        **parameters: Any,
    ) -> Array:
        """Return the result on a piece, computed in float32 or wider; the caller converts it.

        Args:
            reads: What is read, one array an operand; half precision is widened, bfloat16 must be already.
            rows: Global rows r of the piece, half-open.
            cols: Global columns c of the piece.
            shape: r and c of the whole.
            like: An array of the kind that is wanted, from a library that follows NumPy's protocols.
            spans: Global rows and columns of every operand, the result first, if it has more letters.
            parameters: As :meth:`checked` takes them.
        """
        full = self.checked(parameters, shape)
        wide = np.result_type(np.float32, *(x.dtype for x in reads))
        if self.indexed:
            full["at"] = Place(Interval(*rows), Interval(*cols), shape, like, spans)  # type: ignore[assignment]
        return self.form(*(x.astype(wide, copy=False) for x in reads), **full)
