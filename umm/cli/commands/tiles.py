"""``umm tiles``: who owns which tile of A, B and C."""

import click

from umm.cli.flags.chain import LaidOut
from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Answering


@command("umm.cli.answers.tiles:tiles", machine="h100-8")
class Tiles(LaidOut, Answering):
    """Show who owns which tile of A, B and C.

    A cell is a tile and names its owner in every replica. The heads of rows and columns are their global
    indices, half-open. Large grids are cut short. --a, --b and --c take the notations that --as prints. With
    --chain all tensors are shown; a mixture of experts also with the rows of each expert's ranks.
    """

    words: str | None = flag(
        "--as", type=click.Choice(("dtensor", "jax", "scalapack", "hpf")),
        help="Print each layout in a framework's notation instead, one per line.",
    )  # fmt: skip
