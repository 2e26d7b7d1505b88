"""Sums over replicas."""

from dataclasses import dataclass
from typing import ClassVar

from umm.program.statements.base import Array, Statement, Tensors, Values, check_alike


@dataclass(frozen=True)
class Sum(Statement):
    """out = the sum over x's replicas, which were given partial sums: all-reduce, reduce-scatter, reduce.

    Where the replicas were given one matrix, it is added as often as there are replicas. With out = x every
    replica holds the sum afterwards. What a multiply gives is whole in every replica, so it needs no sum.
    """

    kind: ClassVar[str] = "sum"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    sums_replicas: ClassVar[bool] = True
    x: str

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors of two shapes or types."""
        check_alike(tensors[self.out], tensors[self.x])

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        given = values[self.x]
        total = given.sum(axis=0) if given.ndim == 3 else given * tensors[self.x].layout.replicas
        return {self.out: total}

    def __str__(self) -> str:
        return f"{self.out} = sum of {self.x} over replicas"
