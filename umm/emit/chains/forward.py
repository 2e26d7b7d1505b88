"""The forward statements of a chain, in the names of a program."""

import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from umm.errors import InputError
from umm.program import Copy, Map, Multiply, Statement
from umm.program.chain import Chain
from umm.program.statements import renamed
from umm.program.statements.attention import Attention
from umm.program.tensors import Tensor, by_name

RESERVED = {
    "self", "torch", "jax", "jnp", "np", "F", "P", "layer", "main", "mesh", "block", "np_check", "sys", "os",
}  # fmt: skip
"""Names that programs have for other things."""
MAPS = ("add", "mul", "gelu", "silu", "relu", "silu_mul", "rms_norm", "rope", "scale")
"""Functions that programs have."""


@dataclass(frozen=True)
class Forward:
    """A chain's forward part, which frameworks differentiate themselves.

    Attributes:
        chain: The chain, laid out.
    """

    chain: Chain

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return by_name(self.chain.tensors)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Statements that depend on no gradient that is given.

        Raises:
            InputError: for one that no program is written for, naming it.
        """
        given = {f"d{x.name}" for x in self.chain.tensors} & {*self.chain.operand_names}
        kept, stored = [], dict[str, str]()
        for statement in self.chain.statements:
            if (
                isinstance(statement, Copy)
                and self.tensors[statement.x].is_input
                and statement.x not in given
            ):
                stored[statement.out] = statement.x  # a weight gathered from where it is stored
            elif given.isdisjoint(statement.reads):
                kept.append(renamed(statement, stored))
            else:
                given.update(statement.outs)
        for statement in kept:
            if why := _refused(statement):
                raise InputError(f"no program is emitted for {statement}: {why}")
        return tuple(kept)

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """Inputs that multiply from the right, in order."""
        right = [x.b for x in self.statements if isinstance(x, Multiply)]
        return tuple(x for x in dict.fromkeys(right) if self.tensors[x].is_input)

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """Scales of norms, in order."""
        maps = [x for x in self.statements if isinstance(x, Map) and x.fn == "rms_norm"]
        return tuple(dict.fromkeys(x.reads[1] for x in maps))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Activations that come in."""
        read = {x for statement in self.statements for x in statement.reads}
        parameters = {*self.weights, *self.scales}
        return tuple(x for x in self.chain.operand_names if x in read and x not in parameters)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Results of the forward part."""
        written = {x for statement in self.statements for x in statement.outs}
        return tuple(x for x in self.chain.outputs if x in written)

    @cached_property
    def names(self) -> dict[str, str]:
        """A Python name for each tensor: its own, with underscores for dots, one more where taken."""
        result: dict[str, str] = {}
        taken = {*RESERVED, *keyword.kwlist}
        for name in self.tensors:
            spelled = re.sub(r"\W", "_", name, flags=re.ASCII)
            while spelled in taken:
                spelled += "_"
            taken.add(spelled)
            result[name] = spelled
        return result

    def used(self, more: Iterable[str] = ()) -> list[Tensor]:
        """Return the tensors that the forward part reads or writes, except statistics of attention."""
        unseen = {x.lse for x in self.statements if isinstance(x, Attention)}
        names = {*more, *(x for y in self.statements for x in (*y.reads, *y.outs))} - unseen
        return [x for x in self.chain.tensors if x.name in names]


def _refused(statement: Statement) -> str:
    """Return why no program is written for a statement; nothing if one is."""
    if isinstance(statement, Multiply):
        plain = statement.batch == 1 and not statement.beta and statement.alpha == 1.0
        return "" if plain else "it is batched or scaled"
    if isinstance(statement, Attention):
        return (
            "it has a cache, latent vectors or a scale of its own"
            if (statement.cache or statement.rotary or statement.scaled or statement.k == statement.v)
            else ""
        )
    if isinstance(statement, Map):
        return "" if statement.fn in MAPS else f"programs have {', '.join(MAPS)}"
    return "experts and collectives of a chain have no one form; --emit megatron names their sizes"
