"""The multiply of a chain: whole tensors, transposed or not, member by member where it is batched."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar, NamedTuple, TypeGuard

import numpy as np

from umm.errors import ProblemError
from umm.files import real_number, shown, whole_number
from umm.layouts.layout import Layout
from umm.program.statements.base import Array, Shares, Statement, Tensors, Values


class Members(NamedTuple):
    """How one operand of a batched multiply is cut into equal members along an axis."""

    group: int  # members of the multiply that share one: member i uses number i // group
    rows: int  # rows of one
    cols: int  # columns of one
    axis: int  # 0 if they lie one below another, 1 if side by side
    length: int  # rows of all members of a sequence

    def part(self, array: Array, sequence: int, member: int) -> Array:
        """Return the view of the array that a member of the multiply uses."""
        number, array = member // self.group, array[sequence * self.length : (sequence + 1) * self.length]
        if self.axis:
            return array[:, number * self.cols : (number + 1) * self.cols]
        return array[number * self.rows : (number + 1) * self.rows]


@dataclass(frozen=True)
class Multiply(Statement):
    """out = α · op(a) · op(b) + β · out.

    With β = 0 the old elements of out are not read.

    >>> heads = Multiply("S", "Q", "K", trans=("b",), batch=8, batch_axes=(0, 1, 1), groups=(1, 1, 4))
    >>> print(heads)
    S = Q·Kᵀ (8 members)
    """

    kind: ClassVar[str] = "multiply"
    READS: ClassVar[tuple[str, ...]] = ("a", "b")
    has_weights: ClassVar[bool] = True
    a: str  # the left operand
    b: str  # the right operand
    # Which operands are read transposed: `()`, `("a",)`, `("b",)` or `("a", "b")`.
    trans: tuple[str, ...] = ()
    alpha: float = 1.0  # factor α of the product
    beta: float = 0.0  # factor β of what out holds
    batch: int = 1  # number of members g; each operand is cut into members, and multiplied member by member
    # For out, a and b as stored, whether members lie along rows (0) or columns (1).
    batch_axes: tuple[int, int, int] = (0, 0, 0)
    # For out, a and b, how many members of the multiply share one of the operand's: it is cut into g / groups
    # equal members, and member i uses number i // groups. Members that share one of out add up.
    groups: tuple[int, int, int] = (1, 1, 1)
    # Equal parts, one below another, that each operand is cut into before that: a batch of each.
    sequences: int = 1
    # The result of an earlier multiply of the same a, if both are one kernel, whose b's lie side by side.
    # Serving engines keep the weights of Q, K and V so.
    beside: str = ""
    besides: int = 0  # columns of all earlier multiplies of that kernel

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        if not set(self.trans) <= {"a", "b"} or len(set(self.trans)) < len(self.trans):
            raise ProblemError(
                f"trans = {shown(self.trans)} of {self} is not possible; "
                'choose (), ("a",), ("b",) or ("a", "b")'
            )
        object.__setattr__(self, "trans", tuple(sorted(self.trans)))
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, real_number(getattr(self, name), f"{name} of {self.out}"))
        whole_number(self.batch, f"batch of {self}", 1, 2**31)
        whole_number(self.sequences, f"sequences of {self}", 1, 2**31)
        for name in ("batch_axes", "groups"):
            if len(getattr(self, name)) != 3:
                raise ProblemError(
                    f"{name} of {self} must have three numbers, for {', '.join(self._operands)}"
                )
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for axis in self.batch_axes:
            whole_number(axis, f"a batch axis of {self}", 0, 2)
        for group in self.groups:
            whole_number(group, f"a group of {self}", 1)
            if self.batch % group:
                raise ProblemError(
                    f"{group} members of {self} cannot share one; groups must divide {self.batch}"
                )

    @property
    def _operands(self) -> tuple[str, str, str]:
        return self.out, self.a, self.b

    @property
    def is_batch(self) -> bool:
        """Whether it is several multiplies."""
        return self.batch * self.sequences > 1

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.a, self.b, self.out) if self.beta else (self.a, self.b)

    def members(self, tensors: Tensors) -> tuple[Members, Members, Members]:
        """Return how out, a and b are cut; ProblemError if one cannot be cut so."""
        cut = []
        for name, axis, group in zip(self._operands, self.batch_axes, self.groups, strict=True):
            count, shape = self.batch // group, list(tensors[name].shape)
            if shape[0] % self.sequences:
                raise ProblemError(
                    f"{shape[0]} rows of {name} cannot be cut into {self.sequences} equal sequences"
                )
            shape[0] //= self.sequences
            length = shape[0]
            if shape[axis] % count:
                lines = f"{shape[axis]} {('rows', 'columns')[axis]}"
                raise ProblemError(f"{lines} of {name} cannot be cut into {count} equal members")
            shape[axis] //= count
            cut.append(Members(group, shape[0], shape[1], axis, length))
        out, a, b = cut
        return out, a, b

    def sizes(self, tensors: Tensors) -> tuple[int, int, int]:
        """Return m, n and k of one member; ProblemError if the members do not conform."""
        out, a, b = self.members(tensors)
        m, k = (a.cols, a.rows) if "a" in self.trans else (a.rows, a.cols)
        inner, n = (b.cols, b.rows) if "b" in self.trans else (b.rows, b.cols)
        if (inner, m, n) != (k, out.rows, out.cols):
            raise ProblemError(
                f"{m}x{k} times {inner}x{n} cannot give {out.rows}x{out.cols}; it needs m x k times k x n "
                "for m x n, with trans where an operand is stored transposed"
            )
        return m, n, k

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit; ProblemError states the requirement."""
        if self.out in (self.a, self.b):
            raise ProblemError(f"it reads {self.out} while it writes it; write to another tensor")
        a, b = tensors[self.a], tensors[self.b]
        if a.dtype != b.dtype:
            raise ProblemError(
                f"{self.a} is {a.dtype} and {self.b} {b.dtype}; make them one type by map cast"
            )
        self.check_flop(tensors)

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations, 2mnk a member."""
        m, n, k = self.sizes(tensors)
        return 2 * m * n * k * self.batch * self.sequences

    @property
    def factor(self) -> str:
        """The right operand, unless it is a batch."""
        return self.b if self.batch == 1 else ""

    def pieces(self, layout: Callable[[str], Layout]) -> int:
        """Return into how many local multiplies layouts cut it, about."""
        out = layout(self.out)
        a, b = (layout(self.a), layout(self.b))
        rows, left = (a.col_edges, a.row_edges) if "a" in self.trans else (a.row_edges, a.col_edges)
        right, cols = (b.col_edges, b.row_edges) if "b" in self.trans else (b.row_edges, b.col_edges)
        cuts = (rows, out.row_edges), (cols, out.col_edges), (left, right)
        return prod(len(np.union1d(*edges)) - 1 for edges in cuts)

    def useful_flop(self, tensors: Tensors, seen: Shares) -> int:
        """Return its flop on scores that no mask drops."""
        flop = self.flop(tensors)
        for pairs, of_all in {seen[x] for x in (self.out, *self.reads) if x in seen}:
            flop = flop * pairs // of_all
        return flop

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        out, a, b = self.members(tensors)
        result = self.beta * values[self.out] if self.beta else np.zeros(tensors[self.out].shape)
        for place in product(range(self.sequences), range(self.batch)):
            left, right = a.part(values[self.a], *place), b.part(values[self.b], *place)
            left, right = left.T if "a" in self.trans else left, right.T if "b" in self.trans else right
            out.part(result, *place)[...] += self.alpha * (left @ right)
        return {self.out: result}

    def __str__(self) -> str:
        a, b = (str(x) + "ᵀ" * (which in self.trans) for which, x in (("a", self.a), ("b", self.b)))
        times = f"{a}·{b}" if self.alpha == 1 else f"{self.alpha}·{a}·{b}"
        kept = f" + {self.beta}·{self.out}" if self.beta else ""
        counts = ((self.sequences, "sequences"), (self.batch, "members"))
        batch = " of ".join(f"{count} {what}" for count, what in counts if count != 1)
        return f"{self.out} = {times}{kept}" + (f" ({batch})" if batch else "")


def is_multiply(statement: object) -> TypeGuard[Multiply]:
    """Whether a statement multiplies two tensors, as one product or as a batch."""
    return isinstance(statement, Multiply)


def is_product(statement: object) -> TypeGuard[Multiply]:
    """Whether a statement is one product of two matrices, which the universal algorithm multiplies."""
    return isinstance(statement, Multiply) and not statement.is_batch


def products(statements: Iterable[object]) -> list[Multiply]:
    """Return the multiplies among some statements, batches too."""
    return [x for x in statements if is_multiply(x)]


def joinable(one: object, other: object) -> bool:
    """Whether a statement adds a product to that of the statement before."""
    return isinstance(one, Multiply) and is_product(other) and one.out == other.out and other.beta == 1.0
