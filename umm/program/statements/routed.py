"""Common to the statements of a mixture of experts: a routing by which rows go to experts.

A routed tensor has a row for each token and expert of it, sorted by expert; see :mod:`umm.program.routing`.
The weights of all experts are one tensor, one expert's rows below another's. Any layout may cut either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from umm.errors import ProblemError
from umm.files import whole_number
from umm.program.routing import Routing, routing
from umm.program.statements.base import Array, Statement, Tensors

MOST_PARTS = 2**16  # in which a rank's experts are moved: as many as there can be experts
Shape = tuple[int, int]


class Routed(Statement):
    """A statement on routed rows."""

    routing: str  # the text of a routing

    @property
    def routed(self) -> Routing:
        """The routing."""
        return routing(self.routing)

    def rerouted(self, routing: str) -> Self:
        """Return it with another routing."""
        changes: dict[str, Any] = {"routing": routing}
        return replace(self, **changes)


class Exchanged(Routed):
    """Rows of tokens that move to the ranks of their experts, or back."""

    exchanges: ClassVar[bool] = True
    x: str  # tokens, or their routed rows
    gates: bool  # whether one number a row moves instead of the row
    parts: int  # parts of each rank's experts whose rows move one behind another
    each: bool  # whether each choice of a token moves by itself, in one kernel for low latency

    def __post_init__(self) -> None:
        """Check the parts."""
        whole_number(self.parts, f"parts of {self.out}", 1, MOST_PARTS)

    @property
    def moves_rows(self) -> bool:
        """Whether it moves rows, and not gates."""
        return not self.gates

    @property
    def moved_by(self) -> Routing:
        """The routing by which rows travel: with each choice of a token by itself, if so."""
        return self.routed.by_choice if self.each else self.routed


def summed_over_copies(value: Array, known: Routing) -> Array:
    """Sum the rows of each expert over its copies."""
    parts = value.reshape(known.places, -1)
    sums = np.zeros((known.experts, parts.shape[1]))
    np.add.at(sums, known.expert_of_place, parts)
    return sums[known.expert_of_place].reshape(value.shape)


def check_shapes(wanted: Mapping[str, Shape], tensors: Tensors, alike: tuple[str, ...] = ()) -> None:
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


def routings(statements: Iterable[Statement]) -> set[str]:
    """Return the texts of the routings of some statements."""
    return {x.routing for x in statements if isinstance(x, Routed)}
