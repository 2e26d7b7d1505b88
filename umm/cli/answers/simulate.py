"""Answers of the commands in :mod:`umm.cli.commands.simulate`."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from umm.algorithms.scheduling import UNIVERSAL
from umm.cli.commands.simulate import Simulate
from umm.cli.flags.asked import Request
from umm.cli.flags.declared import names_of
from umm.cli.flags.options import Noisy
from umm.cli.flags.scaling import compare_scales, show_scales
from umm.cli.printed import report
from umm.cli.printed.explanation import explain
from umm.cli.printed.save import save_files
from umm.errors import InputError
from umm.executor import executor
from umm.kept import kept
from umm.machines import Machine
from umm.plans.multiply.policies import DIRECT
from umm.program.plan import Plan
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.space.budget import device_share, usual_limit
from umm.traces.trace import Trace

if TYPE_CHECKING:
    from umm.space.scaling import Scale
    from umm.space.search.walk import Progress
    from umm.space.what_if.beside import Advice, Beside, Decides


def simulate(asked: Simulate) -> None:
    """Answer ``umm simulate``."""
    asked = asked.with_model()
    output = asked.output
    files = {"schedule": asked.save_schedule, "trace": asked.save_trace, "perfetto": asked.perfetto}
    scales = asked.scales()
    asked.check_layers()
    noise = asked.noise
    if scales:
        one = ("explain", "saved", "save_schedule", "save_trace", "perfetto", "chakra", "emit")
        asked.refuse_of_one((*one, *names_of(Noisy)))
        show_scales(asked, compare_scales(asked, scales, _timed), {})
        return
    if asked.layers is not None:
        if noise is not None:
            raise InputError("--jitter and --straggler are for one schedule; leave out --layers")
        if typed := asked.typed(("emit", "chakra")):
            raise InputError(f"{typed[0]} is of one layer; leave out --layers")
        from umm.cli.answers.layers import simulate_layers

        save_files(simulate_layers(asked), output, **files)
        return
    by_blocks = "cyclic:" in asked.a and not (asked.saved or asked.chain)
    if by_blocks and asked.how["movement"] in ("auto", "flat"):
        from umm.algorithms.summa import block_cyclic

        # Simulating PDGEMM's operands may take long.
        if asked.algorithm == UNIVERSAL and block_cyclic(asked.problem):
            output.note(
                "blocks move one by one; --movement panels simulates pgemm, which joins those of an owner"
            )
    with output.progress() as bar:
        task = bar.add_task("making the schedule", total=None)
        schedule, request = asked.saved_or_asked(asked.saved)
        bar.update(task, description=f"simulating {len(schedule)} actions")
        trace = executor("sim").run(schedule)
        if asked.emit is not None:
            if schedule.program.kind != "chain":
                raise InputError("--emit of one multiply is of umm search, which prints the winner's program")
            from umm.cli.printed.save import chain_program

            emitted = chain_program(asked.emit, trace, asked.hardware)
            bar.stop()
            click.echo(emitted, nl=False)
            return
        answered = follows_from(request)
        beside = kept("range", answered, lambda: sure_of(trace, request))
        if noise is not None:
            from umm.space.search.robustness import spread

            bar.update(task, description=f"simulating {noise.draws} draws")
            beside = replace(beside, noise=noise, spread=spread(schedule, noise, executor("sim")))
        move_s = None
        if request and isinstance(problem := request.problem, Problem):
            final = str(schedule.options.get("final", "complete"))
            move_s = kept("moves", answered, lambda: moves_alone(problem, request.machine, final))
    save_files(trace, output, **files)
    if asked.chakra is not None:
        from umm.emit.chains.chakra_trace import write_chakra

        count = len(list(write_chakra(trace, asked.chakra)))
        output.note(f"wrote {count} traces {asked.chakra}.RANK.et")
    if not output.as_json:
        report.print_schedule(output.console(), schedule, move_s)
        report.print_prediction(output.console(), trace, beside)
    try:
        with output.reporting() as stage:
            looking = partial(stage, "what would be better")
            looking(0, 0)
            beside = better_than(trace, request, beside, looking)
    except KeyboardInterrupt:
        if not output.as_json:
            report.print_verdict(output.console(), trace, beside)
        raise click.Abort from None
    reasons = explain(trace.schedule, trace) if asked.explain == "time" else ""
    entries: Plan = ()
    if asked.explain == "plan":
        from umm.cli.printed.plan_page import plan_record, print_plan
        from umm.plans.written import plan_on

        entries = plan_on(schedule, asked.hardware)

    def shown(console: Console) -> None:
        report.print_verdict(console, trace, beside, reasons)
        if entries:
            print_plan(console, entries, schedule)

    predicted = report.predicted_record(trace) | beside.to_dict(trace) | {"bring_s": move_s}
    asked.answer(
        lambda: (
            report.problem_record(schedule)
            | {"predicted": predicted}
            | ({"explained": reasons.splitlines()} if reasons else {})
            | ({"plan": plan_record(entries, schedule)} if entries else {})
        ),
        shown,
        [trace, beside.page(trace)] if asked.html else (),
    )


def _timed(asked: Simulate, report: "Progress") -> "tuple[str, Scale]":
    """Return the program in words, and its time and memory."""
    from umm.space.scaling import NO_ROOM, Scale

    machine = asked.hardware
    if asked.layers is not None:
        from umm.cli.answers.layers import of_layers

        layers, *_ = of_layers(asked)
        ranks, chosen = layers.trace.schedule.ranks, asked.layouts or "its own layouts"
        words = f"{layers.layers} layers of {layers.trace.schedule.program.name}"
        if layers.memory_bytes > usual_limit(device_share(machine, ranks)):
            chosen += NO_ROOM
        return words, Scale.of(machine, ranks, chosen, layers.makespan_s, layers.memory_bytes)
    schedule = asked.request().schedule
    program, ranks = schedule.program, schedule.ranks
    chosen = program.layout_words if program.kind == "problem" else str(asked.layouts or "its own layouts")
    memory = int(schedule.memory_bytes.max())
    seconds = executor("sim").makespan(schedule)
    words = program.facts("")[0][1].rstrip(", ")
    return words, Scale.of(machine, ranks, chosen, seconds, memory)


def sure_of(trace: Trace, request: Request | None) -> "Beside":
    """Return the range of a prediction, and a rank's share of its device's memory."""
    from umm.space.search.uncertainty import MOST_ACTIONS, WIDE, makespan_range, unused, widest
    from umm.space.what_if.beside import Beside

    room = report.device_room(trace.schedule)
    if request is None or takes_long(trace.schedule):
        return Beside(room=room)
    makespan = executor("sim").makespan
    ends = makespan_range(request.machine, request.on, makespan, trace.makespan_s)
    wide = ends[1] - ends[0] > WIDE * trace.makespan_s
    if not wide or len(trace.schedule) > MOST_ACTIONS:
        return Beside(ends, room=room)
    measure = widest(request.machine, request.on, makespan, unused(trace.schedule))
    return Beside(ends, room=room, widest=measure)


def better_than(trace: Trace, request: Request | None, beside: "Beside", progress: "Progress") -> "Beside":
    """Return a prediction's context with a better choice, if any, and the assumed number that decides.

    Args:
        request: The request; None of a saved schedule.
        progress: Called now and then with the number of points settled and of all points.
    """
    schedule, makespan = trace.schedule, executor("sim").makespan
    problem, universal = schedule.program, "policy" in schedule.options
    if request is None or not (universal and problem.kind == "problem"):
        return beside
    if takes_long(schedule):
        return replace(beside, left_out=True)

    def looked() -> tuple["Advice | None", "Decides | None", bool]:
        from umm.space.what_if.advice import deciding, looked_for

        advice, left_out = looked_for(schedule, request.machine, makespan, progress)
        better = advice.choice.schedule if advice else None
        return advice, deciding(request.machine, schedule.problem, request.on, better, makespan), left_out

    advice, assumed, left_out = kept("better", follows_from(request), looked)
    return replace(beside, advice=advice, assumed=assumed, left_out=left_out)


def follows_from(request: Request | None) -> Any:
    """Return the sources of answers on a multiply; None of others, and of policies of plug-ins."""
    if request is None or request.problem.kind != "problem" or request.choices.get("policy") != DIRECT:
        return None
    machine = request.machine
    choices = sorted(request.choices.items(), key=str)
    return repr(request.problem), machine.name, machine.sha, choices, request.by_library


def moves_alone(problem: Problem, machine: Machine, final: str) -> dict[str, float] | None:
    """Return the seconds to move A and B in, and C out, each alone."""
    # A question that is asked again needs no import of what moves them.
    from umm.plans.redistribution.fastest import move_seconds

    return move_seconds(problem, machine, final)


def takes_long(schedule: Schedule) -> bool:
    """Whether asking for many like it would take minutes: it is large, or its policy searches itself."""
    from umm.plans.multiply.policies import find_policy, policy_names
    from umm.space.what_if.beside import MOST_ACTIONS

    policy = schedule.options.get("policy")  # another algorithm has none
    return len(schedule) > MOST_ACTIONS or (policy in policy_names() and find_policy(policy).searches)
