"""``umm collective`` and ``umm fuse``: collectives over sizes, and whether to fuse one with a multiply."""

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering, Configured, Measured, OfSizes, OnRanks
from umm.cli.flags.values import nbytes


@command("umm.cli.answers.collective:collective", executor="sim")
class Sized(OnRanks, Configured, Measured, Answering):
    """Time all-gather, reduce-scatter, all-reduce, all-to-all, broadcast or reduce over sizes.

    The columns are those of nccl-tests: the size is that of the whole gathered or reduced buffer, or of a
    rank's buffer of an all-to-all; count is the number of elements passed to a call. The closed form divides
    the bytes that must reach a rank, a node or half of the ranks by the bandwidth of the links there, without
    latencies; sums in the switch can take less. --executor mpi runs the same schedules with a process per
    rank, and shows the best of --iters.
    """

    what: str = argument()
    algorithm: str | None = flag(
        metavar="NAME", usual=True,
        help="ring, rings, direct, tree, star, halving-doubling, hierarchical, grid; library, or its name, "
        "as in nccl or nccl-ring; one-shot, two-shot, multimem; or all. If not given, for each size the "
        "faster of the library's own choice and the kernels for small all-reduces; without a library, the "
        "fastest of all.",
    )  # fmt: skip
    begin: int = flag("-b", "--begin", callback=nbytes, default="1MiB", usual=True, help="Smallest buffer.")
    end: int = flag("-e", "--end", callback=nbytes, default="64MiB", usual=True, help="Largest buffer.")
    factor: int = flag(
        "-f", "--factor", type=click.IntRange(min=2), default=2, usual=True,
        help="Factor between sizes.",
    )  # fmt: skip
    dtype: str = flag(default="float32", metavar="TYPE", usual=True, help="Type of the elements.")
    root: int = flag(default=0, show_default=True, help="Rank a broadcast starts from, a reduce ends at.")
    directions: int = flag(default=2, help="Both directions of a ring, or one.")
    means: str | None = flag(metavar="NAME", help="A transfer method named in the machine file.")
    chunks: int | None = flag(
        metavar="C", help="Chunks of a pipelined broadcast or reduce; chosen by size if not given.",
    )  # fmt: skip
    check: bool = flag(help="Compare all results with float64 NumPy; exit code 4 if wrong.")
    machine: str | None = flag(
        metavar="NAME|FILE", usual=True,
        help="A machine of 'umm machine list' or a machine file; h100-8 to predict, localhost to execute.",
    )  # fmt: skip


@command("umm.cli.answers.collective:fuse", machine="h100-8")
class Fuse(OfSizes, Answering, heading="Problem"):
    """Compare ways to multiply beside a collective, and say whether to fuse.

    m, n and k are those of all ranks. Unfused is the library's collective, then its multiply; the others
    overlap the two: a ring in chunks from the host, the same queued on the device, and kernels that wait tile
    by tile. C has the type of A and B, or bfloat16 if these have 8 bits, unless --c-dtype is given.
    """

    collective: str = flag(
        type=click.Choice(["all-gather", "reduce-scatter", "all-reduce"]), default="all-gather",
        help="Before the multiply: A's rows are gathered. After: C's sums are scattered, or all have them.",
    )  # fmt: skip
    batch: int = flag(
        type=click.IntRange(1, 2**20), default=1, metavar="N",
        help="Multiplies of this size in one kernel, each of matrices of its own; one collective moves all.",
    )  # fmt: skip
