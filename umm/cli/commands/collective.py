"""``umm collective`` and ``umm fuse``: collectives over sizes, and whether to fuse one with a multiply."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from umm.cli.flags.options import (
    READ,
    given,
    kernels_option,
    measure_options,
    nodes_option,
    option,
    output_options,
    problem_options,
    set_option,
)
from umm.cli.flags.values import load_config, nbytes
from umm.cli.printed.output import Output
from umm.dtypes import canonical

ALL = "all"


@click.command()
@click.argument("what")
@option(
    "--config",
    type=READ,
    is_eager=True,
    callback=load_config,
    expose_value=False,
    help="TOML file with flag names as keys.",
)
@option(
    "--machine",
    metavar="NAME|FILE",
    help="A machine of 'umm machine list' or a machine file; h100-8 to predict, localhost to execute.",
)
@nodes_option()
@set_option()
@kernels_option()
@option(
    "--algorithm",
    metavar="NAME",
    help="ring, rings, direct, tree, star, halving-doubling, hierarchical, grid; library, or its name, as in "
    "nccl or nccl-ring; one-shot, two-shot, multimem; or all. If not given, for each size the faster "
    "of the library's own choice and the kernels for small all-reduces; without a library, the "
    "fastest of all.",
)
@option("-b", "--begin", callback=nbytes, default="1MiB", show_default=True, help="Smallest buffer.")
@option("-e", "--end", callback=nbytes, default="64MiB", show_default=True, help="Largest buffer.")
@option(
    "-f", "--factor", type=click.IntRange(min=2), default=2, show_default=True, help="Factor between sizes."
)
@option("--ranks", type=int, metavar="P", help="Number of ranks; the machine's own number if not given.")
@option("--dtype", default="float32", show_default=True, metavar="TYPE", help="Type of the elements.")
@option(
    "--root", type=int, default=0, show_default=True, help="Rank a broadcast starts from, a reduce ends at."
)
@option("--directions", type=int, default=2, show_default=True, help="Both directions of a ring, or one.")
@option("--means", metavar="NAME", help="A transfer method named in the machine file.")
@option(
    "--chunks",
    type=int,
    metavar="C",
    help="Chunks of a pipelined broadcast or reduce; chosen by size if not given.",
)
@measure_options(executor="sim")
@option("--check", is_flag=True, help="Compare all results with float64 NumPy; exit code 4 if wrong.")
@output_options()
@click.pass_context
def collective(
    ctx: click.Context,
    /,
    what: str,
    machine: str | None,
    algorithm: str | None,
    begin: int,
    end: int,
    factor: int,
    executor: str,
    options: dict[str, Any],
    iters: int,
    warmup: int,
    check: bool,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Time all-gather, reduce-scatter, all-reduce, all-to-all, broadcast or reduce over sizes.

    The columns are those of nccl-tests: the size is that of the whole gathered or reduced buffer, or of a
    rank's buffer of an all-to-all; count is the number of elements passed to a call. The closed form divides
    the bytes that must reach a rank, a node or half of the ranks by the bandwidth of the links there, without
    latencies; sums in the switch can take less. --executor mpi runs the same schedules with a process per
    rank, and shows the best of --iters.
    """
    from umm.cli.flags.asked import asked_machine, performing
    from umm.cli.printed.tables import Timed, collective_record, print_collectives
    from umm.errors import CheckError, InputError
    from umm.executor import executor as made
    from umm.executor import times_of
    from umm.measure import measure
    from umm.plans.collectives.collective import fastest, in_words, lowered, possible, refusals
    from umm.plans.collectives.program import Collective
    from umm.plans.collectives.way import Manner

    if begin < 1:
        raise InputError(f"a buffer of {begin} bytes has nothing to move; give a --begin of at least 1")
    if end < begin and given(ctx, ["end"]):
        raise InputError(f"there are no sizes from {begin} to {end} bytes; give an --end of at least --begin")
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    output = Output(as_json, quiet, no_color)
    predicts = times_of(made(executor, **options)) == "predicted"
    if predicts and check:
        raise InputError(f"executor {executor} moves no data; leave out --check")
    options = options | ({"replica": None} if check else {})
    found = asked_machine(flags | {"machine": machine or ("h100-8" if predicts else "localhost")})
    manner = Manner(flags["directions"], flags["means"], flags["chunks"])
    rows: list[Timed] = []
    with ExitStack() as stack:
        if predicts:
            performer = made(executor, **options)
        else:
            performer = stack.enter_context(performing(ctx, executor, options, flags, output))
        ranks = found.default_ranks if flags["ranks"] is None else flags["ranks"]
        found.check_ranks(ranks)
        asked = [Collective(what, size, ranks, canonical(flags["dtype"]), flags["root"]) for size in sizes]
        asked = list({each.moved_bytes: each for each in reversed(asked)}.values())[::-1]
        ways: Sequence[str | None] = [algorithm]
        if algorithm == ALL:
            ways = possible(asked[0], found)
            for name, why in refusals(asked[0], found).items():
                if why is not None:
                    output.note(f"without {name}: {why}")
        with _rows_so_far(output, rows), output.tracking(f"{what} by {executor}") as track:
            for number in track(range(len(asked) * len(ways))):
                each, way = asked[number // len(ways)], ways[number % len(ways)]
                schedule = fastest(each, found, manner) if way is None else lowered(each, found, way, manner)
                if predicts:
                    timed = Timed(each, schedule.stationary, performer.makespan(schedule))
                else:
                    runs = measure(schedule, performer, executor, iters=iters, warmup=warmup, check=check)
                    ok = None if runs.check is None else runs.check.ok
                    timed = Timed(each, schedule.stationary, min(runs.seconds), ok)
                rows.append(timed)
        if as_json:
            output.json("collective", collective_record(rows, found, executor))
        else:
            said = "" if algorithm else in_words(what, found, ranks)
            print_collectives(output.console(), rows, found, executor, said)
        wrong = [row for row in rows if row.ok is False]
        if wrong:
            raise CheckError(f"{what} by {wrong[0].algorithm} is wrong at {wrong[0].asked.moved_bytes} bytes")
        output.end()


@contextmanager
def _rows_so_far(output: Output, rows: list[Any]) -> Iterator[None]:
    """Let a block that ends early be enough if there are rows already."""
    try:
        yield
    except KeyboardInterrupt:
        if not rows:
            raise
        output.early.append(True)


LINE = "{:<20} {:>12} {:>12}  {}"


@click.command()
@problem_options(machine="h100-8", layouts=False)
@option(
    "--collective", type=click.Choice(["all-gather", "reduce-scatter"]), default="all-gather",
    show_default=True, help="Before the multiply: A's rows are gathered. After: C's sums are scattered.",
)  # fmt: skip
@output_options()
def fuse(collective: str, as_json: bool, quiet: bool, no_color: bool, **flags: Any) -> None:
    """Compare ways to multiply beside a collective, and say whether to fuse.

    m, n and k are those of all ranks. Unfused is the library's collective, then its multiply; the others
    overlap the two: a ring in chunks from the host, the same queued on the device, and kernels that wait tile
    by tile. C has the type of A and B, or bfloat16 if these have 8 bits, unless --c-dtype is given.
    """
    from umm.cli.flags.asked import asked_machine
    from umm.errors import InputError
    from umm.space.fusing import fusing
    from umm.units import format_seconds

    sizes = {name: flags[name] for name in "mnk"}
    missing = [f"-{name}" for name, size in sizes.items() if size is None]
    if missing:
        raise InputError(f"{', '.join(missing)} missing; give m, n and k, or --preset")
    if flags["given"]:
        raise InputError("--given has no effect: A starts, or C ends, in rows; leave it out")
    machine = asked_machine(flags)
    found = fusing(
        machine,
        **sizes,
        what=collective,
        dtype=flags["dtype"],
        c_dtype=flags["c_dtype"],
        ranks=flags["ranks"],
    )
    output = Output(as_json, quiet, no_color)
    if as_json:
        output.json("fuse", found.record())
        return
    console = output.console()
    console.print(
        f"{collective} and a multiply, m={found.m}, n={found.n}, k={found.k}, {found.dtype}, "
        f"C {found.c_dtype}, {found.ranks} ranks on {found.machine}: "
        f"alone {format_seconds(found.collective_s)} and {format_seconds(found.gemm_s)}"
    )
    console.print(LINE.format("way", "time", "exposed", "").rstrip(), style="bold")
    for way in found.ways:
        console.print(
            LINE.format(way.name, format_seconds(way.seconds), format_seconds(way.exposed_s), way.note)
        )
    console.print(found.verdict)
