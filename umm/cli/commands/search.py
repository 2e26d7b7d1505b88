"""``umm search``: the best layouts for a problem and a machine, proven by bounds."""

from typing import Any

import click

from umm.cli.flags.options import option, output_options, problem_options
from umm.cli.flags.schedule import asked_axes, axis_options
from umm.cli.printed.output import Output


@click.command()
@problem_options(machine="h100-8", layouts=False)
@axis_options()
@option(
    "--memory",
    default="2x",
    show_default=True,
    metavar="BUDGET",
    help="Most a rank may hold: 16GiB, a multiple of the unreplicated share such as 2x, or none: the device.",
)
@option("--top", type=int, default=10, show_default=True, help="How many of the best to find.")
@output_options()
def search(memory: str, top: int, as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Find the best layouts for a problem and a machine, under a memory budget.

    Without further flags every layout row, col and 2d with every replication factor for A, B and C, and every
    stationary matrix. Points are priced by a lower bound and simulated from the lowest up, until no bound
    left can beat what was found. A comma list makes an axis: --a row,col@2 --prefetch 1,2. Ctrl-C prints the
    best by then, not proven.
    """
    from umm.cli.flags.asked import dimensions
    from umm.cli.printed.leaderboard import found_record, print_leaderboard
    from umm.machines import machine as find_machine
    from umm.space import SearchInterruptedError, Space
    from umm.space import search as find

    output = Output(as_json, quiet, no_color)
    sizes = dimensions(flags)
    machine = find_machine(flags["machine"])
    ranks = machine.default_ranks if flags["ranks"] is None else flags["ranks"]
    space = Space(**sizes, dtype=flags["dtype"], ranks=ranks, **asked_axes(flags))
    interrupted = False
    with output.progress() as bar:
        task = bar.add_task("searching", total=None)
        try:
            found = find(
                space,
                machine,
                memory=None if memory == "none" else memory,
                top=top,
                progress=lambda settled, points: bar.update(task, completed=settled, total=points),
            )
        except SearchInterruptedError as stopped:
            found, interrupted = stopped.found, True
    if found.top and as_json:
        output.json("search", found_record(space, found))
    elif found.top:
        print_leaderboard(output.console(), space, found)
    if interrupted:
        raise click.Abort
