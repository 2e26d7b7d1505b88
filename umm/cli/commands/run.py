"""``umm run``: execute a schedule for real and check the product."""

from pathlib import Path

import click

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import FOLDER, WRITE, Answering, FromFile, Limited, Measured


@command("umm.cli.answers.run:run", machine="localhost")
class Run(ToSchedule, FromFile, Measured, Limited, Answering, heading="Execution"):
    """Execute a schedule for real and check the product.

    A and B, or a chain's operands, are random in [−1, 1) unless --load gives them; a chain's weights are
    smaller. The numpy executor runs all ranks in one process, one action at a time: it checks that the
    schedule is right, not how fast it would be. The mpi executor starts a process for each rank, or leads
    those of 'mpiexec -n 4 umm run --executor mpi'.
    """

    check: bool = flag(
        usual=True,
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
