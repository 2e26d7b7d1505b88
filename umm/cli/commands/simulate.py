"""``umm simulate``: predict one multiply, or a chain, on one machine."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import command, flag, names_of
from umm.cli.flags.framework import OfFrameworkLayers
from umm.cli.flags.options import WRITE, Answering, FromFile, Noisy, Paged
from umm.cli.flags.scaling import Scaled, compare_scales, show_scales
from umm.errors import InputError
from umm.kept import kept
from umm.plans.multiply.policies import DIRECT
from umm.program.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from umm.cli.flags.asked import Request
    from umm.machines import Machine
    from umm.plans.steady import Steady
    from umm.program import Chain, Outline
    from umm.program.plan import Plan
    from umm.schedules.schedule import Schedule
    from umm.space.scaling import Scale
    from umm.space.search.walk import Progress
    from umm.space.what_if.beside import Advice, Beside, Decides
    from umm.traces.trace import Trace


class Simulate(OfFrameworkLayers, Scaled, ToSchedule, Noisy, FromFile, Paged, Answering, heading="Output"):
    """A multiply or a chain, its schedule, and the files to keep."""

    explain: str | None = flag(
        type=click.Choice(["time", "plan"]), is_flag=False, flag_value="time", metavar="[time|plan]",
        help="Explain step by step what limits the slowest rank, and on which link; plan: who computes "
        "which piece and what moves, as umm plan does.",
    )  # fmt: skip
    save_schedule: Path | None = flag(type=WRITE, help="Write the schedule, .json or .npz.")
    save_trace: Path | None = flag(type=WRITE, help="Write the trace, for 'umm compare'.")
    perfetto: Path | None = flag(type=WRITE, help="Write the trace for ui.perfetto.dev.")
    chakra: Path | None = flag(
        type=WRITE, metavar="PREFIX", help="Write Chakra traces PREFIX.RANK.et, which ASTRA-sim takes.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(("torch", "jax", "torchtitan", "megatron", "nccl")),
        help="Print a chain's layouts as a program (torch: parallelize_module and fully_shard; jax), as "
        "torchtitan's TOML, Megatron-LM's flags, or lines of NCCL's tuner, alone.",
    )  # fmt: skip

    def reasons(self, trace: "Trace") -> str:
        """Return the limits of the slowest rank, step by step; nothing without --explain."""
        if self.explain != "time":
            return ""
        from umm.cli.printed.explanation import explain

        return explain(trace.schedule, trace)

    def emitted(self, trace: "Trace") -> str:
        """Return a chain as a framework's program or flags.

        Raises:
            InputError: for one multiply, or layouts that the framework cannot have.
        """
        from umm.cli.printed.save import chain_program

        if trace.schedule.program.kind != "chain":
            raise InputError("--emit of one multiply is of umm search, which prints the winner's program")
        return chain_program(str(self.emit), trace, self.hardware)


@command(Simulate, machine="h100-8")
def simulate(asked: Simulate) -> None:
    """Predict one multiply, or a chain of them, on one machine.

    Several --nodes or --ranks have one table: time, speed-up, efficiency and, with --price, dollars.

    Prints the makespan, the fraction of peak, where the time goes, bytes moved, memory, and what limits it.
    """
    from umm.cli.printed.report import (
        predicted_record,
        print_prediction,
        print_schedule,
        print_verdict,
        problem_record,
    )
    from umm.cli.printed.save import save_files
    from umm.executor import executor

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
        save_files(simulate_layers(asked), output, **files)
        return
    by_blocks = "cyclic:" in asked.a and not (asked.saved or asked.chain)
    if by_blocks and asked.how["movement"] in ("auto", "flat"):
        from umm.algorithms.scheduling import UNIVERSAL
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
            emitted = asked.emitted(trace)
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
        print_schedule(output.console(), schedule, move_s)
        print_prediction(output.console(), trace, beside)
    try:
        with output.reporting() as report:
            looking = partial(report, "what would be better")
            looking(0, 0)
            beside = better_than(trace, request, beside, looking)
    except KeyboardInterrupt:
        if not output.as_json:
            print_verdict(output.console(), trace, beside)
        raise click.Abort from None
    reasons = asked.reasons(trace)
    entries: Plan = ()
    if asked.explain == "plan":
        from umm.cli.printed.plan_page import plan_record, print_plan
        from umm.plans.written import plan_on

        entries = plan_on(schedule, asked.hardware)

    def shown(console: "Console") -> None:
        print_verdict(console, trace, beside, reasons)
        if entries:
            print_plan(console, entries, schedule)

    predicted = predicted_record(trace) | beside.to_dict(trace) | {"bring_s": move_s}
    asked.answer(
        lambda: (
            problem_record(schedule)
            | {"predicted": predicted}
            | ({"explained": reasons.splitlines()} if reasons else {})
            | ({"plan": plan_record(entries, schedule)} if entries else {})
        ),
        shown,
        [trace, beside.page(trace)] if asked.html else (),
    )


def simulate_layers(asked: Simulate) -> "Trace":
    """Predict a model of many layers; return the trace of a few of them.

    Raises:
        InputError: if no chain is asked for, or it is not a layer.
    """
    from umm.cli.printed.tables import layers_record, print_layers
    from umm.executor import executor
    from umm.space.search.uncertainty import layers_range

    machine = asked.hardware
    with asked.output.progress() as bar:
        bar.add_task(f"simulating a few of {asked.layers} layers", total=None)
        result, alone, assumed = _of_layers(asked)
        ends = layers_range(result, machine, alone, executor("sim").makespan)
    for text in assumed:
        asked.output.note(text)
    reasons = asked.reasons(result.trace)
    asked.answer(
        lambda: (
            layers_record(result, machine, ends) | ({"explained": reasons.splitlines()} if reasons else {})
        ),
        lambda console: print_layers(console, result, machine, ends, reasons),
    )
    return result.trace


def _of_layers(asked: Simulate) -> "tuple[Steady, Callable[[Machine], Schedule], list[str]]":
    """Simulate the layers asked for; also return a function that lowers one on a machine, and assumed prices.

    Of several kinds the one is of the kind that takes longest.
    """
    from umm.plans.steady import together
    from umm.program.presets import next_tokens

    kinds = {name: _of_kind(of_kind) for name, of_kind in (asked.kinds() or {"": asked}).items()}
    longest = max(kinds.values(), key=lambda x: x.steady.makespan_s)
    result = together({name: x.steady for name, x in kinds.items()})
    ranks = result.trace.schedule.ranks
    # A layer of experts alone does not know the sequences, whose last tokens a head multiplies.
    layers = [x.layer for x in kinds.values()]
    known = (x for x in layers if next_tokens(x.statements, {tensor.name for tensor in x.tensors}))
    ends = asked.ends(next(known, longest.layer), ranks)
    programs = [cast("Chain", x.steady.trace.schedule.program) for x in kinds.values()]
    remarks = dict.fromkeys(text for x in programs for text in x.remarks().values())
    assumed = [x for x in remarks if x.startswith("assumed")]
    return result.with_ends(ends, ranks, asked.hardware, **asked.choices_asked), longest.alone, assumed


class _Kind(NamedTuple):
    """Layers of one kind: the chain of one, their time, and a function that lowers one on a machine."""

    layer: "Outline"
    steady: "Steady"
    alone: "Callable[[Machine], Schedule]"


def _of_kind(asked: Simulate) -> _Kind:
    """Simulate equal layers."""
    from umm.algorithms.scheduling import UNIVERSAL
    from umm.plans.lower import lower
    from umm.plans.steady import steady, weights_stored
    from umm.program.systems import choices_left
    from umm.space.budget import device_share, usual_limit

    machine = asked.hardware
    layer, layouts, ranks = asked.layer_laid_out()
    recompute, *others = asked.recompute
    if others:
        raise InputError("--recompute has several values; umm peers takes the first of a list that fits")
    if asked.algorithm != UNIVERSAL:
        raise InputError("layers are simulated by the universal algorithm; leave out --algorithm")
    choices = asked.choices_asked
    how = choices | choices_left(layer.laid_out(layouts, ranks), choices, asked.scheme)
    assert asked.layers is not None
    result = steady(
        layer, layouts, ranks, machine, asked.layers,
        recompute=recompute, state=asked.optimizer,
        room=usual_limit(device_share(machine, ranks)), **how,
    )  # fmt: skip
    result = weights_stored(result, asked.stored)
    return _Kind(layer, result, lambda other: lower(layer.laid_out(layouts, ranks), other, **how))


def _timed(asked: Simulate, report: "Progress") -> "tuple[str, Scale]":
    """Return the program in words, and its time and memory."""
    from umm.executor import executor
    from umm.space.budget import device_share, usual_limit
    from umm.space.scaling import NO_ROOM, Scale, devices_of

    machine = asked.hardware
    if asked.layers is not None:
        layers, *_ = _of_layers(asked)
        ranks, chosen = layers.trace.schedule.ranks, asked.layouts or "its own layouts"
        words = f"{layers.layers} layers of {layers.trace.schedule.program.name}"
        if layers.memory_bytes > usual_limit(device_share(machine, ranks)):
            chosen += NO_ROOM
        used = devices_of(machine, ranks)
        return words, Scale(ranks, used, chosen, layers.makespan_s, layers.memory_bytes)
    schedule = asked.request().schedule
    program, ranks = schedule.program, schedule.ranks
    chosen = program.layout_words if program.kind == "problem" else str(asked.layouts or "its own layouts")
    memory = int(schedule.memory_bytes.max())
    seconds = executor("sim").makespan(schedule)
    words = program.facts("")[0][1].rstrip(", ")
    return words, Scale(ranks, devices_of(machine, ranks), chosen, seconds, memory)


def sure_of(trace: "Trace", request: "Request | None") -> "Beside":
    """Return the range of a prediction, and a rank's share of its device's memory."""
    from umm.cli.printed.report import device_room
    from umm.executor import executor
    from umm.space.search.uncertainty import MOST_ACTIONS, WIDE, makespan_range, unused, widest
    from umm.space.what_if.beside import Beside

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


def better_than(
    trace: "Trace", request: "Request | None", beside: "Beside", progress: "Progress"
) -> "Beside":
    """Return a prediction's context with a better choice, if any, and the assumed number that decides.

    Args:
        trace: The prediction.
        request: The request; None of a saved schedule.
        beside: Its context so far.
        progress: Called now and then with the number of points settled and of all points.
    """
    from umm.executor import executor

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


def follows_from(request: "Request | None") -> Any:
    """Return the sources of answers on a multiply; None of others, and of policies of plug-ins."""
    if request is None or request.problem.kind != "problem" or request.choices.get("policy") != DIRECT:
        return None
    machine = request.machine
    choices = sorted(request.choices.items(), key=str)
    return repr(request.problem), machine.name, machine.sha, choices, request.by_library


def moves_alone(problem: Problem, machine: "Machine", final: str) -> dict[str, float] | None:
    """Return the seconds to move A and B in, and C out, each alone."""
    # A question that is asked again needs no import of what moves them.
    from umm.plans.redistribution.fastest import move_seconds

    return move_seconds(problem, machine, final)


def takes_long(schedule: "Schedule") -> bool:
    """Whether asking for many like it would take minutes: it is large, or its policy searches itself."""
    from umm.plans.multiply.policies import find_policy, policy_names
    from umm.space.what_if.beside import MOST_ACTIONS

    policy = schedule.options.get("policy")  # another algorithm has none
    return len(schedule) > MOST_ACTIONS or (policy in policy_names() and find_policy(policy).searches)
