"""``umm explore``: the page on which partitions and replication factors are explored."""

from pathlib import Path

import click

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.chain import ChainSearched
from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import READ

LOOPBACK = "127.0.0.1"


@command("umm.cli.answers.explore:explore", machine="h100-8")
class Explore(ToSchedule, ChainSearched):
    """Explore partitions and replication factors on a page in the browser.

    FILE is a trace of 'umm run --save-trace' or a store of 'umm sweep -o', to compare predictions with.

    With --chain, a preset or a file, the page searches for the best layouts of all its tensors.

    Only this host can reach the page unless --host allows others, and it makes no external requests.
    """

    file: Path | None = argument(required=False, type=READ)
    memory: str = flag(default="", usual=True, help="Budget per rank: 16GiB, or 2x the unreplicated share.")
    host: str = flag(
        default=LOOPBACK, usual=True,
        help="Address to listen on; other hosts can reach any but loopback.",
    )  # fmt: skip
    port: int = flag(type=click.IntRange(0, 65535), default=8050, usual=True, help="0 takes any free port.")
    opens: bool = flag("--open/--no-open", default=True, usual=True, help="Open the page in the browser.")
    quiet: bool = flag(help="Print only the address.")
