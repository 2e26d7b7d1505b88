"""``umm model`` and ``umm models``: layers, parameters and cache, from a name or a config.json."""

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering


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
    from umm.cli.printed.model_page import print_model
    from umm.program.models import find_model
    from umm.program.models.count import count

    name = asked.name_or_file
    counted = count(find_model(name, asked.ignore), asked.cache or "")
    asked.answer(
        lambda: {"model": name, **counted.to_dict()}, lambda console: print_model(console, name, counted)
    )


@command(Answering)
def models(asked: Answering) -> None:
    """List the models that are known by name."""
    from umm.cli.printed.model_page import print_models
    from umm.program.models import PUBLIC, find_model
    from umm.program.models.count import count

    counts = {name: count(find_model(name)) for name in PUBLIC}
    asked.answer(
        lambda: {"models": [{"model": name, **x.to_dict()} for name, x in counts.items()]},
        lambda console: print_models(console, counts),
    )
