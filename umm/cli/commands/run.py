"""``umm run``: execute a schedule for real and check the product."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from umm.cli.flags.chain import chain_options
from umm.cli.flags.options import (
    FOLDER,
    READ,
    WRITE,
    measure_options,
    option,
    output_options,
    problem_options,
    time_limit,
)
from umm.cli.flags.schedule import schedule_options
from umm.cli.printed.output import Output


@click.command()
@problem_options(machine="localhost")
@chain_options()
@schedule_options()
@option("--schedule", "saved", type=READ, help="Run a saved schedule instead.")
@measure_options(executor="numpy")
@time_limit()
@option(
    "--check", is_flag=True, help="Compare C, or a chain's outputs, with float64 NumPy; exit code 4 if wrong."
)
@option("--load", "loaded", type=FOLDER, help="Take the operands from a checkpoint, saved in any layout.")
@option(
    "--save",
    "saved_to",
    type=FOLDER,
    help="Save operands and results of the last run as a checkpoint, each rank its own part.",
)
@option(
    "--delay",
    metavar="SHARE",
    help="Delay ranks at random: 30%, or gemm=30%,link=10%; 1:0.8 slows one random rank to 80 %; 5%,1:0.8 "
    "does both. Each measured run is a draw, the same draws as of --jitter 30%,delay. Adds p50 and "
    "p95.",
)
@option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of --delay.")
@option("--save-schedule", type=WRITE, help="Write the schedule, .json or .npz.")
@option("--save-trace", type=WRITE, help="Write the trace of the best run, for 'umm compare'.")
@output_options()
@click.pass_context
def run(
    ctx: click.Context,
    /,
    saved: Path | None,
    executor: str,
    options: dict[str, Any],
    iters: int,
    warmup: int,
    scale: Fraction | None,
    check: bool,
    loaded: Path | None,
    saved_to: Path | None,
    delay: str | None,
    seed: int,
    save_schedule: Path | None,
    save_trace: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Execute a schedule for real and check the product.

    A and B, or a chain's operands, are random in [−1, 1) unless --load gives them; a chain's weights are
    smaller. The numpy executor runs all ranks in one process, one action at a time: it checks that the
    schedule is right, not how fast it would be. The mpi executor starts a process for each rank, or leads
    those of 'mpiexec -n 4 umm run --executor mpi'.
    """
    from umm.checkpoints import check_folder, load
    from umm.cli.flags.asked import performing, saved_or_asked
    from umm.cli.printed.report import (
        measured_record,
        note_scale,
        print_measured,
        print_schedule,
        problem_record,
        say_needs,
    )
    from umm.cli.printed.save import check_targets, save_files
    from umm.errors import CheckError
    from umm.executor import executor as simulator
    from umm.measure import Measured, measure, needs
    from umm.space.search.noise import Noise
    from umm.space.search.robustness import Delays

    output = Output(as_json, quiet, no_color)
    noise = None if delay is None else Noise.delays(delay, draws=max(1, iters), seed=seed)
    check_targets(save_schedule, save_trace)
    if saved_to is not None:
        check_folder(saved_to)
    with performing(ctx, executor, options, flags, output) as performer:
        schedule, _ = saved_or_asked(ctx, saved, flags, scale)
        note_scale(scale, schedule, output)
        needed = needs(schedule, performer, iters=iters, warmup=warmup, check=check)
        say_needs(needed, output, offers=saved is None)
        factors = None if noise is None else noise.by_run(schedule.ranks)
        with output.ending(Measured) as answer, output.tracking(f"running with {executor}") as track:
            answer.append(
                measure(
                    schedule,
                    performer,
                    executor,
                    iters=iters,
                    warmup=warmup,
                    check=check,
                    operands=None if loaded is None else load(loaded),
                    save=saved_to,
                    delays=factors,
                    track=track,
                )
            )
        measured = answer[0]
        delays = None if noise is None else Delays.of(schedule, noise, simulator("sim"), measured.seconds)
        if saved_to is not None and measured.complete:
            output.note(f"saved operands and results to {saved_to}")
        save_files(measured.best, output, schedule=save_schedule, trace=save_trace)
        if as_json:
            record = {
                "executor": executor,
                "executor_options": options,
                "measured": measured_record(measured.best, measured.record()),
            }
            if delays is not None:
                record["delays"] = delays.to_dict()
            output.json("run", problem_record(schedule) | record)
        else:
            console = output.console()
            print_schedule(console, schedule)
            print_measured(console, executor, measured)
            if delays is not None:
                console.print(str(delays), highlight=False)
        if measured.check is not None and not measured.check.ok:
            raise CheckError(str(measured.check))
        output.end()
