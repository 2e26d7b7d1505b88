"""``umm machine calibrate``: measure this machine and write its machine file."""

from pathlib import Path

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import WRITE, Executed, Printed


@command("umm.cli.answers.calibrate:calibrate")
class Calibrate(Executed, Printed):
    """Measure this machine and write its file.

    Microbenchmarks time multiplies of many shapes, gets and accumulates by size, and the overheads of
    actions. Each number of the file names its measurement, date, versions and uncertainty. Close other
    programs first. Calibrate with the options that you run with: --option accumulate=landing writes
    another file.

    Executor mpi measures in rounds and keeps each in NAME.rounds.json beside the file until all are done:
    after an early end the same command continues.

    An existing file is kept as NAME-before. The output shows which numbers changed, and for which of a few
    problems the best layouts did.
    """

    executor: str = flag(
        default="mpi", metavar="NAME",
        help="What to measure: mpi measures the cores of this host; cuda, nvshmem and opencl its devices.",
    )  # fmt: skip
    ranks: int | None = flag(
        type=click.IntRange(min=1), metavar="P",
        help="Ranks to measure together; one per core if not given. Not for cuda.",
    )  # fmt: skip
    dtype: str | None = flag(
        metavar="LIST", help="Types to measure; all that the executor supports if not given.",
    )  # fmt: skip
    path: Path | None = flag(
        "-o", "--output", type=WRITE, metavar="FILE",
        help="Machine file to write; if not given, localhost.toml in your folder of machines, or "
        "EXECUTOR.toml for other executors than mpi.",
    )  # fmt: skip
    quick: bool = flag(
        help="Take about one minute, with fewer rounds and smaller multiplies; for executor mpi.",
    )  # fmt: skip
