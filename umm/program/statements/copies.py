"""Copies of tensors in other layouts."""

from dataclasses import dataclass
from typing import ClassVar

from umm.errors import ProblemError
from umm.program.statements.base import Array, Statement, Tensors, Values, check_alike


@dataclass(frozen=True)
class Copy(Statement):
    """out = x in another layout: redistribution, all-gather, all-to-all, broadcast to replicas."""

    kind: ClassVar[str] = "copy"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    moves_only: ClassVar[bool] = True
    x: str

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors of two shapes or types, and one copied to itself."""
        if self.out == self.x:
            raise ProblemError(f"{self.x} is copied to itself; leave it out")
        check_alike(tensors[self.out], tensors[self.x])

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        return {self.out: values[self.x].copy()}

    def __str__(self) -> str:
        return f"{self.out} = copy of {self.x}"
