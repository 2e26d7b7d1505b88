"""The flags of a chain, which takes the place of one multiply: a preset or a file, its sizes, its layouts."""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.options import Command, all_of, given, option
from umm.cli.flags.values import Finite, OptimizerState, Several, dimension, dimension_list
from umm.cli.printed.output import Output
from umm.errors import InputError
from umm.files import read_text
from umm.machines import Machine
from umm.numbers import whole_in
from umm.program import Chain, Outline, load_chain
from umm.program.layers import RECOMPUTE
from umm.program.models import Model, find_model
from umm.program.models.priced import DENSE, SPARSE, kinds_priced, usual_chain, weights_priced
from umm.program.presets import PRESETS, chain, model_sizes
from umm.program.systems import beside_experts, in_scheme

if TYPE_CHECKING:
    from umm.plans.lower import End
    from umm.space import Space

MAX_ROUTING = 2**24
"""Bytes of a file of tokens' choices."""
SIZES = (
    "tokens",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "sequences",
    "vocab",
    "context",
    "batch",
    "experts",
    "top_k",
    "shared",
    "head_dim",
    "q_rank",
    "kv_rank",
    "rope_dim",
    "window",
)
SCALED = ("tokens", "hidden", "ffn")
"""Those that ``--scale`` changes; heads stay as many, and become as much smaller."""
_NAMED = ("model", "backward", "decode", "weights", "dtype", "dropout", "routing_seed", "capacity")
CHAIN = (
    "chain",
    "model",
    *SIZES,
    "backward",
    "decode",
    "weights",
    "dropout",
    "layouts",
    "routing",
    "routing_seed",
    "capacity",
)
BEST = "best"
"""The layouts that a search finds, unless a chain has some of that name itself."""
_OF_A_PROBLEM = ("m", "n", "k", "a", "b", "c", "c_dtype", "preset")


def chain_options(
    layouts: bool = True, axes: bool = False, layers: bool = False
) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags of a chain.

    Args:
        layouts: Whether the command takes one layout for each tensor.
        layers: Whether it takes many layers of it.
        axes: Whether it takes comma lists of sizes.
    """
    size: dict[str, Any] = {"callback": dimension_list if axes else dimension}
    size["metavar"] = "LIST" if axes else "SIZE"
    sizes = {
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
    flags = [
        option("--chain", metavar="NAME|FILE.toml",
               help=f"A chain instead of one multiply: {', '.join(PRESETS)}, or a file."),
        option("--model", metavar="NAME|config.json",
               help="A model of 'umm models', or a Hugging Face config.json, whose sizes count."),
        option("--ignore", multiple=True, metavar="KEY",
               help="Read --model's config.json without this key; may be repeated."),
        *(option(f"--{name.replace('_', '-')}", help=text, **size)
          for name, text in sizes.items()),
        option("--backward", is_flag=True, help="Add the gradients, given dY."),
        option("--decode", is_flag=True,
               help="Compute one token of each of --batch sequences, after --context tokens."),
        option("--weights", default="", metavar="TYPE",
               help="Type of the weights of a forward part, if another: fp8, with a scale for each 128 "
                    "elements; what they multiply is cast before."),
        option("--dropout", type=float, default=0.0, metavar="RATE",
               help="Share of an MLP's activations that are dropped, the same ones in every layout."),
        option("--routing", default="uniform", metavar="RULE|FILE",
               help="How tokens are routed to experts: uniform, zipf:1.2, balanced, or a file: one line "
                    "with the rows of each expert, or a line per token with its experts."),
        option("--routing-seed", type=click.IntRange(0, 2**29), default=0, metavar="SEED",
               help="Seed of --routing."),
        option("--capacity", type=Finite(min=0, max=1e6), default=0.0, metavar="TIMES",
               help="Most rows of an expert, as a multiple of the mean; later rows are dropped."),
    ]  # fmt: skip
    if layers:
        flags += [
            option("--layers", callback=dimension, metavar="COUNT",
                   help="Report time and memory of this many layers, with a --model's embedding and head."),
            option("--recompute", type=Several(RECOMPUTE), default=RECOMPUTE[0], metavar="none|attention|all",
                   help="What the backward part computes again instead of keeping it; umm peers takes the "
                        "first of a list that fits."),
            option("--optimizer", type=OptimizerState(min=0, max=1024), default=0.0, metavar="BYTES|adam|sgd",
                   help="Optimizer state for each element of a weight; adam is 12, two moments and a copy "
                        "of the weight in float32."),
        ]  # fmt: skip
    if layouts:
        flags.append(
            option("--layouts", metavar="NAME|TENSOR=LAYOUT,…",
                   help="Scheme of a chain: megatron, sequence, data, context, ring, gather, ulysses, "
                        "tp8-dp4, fsdp32, hsdp8x4, fsdp4-ulysses8, …, or best, found by a search; then "
                        "layouts of single tensors. For experts: ep4-tp2, ep8-dp4, ep8-fsdp4 (all experts in "
                        "each of 4 data groups), ep8+8 (8 copies of the fullest experts), ep8/2 (rows move "
                        "in 2 parts).")
        )  # fmt: skip
    return all_of(flags)


def chain_search_options(layers: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds what a search over a chain's layouts chooses from, and what it counts.

    Args:
        layers: Whether it counts the memory of many layers.
    """
    choices = option(
        "--choices", default=None, metavar="LIST",
        help="Layouts of a chain's tensors to choose from; all is row, col and 2d with every replication "
             "factor; row,col,2d,row@p if not given.",
    )  # fmt: skip
    optimizer = option(
        "--optimizer", type=OptimizerState(min=0, max=1024), metavar="BYTES|adam|sgd",
        help="Optimizer state for each element of a chain's weights, stored beside them; adam is 12, two "
        "moments and a copy of the weight in float32.",
    )  # fmt: skip
    count = option(
        "--layers", callback=dimension, metavar="COUNT",
        help="Count the memory of this many layers of a chain; times are of one layer.",
    )  # fmt: skip
    return all_of([choices, optimizer, count] if layers else [choices, optimizer])


def with_model(ctx: click.Context, flags: dict[str, Any], output: Output) -> dict[str, Any]:
    """Return flags completed from --model, and note the model's keys that are not modelled.

    A model stands for the chain of its most frequent kind of layer, and a quantised one for the types of its
    weights, where these are neither trained nor given.

    Raises:
        InputError: if there is no such model, or its file is refused, or keys of none are to be ignored.
    """
    if flags["ignore"] and not flags["model"]:
        raise InputError("--ignore is of --model's config.json; name it, or leave --ignore out")
    if not flags["model"] or (flags["chain"] and is_file(flags["chain"])):
        return flags
    model = find_model(flags["model"], flags["ignore"])
    output.not_modelled(model.not_modelled)
    flags = flags | {"model": model, "chain": flags["chain"] or usual_chain(model)}
    if ctx.command.name != "simulate":
        _note_other_kinds(flags, model, output)
    if flags["backward"] or given(ctx, ["weights"]) or flags["chain"] not in (DENSE, SPARSE):
        return flags
    sparse = flags["chain"] == SPARSE
    number = next((x for x, layer in enumerate(model.layers) if bool(layer.experts) == sparse), 0)
    return flags | _quantized(model, number, output)


def _note_other_kinds(flags: dict[str, Any], model: Model, output: Output) -> None:
    """Say which layers of a model are taken for layers of the chain, where a command adds up no kinds."""
    if not flags.get("layers") or flags["chain"] not in (DENSE, SPARSE):
        return
    kinds = kinds_priced(model, flags["layers"])
    alike = next((x for x in kinds if x.chain == flags["chain"]), kinds[0])
    others = [f"{x.layers} of {x.kind}" for x in kinds if x is not alike]
    if others:
        output.note(
            f"all {flags['layers']} layers are taken as {alike.kind}, also {', '.join(others)}; "
            "umm simulate --layers adds up the kinds"
        )


def _quantized(model: Model, number: int, output: Output | None = None) -> dict[str, Any]:
    """Return the flags of a layer's weights as the model's file stores them; say so if there is an output."""
    weights = weights_priced(model, number)
    if not weights.remark:
        return {}
    if output is not None:
        output.note(f"{weights.remark}; --weights takes another type")
    return {"weights": weights.dtype, "quantized": weights.parts, "stored": weights.stored}


def asked_chain_space(outline: Outline, ranks: int | None, flags: dict[str, Any], **axes: Any) -> "Space":
    """Return the layouts of a chain that the flags of :func:`chain_search_options` describe.

    Args:
        outline: The chain.
        ranks: Ranks that share the work; the machine's own number if None.
        flags: Those of the command.
        axes: What else is chosen, as :class:`umm.space.Space` takes it.
    """
    from umm.space import Space

    choices = None if flags["choices"] is None else [x.strip() for x in flags["choices"].split(",")]
    state, layers = flags["optimizer"] or 0.0, 1 if flags["layers"] is None else flags["layers"]
    return Space(chain=outline, ranks=ranks, layouts=choices, state=state, layers=layers, **axes)


def refuse_layers(flags: dict[str, Any]) -> None:
    """Refuse a number of layers of one multiply.

    Raises:
        InputError: if --layers is given.
    """
    if flags["layers"] is not None:
        raise InputError("--layers need a chain, such as --chain transformer-layer")


def asked_chain(ctx: click.Context, flags: dict[str, Any], machine: Machine) -> Chain | None:
    """Return the chain that the flags describe, laid out; None if they describe one multiply.

    Raises:
        InputError: if flags of both are given, or what is asked cannot be.
    """
    outline = asked_outline(ctx, flags)
    if outline is None:
        return None
    ranks = machine.default_ranks if flags["ranks"] is None else flags["ranks"]
    machine.check_ranks(ranks)
    try:
        outline = in_scheme_of(flags["layouts"], outline, ranks)
        return outline.laid_out(_layouts(outline, flags["layouts"], machine, ranks), ranks)
    except InputError as error:
        if not is_file(flags["chain"]):
            raise
        raise type(error)(f"{error}; if {flags['chain']} was saved for other ranks, give --ranks") from None


def asked_outlines(ctx: click.Context, flags: dict[str, Any]) -> list[Outline]:
    """Return the chains that lists of sizes describe, not yet laid out; none if they describe a multiply.

    Raises:
        InputError: as :func:`asked_outline` does.
    """
    if flags["chain"] is None:
        asked_outline(ctx, flags)
        return []
    axes = ([(name, size) for size in flags[name] or [None]] for name in SIZES)
    found = [asked_outline(ctx, flags | dict(sizes)) for sizes in product(*axes)]
    return [x for x in found if x is not None]


def asked_outline(ctx: click.Context, flags: dict[str, Any]) -> Outline | None:
    """Return the chain that the flags describe, not yet laid out; None if they describe one multiply.

    Raises:
        InputError: if flags of both are given, or what is asked cannot be.
    """
    name = flags["chain"]
    if name is None:
        typed = given(ctx, [x for x in (*CHAIN, "choices", "optimizer") if x in flags])
        if typed:
            needs = "needs" if len(typed) == 1 else "need"
            raise InputError(f"{', '.join(typed)} {needs} a chain, such as --chain transformer-layer")
        return None
    typed = given(ctx, _OF_A_PROBLEM)
    if typed:
        raise InputError(f"--chain {name} takes the place of {', '.join(typed)}; leave out one or the other")
    where = flags.get("given", "")
    if not is_file(name):
        sizes = {x: flags[x] for x in SIZES if flags[x] is not None}
        named = {x: flags[x] for x in _NAMED}
        if flags["model"]:
            named["model"] = find_model(flags["model"], flags["ignore"])
        named["routing"] = _routing(flags["routing"])
        named |= {x: flags[x] for x in ("layer", "quantized") if x in flags}
        if not named["decode"] and (sizes.keys() & {"context", "batch"}):
            raise InputError("context and batch are of --decode; add it, or give tokens and sequences")
        if flags.get("scale"):
            of_model = model_sizes(name, named["model"])[0] if named["model"] and name in PRESETS else {}
            known = {x: of_model.get(x) for x in SCALED if name in PRESETS}
            whole = {x: size for x, size in (known | sizes).items() if size and _is_of(name, x)}
            sizes |= {x: max(1, round(whole[x] * flags["scale"])) for x in SCALED if x in whole}
        return chain(name, **named, **sizes).with_given(where)
    typed = given(ctx, (*SIZES, *_NAMED, "routing", "scale"))
    if typed:
        raise InputError(f"{name} already decides {', '.join(typed)}; leave it out")
    loaded = load_chain(name)
    return loaded.with_given(where) if where else loaded


def _routing(text: str) -> str:
    """Return the rule of a routing: as given, or what a file says.

    Raises:
        InputError: if there is no such file, or it holds anything but whole numbers.
    """
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


def _is_of(name: str, size: str) -> bool:
    return size == "tokens" or size in PRESETS[name].sizes


def is_file(name: str) -> bool:
    """Whether a chain is asked for by a file and not by the name of a preset."""
    return Path(name).suffix == ".toml"


def asked_layer(
    ctx: click.Context, flags: dict[str, Any], machine: Machine
) -> tuple[Outline, Mapping[str, str], int]:
    """Return the chain that is a layer, the layout of each of its tensors, and the ranks.

    Raises:
        InputError: if no chain is asked for, or it cannot be.
    """
    outline = asked_outline(ctx, flags)
    if outline is None:
        raise InputError("layers need a chain, such as --chain transformer-layer")
    ranks = machine.default_ranks if flags["ranks"] is None else flags["ranks"]
    machine.check_ranks(ranks)
    outline = in_scheme_of(flags["layouts"], outline, ranks)
    return outline, _layouts(outline, flags["layouts"], machine, ranks), ranks


def asked_kinds(flags: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the flags of each kind of layer of a model, by its name; none where --layers are of one kind.

    A kind without experts is laid out as the rest of a layer with them.

    Raises:
        InputError: if the model has fewer layers, or a kind of them that is not simulated.
    """
    if not (flags["layers"] and flags["model"] and flags["chain"] in (DENSE, SPARSE)):
        return {}
    kinds = kinds_priced(find_model(flags["model"]), flags["layers"])
    if len(kinds) < 2:
        return {}
    usual = {"routing": "uniform", "routing_seed": 0, "capacity": 0.0}
    asked: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        of_kind = flags | {"chain": kind.chain, "layers": kind.layers, "layer": kind.first}
        if "quantized" in flags:
            of_kind |= _quantized(find_model(flags["model"]), kind.first)
        if kind.chain == DENSE:
            of_kind |= {**dict.fromkeys(("experts", "top_k", "shared")), **usual}
            of_kind["layouts"] = beside_experts(flags["layouts"])
        name = kind.kind if kind.kind not in asked else f"{kind.kind} from layer {kind.first}"
        asked[name] = of_kind
    return asked


LAYERS = ("layers", "recompute", "optimizer")


def check_layers(ctx: click.Context, flags: dict[str, Any]) -> None:
    """Refuse what is said of layers where there is one.

    Raises:
        InputError: if --recompute or --optimizer comes without --layers.
    """
    typed = given(ctx, LAYERS[1:])
    if flags["layers"] is None and typed:
        raise InputError(f"{', '.join(typed)} needs --layers")


def asked_ends(flags: dict[str, Any], layer: Outline, machine: Machine, ranks: int) -> "list[End]":
    """Return the embedding and the head of a model whose vocabulary is known, with their layouts."""
    from umm.plans.lower import ends_in

    vocab = find_model(flags["model"], flags["ignore"]).vocab if flags["model"] else 0
    name = scheme_of(flags["layouts"])
    found = ends_in(name, layer, vocab, ranks)
    if name != BEST or BEST in layer.layouts:
        return found
    return [x._replace(layouts=best_layouts(x.outline, machine, ranks)) for x in found]


def in_scheme_of(text: str | None, outline: Outline, ranks: int) -> Outline:
    """Return the chain as the scheme in --layouts runs it; see :func:`umm.program.systems.in_scheme`."""
    return in_scheme(scheme_of(text), outline, ranks)


def scheme_of(text: str | None) -> str:
    """Return the name in --layouts; empty if it has none."""
    first = (text or "").partition(",")[0].strip()
    return "" if "=" in first else first


def _layouts(outline: Outline, text: str | None, machine: Machine, ranks: int) -> Mapping[str, str]:
    """Return the layouts a text means: those of a name, or the best, changed by TENSOR=LAYOUT parts."""
    if text and text.partition(",")[0].strip() == BEST and BEST not in outline.layouts:
        outline = outline.with_layouts(BEST, best_layouts(outline, machine, ranks))
    return outline.layouts_of(text or None, ranks)


def best_layouts(outline: Outline, machine: Machine, ranks: int) -> dict[str, str]:
    """Return the best layouts of a chain, as ``umm search`` finds them with its own budget.

    Raises:
        InfeasibleError: if none fits.
        InputError: if there are too many to choose from.
    """
    from umm.space import Space, search

    return dict(search(Space(chain=outline, ranks=ranks), machine, top=1).top[0].layouts)
