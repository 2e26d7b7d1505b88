"""Machines in words: a list, one with matrix and sources, changes in a new file, installed packages."""

import platform
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm import __version__
from umm.cli.printed.output import CUT, cut, facts, grid
from umm.machines import Machine, machine_names, user_folder
from umm.machines.drafts.scaffold import copied
from umm.units import counted, format_bandwidth, format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from umm.machines.changes import Change
    from umm.machines.drafts.fits import Fitted, Residual
    from umm.machines.drafts.logs import Log
    from umm.space.choice import Choice
    from umm.space.what_if.decision_map import Decision

MOST_DEVICES = 12
MOST_SHOWN = 1024  # devices of a machine whose bandwidths --json has
BASES = {
    "measured": "Measured on such a machine:",
    "published": "Published:",
    "assumed": "Assumed, not measured:",
}


def machine_record(machine: Machine) -> dict[str, Any]:
    """Return a machine in plain values: bytes, bytes/s, flop/s."""
    return {
        "name": machine.name,
        "description": machine.description,
        "file": str(machine.source_path),
        "sha": machine.sha,
        "devices": machine.device_count,
        "memory_bytes": machine.memory,
        "memory_bandwidth": machine.memory_bandwidth,
        "peaks": dict(machine.peaks),
        "engines": list(machine.choices.get("engines", {})),
    }


def shown_record(machine: Machine) -> dict[str, Any]:
    """Return a machine with its links, the bandwidth between devices, and the source of every number."""
    matrix = machine.bandwidth_matrix().tolist() if machine.device_count <= MOST_SHOWN else None
    facts = [fact._asdict() for fact in machine.facts]
    links = [link._asdict() for link in machine.links]
    return {"machine": machine_record(machine) | {"bandwidth": matrix, "links": links, "facts": facts}}


def print_machines(console: Console, machines: Sequence[Machine], broken: Sequence[dict[str, str]]) -> None:
    """Print a line for each machine; one whose file describes none has a name, a file and an error."""
    numbers = ("devices", "memory")
    table = grid(("name", *numbers, "description"), numbers, folds=["description"])
    for x in machines:
        table.add_row(x.name, str(x.device_count), format_bytes(x.memory), x.description)
    for row in broken:
        table.add_row(row["name"], "", "", f"broken: {row['file']}: {row['error']}")
    console.print(table)


def print_new_machine(console: Console, made: Machine, name: str) -> None:
    """Print the file of a new machine, its numbers that are another's yet, and the next steps."""
    console.print(f"wrote {made.source_path}", soft_wrap=True)
    console.print(made.description)
    others = copied_in_words(copied(made.facts))
    for line in others:
        console.print(line)
    console.print("Each has a comment that says what it is. Then:" if others else "Then:")
    console.print(f"  umm machine check {name}\n  umm machine show {name}", soft_wrap=True)


def copied_in_words(others: Mapping[str, Sequence[str]], width: int = 80) -> list[str]:
    """Return lines that name the numbers of a file that are still another machine's."""
    lines: list[str] = []
    for other, keys in others.items():
        line = f"{counted(len(keys), 'number')} still of {other}: {', '.join(keys)}"
        lines += textwrap.wrap(line, width, break_on_hyphens=False, break_long_words=False)
    return lines


def print_machine(console: Console, machine: Machine) -> None:
    """Print a machine: its devices, the bandwidth between them, and where its numbers come from."""
    console.print(Text(machine.name, style="bold"))
    console.print(machine.description)
    console.print(f"file: {machine.source_path}", soft_wrap=True)
    console.print()
    peaks = ", ".join(f"{dtype} {format_rate(peak)}" for dtype, peak in machine.peaks.items())
    overhead = format_seconds(machine.transfer_overhead_s)
    engines = machine.choices.get("engines", {}).items()
    chosen = ", ".join(f"{engine['name']} ({key})" for key, engine in engines)
    kernels = (
        "" if machine.engine is None else machine.engine.in_words.removeprefix("kernels "),
        f"by --kernels those of {chosen}" if chosen else "",
        "" if machine.tables is None else f"measured shapes in {machine.tables.source}",
    )
    loss = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in machine.interference.items())
    table = facts()
    for name, value in (
        ("devices", f"{machine.device_count}, ranks per device ≤ {machine.ranks_per_device}"),
        ("a rank", machine.rank),
        ("memory", f"{format_bytes(machine.memory)} at {format_bandwidth(machine.memory_bandwidth)}"),
        ("peak", peaks),
        ("efficiency", efficiencies(machine)),
        ("launch", format_seconds(machine.launch_s)),
        ("copies", f"{machine.copy_engines} at once per rank, {overhead} each"),
        ("accumulate", f"{100 * machine.accumulate_efficiency:.0f} % of a get's bandwidth"),
        ("interference", f"share of a rank's GEMM rate lost: {loss}"),
        ("links", str(len(machine.link_names))),
        ("kernels", "; ".join(filter(None, kernels))),
    ):  # fmt: skip
        if value:
            table.add_row(name, value)
    console.print(table)
    if machine.device_count > 1:
        console.print("\nGB/s from a device (row) to another (column), one transfer alone:")
        console.print(bandwidth_table(machine))
    for basis, heading in BASES.items():
        if any(fact.basis == basis for fact in machine.facts):
            console.print(f"\n{heading}")
            console.print(sources(machine, basis))


def efficiencies(machine: Machine) -> str:
    """Return the share of its peak that each dtype's GEMMs reach, from the worst shape to the best."""
    parts = []
    for dtype in machine.peaks:
        table = machine.efficiency.get(dtype)
        if table is None:
            parts.append(f"{dtype} 100 % (not measured)")
            continue
        low, high = 100 * float(table.values.min()), 100 * float(table.values.max())
        parts.append(f"{dtype} {low:.0f} %" if low == high else f"{dtype} {low:.0f} to {high:.0f} % by shape")
    return "of the peak by GEMMs: " + ", ".join(parts)


def bandwidth_table(machine: Machine) -> Table:
    """Return the bandwidth of the narrowest link between devices in GB/s, cut short for many."""
    shown = cut(machine.device_count, MOST_DEVICES)
    bandwidth = iter(machine.bandwidth_matrix([i for i in shown if i is not None]) / 1e9)
    names = [CUT if i is None else machine.device_names[i] for i in shown]
    table = grid(("", *names), numbers=names)
    table.columns[0].style = "dim"
    for i, name in zip(shown, names, strict=True):
        row = iter(() if i is None else next(bandwidth).tolist())
        cells = [CUT if i is None or j is None else f"{next(row):.4g}" for j in shown]
        table.add_row(
            name, *("·" if i == j and i is not None else x for x, j in zip(cells, shown, strict=True))
        )
    return table


def sources(machine: Machine, basis: str) -> Table:
    """Return the numbers of the file that rest on measuring, publications or guesses, with their sources."""
    headings = ("number", "value", "source")
    table = grid(headings, folds=headings)
    for column, ratio in zip(table.columns, (5, 3, 8), strict=True):
        column.ratio = ratio
    for fact in machine.facts:
        if fact.basis != basis:
            continue
        per = f" per {fact.per}" if fact.per else ""
        sure = "" if fact.uncertainty is None else f" ± {100 * fact.uncertainty:.0f} %"
        if fact.range is not None:
            sure = f" ({fact.range[0]} to {fact.range[1]})"
        table.add_row(
            broken_at_dots(fact.key.removeprefix("devices."), 26), fact.value + sure + per, fact.source
        )
    return table


def broken_at_dots(key: str, width: int) -> str:
    r"""Return a key in lines of at most a width where its dots allow, so that no part of it is cut in two.

    >>> broken_at_dots("library.all-reduce.ring.message", 26)
    'library.all-reduce.ring.\nmessage'
    >>> broken_at_dots("fabric.latency", 26)
    'fabric.latency'
    """
    end = key.rfind(".", 0, width) + 1
    if len(key) <= width or not end:
        return key
    return f"{key[:end]}\n{broken_at_dots(key[end:], width)}"


Rows = Sequence[dict[str, Any]]


def print_doctor(console: Console, packages: Rows, executors: Rows, blas: Rows) -> None:
    """Print executors, packages, BLAS libraries and machines, with the line that fixes each gap."""
    console.print(f"umm {__version__}, Python {platform.python_version()}, {platform.platform()}")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("\nexecutors")
    for row in executors:
        ready = "ready" if row["reason"] is None else "no"
        table.add_row(f"  {row['name']}", ready, row["reason"] or row["devices"])
    table.add_row("\npackages")
    for row in packages:
        table.add_row(f"  {row['name']}", row["version"] or "no", row["install"] or "")
    table.add_row("\nBLAS")
    for row in blas:
        table.add_row(f"  {row['library']}", row["version"], f"{row['kernel']}, {row['threads']} threads")
        if row["warning"]:
            table.add_row("", "warning", row["warning"])
    if not blas:
        table.add_row("  unknown", "", "pip install threadpoolctl shows which one NumPy uses")
    console.print(table)
    console.print(f"\nmachines: {', '.join(machine_names())}")
    console.print(f"your own: {user_folder()}", soft_wrap=True)


MAX_NUMBERS = 16  # numbers that are shown


def fit_record(fit: "Fitted", machine: str) -> dict[str, Any]:
    """Return a fit as plain values."""
    return {
        "from": machine,
        "numbers": [number._asdict() for number in fit.numbers],
        "residuals": [x._asdict() | {"error": x.error} for x in fit.residuals],
        "undetermined": fit.unsaid,
    }


def print_fit(console: Console, fit: "Fitted", logs: "Sequence[Log]", machine: str) -> None:
    """Print the fitted numbers, the residuals by size, and the numbers that stayed open."""
    rows = ", ".join(
        f"{len(log.collectives) + len(log.copies) + len(log.messages) + len(log.gemms)} of {log.tool}"
        for log in logs
    )
    console.print(f"Rows read: {rows}. Numbers that the logs leave open are those of {machine}.")
    headings = ("fitted", machine, "now")
    table = grid(headings, folds=headings)
    for number in fit.numbers:
        table.add_row(number.key, number.before, number.after)
    console.print(table)
    if fit.residuals:
        numbers = ("ranks", "size", "measured", "predicted", "off")
        table = grid(("row", *numbers), numbers, folds=["row"])
        for x in fit.residuals:
            size = format_bytes(x.nbytes) if x.nbytes else "–"
            times = format_seconds(x.measured_s), format_seconds(x.predicted_s)
            table.add_row(x.what, str(x.ranks), size, *times, f"{100 * x.error:+.1f} %")
        console.print(table)
        large = [x for x in fit.residuals if x.is_large]
        parts = [f"{_off(fit.residuals)} of {counted(len(fit.residuals), 'row')}"]
        if 0 < len(large) < len(fit.residuals):
            parts.append(f"{_off(large)} of the {len(large)} from 1 MiB on")
        console.print(f"Off by {', '.join(parts)} (geometric mean).")
    for text in fit.unsaid:
        console.print(f"Not determined: {text}.", soft_wrap=True)


def _off(rows: "Sequence[Residual]") -> str:
    return f"{100 * float(np.expm1(np.mean([abs(np.log1p(x.error)) for x in rows]))):.1f} %"


def calibrated_record(
    machine: Machine, kept: Path | None, changed: "Sequence[Change]", decided: "Sequence[Decision]"
) -> dict[str, Any]:
    """Return a measured machine as plain values, with its changes against its previous file."""
    return {
        "machine": machine_record(machine),
        "kept": str(kept) if kept else None,
        "changes": [change._asdict() for change in changed],
        "decisions": [
            {
                "problem": dict(zip("mnk", x.problem, strict=True)),
                "before": x.before.to_dict(),
                "after": x.after.to_dict(),
                "costs": x.costs,
                "flips": x.flips,
            }
            for x in decided
        ],
    }


def print_calibrated(
    console: Console, machine: Machine, changed: "Sequence[Change]", decided: "Sequence[Decision]"
) -> None:
    """Print a measured machine, and its changes against its previous file.

    Those are the numbers that changed by more than they are unsure, then for each problem whether the new
    file chooses other layouts, and the cost of the old ones.
    """
    print_machine(console, machine)
    sure = [change for change in changed if change.sure]
    within = len(changed) - len(sure)
    if changed and not sure:
        console.print(f"Nothing changed beyond its uncertainty; {within} numbers within it.")
    elif sure:
        texts = ("changed", "before", "now")
        table = grid((*texts, "times"), numbers=["times"], folds=texts)
        for x in sure[:MAX_NUMBERS]:
            factor = "" if x.factor is None else f"{x.factor:.3g}"
            table.add_row(x.key.removeprefix("devices."), x.before, x.after, factor)
        console.print(table)
        more = f"{len(sure) - MAX_NUMBERS} more changed; " if len(sure) > MAX_NUMBERS else ""
        console.print(f"{more}{within} other numbers changed within their uncertainty.")

    def words(choice: "Choice", other: "Choice") -> str:
        return f"{choice.words}, {choice.beside(other)}"

    for y in decided:
        head, before, after = "x".join(map(str, y.problem)), y.before, y.after
        if not y.flips:
            console.print(f"{head}: still {words(before, before)}")
            continue
        console.print(
            f"{head}: now {words(after, before)}; before {words(before, after)}, "
            f"which takes {100 * (y.costs - 1):.2g} % longer"
        )
