"""Collectives over sizes, in the columns of nccl-tests."""

from typing import Any, NamedTuple

from rich.console import Console

from umm.algorithms.collectives.closed_forms import bandwidth, bus_factor, closed_form
from umm.algorithms.collectives.program import Collective
from umm.machines import Machine
from umm.units import counted, format_bandwidth

LINE = "{:>12} {:>12} {:>9} {:>17} {:>12} {:>9} {:>9} {:>12} {}"


class Timed(NamedTuple):
    """One collective by one algorithm.

    Attributes:
        asked: What was done.
        algorithm: How.
        seconds: How long it took, the best of several runs.
        ok: Whether what came out was right; None if that was not looked at.
    """

    asked: Collective
    algorithm: str
    seconds: float
    ok: bool | None = None


def row(timed: Timed, machine: Machine) -> dict[str, Any]:
    """Return a row as plain values, in bytes, seconds and bytes/s; None for a bandwidth in no time.

    algbw is the bytes of the whole buffer over the time; busbw what each rank's links carry for that, so
    that it can be held against their bandwidth whatever the collective and the number of ranks.
    """
    asked, nbytes = timed.asked, timed.asked.moved_bytes
    algbw = nbytes / timed.seconds if timed.seconds else None
    found = {
        "nbytes": nbytes,
        "algorithm": timed.algorithm,
        "seconds": timed.seconds,
        "algbw": algbw,
        "busbw": algbw and algbw * bus_factor(asked.what, asked.ranks),
        "closed_form_s": closed_form(asked.what, nbytes, machine, asked.ranks, asked.root),
    }
    return found if timed.ok is None else found | {"ok": timed.ok}


def collective_record(rows: list[Timed], machine: Machine, source: str) -> dict[str, Any]:
    """Return what was done, where, and a row for each size and algorithm."""
    first = rows[0].asked
    return {
        "what": first.what,
        "machine": machine.name,
        "ranks": first.ranks,
        "dtype": first.dtype,
        "executor": source,
        "bandwidth": bandwidth(machine, first.ranks),
        "rows": [row(timed, machine) for timed in rows],
    }


def print_collectives(console: Console, rows: list[Timed], machine: Machine, source: str) -> None:
    """Print what was done, where, and a line for each size and algorithm.

    Args:
        console: Where to.
        rows: What was done; all are the same collective.
        machine: On which machine.
        source: Which executor the times are from.
    """
    first, checked = rows[0].asked, rows[0].ok is not None
    heard = format_bandwidth(bandwidth(machine, first.ranks))
    hears = f"; a rank hears from the others by {heard}" if first.ranks > 1 else ""
    lines = [
        f"# {first.what} among {counted(first.ranks, 'rank')} of {machine.name}, times from {source}{hears}",
        LINE.format("# size", "count", "type", "algorithm", "time", "algbw", "busbw", "closed form", ""),
        LINE.format("# (B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "(us)", ""),
    ]
    for timed in rows:
        cells = row(timed, machine)
        algbw, busbw = (
            "–" if cells[key] is None else f"{cells[key] / 1e9:.2f}" for key in ("algbw", "busbw")
        )
        lines.append(
            LINE.format(
                cells["nbytes"],
                timed.asked.count,
                timed.asked.dtype,
                timed.algorithm,
                f"{cells['seconds'] * 1e6:.2f}",
                algbw,
                busbw,
                f"{cells['closed_form_s'] * 1e6:.2f}",
                ("right" if timed.ok else "wrong") if checked else "",
            ).rstrip()
        )
    console.print("\n".join(lines), markup=False, soft_wrap=True)
