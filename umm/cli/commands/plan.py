"""``umm plan``: who computes what, and what moves from whom to whom."""

from typing import Any

import click

from umm.cli.flags.chain import chain_options
from umm.cli.flags.options import output_options, problem_options
from umm.cli.flags.schedule import schedule_options
from umm.cli.printed.output import Output


@click.command()
@problem_options(machine="h100-8")
@chain_options()
@schedule_options()
@output_options()
@click.pass_context
def plan(ctx: click.Context, /, as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Show which ranks compute which pieces, and what moves from whom to whom, without times.

    Entries come in the order in which the first action of each is written. Ranks that do alike have one line.
    """
    import numpy as np

    from umm.cli.flags.asked import asked
    from umm.cli.printed.plan_page import plan_record, print_plan
    from umm.cli.printed.report import print_schedule, problem_record
    from umm.plans.collectives.rings import node_of_ranks
    from umm.plans.written import plan_of

    output = Output(as_json, quiet, no_color)
    request = asked(ctx, flags)
    schedule = request.lower(request.problem)
    machine, one_node = request.machine, np.zeros(schedule.ranks, dtype=np.int64)
    node_of = node_of_ranks(machine, schedule.ranks) if machine.fabric.nodes else one_node
    entries = plan_of(schedule, node_of)
    if as_json:
        output.json("plan", problem_record(schedule) | {"plan": plan_record(entries, schedule)})
        return
    print_schedule(output.console(), schedule)
    print_plan(output.console(), entries, schedule)
