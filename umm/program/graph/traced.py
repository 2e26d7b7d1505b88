"""A framework's program as chains, and which share of it they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from umm.errors import ProblemError
from umm.program.graph.gradients import with_gradients
from umm.program.graph.nodes import Graph
from umm.program.graph.writing import Part
from umm.program.outline import Outline
from umm.units import percent


@dataclass(frozen=True)
class Traced:
    """A program as chains."""

    # Its chains in order, each with how often it comes: a layer is one, whatever the depth.
    parts: tuple[Part, ...]
    flop: int  # Floating-point operations of its multiplies and attentions, masked scores included
    unknown: Mapping[str, int]  # operations that are not understood, each with its flop
    left_out: Mapping[str, int]  # what is not priced, with how often
    without_gradient: tuple[str, ...] = ()  # why the rules would not give its gradients

    @classmethod
    def of(cls, graph: Graph, made: Sequence[Part], flop: int) -> "Traced":
        """Return the chains that were made of a graph."""
        return cls(
            tuple(made), flop, dict(graph.unknown), dict(graph.left_out), tuple(graph.without_gradient)
        )

    @property
    def share(self) -> float:
        """Share of the flop that the chains compute."""
        return 1.0 - sum(self.unknown.values()) / self.flop if self.flop else 1.0

    @property
    def layer(self) -> Part:
        """The part that comes most often; of those the one with most statements."""
        return max(self.parts, key=lambda x: (x.count, len(x.outline.statements)))

    @property
    def chain(self) -> Outline:
        """The chain of that part."""
        return self.layer.outline

    def with_gradients(self) -> "Traced":
        """Return it with the backward part of each chain, by rules for its statements.

        ProblemError in one line, for a statement that has no rule, or gradients that no rule gives.
        """
        for why in self.without_gradient:
            raise ProblemError(f"{why}; leave out --backward")
        made = tuple(replace(x, outline=with_gradients(x.outline)) for x in self.parts)
        return replace(self, parts=made)

    def remarks(self) -> dict[str, str]:
        """Name the operations that are not understood, or not priced."""
        remarks = {}
        if self.unknown:
            shares = (
                f"{x} ({percent(flop / max(1, self.flop), 1)} of flop)" for x, flop in self.unknown.items()
            )
            remarks["not understood"] = ", ".join(shares)
        if self.left_out:
            remarks["not priced"] = ", ".join(f"{what} ({n})" for what, n in self.left_out.items())
        return remarks
