"""The forward statements of a chain, in the names of a program."""

import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from umm.errors import InputError
from umm.program import Copy, Map, Multiply, Statement
from umm.program.chain import Chain
from umm.program.statements import of_kind, renamed
from umm.program.statements.attention import Attention
from umm.program.tensors import Tensor, by_name

RESERVED = {
    "self", "torch", "jax", "jnp", "np", "F", "P", "layer", "main", "mesh", "block", "np_check", "sys", "os",
    "first", "rope", "rope_halves", "attention",
    # Methods of a module of torch, which a part of that name would not replace.
    "forward", "train", "eval", "training", "apply", "to", "cpu", "cuda", "half", "float", "double",
    "bfloat16", "type", "parameters", "buffers", "modules", "children", "compile", "state_dict", "zero_grad",
}  # fmt: skip
"""Names that programs have for other things."""
MAPS = ("add", "mul", "gelu", "silu", "relu", "silu_mul", "rms_norm", "rope", "rope_halves", "scale")
"""Functions that programs have."""
NORM, BIAS = "head_rms_norm", "bias"
"""Functions that programs leave out, and say so: they change neither layouts nor what moves."""


@dataclass(frozen=True)
class Forward:
    """A chain's forward part, which frameworks differentiate themselves."""

    chain: Chain  # the chain, laid out

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return by_name(self.chain.tensors)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Statements that depend on no gradient that is given.

        InputError for one that no program is written for, naming it.
        """
        given = {f"d{x.name}" for x in self.chain.tensors} & {*self.chain.operand_names}
        copies = [x for x in of_kind(Copy, self.chain.statements) if self.tensors[x.x].is_input]
        # Weights gathered from where they are stored.
        stored = {x.out: x.x for x in copies if x.x not in given}
        names = stored | {x.reads[0]: x.out for x in self._unwritten if x.fn == NORM}
        kept = []
        for statement in self.chain.statements:
            if statement.outs[0] in stored or statement in self._unwritten:
                continue
            if given.isdisjoint(statement.reads):
                kept.append(renamed(statement, names))
            else:
                given.update(statement.outs)
        for statement in kept:
            if why := _refused(statement, self.tensors):
                raise InputError(f"no program is emitted for {statement}: {why}")
        if not kept:
            raise InputError(
                f"all of {self.chain.name} depends on {', '.join(sorted(given))}, which programs take for "
                "gradients; give tensors other names than d and that of another"
            )
        return tuple(kept)

    @cached_property
    def _unwritten(self) -> list[Map]:
        """Norms of heads and biases: their products are taken as they are."""
        return [x for x in of_kind(Map, self.chain.statements) if x.fn in (NORM, BIAS)]

    @property
    def left_out(self) -> tuple[str, ...]:
        """Parts of the forward pass that no program has, in words."""
        words = {NORM: "norms of queries and keys are left out", BIAS: "biases are left out"}
        left_out = [words[x] for x in dict.fromkeys(x.fn for x in self._unwritten)]
        stored = dict.fromkeys(x.stored for x in self.chain.tensors if x.stored)
        others = dict.fromkeys(x.dtype for x in self.used() if x.dtype != self.dtype)
        left_out += [f"weights are not quantised to {x}" for x in stored]
        return (*left_out, *(f"tensors of {x} are {self.dtype} like the others" for x in others))

    @property
    def dtype(self) -> str:
        """The one type that a program has: that of the first input."""
        return self.tensors[(*self.inputs, *self.weights)[0]].dtype

    def length(self, statement: Attention) -> int:
        """Return the rows that attend to each other alone: of a sequence, or of a chunk of one."""
        return self.tensors[statement.q].shape[0] // statement.parts

    @cached_property
    def weights(self) -> tuple[str, ...]:
        """Inputs that multiply from the right, in order."""
        right = [x.b for x in of_kind(Multiply, self.statements)]
        return tuple(x for x in dict.fromkeys(right) if self.tensors[x].is_input)

    @cached_property
    def scales(self) -> tuple[str, ...]:
        """Scales of norms, in order."""
        return tuple(dict.fromkeys(x.reads[1] for x in of_kind(Map, self.statements) if x.fn == "rms_norm"))

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
        unseen = {x.lse for x in of_kind(Attention, self.statements)}
        names = {*more, *(x for y in self.statements for x in (*y.reads, *y.outs))} - unseen
        return [x for x in self.chain.tensors if x.name in names]


def form_of(statement: Map, forms: Mapping[str, str]) -> str:
    """Return how a framework writes a function of elements, ``{0}`` and ``{1}`` its operands."""
    factor = statement.parameters.get("factor", 1.0)
    if statement.fn == "add" and factor != 1.0:
        return f"{{0}} + {float(factor)!r} * {{1}}"
    return forms[statement.fn]


def _refused(statement: Statement, tensors: Mapping[str, Tensor]) -> str:
    """Return why no program is written for a statement; nothing if one is."""
    match statement:
        case Multiply():
            plain = statement.batch == 1 and not statement.beta and statement.alpha == 1.0
            return "" if plain else "it is batched or scaled"
        case Attention(cache=(), rotary=(), scaled=0) if statement.k != statement.v:
            if statement.value not in (0, statement.head):
                return "its heads of values are not as wide as those of keys"
            alike = tensors[statement.q].shape[0] == tensors[statement.k].shape[0]
            return "" if alike else "it has not as many queries as keys"
        case Attention():
            return "it has a cache, latent vectors or a scale of its own"
        case Map():
            return "" if statement.fn in MAPS else f"programs have {', '.join(MAPS)}"
    return "experts and collectives of a chain have no one form; --emit megatron names their sizes"
