"""Statements of a mixture of experts: rows to experts and back, and one multiply with each expert's weight.

A routed tensor has a row for each token and expert of it, sorted by expert; see :mod:`umm.program.routing`.
The weights of all experts are one tensor, one expert's rows below another's. Any layout may cut either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import check_product, is_float8
from umm.errors import ProblemError
from umm.files import shown, whole_number
from umm.interval import Interval
from umm.program.multiply import Tensors, Values
from umm.program.routing import Routing, routing
from umm.program.tensors import LARGEST

MOST_PARTS = 2**16
"""In which a rank's experts are moved: as many as there can be experts."""
Array = NDArray[np.float64]
Shape = tuple[int, int]


@dataclass(frozen=True)
class Dispatch:
    """out = a row for each token and expert of it: the token's row of x, or with ``gates`` one number of it.

    With ``gates`` x has a column for each expert, and out the one of the row's expert.

    Attributes:
        out: The routed tensor.
        x: Tokens.
        routing: The text of a routing.
        gates: Whether the number of the row's expert alone is taken.
        parts: Parts of each rank's experts whose rows are moved one behind another, so that multiplies can
            begin.
        each: Whether each choice of a token moves by itself, in one kernel for low latency.
        again: Whether ranks know how many rows come, for as many came before.
    """

    kind: ClassVar[str] = "dispatch"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    x: str
    routing: str
    gates: bool = False
    parts: int = 1
    each: bool = False
    again: bool = False

    def __post_init__(self) -> None:
        """Check the parts."""
        whole_number(self.parts, f"parts of {self.out}", 1, MOST_PARTS)

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.x,)

    @property
    def routed(self) -> Routing:
        """The routing."""
        return routing(self.routing)

    @property
    def moved_by(self) -> Routing:
        """The routing by which rows travel: with each choice of a token by itself, if so."""
        return self.routed.by_choice if self.each else self.routed

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        known, cols = self.routed, tensors[self.x].shape[1]
        wanted = {self.x: (known.tokens, known.experts if self.gates else cols)}
        _check(wanted | {self.out: (known.rows, 1 if self.gates else cols)}, tensors)

    def flop(self, tensors: Tensors) -> int:
        """Return 0: only multiplies count."""
        return 0

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return what out holds afterwards."""
        known, x = self.routed, values[self.x]
        return {self.out: x[known.token_of, known.expert_of][:, None] if self.gates else x[known.token_of]}

    def __str__(self) -> str:
        return f"{self.out} = dispatch{' of gates' * self.gates}({self.x})"


@dataclass(frozen=True)
class Combine:
    """out = for each token the sum of its routed rows of x, each times its number in ``scale`` if given.

    With ``gates`` x has one column, and a number is put in its expert's column of out; the others are 0.

    Attributes:
        out: Tokens.
        x: The routed tensor.
        routing: The text of a routing.
        scale: A number for each routed row; nothing for 1.
        gates: Whether each number is put in the column of its expert.
        parts: Parts of each rank's experts that are added up and moved one behind another.
        each: Whether each row moves by itself, in one kernel for low latency.
    """

    kind: ClassVar[str] = "combine"
    READS: ClassVar[tuple[str, ...]] = ("x", "scale")
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    x: str
    routing: str
    scale: str = ""
    gates: bool = False
    parts: int = 1
    each: bool = False

    def __post_init__(self) -> None:
        """Check the parts."""
        whole_number(self.parts, f"parts of {self.out}", 1, MOST_PARTS)

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.x, self.scale) if self.scale else (self.x,)

    @property
    def routed(self) -> Routing:
        """The routing."""
        return routing(self.routing)

    @property
    def moved_by(self) -> Routing:
        """The routing by which rows travel: with each choice of a token by itself, if so."""
        return self.routed.by_choice if self.each else self.routed

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        known, cols = self.routed, tensors[self.x].shape[1]
        wanted = {self.x: (known.rows, 1 if self.gates else cols)}
        if self.scale:
            wanted[self.scale] = known.rows, 1
        _check(wanted | {self.out: (known.tokens, known.experts if self.gates else cols)}, tensors)
        if self.scale and self.gates:
            raise ProblemError("gates are put in their columns as they are; leave out scale")

    def flop(self, tensors: Tensors) -> int:
        """Return 0: only multiplies count."""
        return 0

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return what out holds afterwards."""
        known, result = self.routed, np.zeros(tensors[self.out].shape)
        if self.gates:
            result[known.token_of, known.expert_of] = values[self.x][:, 0]
            return {self.out: result}
        rows = values[self.x] * values[self.scale] if self.scale else values[self.x]
        np.add.at(result, known.token_of, rows)
        return {self.out: result}

    def __str__(self) -> str:
        return f"{self.out} = combine{' of gates' * self.gates}({', '.join(self.reads)})"


class Part(NamedTuple):
    """What one expert's product is of: ranges of m, n and k, by which slices of all operands follow.

    Attributes:
        expert: Its slot: which, and of which data group.
        m: Rows of the product: routed rows, or of the gradient of a weight rows within the expert's.
        n: Columns of the product.
        k: What is added over: columns, or of the gradient of a weight routed rows.
    """

    expert: int
    m: Interval
    n: Interval
    k: Interval


@dataclass(frozen=True)
class Grouped:
    """out_e = op(a_e) · op(b_e) for every expert e: one kernel for many multiplies.

    Of routed a and out, b has the weights: ``trans`` is ``()`` or ``("b",)``. With ``("a",)`` a and b are
    routed and out has the gradients of the weights, 0 for an expert without rows.

    Attributes:
        out: What is written.
        a: The left operand, routed.
        b: The right operand: weights, or routed.
        routing: The text of a routing.
        trans: Which operand is read transposed, expert by expert.
        add: Whether out keeps what it holds, and the products are added.
        copies: Whether every copy of an expert in out holds the sum of all copies of it afterwards.
    """

    kind: ClassVar[str] = "grouped"
    READS: ClassVar[tuple[str, ...]] = ("a", "b")
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    a: str
    b: str
    routing: str
    trans: tuple[str, ...] = ()
    add: bool = False
    copies: bool = False

    def __post_init__(self) -> None:
        """Check what is transposed."""
        object.__setattr__(self, "trans", tuple(self.trans))
        if self.trans not in ((), ("a",), ("b",)):
            raise ProblemError(f'trans = {shown(self.trans)} of {self.out} is not (), ("a",) or ("b",)')
        if self.copies and (self.trans != ("a",) or self.add):
            raise ProblemError(f"copies of {self.out} are summed of gradients of weights alone, without add")

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.a, self.b, self.out) if self.add else (self.a, self.b)

    @property
    def routed(self) -> Routing:
        """The routing."""
        return routing(self.routing)

    @property
    def letters(self) -> tuple[str, str, str]:
        """Which of m, n and k are rows and columns of out, a and b within an expert."""
        return {"": ("mn", "mk", "kn"), "b": ("mn", "mk", "nk"), "a": ("mn", "km", "kn")}["".join(self.trans)]

    def height(self, shapes: Mapping[str, Shape], name: str) -> int:
        """Return the rows of an expert in a tensor of weights; 0 of a routed one."""
        return shapes[name][0] // self.routed.places if name == self.weights else 0

    def rows(self, part: Part, letter: str, height: int) -> Interval:
        """Return the rows that a range of m, n or k of an expert is in a tensor."""
        span: Interval = getattr(part, letter)
        first = part.expert % self.routed.places * height
        return Interval(first + span.start, first + span.stop)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        known = self.routed
        weights, first, second = (
            (self.out, self.a, self.b) if "a" in self.trans else (self.b, self.a, self.out)
        )
        inner, outer = tensors[first].shape[1], tensors[second].shape[1]
        tall, wide = (outer, inner) if "b" in self.trans else (inner, outer)
        wanted = {
            first: (known.rows, inner),
            second: (known.rows, outer),
            weights: (known.places * tall, wide),
        }
        of_8_bits = is_float8(tensors[self.a].dtype)
        _check(wanted, tensors, alike=(self.a, self.b) if of_8_bits else tuple(wanted))
        check_product(tensors[self.a].dtype, tensors[self.out].dtype)
        if self.out in (self.a, self.b):
            raise ProblemError(f"it reads {self.out} while it writes it; write to another tensor")
        if self.flop(tensors) >= LARGEST:
            raise ProblemError(f"{self} has too many flop; they must stay below 2^60")

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: 2 for each routed row and element of its weight."""
        height = self.height({x: tensors[x].shape for x in (self.out, self.b)}, self.weights)
        return 2 * self.routed.rows * height * tensors[self.weights].shape[1]

    @property
    def weights(self) -> str:
        """The tensor with rows for each expert."""
        return self.out if "a" in self.trans else self.b

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return what out holds afterwards."""
        known = self.routed
        result = values[self.out].copy() if self.add else np.zeros(tensors[self.out].shape)
        height = tensors[self.weights].shape[0] // known.places
        for slot in range(known.slots):
            rows = slice(*known.rows_of(slot))
            place = slot % known.places
            its = slice(place * height, (place + 1) * height)
            if "a" in self.trans:
                result[its] += values[self.a][rows].T @ values[self.b][rows]
            else:
                weight = values[self.b][its]
                result[rows] += values[self.a][rows] @ (weight.T if "b" in self.trans else weight)
        return {self.out: _summed_over_copies(result, known) if self.copies else result}

    def __str__(self) -> str:
        a, b = (str(x) + "ᵀ" * (which in self.trans) for which, x in (("a", self.a), ("b", self.b)))
        summed = ", summed over copies" * self.copies
        return f"{self.out} = {a}·{b}{f' + {self.out}' * self.add} (by expert{summed})"


@dataclass(frozen=True)
class SumCopies:
    """Every copy of an expert in out holds the sum of all copies of it: gradients of copied weights.

    Attributes:
        out: Rows for each expert and copy, as many for each.
        routing: The text of a routing with copies.
    """

    kind: ClassVar[str] = "sum_copies"
    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    routing: str

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.out,)

    @property
    def routed(self) -> Routing:
        """The routing."""
        return routing(self.routing)

    def check(self, tensors: Tensors) -> None:
        """Refuse a tensor that the slots do not share equally."""
        rows, places = tensors[self.out].shape[0], self.routed.places
        if rows % places:
            raise ProblemError(f"{rows} rows of {self.out} are not as many for each of {places} experts")

    def flop(self, tensors: Tensors) -> int:
        """Return 0: only multiplies count."""
        return 0

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return what out holds afterwards."""
        return {self.out: _summed_over_copies(values[self.out], self.routed)}

    def __str__(self) -> str:
        return f"{self.out} = sum over copies of {self.out}"


def _summed_over_copies(value: Array, known: Routing) -> Array:
    """Return what has rows for each place, those of every expert's copies summed."""
    parts = value.reshape(known.places, -1)
    sums = np.zeros((known.experts, parts.shape[1]))
    np.add.at(sums, known.expert_of_place, parts)
    return sums[known.expert_of_place].reshape(value.shape)


OfExperts = Dispatch | Combine | Grouped | SumCopies


def _check(wanted: Mapping[str, Shape], tensors: Tensors, alike: tuple[str, ...] = ()) -> None:
    """Refuse tensors that do not have these shapes, and some of them, or all, one type."""
    first, *_ = alike = alike or tuple(wanted)
    for name, shape in wanted.items():
        if tensors[name].shape != shape:
            rows, cols = tensors[name].shape
            raise ProblemError(f"{name} is {rows}x{cols}; by this routing it must be {shape[0]}x{shape[1]}")
        if name in alike and tensors[name].dtype != tensors[first].dtype:
            raise ProblemError(
                f"{name} is {tensors[name].dtype} and {first} {tensors[first].dtype}; make them one type"
            )
