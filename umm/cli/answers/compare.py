"""Answers of the commands in :mod:`umm.cli.commands.compare`."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.answers import simulate
from umm.cli.commands.compare import Compare
from umm.cli.flags.asked import PROBLEM
from umm.cli.flags.chain import CHAIN
from umm.cli.flags.declared import names_of
from umm.cli.flags.framework import load_program
from umm.cli.flags.options import Located
from umm.cli.flags.performing import performing
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.printed.output import grid
from umm.cli.printed.report import measured_record, note_scale, predicted_record, problem_record, say_needs
from umm.comparison import compare as compare_traces
from umm.errors import CheckError, InputError
from umm.executor import run, times_of
from umm.files import opened
from umm.machines import Machine, machine
from umm.machines.settings import split_settings
from umm.measure import Measured, measure, needs
from umm.profiles.beside import Side, beside
from umm.profiles.files import load_profile
from umm.profiles.kernel import Kernel
from umm.profiles.scheduled import trace_kernels
from umm.space.what_if.profiled import causes
from umm.step.kernels import step_kernels
from umm.step.record import load_question
from umm.step.step import simulated
from umm.torch.eager import kernels
from umm.traces.files import load_trace
from umm.units import format_bytes, format_seconds, time_unit

MOST_ROWS, MOST_CAUSES = 16, 6  # rows and causes of a profile that are printed; --json has all


def compare(asked: Compare) -> None:
    """Answer ``umm compare``."""
    for name in ("steps", "module"):
        if getattr(asked, name) is not None and asked.profile is None:
            raise InputError(f"--{name} is of a --profile; leave it out, or give one")
    if asked.profile is not None:
        explain_profile(asked, asked.profile)
        return

    traces, output, name, all_runs, sure = asked.traces, asked.output, asked.executor, None, None
    if traces:
        if len(traces) != 2:
            count = "1 trace is not enough" if len(traces) == 1 else f"{len(traces)} traces are too many"
            raise InputError(f"{count} to compare; give the predicted and the measured")
        runs = ("executor", "options", "iters", "warmup", "scale", "saved")
        decided = (*PROBLEM, *CHAIN, *SCHEDULE, *runs)
        asked.refuse(decided, "the traces already decide {}; leave it out, or the traces")
        predicted, measured = (load_trace(path) for path in traces)
        if measured.times == "predicted" != predicted.times:
            output.note(f"{traces[1]} is the predicted one; taken first")
            predicted, measured = measured, predicted
    else:
        with performing(asked, name, asked.options, asked.ranks) as (performer, ranks):
            check_tolerance(asked.fail_above, times_of(performer) != "meaningless")
            schedule, request = replace(asked, ranks=ranks).saved_or_asked(asked.saved, asked.scale)
            note_scale(asked.scale, schedule, output)
            often: dict[str, Any] = {"iters": asked.iters, "warmup": asked.warmup, "check": False}
            say_needs(needs(schedule, performer, **often), output, offers=asked.saved is None)
            predicted = run(schedule, "sim")
            sure = simulate.sure_of(predicted, request)
            with output.ending(Measured) as answer, output.tracking(f"running with {name}") as track:
                answer.append(measure(schedule, performer, name, track=track, **often))
            measured, all_runs = answer[0].best, answer[0].record()
    comparison = compare_traces(predicted, measured, None if sure is None else sure.ends)
    check_tolerance(asked.fail_above, comparison.times_comparable)
    widest, allowed = sure.widest if sure else None, asked.fail_above
    wrong: CheckError | None = None
    if not comparison.order_kept:
        wrong = CheckError("some actions started before what they wait for had finished")
    elif allowed is not None and abs(comparison.makespan_error) > allowed:
        off = f"{100 * comparison.makespan_error:+.1f} %"
        wrong = CheckError(f"the predicted makespan is {off} off, more than the {100 * allowed:g} % allowed")

    def record() -> dict[str, Any]:
        phases, comparable = comparison.phases().reset_index(), comparison.times_comparable
        return problem_record(predicted.schedule) | {
            "predicted": predicted_record(predicted),
            "measured": measured_record(measured, all_runs),
            "comparison": {
                "times_comparable": comparable,
                "makespan_error": comparison.makespan_error if comparable else None,
                "predicted_range_s": None if comparison.ends is None else list(comparison.ends),
                "inside_range": comparison.inside,
                "order_kept": comparison.order_kept,
                "order_tau": comparison.order_tau,
                "cancelling": comparison.cancelling,
                "phases": phases.astype(object).where(phases.notna(), None).to_dict("records"),
                "measure_next": None if widest is None else widest._asdict(),
            },
        }

    def shown(console: Console) -> None:
        console.print(Text(str(comparison), style="bold"))
        phases = comparison.phases()
        unit, per_second = time_unit(max(phases.predicted_s.max(), phases.measured_s.max(), 0.0))
        times = f"{predicted.source} ({unit})", f"{measured.source} ({unit})"
        numbers = ("actions", "bytes", *times, f"{predicted.source} / {measured.source}")
        table = grid(("kind", *numbers), numbers)
        for kind, row in phases.iterrows():
            ratio = row["median_ratio"]
            table.add_row(
                str(kind),
                str(int(row["actions"])),
                format_bytes(row["nbytes"]),
                f"{row['predicted_s'] * per_second:.4g}",
                f"{row['measured_s'] * per_second:.4g}",
                "–" if math.isnan(ratio) else f"{ratio:.2f}",
            )
        console.print(table)
        console.print(
            "Times and bytes are sums over all actions of a kind, local ones too; the ratio is the median."
        )
        off = [
            f"{kind} {max(x, 1 / x):.1f}x too {'long' if x > 1 else 'short'}"
            for kind, x in comparison.cancelling.items()
        ]
        if off:
            console.print(f"The makespan fits, but errors of its parts cancel: {', '.join(off)}.")
        if widest is not None:
            console.print(widest.in_words(predicted.makespan_s))

    asked.answer(record, shown, [comparison], wrong)


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
    kernels, machine, dtype, seconds = _predicted(asked)
    result = beside(profile, kernels)
    known = causes(result, machine, dtype)

    def side(one: Side | None) -> dict[str, float] | None:
        return None if one is None else {"calls": one.calls, "seconds": one.seconds, "fastest_s": one.fastest}

    record = {
        "machine": machine.name,
        "profile": {
            "source": profile.source, "steps": profile.steps, "devices": profile.devices,
            "span_s": profile.span_s, "busy_s": profile.busy_s, "kernels_s": result.measured_s,
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
        others = f", the first of {profile.devices} devices" if profile.devices > 1 else ""
        span, busy_s = format_seconds(profile.span_s), format_seconds(profile.total_s)
        busy = profile.busy_s / profile.span_s if profile.span_s else 1.0
        console.print(f"profile   {steps} of {span}{others}: kernels {busy_s}, device busy {busy:.0%}")
        step_s, kernels_s = format_seconds(seconds), format_seconds(result.predicted_s)
        console.print(f"predicted {step_s} on {machine.name}: kernels {kernels_s}")
        console.print(
            f"explained {result.explained:.1%} of measured kernel time; {result.matched:.1%} is in kernels "
            "that both have"
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
        if not known:
            console.print("Nothing stands out: kernels take what is predicted.")

    asked.answer(lambda: record, shown)


def _predicted(asked: Compare) -> tuple[list[Kernel], Machine, str, float]:
    """Return the kernels of a prediction, its machine, the type of its multiplies, and its seconds."""
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
        return step_kernels(question), question.machine, question.rates.dtype, simulated(question)[0]
    else:
        trace = load_trace(asked.traces[0])
        name, settings = split_settings(trace.schedule.machine)
        hardware = asked.hardware if asked.typed(["machine"]) else machine(name, settings)
    dtype = trace.schedule.program.tensors[0].dtype
    return trace_kernels(trace), hardware, dtype, trace.makespan_s


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


def check_tolerance(fail_above: float | None, comparable: bool) -> None:
    """Refuse to hold times to a share that cannot be compared; InputError if so."""
    if fail_above is not None and not comparable:
        raise InputError("--fail-above needs times of real ranks, not of one process in place of all")


def _cells(side: Side | None) -> tuple[str, str]:
    return (format_seconds(side.seconds), f"{side.calls:.4g}") if side else ("–", "")
