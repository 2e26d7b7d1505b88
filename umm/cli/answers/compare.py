"""Answers of the commands in :mod:`umm.cli.commands.compare`."""

import math
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.answers import simulate
from umm.cli.commands.compare import Compare
from umm.cli.flags.asked import PROBLEM
from umm.cli.flags.chain import CHAIN
from umm.cli.flags.performing import performing
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.printed.output import grid
from umm.cli.printed.report import measured_record, note_scale, predicted_record, problem_record, say_needs
from umm.comparison import compare as compare_traces
from umm.errors import CheckError, InputError
from umm.executor import run, times_of
from umm.measure import Measured, measure, needs
from umm.traces.files import load_trace
from umm.units import format_bytes, percent, time_unit


def compare(asked: Compare) -> None:
    """Answer ``umm compare``."""
    for name in ("steps", "module"):
        if getattr(asked, name) is not None and asked.profile is None:
            raise InputError(f"--{name} is of a --profile; leave it out, or give one")
    if asked.profile is not None:
        from umm.cli.answers.profile import explain_profile

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
        off = percent(comparison.makespan_error, 1, signed=True)
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


def check_tolerance(fail_above: float | None, comparable: bool) -> None:
    """Refuse to hold times to a share that cannot be compared; InputError if so."""
    if fail_above is not None and not comparable:
        raise InputError("--fail-above needs times of real ranks, not of one process in place of all")
