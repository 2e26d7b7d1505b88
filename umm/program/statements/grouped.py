"""One multiply with each expert's weight."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import ClassVar, NamedTuple

import numpy as np

from umm.dtypes import check_product, is_float8
from umm.errors import ProblemError
from umm.files import shown
from umm.interval import Interval
from umm.program.routing import Routing
from umm.program.statements.base import Array, Statement, Tensors, Values
from umm.program.statements.routed import Routed, Shape, check_shapes, summed_over_copies
from umm.program.statements.sum_copies import SumCopies
from umm.units import counted


class Part(NamedTuple):
    """Part of one expert's product: ranges of m, n and k, from which the slices of all operands follow."""

    expert: int  # its slot: which, and of which data group
    m: Interval  # rows of the product: routed rows, or of the gradient of a weight rows within the expert's
    n: Interval  # columns of the product
    k: Interval  # what is added over: columns, or of the gradient of a weight routed rows


@dataclass(frozen=True)
class Grouped(Routed):
    """out_e = op(a_e) · op(b_e) for every expert e: one kernel for many multiplies.

    Of routed a and out, b has the weights: ``trans`` is ``()`` or ``("b",)``. With ``("a",)`` a and b are
    routed and out has the gradients of the weights, 0 for an expert without rows.
    """

    kind: ClassVar[str] = "grouped"
    READS: ClassVar[tuple[str, ...]] = ("a", "b")
    has_weights: ClassVar[bool] = True
    a: str  # the left operand, routed
    b: str  # the right operand: weights, or routed
    routing: str  # the text of a routing
    trans: tuple[str, ...] = ()  # which operand is read transposed, expert by expert
    add: bool = False  # whether out keeps what it holds, and the products are added
    # Whether every copy of an expert in out holds the sum of all copies of it afterwards.
    copies: bool = False
    # What the grouped multiply before writes, where one kernel does both: weights side by side, of as many
    # columns each, or with `add` sums over both.
    beside: str = ""

    def __post_init__(self) -> None:
        """Check which operand is transposed."""
        object.__setattr__(self, "trans", tuple(self.trans))
        if self.trans not in ((), ("a",), ("b",)):
            raise ProblemError(f'trans = {shown(self.trans)} of {self.out} is not (), ("a",) or ("b",)')
        if self.copies and (self.trans != ("a",) or self.add):
            raise ProblemError(f"copies of {self.out} are summed of gradients of weights alone, without add")
        if self.beside and self.add != (self.beside == self.out):
            raise ProblemError(f"beside of {self.out} is another product, or with add {self.out} itself")

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.a, self.b, self.out) if self.add else (self.a, self.b)

    @property
    def factor(self) -> str:
        """The right operand."""
        return self.b

    def with_experts(self) -> tuple[list[str], list[str], list[str]]:
        """Return weights with the rows that have their columns, or with products of transposed ones."""
        if not self.trans:
            return [self.b, self.out], [], []
        return ([self.b], [self.out], []) if "b" in self.trans else ([], [], [])

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
        check_shapes(wanted, tensors, alike=(self.a, self.b) if of_8_bits else tuple(wanted))
        check_product(tensors[self.a].dtype, tensors[self.out].dtype)
        if self.out in (self.a, self.b):
            raise ProblemError(f"it reads {self.out} while it writes it; write to another tensor")
        self.check_flop(tensors)

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: 2 for each routed row and element of its weight."""
        height = self.height({x: tensors[x].shape for x in (self.out, self.b)}, self.weights)
        return 2 * self.routed.rows * height * tensors[self.weights].shape[1]

    @property
    def weights(self) -> str:
        """The tensor with rows for each expert."""
        return self.out if "a" in self.trans else self.b

    def remarks(self, tensors: Tensors, ranks: int) -> dict[str, str]:
        """Return how many ranks have no row of an expert, and the layouts that give them some."""
        idle = int((tensors[self.a].layout.elements_of_rank == 0).sum())
        if self.add or "a" in self.trans or not idle:
            return {}
        places, words = self.routed.places, f"{idle} of {counted(ranks, 'rank')} have no row of an expert"
        if places < ranks:
            groups = gcd(places, ranks)
            every = f", ep{groups}-dp{ranks // groups} gives every {counted(groups, 'rank')} all experts"
            cut, copied = f"ep{groups}-tp{ranks // groups}", f"ep{ranks}+{ranks - places}"
            words += f"; {cut} cuts experts, {copied} copies them{every}"
        return {"experts": words}

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
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
        return {self.out: summed_over_copies(result, known) if self.copies else result}

    def __str__(self) -> str:
        a, b = (str(x) + "ᵀ" * (which in self.trans) for which, x in (("a", self.a), ("b", self.b)))
        summed = ", summed over copies" * self.copies
        return f"{self.out} = {a}·{b}{f' + {self.out}' * self.add} (by expert{summed})"


def summing_copies(statement: Statement, routing: Routing, together: bool) -> list[Statement]:
    """Return a statement, and behind a gradient of experts' weights its sum over copies of experts.

    Args:
        together: Whether one kernel sums over copies and data groups.
    """
    if not isinstance(statement, Grouped) or statement.trans != ("a",):
        return [statement]
    if together and not statement.add:
        return [replace(statement, copies=True)]
    return [statement, SumCopies(statement.out, str(routing))]
