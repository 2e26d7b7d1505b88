"""``umm tiles``: who owns which tile of A, B and C."""

from typing import Any

import click

from umm.cli.flags.chain import chain_options
from umm.cli.flags.options import option, output_options, problem_options
from umm.cli.printed.output import Output
from umm.errors import InputError

FRAMEWORKS = ("dtensor", "jax", "scalapack", "hpf")


@click.command()
@problem_options(machine="h100-8")
@chain_options()
@option(
    "--as", "words", type=click.Choice(FRAMEWORKS),
    help="Print each layout in a framework's notation instead, one per line.",
)  # fmt: skip
@output_options()
@click.pass_context
def tiles(
    ctx: click.Context, /, words: str | None, as_json: bool, quiet: bool, no_color: bool, **flags: Any
) -> None:
    """Show who owns which tile of A, B and C.

    A cell is a tile and names its owner in every replica. The heads of rows and columns are their global
    indices, half-open. Large grids are cut short. --a, --b and --c take the notations that --as prints. With
    --chain all tensors are shown; a mixture of experts also with the rows of each expert's ranks.
    """
    from umm.cli.flags.asked import asked_machine, asked_problem
    from umm.cli.flags.chain import asked_chain
    from umm.cli.printed.tile_grid import print_layout, tensors_record, tiles_record
    from umm.program.problem import MATRICES

    output = Output(as_json, quiet, no_color)
    chain = asked_chain(ctx, flags, asked_machine(flags)) if flags["chain"] is not None else None
    if chain is not None:
        if words is not None:
            raise InputError("--as applies to one multiply; leave out --as or --chain")
        if as_json:
            output.json("tiles", tensors_record(chain))
            return
        for x in chain.tensors:
            print_layout(output.console(), x.name, x.layout, x.itemsize)
        return
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
