"""Answers of the commands in :mod:`umm.cli.commands.model`."""

from rich.console import Console

from umm.cli.commands.model import Models, OfModel
from umm.cli.printed.output import grid
from umm.program.models import PUBLIC, find_model
from umm.program.models.count import Count, count
from umm.units import counted, format_bytes


def model(asked: OfModel) -> None:
    """Answer ``umm model``."""
    name = asked.name_or_file
    result = count(find_model(name, asked.ignore), asked.cache or "")
    record = {"model": name, **result.to_dict()}
    asked.answer(lambda: record, lambda console: print_model(console, name, result))


def models(asked: Models) -> None:
    """Answer ``umm models``."""
    counts = {name: count(find_model(name)) for name in PUBLIC}
    table = grid(("model", "parameters", "active", "layers"), ("parameters", "active"), ["layers"])
    for name, x in counts.items():
        layers = ", ".join(f"{y.count} {y.kind.replace('attention', 'att.')}" for y in x.kinds)
        table.add_row(name, _billions(x.parameters), _billions(x.active), layers)
    records = [{"model": name, **x.to_dict()} for name, x in counts.items()]
    asked.answer(lambda: {"models": records}, lambda console: console.print(table))


def print_model(console: Console, name: str, model: Count) -> None:
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


def _billions(parameters: int) -> str:
    """Return a number of parameters in four figures.

    >>> _billions(671026419200), _billions(1026408232448), _billions(596049920)
    ('671B', '1.026T', '596M')
    """
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if parameters >= size:
            return f"{parameters / size:.4g}{unit}"
    return str(parameters)
