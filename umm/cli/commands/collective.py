"""``umm collective`` and ``umm fuse``: collectives over sizes, and whether to fuse one with a multiply."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import Answering, Configured, Measured, OfSizes, OnRanks
from umm.cli.flags.performing import performing
from umm.cli.flags.values import nbytes
from umm.dtypes import canonical

if TYPE_CHECKING:
    from rich.console import Console

ALL = "all"


class Sized(OnRanks, Configured, Measured, Answering):
    """A collective, its sizes, and who performs it."""

    what: str = argument()
    algorithm: str | None = flag(
        metavar="NAME", usual=True,
        help="ring, rings, direct, tree, star, halving-doubling, hierarchical, grid; library, or its name, "
        "as in nccl or nccl-ring; one-shot, two-shot, multimem; or all. If not given, for each size the "
        "faster of the library's own choice and the kernels for small all-reduces; without a library, the "
        "fastest of all.",
    )  # fmt: skip
    begin: int = flag(
        "-b", "--begin", callback=nbytes, default="1MiB", show_default=True, usual=True,
        help="Smallest buffer.",
    )  # fmt: skip
    end: int = flag(
        "-e", "--end", callback=nbytes, default="64MiB", show_default=True, usual=True,
        help="Largest buffer.",
    )  # fmt: skip
    factor: int = flag(
        "-f", "--factor", type=click.IntRange(min=2), default=2, show_default=True, usual=True,
        help="Factor between sizes.",
    )  # fmt: skip
    dtype: str = flag(
        default="float32", show_default=True, metavar="TYPE", usual=True, help="Type of the elements.",
    )  # fmt: skip
    root: int = flag(
        type=int, default=0, show_default=True, help="Rank a broadcast starts from, a reduce ends at.",
    )  # fmt: skip
    directions: int = flag(type=int, default=2, show_default=True, help="Both directions of a ring, or one.")
    means: str | None = flag(metavar="NAME", help="A transfer method named in the machine file.")
    chunks: int | None = flag(
        type=int, metavar="C", help="Chunks of a pipelined broadcast or reduce; chosen by size if not given.",
    )  # fmt: skip
    check: bool = flag(is_flag=True, help="Compare all results with float64 NumPy; exit code 4 if wrong.")
    machine: str | None = flag(
        metavar="NAME|FILE", usual=True,
        help="A machine of 'umm machine list' or a machine file; h100-8 to predict, localhost to execute.",
    )  # fmt: skip


@command(Sized, executor="sim")
def collective(asked: Sized) -> None:
    """Time all-gather, reduce-scatter, all-reduce, all-to-all, broadcast or reduce over sizes.

    The columns are those of nccl-tests: the size is that of the whole gathered or reduced buffer, or of a
    rank's buffer of an all-to-all; count is the number of elements passed to a call. The closed form divides
    the bytes that must reach a rank, a node or half of the ranks by the bandwidth of the links there, without
    latencies; sums in the switch can take less. --executor mpi runs the same schedules with a process per
    rank, and shows the best of --iters.
    """
    from umm.cli.printed.tables import Timed, collective_record, print_collectives
    from umm.errors import CheckError, InputError
    from umm.executor import executor as made
    from umm.executor import times_of
    from umm.measure import measure
    from umm.plans.collectives.collective import fastest, in_words, lowered, possible, refusals
    from umm.plans.collectives.program import Collective
    from umm.plans.collectives.way import Manner

    what, begin, end, name, check = asked.what, asked.begin, asked.end, asked.executor, asked.check
    if begin < 1:
        raise InputError(f"a buffer of {begin} bytes has nothing to move; give a --begin of at least 1")
    if end < begin and asked.typed(["end"]):
        raise InputError(f"there are no sizes from {begin} to {end} bytes; give an --end of at least --begin")
    sizes = [begin]
    while sizes[-1] * asked.factor <= end:
        sizes.append(sizes[-1] * asked.factor)
    output = asked.output
    predicts = times_of(made(name, **asked.options)) == "predicted"
    if predicts and check:
        raise InputError(f"executor {name} moves no data; leave out --check")
    options = asked.options | ({"replica": None} if check else {})
    asked = replace(asked, machine=asked.machine or ("h100-8" if predicts else "localhost"))
    machine = asked.hardware
    manner = Manner(asked.directions, asked.means, asked.chunks)
    rows: list[Timed] = []
    with ExitStack() as stack:
        if predicts:
            performer = made(name, **options)
        else:
            performer, count = stack.enter_context(performing(asked, name, options, asked.ranks))
            asked = replace(asked, ranks=count)
        ranks = asked.count
        dtype = canonical(asked.dtype)
        of_size = {
            x.moved_bytes: x for x in (Collective(what, y, ranks, dtype, asked.root) for y in sizes[::-1])
        }
        each_size = list(of_size.values())[::-1]
        ways: Sequence[str | None] = [asked.algorithm]
        if asked.algorithm == ALL:
            ways = possible(each_size[0], machine)
            for way, why in refusals(each_size[0], machine).items():
                if why is not None:
                    output.note(f"without {way}: {why}")
        try:
            with output.tracking(f"{what} by {name}") as track:
                for number in track(range(len(each_size) * len(ways))):
                    each, by = each_size[number // len(ways)], ways[number % len(ways)]
                    schedule = (
                        fastest(each, machine, manner) if by is None else lowered(each, machine, by, manner)
                    )
                    if predicts:
                        timed = Timed(each, schedule.name, performer.makespan(schedule))
                    else:
                        often: dict[str, Any] = {"iters": asked.iters, "warmup": asked.warmup, "check": check}
                        runs = measure(schedule, performer, name, **often)
                        ok = None if runs.check is None else runs.check.ok
                        timed = Timed(each, schedule.name, min(runs.seconds), ok)
                    rows.append(timed)
        except KeyboardInterrupt:  # rows that there are already are enough
            if not rows:
                raise
            output.early.append(True)
        wrong = next((row for row in rows if row.ok is False), None)
        chosen = "" if asked.algorithm else in_words(what, machine, ranks)
        asked.answer(
            lambda: collective_record(rows, machine, name),
            lambda console: print_collectives(console, rows, machine, name, chosen),
            wrong=wrong and CheckError(
                f"{what} by {wrong.algorithm} is wrong at {wrong.asked.moved_bytes} bytes"
            ),
        )  # fmt: skip


LINE = "{:<20} {:>12} {:>12}  {}"


class Fuse(OfSizes, Answering, heading="Problem"):
    """A multiply beside a collective."""

    collective: str = flag(
        type=click.Choice(["all-gather", "reduce-scatter", "all-reduce"]), default="all-gather",
        show_default=True,
        help="Before the multiply: A's rows are gathered. After: C's sums are scattered, or all have them.",
    )  # fmt: skip
    batch: int = flag(
        type=click.IntRange(1, 2**20), default=1, show_default=True, metavar="N",
        help="Multiplies of this size in one kernel, each of matrices of its own; one collective moves all.",
    )  # fmt: skip


@command(Fuse, machine="h100-8")
def fuse(asked: Fuse) -> None:
    """Compare ways to multiply beside a collective, and say whether to fuse.

    m, n and k are those of all ranks. Unfused is the library's collective, then its multiply; the others
    overlap the two: a ring in chunks from the host, the same queued on the device, and kernels that wait tile
    by tile. C has the type of A and B, or bfloat16 if these have 8 bits, unless --c-dtype is given.
    """
    from umm.errors import InputError
    from umm.space.fusing import fusing
    from umm.units import format_seconds

    sizes = {"m": asked.m, "n": asked.n, "k": asked.k}
    missing = [f"-{name}" for name, size in sizes.items() if size is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing; give m, n and k, or --preset")
    if asked.given:
        raise InputError("--given has no effect: A starts, or C ends, in rows; leave it out")
    types: dict[str, Any] = {"dtype": asked.dtype, "c_dtype": asked.c_dtype}
    result = fusing(
        asked.hardware, **sizes, what=asked.collective, **types, ranks=asked.ranks, batch=asked.batch
    )

    def shown(console: "Console") -> None:
        times = result.batch
        console.print(
            f"{asked.collective} and {'a multiply' if times == 1 else f'{times} multiplies'}, "
            f"m={result.m}, n={result.n}, k={result.k}, {result.dtype}, "
            f"C {result.c_dtype}, {result.ranks} ranks on {result.machine}: "
            f"alone {format_seconds(result.collective_s)} and {format_seconds(result.gemm_s)}"
        )
        console.print(LINE.format("way", "time", "exposed", "").rstrip(), style="bold")
        for way in result.ways:
            seconds = map(format_seconds, (way.seconds, way.exposed_s))
            console.print(LINE.format(way.name, *seconds, way.note))
        console.print(result.verdict)

    asked.answer(result.record, shown)
