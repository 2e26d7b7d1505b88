"""The flags of a chain, which takes the place of one multiply: a preset or a file, its sizes, its layouts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from umm.chains import Chain, Outline, load_chain
from umm.chains.presets import MODELS, PRESETS, chain
from umm.cli.flags.options import Command, all_of, given, option
from umm.cli.flags.values import dimension
from umm.errors import InputError
from umm.machines import Machine

SIZES = ("tokens", "hidden", "ffn", "heads", "kv_heads")
CHAIN = ("chain", "model", *SIZES, "backward", "layouts")
_OF_A_PROBLEM = ("m", "n", "k", "a", "b", "c", "c_dtype", "given", "preset")


def chain_options(layouts: bool = True) -> Callable[[Command], Command]:
    """Return a decorator that adds the flags of a chain.

    Args:
        layouts: Whether the command takes one layout for each tensor.
    """
    sizes = {
        "tokens": "Rows of a chain's activations.",
        "hidden": "Columns of its input and output.",
        "ffn": "Columns between the multiplies of an MLP.",
        "heads": "Attention heads.",
        "kv_heads": "Heads of keys and values; all heads if not given.",
    }
    flags = [
        option("--chain", metavar="NAME|FILE.toml",
               help=f"A chain in place of one multiply: {', '.join(PRESETS)}, or a file."),
        option("--model", metavar="NAME", help=f"Sizes of a public model: {', '.join(MODELS)}."),
        *(option(f"--{name.replace('_', '-')}", callback=dimension, metavar="SIZE", help=text)
          for name, text in sizes.items()),
        option("--backward", is_flag=True, help="Gradients too, given dY."),
    ]  # fmt: skip
    if layouts:
        flags.append(
            option("--layouts", metavar="NAME|TENSOR=LAYOUT,…",
                   help="Layouts of a chain: megatron, sequence, data; after it others for some tensors.")
        )  # fmt: skip
    return all_of(flags)


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
    return outline.laid_out(_layouts(outline, flags["layouts"]), ranks)


def asked_outline(ctx: click.Context, flags: dict[str, Any]) -> Outline | None:
    """Return the chain that the flags describe, not yet laid out; None if they describe one multiply.

    Raises:
        InputError: if flags of both are given, or what is asked cannot be.
    """
    name = flags["chain"]
    if name is None:
        typed = given(ctx, [*(x for x in CHAIN if x in flags), *(x for x in ("choices",) if x in flags)])
        if typed:
            raise InputError(f"{', '.join(typed)} is of a chain; give one, such as --chain mlp")
        return None
    typed = given(ctx, _OF_A_PROBLEM)
    if typed:
        raise InputError(f"--chain {name} takes the place of {', '.join(typed)}; leave out one or the other")
    if not _is_file(name):
        sizes = {x: flags[x] for x in SIZES if flags[x] is not None}
        return chain(name, model=flags["model"], backward=flags["backward"], dtype=flags["dtype"], **sizes)
    typed = given(ctx, ("model", *SIZES, "backward", "dtype"))
    if typed:
        raise InputError(f"{name} already decides {', '.join(typed)}; leave it out")
    return load_chain(name)


def _is_file(name: str) -> bool:
    return Path(name).suffix == ".toml"


def _layouts(outline: Outline, text: str | None) -> str | dict[str, str] | None:
    """Return the layouts a text means: a name, or TENSOR=LAYOUT parts that change those of a name."""
    if text is None or "=" not in text:
        return text
    first, *others = (part.strip() for part in text.split(","))
    if "=" in first:
        texts = dict(outline.default_layouts)
        others = [first, *others]
    else:
        texts = dict(outline.layouts_of(first))
    for part in others:
        tensor, equals, layout = part.partition("=")
        if not (tensor and equals and layout):
            raise InputError(f"{part!r} of --layouts is not TENSOR=LAYOUT; write it like W1=col@2")
        texts[tensor.strip()] = layout.strip()
    return texts
