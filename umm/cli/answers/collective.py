"""Answers of the commands in :mod:`umm.cli.commands.collective`."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from textwrap import wrap
from typing import Any, NamedTuple

from rich.console import Console

from umm.cli.commands.collective import Fuse, Sized
from umm.cli.flags.performing import performing
from umm.dtypes import canonical
from umm.errors import CheckError, InputError
from umm.executor import executor as made
from umm.executor import times_of
from umm.machines import Machine
from umm.measure import measure
from umm.plans.collectives.closed_forms import bandwidth, bus_factor, closed_form
from umm.plans.collectives.collective import fastest, in_words, lowered, possible, refusals
from umm.plans.collectives.program import Collective
from umm.plans.collectives.way import Manner
from umm.space.fusing import fusing
from umm.units import counted, format_bandwidth, format_seconds

ALL = "all"

FUSED = "{:<20} {:>12} {:>12}  {}"


def collective(asked: Sized) -> None:
    """Answer ``umm collective``."""
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
        first, rate = rows[0].asked, bandwidth(machine, ranks)
        record = {
            "what": what,
            "machine": machine.name,
            "ranks": ranks,
            "dtype": first.dtype,
            "executor": name,
            "bandwidth": rate,
        }

        asked.answer(
            lambda: record | {"rows": [row(timed, machine) for timed in rows]},
            lambda console: console.print(_table(rows, machine, name, rate, chosen), soft_wrap=True),
            wrong=wrong and CheckError(
                f"{what} by {wrong.algorithm} is wrong at {wrong.asked.moved_bytes} bytes"
            ),
        )  # fmt: skip


def fuse(asked: Fuse) -> None:
    """Answer ``umm fuse``."""
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

    def shown(console: Console) -> None:
        times = result.batch
        console.print(
            f"{asked.collective} and {'a multiply' if times == 1 else f'{times} multiplies'}, "
            f"m={result.m}, n={result.n}, k={result.k}, {result.dtype}, "
            f"C {result.c_dtype}, {result.ranks} ranks on {result.machine}: "
            f"alone {format_seconds(result.collective_s)} and {format_seconds(result.gemm_s)}"
        )
        console.print(FUSED.format("way", "time", "exposed", "").rstrip(), style="bold")
        for way in result.ways:
            seconds = map(format_seconds, (way.seconds, way.exposed_s))
            line = FUSED.format(way.name, *seconds, way.note)
            indent = " " * len(FUSED.format("", "", "", ""))
            console.print("\n".join(wrap(line, console.width, subsequent_indent=indent)))
        console.print(result.verdict)

    asked.answer(result.record, shown)


LINE = "{:>12} {:>12} {:>9} {:>17} {:>12} {:>9} {:>9} {:>12} {}"


class Timed(NamedTuple):
    """One collective by one algorithm."""

    asked: Collective  # what was done
    algorithm: str  # how
    seconds: float  # how long it took, the best of several runs
    ok: bool | None = None  # Whether what came out was right; None if that was not looked at.


def row(timed: Timed, machine: Machine) -> dict[str, Any]:
    """Return a row as plain values, in bytes, seconds and bytes/s; None for a bandwidth in no time.

    algbw is the bytes of the whole buffer over the time; busbw what each rank's links carry for that, so
    that it can be compared with their bandwidth whatever the collective and the number of ranks.
    """
    asked, nbytes = timed.asked, timed.asked.moved_bytes
    algbw = nbytes / timed.seconds if timed.seconds else None
    values = {
        "nbytes": nbytes,
        "algorithm": timed.algorithm,
        "seconds": timed.seconds,
        "algbw": algbw,
        "busbw": algbw and algbw * bus_factor(asked.what, asked.ranks),
        "closed_form_s": closed_form(asked.what, nbytes, machine, asked.ranks, asked.root),
    }
    return values if timed.ok is None else values | {"ok": timed.ok}


def _table(rows: list[Timed], machine: Machine, source: str, rate: float, chosen: str) -> str:
    """Return the collective, its machine, and a line for each size and algorithm."""
    first = rows[0].asked
    heard = format_bandwidth(rate)
    hears = f"; {heard} into a rank from the others" if first.ranks > 1 else ""
    lines = [
        f"# {first.what} among {counted(first.ranks, 'rank')} of {machine.name}, times from {source}{hears}",
        *([f"# each size by {chosen}"] if chosen else []),
        LINE.format("# size", "count", "type", "algorithm", "time", "algbw", "busbw", "closed form", ""),
        LINE.format("# (B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "(us)", ""),
    ]
    for timed in rows:
        cells = row(timed, machine)
        algbw, busbw = (
            "–" if cells[key] is None else f"{cells[key] / 1e9:.2f}" for key in ("algbw", "busbw")
        )
        seconds, closed = (f"{cells[key] * 1e6:.2f}" for key in ("seconds", "closed_form_s"))
        kind = cells["nbytes"], timed.asked.count, timed.asked.dtype, timed.algorithm
        right = ("right" if timed.ok else "wrong") if rows[0].ok is not None else ""
        lines.append(LINE.format(*kind, seconds, algbw, busbw, closed, right).rstrip())
    return "\n".join(lines)
