"""``umm simulate``: predict one multiply, or a chain, on one machine."""

from pathlib import Path
from typing import Any

import click

from umm.cli.flags.chain import chain_options
from umm.cli.flags.options import READ, WRITE, option, output_options, problem_options
from umm.cli.flags.schedule import schedule_options
from umm.cli.printed.output import Output


@click.command()
@problem_options(machine="h100-8")
@chain_options()
@schedule_options()
@option("--explain", is_flag=True, help="Tell step by step what bounds the slowest rank, and on which link.")
@option("--schedule", "saved", type=READ, help="Perform a saved schedule instead.")
@option("--save-schedule", type=WRITE, help="Write the schedule, .json or .npz.")
@option("--save-trace", type=WRITE, help="Write the trace, for 'umm compare'.")
@option("--perfetto", type=WRITE, help="Write the trace for ui.perfetto.dev.")
@option("--html", type=WRITE, help="Write a standalone page with the figures.")
@output_options()
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    explain: bool,
    saved: Path | None,
    save_schedule: Path | None,
    save_trace: Path | None,
    perfetto: Path | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Predict one multiply, or a chain of them, on one machine.

    Tells the makespan, the fraction of peak, where the time goes, what moves, what is held, and what
    bounds it.
    """
    from umm.algorithms.universal.policies import POLICIES
    from umm.cli.flags.asked import saved_or_asked
    from umm.cli.printed.report import (
        device_room,
        predicted_record,
        print_prediction,
        print_schedule,
        problem_record,
    )
    from umm.cli.printed.save import check_targets, save_files
    from umm.executor import executor
    from umm.problem import Problem
    from umm.space.what_if.advice import advise
    from umm.traces.explain import explain as explained

    output = Output(as_json, quiet, no_color)
    check_targets(save_schedule, save_trace, html, perfetto=perfetto)
    schedule, request = saved_or_asked(ctx, saved, flags)
    simulator = executor("sim")
    trace = simulator.run(schedule)
    advice = None
    one = request is not None and isinstance(request.problem, Problem)
    policy = POLICIES.get(schedule.options.get("policy", ""))  # another algorithm has none
    if request and one and policy and not policy.searches:  # neighbours would take minutes
        advice = advise(schedule, request.machine, request.lower, simulator.makespan)
    reasons = explained(schedule, trace) if explain else ""
    room = device_room(schedule)
    save_files(trace, output, save_schedule, save_trace, perfetto, html)
    if as_json:
        fits = None if room is None else trace.memory_bytes <= room
        predicted = predicted_record(trace, advice) | {"fits_memory": fits}
        record = problem_record(schedule) | {"predicted": predicted}
        output.json("simulate", record | ({"explained": reasons.splitlines()} if explain else {}))
    else:
        console = output.console()
        print_schedule(console, schedule)
        print_prediction(console, trace, advice, room)
        if explain:
            console.print(reasons, highlight=False, markup=False, soft_wrap=True)
