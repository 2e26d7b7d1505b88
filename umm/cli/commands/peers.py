"""``umm peers``: the universal algorithm beside what people use today, and whether to leave what one has."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from umm.cli.flags.chain import chain_options
from umm.cli.flags.options import WRITE, option, output_options, problem_options, time_limit
from umm.cli.printed.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from umm.program import Outline


@click.command()
@problem_options(machine="h100-8")
@chain_options(layouts=False)
@option(
    "--memory",
    default="device",
    show_default="the device less a tenth",
    metavar="BUDGET",
    help="Most a rank may hold: 16GiB, a multiple of the unreplicated share such as 2x, or none: all of the "
    "device.",
)
@option("--refused", is_flag=True, help="List the algorithms that cannot serve too, and what would work.")
@option("--crossover/--no-crossover", default=None,
        help="Look for other sizes at which the verdict changes.  [default: for a multiply]")  # fmt: skip
@time_limit()
@option("--html", type=WRITE, help="Write a standalone page with all timelines side by side.")
@output_options()
@click.pass_context
def peers(
    ctx: click.Context,
    /,
    memory: str,
    refused: bool,
    crossover: bool | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Compare the universal algorithm with what people use, from where operands lie now.

    Every row starts with A and B in --a and --b (or --given) and ends with C in --c. Universal: in place,
    with the best stationary matrix and options. Redistribute: the same after operands are brought to the
    best layouts, which a search finds. Then every other algorithm and system with the best of its own
    options; what lies otherwise than it wants is brought in and out. The verdict tells what to do, and at
    which m that changes.

    With --chain the best layouts for all its tensors beside those of Megatron, sequence parallel, FSDP, data
    and data × tensor parallel; every row assumes that inputs lie as it says, but for those that
    --given X=row,W1=col says lie elsewhere: it brings them.
    """
    from umm.cli.flags.asked import asked_machine, asked_problem
    from umm.cli.flags.chain import asked_outline
    from umm.cli.printed.peers_table import peers_record, print_peers
    from umm.cli.printed.save import check_targets
    from umm.space.peers.peers import peers as compare

    output = Output(as_json, quiet, no_color)
    check_targets(html)
    outline = asked_outline(ctx, flags)
    with output.ending() as answer, output.telling() as told:
        answer.append(
            compare(
                outline or asked_problem(flags),
                asked_machine(flags),
                ranks=flags["ranks"],
                memory=None if memory == "none" else memory,
                crossover=outline is None if crossover is None else crossover,
                at=_at(ctx, flags),
                tokens=flags["tokens"] or 0,
                progress=told,
            )
        )
    found = answer[0]
    if as_json:
        output.json("peers", peers_record(found))
    else:
        print_peers(output.console(), found, refused)
    if html is not None:
        from umm.figures.report import write_peers

        write_peers(found, html)
        output.note(f"wrote {html}; it opens in any browser, offline")
    output.end()


def _at(ctx: click.Context, flags: dict[str, Any]) -> "Callable[[int], Outline] | None":
    """Return what gives a preset with another number of tokens; None of anything else."""
    from umm.cli.flags.chain import asked_outline
    from umm.program.presets import PRESETS

    if flags["chain"] not in PRESETS:
        return None
    return lambda tokens: cast("Outline", asked_outline(ctx, flags | {"tokens": tokens}))
