"""``umm tiles``: who owns which tile of A, B and C."""

from typing import Any

import click

from umm.cli.flags.options import option, output_options, problem_options
from umm.cli.printed.output import Output

FRAMEWORKS = ("dtensor", "jax", "scalapack", "hpf")


@click.command()
@problem_options(machine="h100-8")
@option(
    "--as", "words", type=click.Choice(FRAMEWORKS),
    help="Print each layout in a framework's notation instead, one per line.",
)  # fmt: skip
@output_options()
def tiles(words: str | None, as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Show who owns which tile of A, B and C.

    A cell is a tile and names its owner in every replica; rows and columns of tiles are headed by their
    global indices, half-open. Large grids are cut short. What --as prints, --a, --b and --c take.
    """
    from umm.cli.flags.asked import asked_problem
    from umm.cli.printed.tile_grid import print_layout, tiles_record
    from umm.program.problem import MATRICES

    output = Output(as_json, quiet, no_color)
    problem = asked_problem(flags)
    said = {x: str(problem.layout(x).said_in(words)) for x in MATRICES} if words else {}
    if as_json:
        output.json("tiles", tiles_record(problem) | ({"as": said} if said else {}))
        return
    for matrix, text in said.items():
        click.echo(f"{matrix}  {text}")
    if said:
        return
    console = output.console()
    for matrix in MATRICES:
        print_layout(console, matrix, problem.layout(matrix), problem.itemsize(matrix))
