"""``umm model`` and ``umm models``: layers, parameters and cache, from a name or a config.json."""

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering


@command("umm.cli.answers.model:model")
class OfModel(Answering):
    """Show a model's layers, parameters and cache, from its name or its config.json.

    Prints each kind of layer, the parameters in all and for one token, bytes by type, what a token leaves in
    the cache, and the keys of the file that are not modelled. A key that changes layers in a way that umm
    does not know refuses the file by its name.
    """

    name_or_file: str = argument()
    ignore: tuple[str, ...] = flag(
        multiple=True, metavar="KEY",
        help="Read a config.json without this key, although it may change layers; may be repeated.",
    )  # fmt: skip
    cache: str | None = flag(
        type=click.Choice(["bfloat16", "fp8", "fp4"]),
        help="Type of the cache; if not given, as the file says.",
    )  # fmt: skip


@command("umm.cli.answers.model:models")
class Models(Answering):
    """List the models that are known by name."""
