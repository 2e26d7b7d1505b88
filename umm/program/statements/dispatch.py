"""Rows of tokens to their experts."""

from dataclasses import dataclass
from typing import ClassVar

from umm.program.statements.base import Array, Tensors, Values
from umm.program.statements.routed import Exchanged, check_shapes


@dataclass(frozen=True)
class Dispatch(Exchanged):
    """out = a row for each token and expert of it: the token's row of x, or with ``gates`` one number of it.

    With ``gates`` x has a column for each expert, and out the one of the row's expert.
    """

    kind: ClassVar[str] = "dispatch"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    x: str  # tokens
    routing: str  # the text of a routing
    gates: bool = False  # whether the number of the row's expert alone is taken
    # Parts of each rank's experts whose rows are moved one behind another, so that multiplies can begin.
    parts: int = 1
    each: bool = False  # whether each choice of a token moves by itself, in one kernel for low latency
    again: bool = False  # whether ranks know how many rows come, for as many came before

    @property
    def to_experts(self) -> bool:
        """Whether it moves rows, and not gates."""
        return not self.gates

    def with_experts(self) -> tuple[list[str], list[str], list[str]]:
        """Return its rows beside the experts' weights, and its tokens."""
        return [self.out], [], [self.x]

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        known, cols = self.routed, tensors[self.x].shape[1]
        wanted = {self.x: (known.tokens, known.experts if self.gates else cols)}
        check_shapes(wanted | {self.out: (known.rows, 1 if self.gates else cols)}, tensors)

    def remarks(self, tensors: Tensors, ranks: int) -> dict[str, str]:
        """Return in how many parts rows move to experts, if in fewer than asked for."""
        layout = tensors[self.out].layout
        rows = {layout.tile_bounds(tile)[0] for _, tile, _ in layout.filled()} if self.parts > 1 else ()
        most = max((len(self.routed.slots_of(x)) for x in rows), default=0)
        if not 0 < most < self.parts:
            return {}
        return {
            "parts": f"{most} of the {self.parts} asked for: parts are whole experts, "
            f"of which no rank has more than {most}"
        }

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        known, x = self.routed, values[self.x]
        return {self.out: x[known.token_of, known.expert_of][:, None] if self.gates else x[known.token_of]}

    def __str__(self) -> str:
        return f"{self.out} = dispatch{' of gates' * self.gates}({self.x})"
