"""Answers of the commands in :mod:`umm.cli.commands.run`."""

from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.checkpoints import check_folder, load
from umm.cli.commands.run import Run
from umm.cli.flags.performing import performing
from umm.cli.printed.output import facts
from umm.cli.printed.report import (
    measured_record,
    moved,
    note_scale,
    print_schedule,
    problem_record,
    say_needs,
)
from umm.cli.printed.save import save_files
from umm.errors import CheckError
from umm.executor import executor as simulator
from umm.measure import Measured, measure, needs
from umm.space.search.noise import Noise
from umm.space.search.robustness import Delays
from umm.units import format_bytes, format_seconds


def run(asked: Run) -> None:
    """Answer ``umm run``."""
    asked = asked.with_model()
    output, name = asked.output, asked.executor
    runs: dict[str, Any] = {"iters": asked.iters, "warmup": asked.warmup, "check": asked.check}
    if not asked.delay:
        asked.refuse(("seed",), "{} is of --delay; add it, or leave out the seed")
    noise = asked.delay and Noise.delays(asked.delay, draws=max(1, asked.iters), seed=asked.seed)
    if asked.save is not None:
        check_folder(asked.save)
    with performing(asked, name, asked.options, asked.ranks) as (performer, ranks):
        schedule, _ = replace(asked, ranks=ranks).saved_or_asked(asked.saved, asked.scale)
        note_scale(asked.scale, schedule, output)
        say_needs(needs(schedule, performer, **runs), output, offers=asked.saved is None)
        factors = noise.by_run(schedule.ranks) if noise else None
        operands = None if asked.load is None else load(asked.load)
        with output.ending(Measured) as answer, output.tracking(f"running with {name}") as track:
            how: dict[str, Any] = {"operands": operands, "save": asked.save, "delays": factors, **runs}
            answer.append(measure(schedule, performer, name, track=track, **how))
        measured = answer[0]
        delays = Delays.of(schedule, noise, simulator("sim"), measured.seconds) if noise else None
        if asked.save is not None and measured.complete:
            output.note(f"saved operands and results to {asked.save}")
        save_files(measured.best, output, schedule=asked.save_schedule, trace=asked.save_trace)
        trace, figures = measured.best, measured.record()
        record = {
            "executor": name,
            "executor_options": asked.options,
            "measured": measured_record(trace, figures),
        } | ({} if delays is None else {"delays": delays.to_dict()})
        check = measured.check

        def shown(console: Console) -> None:
            print_schedule(console, schedule)
            table = facts()
            table.add_row("executor", name)
            runs = "1 run" if figures["iters"] == 1 else f"{figures['iters']} runs"
            table.add_row(
                "measured",
                f"best {format_seconds(figures['best_s'])}, mean {format_seconds(figures['mean_s'])} "
                f"± {format_seconds(figures['std_s'])} over {runs}",
            )
            table.add_row("moved", moved(trace))
            table.add_row("memory", f"{format_bytes(trace.memory_bytes)} on the fullest rank")
            table.add_row("verdict", trace.verdict)
            if check is not None:
                table.add_row("check", Text(str(check), style="bold"))
            console.print(table)
            if delays is not None:
                console.print(str(delays))

        asked.answer(
            lambda: problem_record(schedule) | record,
            shown,
            wrong=None if check is None or check.ok else CheckError(str(check)),
        )
