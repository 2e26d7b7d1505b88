"""``umm run``: execute a schedule for real and check the product."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import FOLDER, WRITE, Answering, FromFile, Limited, Measured
from umm.cli.flags.performing import performing


class Run(ToSchedule, FromFile, Measured, Limited, Answering, heading="Execution"):
    """A schedule, its executor, and the files to keep."""

    check: bool = flag(
        is_flag=True, usual=True,
        help="Compare C, or a chain's outputs, with float64 NumPy; exit code 4 if wrong.",
    )  # fmt: skip
    load: Path | None = flag(type=FOLDER, help="Take the operands from a checkpoint, saved in any layout.")
    save: Path | None = flag(
        type=FOLDER,
        help="Save operands and results of the last run as a checkpoint, each rank its own part.",
    )  # fmt: skip
    delay: str | None = flag(
        metavar="SHARE",
        help="Delay ranks at random: 30%, or gemm=30%,link=10%; 1:0.8 slows one random rank to 80 %; "
        "5%,1:0.8 does both. Each measured run is a draw, the same draws as of --jitter 30%,delay. Adds p50 "
        "and p95.",
    )  # fmt: skip
    seed: int = flag(type=click.IntRange(min=0), default=0, show_default=True, help="Seed of --delay.")
    save_schedule: Path | None = flag(type=WRITE, help="Write the schedule, .json or .npz.")
    save_trace: Path | None = flag(type=WRITE, help="Write the trace of the best run, for 'umm compare'.")


@command(Run, machine="localhost")
def run(asked: Run) -> None:
    """Execute a schedule for real and check the product.

    A and B, or a chain's operands, are random in [−1, 1) unless --load gives them; a chain's weights are
    smaller. The numpy executor runs all ranks in one process, one action at a time: it checks that the
    schedule is right, not how fast it would be. The mpi executor starts a process for each rank, or leads
    those of 'mpiexec -n 4 umm run --executor mpi'.
    """
    asked = asked.with_model()
    from umm.checkpoints import check_folder, load
    from umm.cli.printed.report import measured_record, note_scale, print_run, problem_record, say_needs
    from umm.cli.printed.save import save_files
    from umm.errors import CheckError
    from umm.executor import executor as simulator
    from umm.measure import Measured, measure, needs
    from umm.space.search.noise import Noise
    from umm.space.search.robustness import Delays

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
            answer.append(
                measure(
                    schedule,
                    performer,
                    name,
                    operands=operands,
                    save=asked.save,
                    delays=factors,
                    track=track,
                    **runs,
                )
            )
        measured = answer[0]
        delays = Delays.of(schedule, noise, simulator("sim"), measured.seconds) if noise else None
        if asked.save is not None and measured.complete:
            output.note(f"saved operands and results to {asked.save}")
        save_files(measured.best, output, schedule=asked.save_schedule, trace=asked.save_trace)
        record = {
            "executor": name,
            "executor_options": asked.options,
            "measured": measured_record(measured.best, measured.record()),
        } | ({} if delays is None else {"delays": delays.to_dict()})
        check = measured.check
        asked.answer(
            lambda: problem_record(schedule) | record,
            lambda console: print_run(console, name, measured, delays),
            wrong=None if check is None or check.ok else CheckError(str(check)),
        )
