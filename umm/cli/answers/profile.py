"""The answer of ``umm compare --profile``: a framework's kernels beside predicted ones, and the causes."""

import math
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from umm.cli.commands.compare import Compare
from umm.cli.flags.asked import PROBLEM
from umm.cli.flags.chain import CHAIN
from umm.cli.flags.declared import names_of
from umm.cli.flags.framework import load_program
from umm.cli.flags.options import Located
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.printed.output import grid
from umm.errors import InputError
from umm.executor import run
from umm.files import opened
from umm.machines import Machine, machine
from umm.machines.settings import split_settings
from umm.profiles.beside import Side, beside
from umm.profiles.files import load_profile
from umm.profiles.kernel import Kernel, Profile
from umm.profiles.scheduled import trace_kernels
from umm.space.what_if.profiled import causes
from umm.step.kernels import step_kernels
from umm.step.record import load_question
from umm.step.step import simulated
from umm.torch.eager import kernels
from umm.traces.files import load_trace
from umm.units import format_seconds, percent

MOST_ROWS, MOST_CAUSES = 16, 6  # rows and causes that are printed; --json has all
FASTER = 1.15  # how many times faster than predicted all kernels may be and still take that long


def explain_profile(asked: Compare, path: Path) -> None:
    """Put a profile beside a prediction; InputError for flags of an execution, or several predictions."""
    of_runs = ("executor", "iters", "warmup", "fail_above", "html")
    asked.refuse(of_runs, "{} does not apply to --profile; leave it out")
    if len(asked.traces) > 1:
        raise InputError(f"{len(asked.traces)} predictions are too many for one profile; give one")
    profile = load_profile(path)
    if asked.steps is not None:
        if profile.marks:
            raise InputError(f"the profile marks {profile.steps} steps itself; leave out --steps")
        profile = replace(profile, steps=asked.steps)
    predicted, machine, dtype, seconds = _predicted(asked, profile)
    result = beside(profile, predicted)
    known = causes(result, machine, dtype)

    def side(one: Side | None) -> dict[str, float] | None:
        return None if one is None else {"calls": one.calls, "seconds": one.seconds, "fastest_s": one.fastest}

    record = {
        "machine": machine.name,
        "profile": {
            "source": profile.source, "steps": profile.steps, "devices": profile.devices,
            "rank": profile.rank, "span_s": profile.span_s, "busy_s": profile.busy_s,
            "kernels_s": result.measured_s,
        },
        "predicted_s": seconds,
        "predicted_kernels_s": result.predicted_s,
        "explained": result.explained,
        "matched": result.matched,
        "rows": [
            {
                "kind": x.kind, "size": x.words, "matched_by": x.by or None,
                "predicted": side(x.predicted), "measured": side(x.measured),
            }
            for x in result.rows
        ],
        "causes": [x._asdict() for x in known],
    }  # fmt: skip

    def shown(console: Console) -> None:
        steps = f"{profile.steps} steps" if profile.steps > 1 else "one step"
        device = f", device {profile.kernels[0].lane[0]} of {profile.devices}" if profile.devices > 1 else ""
        rank = "" if profile.rank is None else f", rank {profile.rank}"
        span, busy_s = format_seconds(profile.span_s), format_seconds(profile.total_s)
        busy = profile.busy_s / profile.span_s if profile.span_s else 1.0
        console.print(
            f"profile   {steps} of {span}{device}{rank}: kernels {busy_s}, device busy {percent(busy)}"
        )
        step_s, kernels_s = format_seconds(seconds), format_seconds(result.predicted_s)
        console.print(f"predicted {step_s} on {machine.name}: kernels {kernels_s}")
        console.print(
            f"explained {percent(result.explained, 1)} of measured kernel time; "
            f"{percent(result.matched, 1)} is in kernels that both have"
        )
        numbers = ("predicted", "calls", "measured", "calls", "ratio")
        table = grid(("kernels", "size", *numbers), numbers, folds=("kernels", "size"))
        for row in result.rows[:MOST_ROWS]:
            ratio = "" if math.isnan(row.ratio) else f"{row.ratio:.2f}"
            table.add_row(row.kind, row.words, *_cells(row.predicted), *_cells(row.measured), ratio)
        console.print(table)
        if len(result.rows) > MOST_ROWS:
            console.print(f"… {len(result.rows) - MOST_ROWS} more rows; --json has all")
        for cause in known[:MOST_CAUSES]:
            change = f" (--set {cause.setting})" if cause.setting else ""
            console.print(f"{format_seconds(cause.seconds)}: {cause.words}{change}")
        if not known and result.measured_s * FASTER < result.predicted_s:
            times = result.measured_s / result.predicted_s
            console.print(f"Nothing is slower than predicted: kernels take {times:.2f} times as long.")
        elif not known:
            console.print("Nothing stands out: kernels take what is predicted.")

    asked.answer(lambda: record, shown)


def _predicted(asked: Compare, profile: Profile) -> tuple[list[Kernel], Machine, str, float]:
    """Return the kernels of a prediction, its machine, the type of its multiplies, and its seconds.

    The kernels are those of the rank that the profile is of, if it is of as many ranks.
    """
    if asked.module is not None:
        return _of_module(asked, asked.module)
    if not asked.traces:
        if not asked.saved and not asked.typed((*PROBLEM, *CHAIN)):
            raise InputError("give what was predicted: a trace, a step, or flags of a multiply or chain")
        if not asked.saved and not asked.typed(["machine"]):
            raise InputError("--profile needs the machine that it is of, such as --machine h100-8")
        schedule, request = asked.saved_or_asked(asked.saved, asked.scale)
        trace, hardware = run(schedule, "sim"), request.machine if request else asked.hardware
    elif _is_step(asked.traces[0]):
        question = load_question(asked.traces[0])
        _check_ranks(asked, profile, question.parallel.ranks)
        stage = profile.rank_of(question.parallel.ranks) // question.parallel.stage_ranks
        predicted = step_kernels(question, stage)
        return predicted, question.machine, question.rates.dtype, simulated(question)
    else:
        trace = load_trace(asked.traces[0])
        name, settings = split_settings(trace.schedule.machine)
        hardware = asked.hardware if asked.typed(["machine"]) else machine(name, settings)
    dtype = trace.schedule.program.tensors[0].dtype
    _check_ranks(asked, profile, trace.schedule.ranks)
    return trace_kernels(trace, profile.rank_of(trace.schedule.ranks)), hardware, dtype, trace.makespan_s


def _check_ranks(asked: Compare, profile: Profile, ranks: int) -> None:
    """Note a profile of another number of ranks than was predicted."""
    if profile.ranks not in (None, ranks):
        asked.output.note(f"the profile is of {profile.ranks} ranks, the prediction of {ranks}")


def _of_module(asked: Compare, text: str) -> tuple[list[Kernel], Machine, str, float]:
    """Return the same of a module in eager PyTorch, whose kernels run one after the other."""
    taken = ("backward", *names_of(Located))
    others = [x for x in (*PROBLEM, *CHAIN, *SCHEDULE) if x not in taken]
    given = ["TRACES"] if asked.traces else []
    asked.refuse(others, "--module decides what is computed; leave out {}", *given)
    if not asked.typed(["machine"]):
        raise InputError("--profile needs the machine that it is of, such as --machine h100-8")
    module, inputs = load_program(text)
    result = kernels(module, inputs, asked.hardware, bool(asked.backward))
    dtype = next((str(x.dtype).removeprefix("torch.") for x in module.parameters()), "float32")
    return result, asked.hardware, dtype, sum(x.seconds for x in result)


def _is_step(path: Path) -> bool:
    """Whether a file is the answer of umm step, not a trace."""
    with opened(path) as file:
        return path.suffix != ".npz" and b'"command": "step"' in file.read(200)


def _cells(side: Side | None) -> tuple[str, str]:
    return (format_seconds(side.seconds), f"{side.calls:.4g}") if side else ("–", "")
