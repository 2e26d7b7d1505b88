"""``umm model`` and ``umm models``: layers, parameters and cache, from a name or a config.json."""

import click

from umm.cli.flags.options import option, output_options
from umm.cli.printed.output import Output

IGNORE = "Read a config.json without this key, although it may change layers; may be repeated."


@click.command()
@click.argument("name_or_file")
@option("--ignore", multiple=True, metavar="KEY", help=IGNORE)
@option("--cache", type=click.Choice(["bfloat16", "fp8", "fp4"]), default=None,
        help="Type of the cache; if not given, as the file says.")  # fmt: skip
@output_options()
def model(
    name_or_file: str, cache: str | None, ignore: tuple[str, ...], as_json: bool, quiet: bool, no_color: bool
) -> None:
    """Show a model's layers, parameters and cache, from its name or its config.json.

    Prints each kind of layer, the parameters in all and for one token, bytes by type, what a token leaves in
    the cache, and the keys of the file that are not modelled. A key that changes layers in a way that umm
    does not know refuses the file by its name.
    """
    from umm.cli.printed.model_page import print_model
    from umm.program.models import find_model
    from umm.program.models.count import count

    output = Output(as_json, quiet, no_color)
    counted = count(find_model(name_or_file, ignore), cache or "")
    if as_json:
        output.json("model", {"model": name_or_file, **counted.to_dict()})
        return
    print_model(output.console(), name_or_file, counted)


@click.command()
@output_options()
def models(as_json: bool, quiet: bool, no_color: bool) -> None:
    """List the models that are known by name."""
    from umm.cli.printed.model_page import print_models
    from umm.program.models import PUBLIC, find_model
    from umm.program.models.count import count

    output = Output(as_json, quiet, no_color)
    counts = {name: count(find_model(name)) for name in PUBLIC}
    if as_json:
        output.json("models", {"models": [{"model": name, **x.to_dict()} for name, x in counts.items()]})
        return
    print_models(output.console(), counts)
