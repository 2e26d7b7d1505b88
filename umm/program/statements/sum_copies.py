"""Sums over the copies of experts."""

from dataclasses import dataclass
from typing import ClassVar

from umm.errors import ProblemError
from umm.program.statements.base import Array, Tensors, Values
from umm.program.statements.routed import Routed, summed_over_copies


@dataclass(frozen=True)
class SumCopies(Routed):
    """Every copy of an expert in out holds the sum of all copies of it: gradients of copied weights.

    It has as many rows for each expert and copy.
    """

    kind: ClassVar[str] = "sum_copies"
    READS: ClassVar[tuple[str, ...]] = ()
    routing: str  # the text of a routing with copies

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.out,)

    def check(self, tensors: Tensors) -> None:
        """Refuse a tensor that the slots do not share equally."""
        rows, places = tensors[self.out].shape[0], self.routed.places
        if rows % places:
            raise ProblemError(f"{rows} rows of {self.out} are not as many for each of {places} experts")

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        return {self.out: summed_over_copies(values[self.out], self.routed)}

    def __str__(self) -> str:
        return f"{self.out} = sum over copies of {self.out}"
