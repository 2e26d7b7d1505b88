"""``umm simulate``: predict one multiply, or a chain, on one machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.chain import chain_options
from umm.cli.flags.options import READ, WRITE, option, output_options, problem_options
from umm.cli.flags.schedule import schedule_options
from umm.cli.printed.output import Output

if TYPE_CHECKING:
    from umm.cli.flags.asked import Asked
    from umm.space.what_if.beside import Beside
    from umm.traces.trace import Trace


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
    from umm.space.given import bring_seconds
    from umm.space.what_if.beside import Beside
    from umm.traces.explain import explain as explained

    output = Output(as_json, quiet, no_color)
    check_targets(save_schedule, save_trace, html, perfetto=perfetto)
    with output.progress() as bar:
        task = bar.add_task("making the schedule", total=None)
        schedule, request = saved_or_asked(ctx, saved, flags)
        bar.update(task, description=f"simulating {len(schedule)} actions")
        trace = executor("sim").run(schedule)
        bar.update(task, description="what would be better")
        beside = Beside(room=device_room(schedule)) if request is None else looked_beside(trace, request)
    reasons = explained(schedule, trace) if explain else ""
    save_files(trace, output, save_schedule, save_trace, perfetto, html, beside.page(trace))
    brings = None
    if request and isinstance(request.problem, Problem):
        brings = bring_seconds(request.problem, request.machine, str(request.choices.get("final", "reduce")))
    if as_json:
        predicted = predicted_record(trace) | beside.to_dict(trace) | {"bring_s": brings}
        record = problem_record(schedule) | {"predicted": predicted}
        output.json("simulate", record | ({"explained": reasons.splitlines()} if explain else {}))
    else:
        console = output.console()
        print_schedule(console, schedule, brings)
        print_prediction(console, trace, beside)
        if explain:
            console.print(reasons, highlight=False, markup=False, soft_wrap=True)


def looked_beside(trace: "Trace", request: "Asked") -> "Beside":
    """Return the range of a prediction, what a search finds that is better, and what assumed number decides.

    A policy that searches is not asked again and again: that would take minutes.
    """
    from umm.algorithms.universal.policies import POLICIES
    from umm.cli.printed.report import device_room
    from umm.executor import executor
    from umm.problem import Problem
    from umm.space.search.sure import makespan_range
    from umm.space.what_if.advice import MOST_ACTIONS, advise
    from umm.space.what_if.assumed import deciding
    from umm.space.what_if.beside import Beside

    schedule, makespan, machine = trace.schedule, executor("sim").makespan, request.machine
    room = device_room(schedule)
    policy = POLICIES.get(schedule.options.get("policy", ""))  # another algorithm has none
    if len(schedule) > MOST_ACTIONS or (policy and policy.searches):
        return Beside(room=room)
    ends = makespan_range(machine, request.on, makespan, trace.makespan_s)
    if not (policy and isinstance(schedule.program, Problem)):
        return Beside(ends, room=room)
    advice = advise(schedule, machine, makespan)
    better = advice.choice.schedule if advice else None
    assumed = deciding(machine, schedule.program, request.on, better, makespan)
    return Beside(ends, advice, assumed, room)
