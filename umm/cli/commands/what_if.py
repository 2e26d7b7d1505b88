"""``umm what-if``: how much each number of the machine moves the time, and where the choice flips."""

from pathlib import Path
from typing import Any

import click

from umm.cli.flags.chain import chain_options, chain_search_options
from umm.cli.flags.options import WRITE, given, option, output_options, problem_options, time_limit
from umm.cli.flags.schedule import SCHEDULE, asked_axes, axis_options
from umm.cli.flags.values import Finite
from umm.cli.printed.output import Output

MEMORY = "memory"


@click.command("what-if")
@problem_options(machine="h100-8", layouts=False, many_m=True)
@chain_options(layouts=False)
@chain_search_options(layers=True)
@axis_options(searched=True)
@option(
    "--memory",
    default="device",
    show_default="90 % of the device",
    metavar="BUDGET",
    help="Memory limit of a rank: 16GiB, a multiple of the unreplicated share such as 2x, or none: all of "
    "the device.",
)
@option(
    "--map",
    "over",
    metavar="memory|KEY",
    help="Map the best choice over -m and the memory, or over -m and a machine number such as "
    "fabric*bandwidth.",
)
@option(
    "--reach",
    type=Finite(min=1.0, min_open=True),
    default=4.0,
    show_default=True,
    metavar="X",
    help="Largest factor to try for a number; the smallest is its inverse.",
)
@option(
    "--margin",
    type=Finite(min=0.0, max=0.5),
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="How much better another choice must be to be reported.",
)
@option("--html", type=WRITE, help="Write a standalone page with the figure.")
@time_limit()
@output_options()
@click.pass_context
def what_if(
    ctx: click.Context,
    /,
    over: str | None,
    memory: str,
    reach: float,
    margin: float,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Show what would change the answer of a search.

    Each number of the machine is halved and doubled: the output shows how the best choice's time changes, and
    from which value on another choice is better. Fixed layouts (--a row --b col …) are one choice. --map
    shows the best choice over sizes -m 1K,2K,4K and memory or one number. With --chain a choice is the
    layouts of all its tensors; with --layers they have to fit the memory of as many.
    """
    from umm.cli.flags.asked import asked_machine, dimensions
    from umm.cli.flags.chain import asked_chain_space, asked_outline, refuse_layers
    from umm.cli.printed.save import check_targets
    from umm.cli.printed.what_if_page import print_map, print_sensitivity, sensitivity_record
    from umm.errors import InputError
    from umm.space import Space
    from umm.space.what_if.decision_map import DecisionMap, map_over_memory, map_over_number
    from umm.space.what_if.sensitivity import Sensitivity, sensitivity

    output = Output(as_json, quiet, no_color)
    check_targets(html)
    outline = asked_outline(ctx, flags)
    if outline is not None:
        typed = given(ctx, SCHEDULE) + (["--map"] if over else [])
        if typed:
            raise InputError(f"{', '.join(typed)} does not apply to chains; leave it out")
    else:
        refuse_layers(flags)
    sizes = dimensions(flags) if outline is None else {"m": [0]}
    rows = sizes.pop("m")
    budget = None if memory == "none" else memory
    if over is None and len(rows) > 1:
        raise InputError(
            "several sizes need --map memory or --map fabric*bandwidth; umm search takes them too"
        )
    kind = Sensitivity if over is None else DecisionMap
    with output.ending(kind) as answer, output.reporting() as report:
        machine = asked_machine(flags)
        ranks = machine.default_ranks if flags["ranks"] is None else flags["ranks"]
        if outline is not None:
            space = asked_chain_space(outline, ranks, flags)
        else:
            named = {name: flags[name] for name in ("dtype", "c_dtype", "given")}
            space = Space(m=rows[0], **sizes, **named, ranks=ranks, **asked_axes(flags))
        if over is None:
            found = sensitivity(space, machine, memory=budget, margin=margin, reach=reach, progress=report)
            answer.append(found)
        elif over == MEMORY:
            answer.append(map_over_memory(space, machine, rows, progress=report))
        else:
            answer.append(
                map_over_number(
                    space, machine, rows, number=over, memory=budget, reach=reach, progress=report
                )
            )
    if over is None:
        record = sensitivity_record(space, machine.name, answer[0], reach)
    else:
        record = {"machine": machine.name, "map": answer[0].to_dict()}
    if html is not None:
        from umm.figures.what_if import write_map, write_sensitivity

        if over is None:
            write_sensitivity(answer[0], machine.name, html)
        else:
            write_map(answer[0], html)
        output.note(f"wrote {html}; it opens in any browser, offline")
    if as_json:
        output.json("what-if", record)
    elif over is None:
        print_sensitivity(output.console(), space, machine.name, answer[0], reach)
    else:
        print_map(output.console(), space, answer[0])
    output.end()
