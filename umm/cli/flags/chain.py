"""The flags of a chain, which takes the place of one multiply: a preset or a file, its sizes, its layouts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from umm.cli.flags.declared import Flag, flag, flags, names_of
from umm.cli.flags.options import OfProblem, OfSizes
from umm.cli.flags.values import Finite, OptimizerState, Several, dimension, dimension_list
from umm.errors import InputError
from umm.files import read_text
from umm.numbers import whole_in
from umm.program.layers import RECOMPUTE, is_layer

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.plans.steady import End
    from umm.program import Chain, Outline
    from umm.program.models import Model
    from umm.program.presets import Preset
    from umm.space import Space

MAX_ROUTING = 2**24  # bytes of a file of tokens' choices
SCALED = ("tokens", "hidden", "ffn")
"""Those that ``--scale`` changes; heads stay as many, and become as much smaller."""
BEST = "best"  # the layouts that a search finds, unless a chain has some of that name itself
_OF_A_PROBLEM = ("m", "n", "k", "a", "b", "c", "c_dtype", "preset")
_NAMED = ("backward", "decode", "weights", "cache", "dropout", "routing_seed", "capacity")
SIZES = {
    "tokens": "Rows of a chain's activations.",
    "hidden": "Columns of a chain's input and output.",
    "ffn": "Columns between the multiplies of an MLP.",
    "heads": "Attention heads.",
    "kv_heads": "Heads of keys and values; all heads if not given.",
    "sequences": "Sequences that the tokens are split into; each attends to itself only. 1 if not given.",
    "vocab": "Vocabulary of a language model's head.",
    "context": "Tokens of context before the one that --decode computes.",
    "batch": "Sequences for which --decode computes one token each; 1 if not given.",
    "experts": "Experts of a mixture.",
    "top_k": "Experts that each token goes to.",
    "shared": "Shared experts, to which every token goes; none if not given.",
    "head_dim": "Columns of a head; hidden / heads if not given.",
    "q_rank": "Columns of the latent vector of queries; if not given, attention is by heads alone.",
    "kv_rank": "Columns of the latent vector of keys and values.",
    "rope_dim": "Columns of a head's positions, beside the latent vectors.",
    "window": "Tokens that each attends to, itself the last; all before it if not given.",
}


def size_flags(read: Callable[..., Any], metavar: str) -> Any:
    """Return the flags of a chain's sizes."""
    settings = {"callback": read, "metavar": metavar}
    return flags({x: Flag((), x == "tokens", {**settings, "help": SIZES[x]}) for x in SIZES})


class OfChain(OfSizes, heading="Chain"):
    """A chain in place of one multiply, not laid out."""

    chain: str | None = flag(
        metavar="NAME|FILE.toml", usual=True,
        help=lambda: f"A chain instead of one multiply: {', '.join(_presets())}, or a file.",
    )  # fmt: skip
    model: Any = flag(
        metavar="NAME|config.json", usual=True,
        help="A model of 'umm models', or a Hugging Face config.json, whose sizes count.",
    )  # fmt: skip
    ignore: tuple[str, ...] = flag(
        multiple=True, metavar="KEY", help="Read --model's config.json without this key; may be repeated.",
    )  # fmt: skip
    sizes: Mapping[str, Any] = size_flags(dimension, "SIZE")
    backward: bool = flag(usual=True, help="Add the gradients, given dY.")
    decode: bool = flag(help="Compute one token of each of --batch sequences, after --context tokens.")
    weights: str = flag(
        default="", metavar="TYPE",
        help="Type of the weights of a forward part, if another: fp8, with a scale for each 128 elements; "
        "what they multiply is cast before. int8, int4 and fp4 are expanded by kernels.",
    )  # fmt: skip
    cache: str = flag(
        default="", metavar="TYPE",
        help="Type of the cache of keys and values: fp8, or the chain's own; prompts then write it.",
    )  # fmt: skip
    dropout: float = flag(
        default=0.0, metavar="RATE",
        help="Share of an MLP's activations that are dropped, the same ones in every layout.",
    )  # fmt: skip
    routing: str = flag(
        default="uniform", show_default=False, metavar="RULE|FILE",
        help="How tokens are routed to experts: uniform, zipf:1.2, balanced, or a file: one line with the "
        "rows of each expert, or a line per token with its experts.",
    )  # fmt: skip
    routing_seed: int = flag(
        type=click.IntRange(0, 2**29), default=0, metavar="SEED", help="Seed of --routing.",
    )  # fmt: skip
    capacity: float = flag(
        type=Finite(min=0, max=1e6), default=0.0, metavar="TIMES",
        help="Most rows of an expert, as a multiple of the mean; later rows are dropped.",
    )  # fmt: skip
    # Types of the weights of a layer's parts, as a model's file stores them.
    weight_types: Mapping[str, str] | None = None
    head_type: str = ""  # type of the weight of a model's head, if not that of the chain
    stored: float = 1.0  # bytes a weight is stored in, as a share of those it is computed with
    layer: int | None = None  # Number of the model's layer that the chain is; None for any.
    layers: int | None = None  # number of layers like it, where a command counts them

    @property
    def of_file(self) -> bool:
        """Whether the chain is that of a file and not of a preset."""
        return self.chain is not None and is_file(self.chain)

    def with_model(self, of_one: Sequence[str] | None = None) -> Self:
        """Return this completed from --model, and note the model's keys that are not modelled.

        A model stands for the chain of its most frequent kind of layer, for as many layers as it has. A
        quantised one also stands for the types of its weights, where these are neither trained nor given.
        InputError if there is no such model, or its file is refused, or keys of none are to be ignored.

        Args:
            of_one: Flags that are for one layer, with which no others count; None where layers count only
                if a flag needs them.
        """
        if self.ignore and not self.model:
            raise InputError("--ignore is of --model's config.json; name it, or leave --ignore out")
        if not self.model or self.of_file:
            return self
        from umm.program.models import find_model
        from umm.program.models.priced import usual_chain, weights_priced
        from umm.program.models.weights import cache_bits

        model = find_model(self.model, self.ignore)
        self.output.not_modelled(model.not_modelled)
        asked = replace(self, model=model, chain=self.chain or usual_chain(model))._with_layers(model, of_one)
        if self.ctx.command.name != "simulate":
            asked._note_other_kinds(model)
        predicts = self.ctx.command.name not in ("run", "tiles")
        if predicts and self.dtype == "float32" and not self.typed(["dtype"]):
            self.output.note("elements are float32; most models have bfloat16: --dtype bf16")
        caches = any(x == asked.chain and "kv_rank" in preset.sizes for x, preset in _presets().items())
        if self.decode and not self.cache and caches and cache_bits(model.quantization) == 8:
            self.output.note("the cache is fp8 by quantization_config; --cache takes another type")
            asked = replace(asked, cache="fp8")
        if self.backward or self.typed(["weights"]):
            return asked
        asked = asked._with_head(model)
        every = asked._layers_like(model)
        if not every:
            return asked
        parts = asked._parts()
        if remark := next((x for i in every if (x := weights_priced(model, i, parts).remark)), ""):
            self.output.note(f"{remark}; --weights takes another type")
        return asked.quantized(model, every[0])

    def _with_head(self, model: "Model") -> Self:
        """Return this with the type of a model's head, where it is the chain or comes after layers."""
        from umm.program.models.priced import ATTENTION, head_priced

        dtype = head_priced(model)
        counts_ends = self.layers and self.ctx.command.name in ("simulate", "peers")
        if not dtype or not (self.chain == "head" or counts_ends):
            return self
        self.output.note(f"lm_head is priced as {dtype} by quantization_config; --weights takes another type")
        types = {ATTENTION: dtype} if self.chain == "head" else self.weight_types
        return replace(self, head_type=dtype, weight_types=types)

    def _parts(self) -> list[str]:
        """Return the parts of a layer that the chain computes, none of a model's ends."""
        from umm.program.models.priced import ATTENTION, MLP

        preset = _presets().get(self.chain or "")
        return [x for x, size in ((ATTENTION, "heads"), (MLP, "ffn")) if preset and size in preset.sizes]

    def _layers_like(self, model: "Model") -> list[int]:
        """Return the number of a model's layer that the chain is, or is a part of, and of other kinds.

        Empty if there is none; other kinds only where layers are counted.
        """
        from umm.program.models.priced import DENSE, SPARSE, layer_for

        if not model.quantization or not self._parts():
            return []
        if self.chain not in (DENSE, SPARSE):
            assert self.chain is not None
            layer = layer_for(model, self.chain, _presets()[self.chain].sizes)
            return [] if layer is None else [model.layers.index(layer)]
        sparse = self.chain == SPARSE
        number = next((x for x, layer in enumerate(model.layers) if bool(layer.experts) == sparse), 0)
        return [number, *map(model.layers.index, model.kinds)] if self.layers else [number]

    def _with_layers(self, model: "Model", of_one: Sequence[str] | None) -> Self:
        """Return this for all layers of a model where its chain is one of them and no number is typed."""
        names = {x.name for x in self.ctx.command.params}
        if "layers" not in names or self.typed(["layers"]) or self.typed(["given"]):
            return self
        needed = self.typed([x for x in LAYERS[1:] if x in names])
        if not needed and (of_one is None or self.typed(of_one)):
            return self
        outline = self.outline()
        return replace(self, layers=len(model.layers)) if outline and is_layer(outline) else self

    def quantized(self, model: "Model", number: int) -> Self:
        """Return this with the weights of a layer as the model's file stores them."""
        if not model.quantization:
            return self
        from umm.program.models.priced import weights_priced

        priced = weights_priced(model, number, self._parts())
        return replace(self, weight_types=priced.types, stored=priced.stored)

    def _note_other_kinds(self, model: "Model") -> None:
        """Say which layers of a model are taken for layers of the chain, where no kinds are added up."""
        from umm.program.models.priced import DENSE, SPARSE, kinds_priced

        layers = self.layers
        if not layers or self.chain not in (DENSE, SPARSE):
            return
        kinds = kinds_priced(model, layers)
        alike = next((x for x in kinds if x.chain == self.chain), kinds[0])
        others = [f"{x.layers} of {x.kind}" for x in kinds if x is not alike]
        if others:
            self.output.note(
                f"all {layers} layers are taken as {alike.kind}, also {', '.join(others)}; "
                "umm simulate --layers adds up the kinds"
            )

    def outline(self, scale: Fraction | None = None) -> "Outline | None":
        """Return the chain, not yet laid out; None where one multiply is asked for.

        InputError if flags of both are given, or what is asked cannot be.

        Args:
            scale: Factor of tokens, hidden and ffn.
        """
        name = self.chain
        if name is None:
            typed = self.typed((*CHAIN, "choices", "optimizer"))
            if typed:
                needs = "needs" if len(typed) == 1 else "need"
                raise InputError(f"{', '.join(typed)} {needs} a chain, such as --chain transformer-layer")
            return None
        from umm.program import load_chain
        from umm.program.models import find_model
        from umm.program.presets import PRESETS, chain, model_sizes

        self.refuse(_OF_A_PROBLEM, f"--chain {name} takes the place of {{}}; leave out one or the other")
        if self.of_file:
            decided = (*SIZES, "model", *_NAMED, "dtype", "routing", "scale")
            self.refuse(decided, f"{name} already decides {{}}; leave it out")
            loaded = load_chain(name)
            return loaded.with_given(self.given) if self.given else loaded
        sizes = {x: size for x, size in self.sizes.items() if size is not None}
        if not self.decode and (sizes.keys() & {"context", "batch"}):
            raise InputError("context and batch are of --decode; add it, or give tokens and sequences")
        named: dict[str, Any] = {x: getattr(self, x) for x in _NAMED}
        named |= {"dtype": self.dtype, "model": self.model, "routing": _routing(self.routing)}
        if self.model:
            named["model"] = find_model(self.model, self.ignore)
        if self.layer is not None:
            named["layer"] = self.layer
        if self.weight_types is not None:
            named["weights"] = self.weight_types
        if scale:
            of_model = model_sizes(name, named["model"])[0] if self.model and name in PRESETS else {}
            known = {x: of_model.get(x) for x in SCALED if name in PRESETS}
            unscaled = {
                x: size
                for x, size in (known | sizes).items()
                if size and x in ("tokens", *_presets()[name].sizes)
            }
            sizes |= {x: max(1, round(unscaled[x] * scale)) for x in SCALED if x in unscaled}
        return chain(name, **named, **sizes).with_given(self.given)


class OfChains(OfChain, heading="Chain"):
    """Chains of several sizes."""

    sizes: Mapping[str, Any] = size_flags(dimension_list, "LIST")

    def outlines(self) -> "list[Outline]":
        """Return the chains, not yet laid out; none where a multiply is asked for.

        InputError as :meth:`outline` does.
        """
        if self.chain is None:
            self.outline()
            return []
        axes = ([(name, size) for size in sizes or [None]] for name, sizes in self.sizes.items())
        outlines = [replace(self, sizes=dict(each)).outline() for each in product(*axes)]
        return [x for x in outlines if x is not None]


class LaidOut(OfChain, OfProblem, heading="Chain"):
    """A chain in layouts, or one multiply."""

    layouts: str | None = flag(
        metavar="NAME|TENSOR=LAYOUT,…", usual=True,
        help="Scheme of a chain: megatron, sequence, data, context, ring, gather, ulysses, tp8-dp4, fsdp32, "
        "hsdp8x4, fsdp4-ulysses8, ring4-ulysses8, …, or best, found by a search; then layouts of single "
        "tensors. For experts: ep4-tp2, ep8-dp4, ep8-fsdp4 (all experts in each of 4 data groups), ep8+8 (8 "
        "copies of the fullest experts), ep8/2 (rows move in 2 parts).",
    )  # fmt: skip

    def laid_out(self, scale: Fraction | None = None) -> "Chain | None":
        """Return the chain in its layouts; None where one multiply is asked for.

        InputError if flags of both are given, or what is asked cannot be.
        """
        outline = self.outline(scale)
        if outline is None:
            return None
        ranks = self.count
        try:
            outline = self.in_scheme(outline, ranks)
            return outline.laid_out(self.layouts_of(outline, ranks), ranks)
        except InputError as error:
            if not self.of_file:
                raise
            raise type(error)(f"{error}; if {self.chain} was saved for other ranks, give --ranks") from None

    @property
    def scheme(self) -> str:
        """The name in --layouts; empty if it has none."""
        first = (self.layouts or "").partition(",")[0].strip()
        return "" if "=" in first else first

    def in_scheme(self, outline: "Outline", ranks: int) -> "Outline":
        """Return a chain as the scheme in --layouts runs it; see :func:`umm.program.systems.in_scheme`."""
        from umm.program.systems import in_scheme

        return in_scheme(self.scheme, outline, ranks)

    def layouts_of(self, outline: "Outline", ranks: int) -> Mapping[str, str]:
        """Return the layouts of a chain: those of a name, or the best, changed by TENSOR=LAYOUT parts."""
        if self.scheme == BEST and BEST not in outline.layouts:
            outline = outline.with_layouts(BEST, best_layouts(outline, self.hardware, ranks))
        return outline.layouts_of(self.layouts or None, ranks)


CHAIN = [x for x in names_of(LaidOut) if x not in {*names_of(OfProblem), "ignore"}]
"""Flags that are of a chain alone."""


class Layered(OfChain, heading="Chain"):
    """Many layers of a chain."""

    layers: int | None = flag(
        callback=dimension, metavar="COUNT", usual=True,
        help="Report time and memory of this many layers, with a --model's embedding and head; umm peers has "
        "all of a --model's if not given.",
    )  # fmt: skip
    recompute: tuple[str, ...] = flag(
        type=Several(RECOMPUTE), default=RECOMPUTE[0], show_default=False, metavar="none|attention|all",
        help="What the backward part computes again instead of keeping it; umm peers takes the first of a "
        "list that fits.",
    )  # fmt: skip
    optimizer: float = flag(
        type=OptimizerState(min=0, max=1024), default=0.0, metavar="BYTES|adam|sgd",
        help="Optimizer state for each element of a weight; adam is 12, two moments and a copy of the weight "
        "in float32.",
    )  # fmt: skip

    def check_layers(self) -> None:
        """Refuse flags of several layers where there is one.

        InputError if --recompute or --optimizer comes without --layers.
        """
        if self.layers is None:
            self.refuse(LAYERS[1:], "{} needs --layers, or a --model, which has them")


LAYERS = ("layers", "recompute", "optimizer")


class LaidOutLayers(Layered, LaidOut, heading="Chain"):
    """Many layers of a chain in layouts."""

    def layer_laid_out(self) -> "tuple[Outline, Mapping[str, str], int]":
        """Return the chain that is a layer, the layout of each of its tensors, and the ranks.

        InputError if no chain is asked for, or it cannot be.
        """
        outline = self.outline()
        if outline is None:
            raise InputError("layers need a chain, such as --chain transformer-layer")
        ranks = self.count
        outline = self.in_scheme(outline, ranks)
        return outline, self.layouts_of(outline, ranks), ranks

    def kinds(self) -> dict[str, Self]:
        """Return a request for each kind of layer of a model, by its name; none where all are alike.

        A kind without experts is laid out as the rest of a layer with them. InputError if the model has fewer
        layers, or a kind of them that is not simulated.
        """
        from umm.program.models import find_model
        from umm.program.models.priced import DENSE, SPARSE, kinds_priced
        from umm.program.systems import beside_experts

        if not (self.layers and self.model and self.chain in (DENSE, SPARSE)):
            return {}
        model = find_model(self.model)
        kinds = kinds_priced(model, self.layers)
        if len(kinds) < 2:
            return {}
        each: dict[str, Self] = {}
        mixed = any(x.chain == SPARSE for x in kinds)
        attends = any(x.sizes["heads"] for x in kinds)
        layouts = beside_experts(self.layouts, self.decode) if mixed else self.layouts
        for kind in kinds:
            of_kind = replace(self, chain=kind.chain, layers=kind.layers, layer=kind.first)
            if self.weight_types is not None:
                of_kind = of_kind.quantized(model, kind.first)
            if attends and not kind.sizes["heads"]:  # nothing of it is attention to compute again
                recompute = tuple("none" if x == "attention" else x for x in self.recompute)
                of_kind = replace(of_kind, recompute=recompute)
            if kind.chain == DENSE:
                sizes = {**self.sizes, **dict.fromkeys(("experts", "top_k", "shared"))}
                usual: dict[str, Any] = {"routing": "uniform", "routing_seed": 0, "capacity": 0.0}
                of_kind = replace(of_kind, sizes=sizes, layouts=layouts, **usual)
            name = kind.kind if kind.kind not in each else f"{kind.kind} from layer {kind.first}"
            each[name] = of_kind
        # A scheme that cannot be is refused by its own name, before the dense kinds are simulated.
        for of_kind in each.values():
            if of_kind.chain == SPARSE:
                of_kind.layer_laid_out()
        return each

    def ends(self, layer: "Outline", ranks: int) -> "list[End]":
        """Return the embedding and the head of a model whose vocabulary is known, with their layouts."""
        from umm.plans.steady import ends_in
        from umm.program.models import find_model

        vocab = find_model(self.model, self.ignore).vocab if self.model else 0
        ends = ends_in(self.scheme, layer, vocab, ranks, self.head_type)
        if self.scheme != BEST or BEST in layer.layouts:
            return ends
        return [x._replace(layouts=best_layouts(x.outline, self.hardware, ranks)) for x in ends]


class ChainSearched(OfChain, heading="Chain"):
    """The layouts that a search over a chain chooses from, for many layers."""

    choices: str | None = flag(
        metavar="LIST",
        help="Layouts of a chain's tensors to choose from; all is row, col and 2d with every replication "
        "factor; row,col,2d,row@p if not given.",
    )  # fmt: skip
    optimizer: float | None = flag(
        type=OptimizerState(min=0, max=1024), metavar="BYTES|adam|sgd",
        help="Optimizer state for each element of a chain's weights, stored beside them; adam is 12, two "
        "moments and a copy of the weight in float32.",
    )  # fmt: skip
    layers: int | None = flag(
        callback=dimension, metavar="COUNT", usual=True,
        help="Count the memory of this many layers, and the time of one in the middle; all of a --model's if "
        "not given.",
    )  # fmt: skip

    def chain_space(self, outline: "Outline", ranks: int | None, **axes: Any) -> "Space":
        """Return the layouts of a chain that may be chosen.

        Args:
            ranks: Ranks that share the work; the machine's own number if None.
            axes: What else is chosen, as :class:`umm.space.Space` takes it.
        """
        from umm.space import Space

        choices = None if self.choices is None else [x.strip() for x in self.choices.split(",")]
        state, layers = self.optimizer or 0.0, 1 if self.layers is None else self.layers
        return Space(chain=outline, ranks=ranks, layouts=choices, state=state, layers=layers, **axes)

    def refuse_layers(self) -> None:
        """Refuse a number of layers of one multiply; InputError if --layers is given."""
        if self.layers is not None:
            raise InputError("--layers need a chain, such as --chain transformer-layer")


def _routing(text: str) -> str:
    """Return the rule of a routing: as given, or from a file."""
    if text.partition(":")[0] in ("uniform", "zipf", "balanced", "counts", "choices"):
        return text
    path = Path(text)
    if not path.is_file():
        raise InputError(
            f"routing {text!r} is neither a rule nor a file; write uniform, zipf:1.2 or balanced"
        )
    lines = read_text(path, MAX_ROUTING).splitlines()
    rows = [line.replace(",", " ").split() for line in lines if line.strip()]
    if not rows or any(whole_in(word) is None for row in rows for word in row):
        raise InputError(f"{text} does not hold whole numbers line by line")
    if len(rows) == 1:
        return f"counts:{'-'.join(rows[0])}"
    return f"choices:{'-'.join('.'.join(row) for row in rows)}"


def _presets() -> "Mapping[str, Preset]":
    """Return the chains by name; a multiply does without them."""
    from umm.program.presets import PRESETS

    return PRESETS


def is_file(name: str) -> bool:
    """Whether a chain is asked for by a file and not by the name of a preset."""
    return Path(name).suffix == ".toml"


def best_layouts(outline: "Outline", machine: "Machine", ranks: int) -> dict[str, str]:
    """Return the best layouts of a chain, as ``umm search`` finds them with its own budget.

    InfeasibleError if none fits. InputError if there are too many to choose from.
    """
    from umm.space import Space, search

    return dict(search(Space(chain=outline, ranks=ranks), machine, top=1).top[0].layouts)
