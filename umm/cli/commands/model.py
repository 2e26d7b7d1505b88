"""``umm model`` and ``umm models``: layers, parameters and cache, from a name or a config.json."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering
from umm.cli.printed.output import grid
from umm.units import counted, format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from umm.program.models.count import Count


class OfModel(Answering):
    """A model, and the type of its cache."""

    name_or_file: str = argument()
    ignore: tuple[str, ...] = flag(
        multiple=True, metavar="KEY",
        help="Read a config.json without this key, although it may change layers; may be repeated.",
    )  # fmt: skip
    cache: str | None = flag(
        type=click.Choice(["bfloat16", "fp8", "fp4"]),
        help="Type of the cache; if not given, as the file says.",
    )  # fmt: skip


@command(OfModel)
def model(asked: OfModel) -> None:
    """Show a model's layers, parameters and cache, from its name or its config.json.

    Prints each kind of layer, the parameters in all and for one token, bytes by type, what a token leaves in
    the cache, and the keys of the file that are not modelled. A key that changes layers in a way that umm
    does not know refuses the file by its name.
    """
    from umm.program.models import find_model
    from umm.program.models.count import count

    name = asked.name_or_file
    result = count(find_model(name, asked.ignore), asked.cache or "")
    asked.answer(
        lambda: {"model": name, **result.to_dict()}, lambda console: print_model(console, name, result)
    )


@command(Answering)
def models(asked: Answering) -> None:
    """List the models that are known by name."""
    from umm.program.models import PUBLIC, find_model
    from umm.program.models.count import count

    counts = {name: count(find_model(name)) for name in PUBLIC}
    asked.answer(
        lambda: {"models": [{"model": name, **x.to_dict()} for name, x in counts.items()]},
        lambda console: print_models(console, counts),
    )


def print_model(console: "Console", name: str, model: "Count") -> None:
    """Print a model: kinds of layers, parameters, bytes, cache, and the keys that are not modelled."""
    layers = sum(x.count for x in model.kinds)
    console.print(
        f"{name}: {_billions(model.parameters)} parameters, {_billions(model.active)} active for a token, "
        f"{counted(layers, 'layer')}"
    )
    counts = ("layers", "each", "active", "cache a token")
    table = grid(("kind of layer", *counts), numbers=counts, folds=["kind of layer"])
    for kind in model.kinds:
        cache = format_bytes(kind.cache_bytes) if kind.cache_bytes else "–"
        cache += f" ≤ {kind.window}" if kind.window else ""
        table.add_row(kind.kind, str(kind.count), _billions(kind.parameters), _billions(kind.active), cache)
    table.add_row("embedding and head", "", _billions(model.ends), "", "")
    if model.vision:
        table.add_row("vision", "", _billions(model.vision), "", "")
    console.print(table)
    stored = ", ".join(f"{format_bytes(nbytes)} of {dtype}" for dtype, nbytes in model.by_type.items())
    console.print(f"weights  {format_bytes(sum(model.by_type.values()))}: {stored}")
    cache = "none"
    if model.cache_bytes_per_token:
        cache = f"{format_bytes(model.cache_bytes_per_token)} a token of {model.cache_type}"
    if model.window_bytes_per_token:
        cache += f"; {format_bytes(model.window_bytes_per_token)} of it only inside a window"
    console.print(f"cache    {cache}")
    if model.state_bytes:
        console.print(f"states   {format_bytes(model.state_bytes)} a sequence, of any length, in float32")
    if model.mtp:
        console.print(f"not in it: {_billions(model.mtp)} of layers that predict further tokens")
    for key, remark in model.not_modelled.items():
        console.print(f"not modelled: {key} ({remark})")


def print_models(console: "Console", models: Mapping[str, "Count"]) -> None:
    """Print the models that are known by name, a line for each."""
    table = grid(("model", "parameters", "active", "layers"), ("parameters", "active"), ["layers"])
    for name, model in models.items():
        layers = ", ".join(f"{x.count} {x.kind.replace('attention', 'att.')}" for x in model.kinds)
        table.add_row(name, _billions(model.parameters), _billions(model.active), layers)
    console.print(table)


def _billions(parameters: int) -> str:
    """Return a number of parameters in four figures.

    >>> _billions(671026419200), _billions(1026408232448), _billions(596049920)
    ('671B', '1.026T', '596M')
    """
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if parameters >= size:
            return f"{parameters / size:.4g}{unit}"
    return str(parameters)
