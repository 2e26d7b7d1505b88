"""The command ``umm``: its subcommands and where each is."""

import click

from umm import __version__
from umm.cli.group import LazyGroup

COMMANDS = {
    "simulate": ("umm.cli.commands.simulate:simulate", "Predict one multiply on one machine."),
    "search": ("umm.cli.commands.search:search", "Find the best layouts for a problem and a machine."),
    "sweep": ("umm.cli.commands.sweep:sweep", "Perform every point asked for, into a store."),
    "peers": ("umm.cli.commands.peers:peers", "Compare with what people use, from where operands lie."),
    "run": ("umm.cli.commands.run:run", "Execute a schedule for real and check the product."),
    "compare": ("umm.cli.commands.compare:compare", "Compare a predicted trace with a measured one."),
    "collective": ("umm.cli.commands.collective:collective", "Time a collective over sizes."),
    "what-if": ("umm.cli.commands.what_if:what_if", "Tell what would change the answer of a search."),
    "explore": ("umm.cli.commands.explore:explore", "Explore layouts and replication factors on a page."),
    "tiles": ("umm.cli.commands.tiles:tiles", "Show who owns which tile of A, B and C."),
    "machine": ("umm.cli.commands.machine:machine", "List, show, check and calibrate machines."),
    "doctor": ("umm.cli.commands.doctor:doctor", "Tell what is installed and what can run here."),
}
EPILOG = """\b
Start with:
  umm simulate --machine h100-8 --preset mlp1 --a col --b col --c col
  umm search --machine pvc-12 --preset mlp1

A flag can also be set as UMM_<FLAG> in the environment or in a TOML file given with --config; a flag wins
over the environment, that over the file, that over a preset. Exit codes: 0 fine, 1 runtime error, 2 bad
input, 3 nothing feasible, 4 check or tolerance failed, 5 executor not available here, 130 interrupted."""


@click.group(
    "umm",
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="umm")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Which partition and replication should a distributed matrix multiply C = AB have?

    Simulate it on a model of the machine, search for the best, execute the same schedule for real, and
    compare the two.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


if __name__ == "__main__":
    main()
