"""The flags of a program in a framework's words: an nn.Module, or an einsum, in place of a chain."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

from umm.cli.flags.chain import SIZES, LaidOutLayers, OfChain
from umm.cli.flags.declared import argument, flag
from umm.errors import InputError
from umm.program.outline import Outline
from umm.units import parse_dimension

if TYPE_CHECKING:
    from umm.plans.steady import End
    from umm.program.graph.traced import Traced

FRAMEWORKS = {
    "torch": ("PyTorch", "pip install 'umm-sim[torch]'"),
    "jax": ("JAX", "pip install 'umm-sim[jax]'"),
}
"""Of what a module imports and lacks: its name in words, and the line that installs it."""
_DECIDED = ("chain", "model", "ignore", "weights", "dropout", "decode", "routing", "routing_seed", "capacity")


class OfFramework(OfChain, heading="Chain"):
    """A chain that a framework's program becomes."""

    module: str | None = flag(
        metavar="PACKAGE.MODULE:FUNCTION",
        help="An nn.Module instead of a chain: the function returns it and its example inputs, on the meta "
        "device if you like; or a function of JAX and its arguments' shapes. The graph of torch.export or "
        "the jaxpr is its chain; what is not understood is named.",
    )  # fmt: skip
    einsum: str | None = flag(
        metavar="TEXT",
        help='An einsum instead of a chain, with its sizes: --einsum "bshd,bthd->bhst" b=8 s=2K t=2K h=32 '
        "d=128. Each contraction is a (batched) multiply.",
    )  # fmt: skip
    letters: tuple[str, ...] = argument(nargs=-1, metavar="[LETTER=SIZE]...")
    traced: Any = None  # the module's chains
    part: int = 0  # number of that asked for
    written: Outline | None = None  # the einsum's chain

    def with_model(self, of_one: Sequence[str] | None = None) -> Self:
        """Return this completed from --module, --einsum or --model.

        InputError if more than one is given, or what is given cannot be a chain.

        Args:
            of_one: As of a model: flags that are for one layer.
        """
        if self.letters and not self.einsum:
            raise InputError(f"{self.letters[0]!r} is the size of no --einsum; leave it out, or give one")
        if not self.module and not self.einsum:
            return super().with_model(of_one)
        given = "--module" if self.module else "--einsum"
        decided, both = (
            (*SIZES, *_DECIDED, *"mnkabc", "preset"),
            ["--einsum"] * bool(self.module and self.einsum),
        )
        self.refuse(decided, f"{given} decides what is computed; leave out {{}}", *both)
        if self.einsum:
            from umm.program.graph.einsum import einsum
            from umm.program.graph.gradients import with_gradients

            sizes: dict[str, int] = {}
            for x in self.letters:
                name, equals, size = x.partition("=")
                if not equals or name in sizes:
                    raise InputError(f"{x!r} is not the size of a letter, once each; write it like b=8")
                sizes[name] = parse_dimension(size)
            written = einsum(self.einsum, sizes, self.dtype)
            written = with_gradients(written) if self.backward else written
            return replace(self, chain="einsum", written=written)
        if self.typed(["dtype"]):
            raise InputError("--module decides the types of its tensors; leave out --dtype")
        traced = load_traced(str(self.module))
        traced = traced.with_gradients() if self.backward else traced
        for what, text in traced.remarks().items():
            self.output.note(f"{what}: {text}")
        part = traced.parts.index(traced.layer)
        counted: dict[str, Any] = {}
        if hasattr(self, "layers") and self.layers is None and traced.layer.block:
            counted["layers"] = sum(x.count for x in traced.parts if x.block)
        return replace(self, chain="module", traced=traced, part=part, **counted)

    def outline(self, scale: Fraction | None = None) -> Outline | None:
        """Return the chain, not yet laid out; None where one multiply is asked for."""
        if self.written is None and self.traced is None:
            return super().outline(scale)
        if scale:
            raise InputError("--scale is of a chain or a multiply by name; leave it out")
        outline = self.written or cast("Traced", self.traced).parts[self.part].outline
        return outline.with_given(self.given) if self.given else outline


class OfFrameworkLayers(OfFramework, LaidOutLayers, heading="Chain"):
    """A chain that a framework's program becomes, with all its layers."""

    def kinds(self) -> dict[str, Self]:
        """Return a request for each kind of layer, by its name."""
        if self.traced is None:
            return super().kinds()
        parts = cast("Traced", self.traced).parts
        blocks = [i for i, x in enumerate(parts) if x.block]
        if len(blocks) < 2:
            return {}
        if self.typed(["layers"]):
            raise InputError("--module has layers of several kinds, each with its number; leave out --layers")
        return {
            f"{parts[i].block} {n}": replace(self, part=i, layers=parts[i].count)
            for n, i in enumerate(blocks)
        }

    def ends(self, layer: Outline, ranks: int) -> "list[End]":
        """Return the chains before, between and after the layers, with their layouts."""
        from umm.plans.steady import End
        from umm.program.systems import in_scheme

        if self.traced is None:
            return super().ends(layer, ranks)
        result = []
        parts = cast("Traced", self.traced).parts
        blocks = [i for i, x in enumerate(parts) if x.block]
        for number, part in ((i, x) for i, x in enumerate(parts) if not x.block):
            outline = part.outline
            name = (
                "before" if number < min(blocks) else "after" if number > max(blocks) else f"between {number}"
            )
            try:
                outline = in_scheme(self.scheme, outline, ranks)
                layouts: Mapping[str, str] = outline.layouts_of(self.scheme or None, ranks)
                scheme = self.scheme
            except InputError:  # of attention's or experts', such as ring or ep8
                layouts, scheme = outline.layouts_of("sequence", ranks), ""
            result.append(End(name, outline, layouts, scheme))
        return result


def load_program(text: str) -> tuple[Any, Any]:
    """Return the module or function, and its inputs, that ``package.module:function`` gives.

    InputError in one line, if there is no such function, it fails, or its framework is missing.
    """
    where, _, function = text.partition(":")
    if not re.fullmatch(r"[A-Za-z_][\w.]*", where) or not function.isidentifier():
        raise InputError(f"{text[:200]!r} is not package.module:function; write it like models:llama")
    try:
        made = getattr(import_module(where), function)()
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, ImportError) and error.name in FRAMEWORKS:
            need, install = FRAMEWORKS[error.name]
            raise InputError(f"{text} needs {need}; {install}") from None
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{text} cannot be had: {type(error).__name__}: {first[:300]}") from None
    if not isinstance(made, Sequence) or len(made) != 2:
        raise InputError(f"{text} gives {type(made).__name__}; it must return (module, inputs)")
    program, inputs = made
    return program, inputs


def load_traced(text: str) -> "Traced":
    """Return the chains of the module or function that ``package.module:function`` returns.

    It returns a module of PyTorch and its inputs, or a function of JAX and its arguments or their shapes.
    InputError in one line, if there is no such function, it fails, or its framework is missing.
    """
    program, inputs = load_program(text)
    name = text.rpartition(":")[2].replace("_", "-")
    if callable(program) and "torch" not in {x.__module__.partition(".")[0] for x in type(program).__mro__}:
        from umm.jax.traced import chain as function_chain

        shapes = inputs if isinstance(inputs, Sequence) else (inputs,)
        return function_chain(program, *shapes, name=name)
    from umm.torch.module import chain

    return chain(program, inputs, name=name)
