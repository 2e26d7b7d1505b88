"""``umm tiles``: who owns which tile of A, B and C."""

from typing import Any

import click

from umm.cli.flags.options import output_options, problem_options
from umm.cli.printed.output import Output


@click.command()
@problem_options(machine="h100-8")
@output_options()
def tiles(as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Show who owns which tile of A, B and C.

    A cell is a tile and names its owner in every replica; rows and columns of tiles are headed by their
    global indices, half-open. Large grids are cut short.
    """
    from umm.cli.flags.asked import asked_problem
    from umm.cli.printed.tile_grid import print_layout, tiles_record
    from umm.problem import MATRICES

    output = Output(as_json, quiet, no_color)
    problem = asked_problem(flags)
    if as_json:
        output.json("tiles", tiles_record(problem))
        return
    console = output.console()
    for matrix in MATRICES:
        print_layout(console, matrix, problem.layout(matrix), problem.itemsize(matrix))
