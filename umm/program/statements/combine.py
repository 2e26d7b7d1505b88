"""Sums of each token's rows, back from its experts."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umm.errors import ProblemError
from umm.program.statements.base import Array, Tensors, Values
from umm.program.statements.routed import Exchanged, check_shapes


@dataclass(frozen=True)
class Combine(Exchanged):
    """out = for each token the sum of its routed rows of x, each times its number in ``scale`` if given.

    With ``gates`` x has one column, and a number is put in its expert's column of out; the others are 0.
    """

    kind: ClassVar[str] = "combine"
    READS: ClassVar[tuple[str, ...]] = ("x", "scale")
    x: str  # the routed tensor
    routing: str  # the text of a routing
    scale: str = ""  # a number for each routed row; nothing for 1
    gates: bool = False  # whether each number is put in the column of its expert
    parts: int = 1  # parts of each rank's experts that are added up and moved one behind another
    each: bool = False  # whether each row moves by itself, in one kernel for low latency

    def with_experts(self) -> tuple[list[str], list[str], list[str]]:
        """Return its tokens."""
        return [], [], [self.out]

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        known, cols = self.routed, tensors[self.x].shape[1]
        wanted = {self.x: (known.rows, 1 if self.gates else cols)}
        if self.scale:
            wanted[self.scale] = known.rows, 1
        check_shapes(wanted | {self.out: (known.tokens, known.experts if self.gates else cols)}, tensors)
        if self.scale and self.gates:
            raise ProblemError("gates are put in their columns as they are; leave out scale")

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        known, result = self.routed, np.zeros(tensors[self.out].shape)
        if self.gates:
            result[known.token_of, known.expert_of] = values[self.x][:, 0]
            return {self.out: result}
        rows = values[self.x] * values[self.scale] if self.scale else values[self.x]
        np.add.at(result, known.token_of, rows)
        return {self.out: result}

    def __str__(self) -> str:
        return f"{self.out} = combine{' of gates' * self.gates}({', '.join(self.reads)})"
