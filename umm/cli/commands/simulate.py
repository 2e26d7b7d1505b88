"""``umm simulate``: predict one multiply, or a chain, on one machine."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from umm.cli.flags.chain import chain_options, check_layers, with_model
from umm.cli.flags.options import (
    NOISE,
    READ,
    WRITE,
    asked_noise,
    noise_options,
    option,
    output_options,
    problem_options,
)
from umm.cli.flags.scaling import (
    asked_scales,
    compare_scales,
    refuse_of_one,
    scaling_options,
    show_scales,
)
from umm.cli.flags.schedule import schedule_options
from umm.cli.printed.output import Output
from umm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from umm.cli.flags.asked import Asked
    from umm.machines import Machine
    from umm.plans.lower import Steady
    from umm.program import Outline
    from umm.schedules.schedule import Schedule
    from umm.space.scaling import Scale
    from umm.space.search.walk import Progress
    from umm.space.what_if.advice import Beside
    from umm.traces.trace import Trace


@click.command()
@problem_options(machine="h100-8", many_ranks=True)
@scaling_options()
@chain_options(layers=True)
@schedule_options()
@noise_options()
@option(
    "--explain", is_flag=True, help="Explain step by step what limits the slowest rank, and on which link."
)
@option("--schedule", "saved", type=READ, help="Run a saved schedule instead.")
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

    Several --nodes or --ranks have one table: time, speed-up, efficiency and, with --price, dollars.

    Prints the makespan, the fraction of peak, where the time goes, bytes moved, memory, and what limits it.
    """
    from umm.cli.flags.asked import saved_or_asked
    from umm.cli.printed.report import (
        predicted_record,
        print_prediction,
        print_schedule,
        print_verdict,
        problem_record,
    )
    from umm.cli.printed.save import check_targets, save_files
    from umm.executor import executor
    from umm.plans.redistribution.fastest import move_seconds

    output = Output(as_json, quiet, no_color)
    flags = with_model(ctx, flags, output)
    console = output.console()
    noise = asked_noise(flags)
    check_targets(save_schedule, save_trace, html, perfetto=perfetto)
    scales = asked_scales(flags)
    check_layers(ctx, flags)
    if scales:
        refuse_of_one(ctx, ("explain", "saved", "save_schedule", "save_trace", "perfetto", *NOISE))
        found = compare_scales(output, flags, scales, partial(_timed, ctx))
        show_scales(output, "simulate", found, html, {})
        return
    if flags["layers"] is not None:
        if noise is not None:
            raise InputError("--jitter and --straggler are for one schedule; leave out --layers")
        trace = simulate_layers(ctx, flags, output, explain)
        save_files(trace, output, save_schedule, save_trace, perfetto)
        return
    if saved is None and "cyclic:" in flags["a"] and flags["movement"] in ("auto", "flat"):
        _advise_panels(output, flags)
    with output.progress() as bar:
        task = bar.add_task("making the schedule", total=None)
        schedule, request = saved_or_asked(ctx, saved, flags)
        bar.update(task, description=f"simulating {len(schedule)} actions")
        trace = executor("sim").run(schedule)
        beside = sure_of(trace, request)
        if noise is not None:
            from umm.space.search.robustness import spread

            bar.update(task, description=f"simulating {noise.draws} draws")
            beside = replace(beside, noise=noise, spread=spread(schedule, noise, executor("sim")))
        brings = None
        if request and request.problem.kind == "problem":
            final = str(schedule.options.get("final", "complete"))
            brings = move_seconds(request.problem, request.machine, final)
    save_files(trace, output, save_schedule, save_trace, perfetto)
    if not as_json:
        print_schedule(console, schedule, brings)
        print_prediction(console, trace, beside)
    try:
        with output.reporting() as report:
            looking = partial(report, "what would be better")
            looking(0, 0)
            beside = better_than(trace, request, beside, looking)
    except KeyboardInterrupt:
        if not as_json:
            print_verdict(console, trace, beside)
        raise click.Abort from None
    reasons = _explained(schedule, trace) if explain else ""
    if as_json:
        predicted = predicted_record(trace) | beside.to_dict(trace) | {"bring_s": brings}
        record = problem_record(schedule) | {"predicted": predicted}
        output.json("simulate", record | ({"explained": reasons.splitlines()} if explain else {}))
    else:
        print_verdict(console, trace, beside)
        if explain:
            console.print(reasons, highlight=False, markup=False, soft_wrap=True)
    if html is not None:
        save_files(trace, output, html=html, verdict=beside.page(trace))


def _advise_panels(output: Output, flags: dict[str, Any]) -> None:
    """Say before a simulation of PDGEMM's operands, which may be long, how pgemm would move them."""
    from umm.algorithms.summa import block_cyclic
    from umm.cli.flags.asked import asked_problem

    if flags["chain"] is None and flags["algorithm"] == "universal" and block_cyclic(asked_problem(flags)):
        output.note(
            "blocks move one by one; --movement panels simulates pgemm, which joins those of an owner"
        )


def simulate_layers(ctx: click.Context, flags: dict[str, Any], output: Output, explain: bool) -> "Trace":
    """Predict a model of many layers; return the trace of a few of them.

    Raises:
        InputError: if no chain is asked for, or it is not a layer.
    """
    from umm.cli.flags.asked import asked_machine
    from umm.cli.printed.tables import layers_record, print_layers
    from umm.executor import executor
    from umm.space.search.uncertainty import layers_range

    machine = asked_machine(flags)
    with output.progress() as bar:
        bar.add_task(f"simulating a few of {flags['layers']} layers", total=None)
        found, alone = _of_layers(ctx, flags, machine)
        ends = layers_range(found, machine, alone, executor("sim").makespan)
    reasons = _explained(found.trace.schedule, found.trace) if explain else ""
    if output.as_json:
        more = {"explained": reasons.splitlines()} if explain else {}
        output.json("simulate", layers_record(found, machine, ends) | more)
    else:
        print_layers(output.console(), found, machine, ends)
        if explain:
            output.console().print(reasons, highlight=False, markup=False, soft_wrap=True)
    return found.trace


def _of_layers(
    ctx: click.Context, flags: dict[str, Any], machine: "Machine"
) -> "tuple[Steady, Callable[[Machine], Schedule]]":
    """Simulate the layers that flags describe; also return a function that lowers one on a machine.

    Of several kinds the one is of the kind that takes longest.
    """
    from umm.cli.flags.chain import asked_ends, asked_kinds
    from umm.cli.flags.schedule import asked_choices
    from umm.plans.kinds import together

    by_kind = asked_kinds(flags) or {"": flags}
    kinds = {name: _of_kind(ctx, of_kind, machine) for name, of_kind in by_kind.items()}
    longest = max(kinds.values(), key=lambda x: x.steady.makespan_s)
    result = together({name: x.steady for name, x in kinds.items()})
    ranks = result.trace.schedule.ranks
    ends = asked_ends(flags, longest.layer, machine, ranks)
    return result.with_ends(ends, ranks, machine, **asked_choices(ctx, flags)), longest.alone


class _Kind(NamedTuple):
    """Layers of one kind: the chain of one, their time, and a function that lowers one on a machine."""

    layer: "Outline"
    steady: "Steady"
    alone: "Callable[[Machine], Schedule]"


def _of_kind(ctx: click.Context, flags: dict[str, Any], machine: "Machine") -> _Kind:
    """Simulate equal layers."""
    from umm.algorithms.scheduling import UNIVERSAL
    from umm.cli.flags.chain import asked_layer, scheme_of
    from umm.cli.flags.schedule import asked_choices
    from umm.plans.kinds import weights_stored
    from umm.plans.lower import lower, steady
    from umm.program.systems import choices_left
    from umm.space.budget import device_share, usual_limit

    layer, layouts, ranks = asked_layer(ctx, flags, machine)
    recompute, *others = flags["recompute"]
    if others:
        raise InputError("--recompute has several values; umm peers takes the first of a list that fits")
    if flags["algorithm"] != UNIVERSAL:
        raise InputError("layers are simulated by the universal algorithm; leave out --algorithm")
    asked = asked_choices(ctx, flags)
    how = asked | choices_left(layer.laid_out(layouts, ranks), asked, scheme_of(flags["layouts"]))
    result = steady(
        layer, layouts, ranks, machine, flags["layers"],
        recompute=recompute, state=flags["optimizer"],
        room=usual_limit(device_share(machine, ranks)), **how,
    )  # fmt: skip
    result = weights_stored(result, flags.get("stored", 1.0))
    return _Kind(layer, result, lambda other: lower(layer.laid_out(layouts, ranks), other, **how))


def _explained(schedule: "Schedule", trace: "Trace") -> str:
    from umm.cli.printed.explanation import explain

    return explain(schedule, trace)


def _timed(
    ctx: click.Context, flags: dict[str, Any], machine: "Machine", report: "Progress"
) -> "tuple[str, Scale]":
    """Return what is computed with some flags, and what it takes."""
    from umm.cli.flags.asked import asked
    from umm.executor import executor
    from umm.space.budget import device_share, usual_limit
    from umm.space.scaling import NO_ROOM, Scale, devices_of

    if flags["layers"] is not None:
        found, _ = _of_layers(ctx, flags, machine)
        ranks, chosen = found.trace.schedule.ranks, flags["layouts"] or "its own layouts"
        words = f"{found.layers} layers of {found.trace.schedule.program.name}"
        if found.memory_bytes > usual_limit(device_share(machine, ranks)):
            chosen += NO_ROOM
        used = devices_of(machine, ranks)
        return words, Scale(ranks, used, chosen, found.makespan_s, found.memory_bytes)
    request = asked(ctx, flags)
    schedule = request.lower(request.problem)
    program, ranks = request.problem, schedule.ranks
    chosen = program.layout_words if program.kind == "problem" else str(flags["layouts"] or "its own layouts")
    memory = int(schedule.memory_bytes.max())
    seconds = executor("sim").makespan(schedule)
    words = program.facts("")[0][1].rstrip(", ")
    return words, Scale(ranks, devices_of(machine, ranks), chosen, seconds, memory)


def sure_of(trace: "Trace", request: "Asked | None") -> "Beside":
    """Return the range of a prediction, and what a rank has of its device's memory."""
    from umm.cli.printed.report import device_room
    from umm.executor import executor
    from umm.space.search.uncertainty import MOST_ACTIONS, WIDE, makespan_range, unused, widest
    from umm.space.what_if.advice import Beside

    room = device_room(trace.schedule)
    if request is None or takes_long(trace.schedule):
        return Beside(room=room)
    makespan = executor("sim").makespan
    ends = makespan_range(request.machine, request.on, makespan, trace.makespan_s)
    wide = ends[1] - ends[0] > WIDE * trace.makespan_s
    if not wide or len(trace.schedule) > MOST_ACTIONS:
        return Beside(ends, room=room)
    measure = widest(request.machine, request.on, makespan, unused(trace.schedule))
    return Beside(ends, room=room, widest=measure)


def better_than(trace: "Trace", request: "Asked | None", beside: "Beside", progress: "Progress") -> "Beside":
    """Return a prediction's with what a search finds that is better, and the assumed number that decides.

    Args:
        trace: The prediction.
        request: What was asked; None of a saved schedule.
        beside: What is known of it.
        progress: Called now and then with the number of points settled and of all points.
    """
    from umm.executor import executor
    from umm.space.what_if.advice import deciding, looked_for

    schedule, makespan = trace.schedule, executor("sim").makespan
    problem, universal = schedule.program, "policy" in schedule.options
    if request is None or not (universal and problem.kind == "problem"):
        return beside
    if takes_long(schedule):
        return replace(beside, left_out=True)
    advice, left_out = looked_for(schedule, request.machine, makespan, progress)
    better = advice.choice.schedule if advice else None
    assumed = deciding(request.machine, schedule.problem, request.on, better, makespan)
    return replace(beside, advice=advice, assumed=assumed, left_out=left_out)


def takes_long(schedule: "Schedule") -> bool:
    """Whether asking for many like it would take minutes: it is large, or its policy searches itself."""
    from umm.plans.multiply.policies import find_policy, policy_names
    from umm.space.what_if.advice import MOST_ACTIONS

    policy = schedule.options.get("policy")  # another algorithm has none
    return len(schedule) > MOST_ACTIONS or (policy in policy_names() and find_policy(policy).searches)
