"""``umm tiles``: who owns which tile of A, B and C."""

import click

from umm.cli.flags.chain import LaidOut
from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Answering
from umm.errors import InputError


class Tiles(LaidOut, Answering):
    """Layouts, and the notation they are shown in."""

    words: str | None = flag(
        "--as", type=click.Choice(("dtensor", "jax", "scalapack", "hpf")),
        help="Print each layout in a framework's notation instead, one per line.",
    )  # fmt: skip


@command(Tiles, machine="h100-8")
def tiles(asked: Tiles) -> None:
    """Show who owns which tile of A, B and C.

    A cell is a tile and names its owner in every replica. The heads of rows and columns are their global
    indices, half-open. Large grids are cut short. --a, --b and --c take the notations that --as prints. With
    --chain all tensors are shown; a mixture of experts also with the rows of each expert's ranks.
    """
    asked = asked.with_model()
    from umm.cli.printed.tile_grid import print_layouts, tensors_record, tiles_record
    from umm.program.problem import MATRICES

    chain = asked.laid_out()
    if chain is not None:
        if asked.words is not None:
            raise InputError("--as applies to one multiply; leave out --as or --chain")
        layouts = {x.name: (x.layout, x.itemsize) for x in chain.tensors}
        asked.answer(lambda: tensors_record(chain), lambda console: print_layouts(console, layouts))
        return
    problem = asked.problem
    texts = {x: str(problem.layout(x).said_in(asked.words)) for x in MATRICES} if asked.words else {}
    layouts = {x: (problem.layout(x), problem.itemsize(x)) for x in MATRICES}
    asked.answer(
        lambda: tiles_record(problem) | ({"as": texts} if texts else {}),
        lambda console: (
            click.echo("\n".join(f"{matrix}  {text}" for matrix, text in texts.items()))
            if texts
            else print_layouts(console, layouts)
        ),
    )
