"""Answers of the commands in :mod:`umm.cli.commands.machine`."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.cli.commands.machine import Check, Export, ListMachines, Show
from umm.cli.printed.output import CUT, cut, facts, grid
from umm.errors import InputError, MachineError
from umm.files import read_text, shortened
from umm.machines import Machine, machine_names
from umm.machines import machine as find_machine
from umm.machines.drafts.scaffold import copied, text
from umm.machines.files import mistakes, named_file
from umm.quoting.terminal import visible
from umm.units import counted, format_bandwidth, format_bytes, format_rate, format_seconds, percent


def list_machines(asked: ListMachines) -> None:
    """Answer ``umm machine list``."""
    machines: list[Machine] = []
    broken: list[dict[str, str]] = []
    for name in machine_names():
        try:
            machines.append(find_machine(name))
        except MachineError as error:
            broken.append({"name": name, "file": str(named_file(name)), "error": str(error)})
    numbers = ("devices", "memory")
    table = grid(("name", *numbers, "description"), numbers, folds=["description"])
    for x in machines:
        table.add_row(x.name, str(x.device_count), format_bytes(x.memory), x.description)
    for row in broken:
        table.add_row(row["name"], "", "", f"broken: {row['file']}: {row['error']}")
    record = {"machines": [machine_record(x) for x in machines], "broken": broken}
    asked.answer(lambda: record, lambda console: console.print(table))


def show(asked: Show) -> None:
    """Answer ``umm machine show``."""
    machine = asked.hardware
    if asked.as_toml:
        if asked.output.as_json:
            raise InputError("--toml and --json are two forms; keep one")
        as_it_is = machine.name == machine.source_path.stem
        click.echo(read_text(machine.source_path) if as_it_is else text(machine.document), nl=False)
        return
    for pair in machine.fabric.without_route():
        machine.route(*pair)  # which says why

    def record() -> dict[str, Any]:
        few = machine.device_count <= MOST_SHOWN
        return {
            "machine": machine_record(machine)
            | {
                "bandwidth": machine.bandwidth_matrix().tolist() if few else None,
                "links": [link._asdict() for link in machine.links],
                "facts": [fact._asdict() for fact in machine.facts],
            }
        }

    asked.answer(record, lambda console: print_machine(console, machine))


def export(asked: Export) -> None:
    """Answer ``umm machine export``."""
    from umm.emit import collective_tables
    from umm.machines.drafts.logs import GPUS

    if asked.xla == asked.nccl_tuner:
        raise InputError("name one table: --xla or --nccl-tuner")
    machine = asked.hardware
    if asked.nccl_tuner:
        click.echo(collective_tables.nccl_tuner(machine), nl=False)
        return
    keys = {name: key for key, name in GPUS.items() if key.startswith(("sm_", "gfx"))}
    key = asked.platform or keys.get(machine.source_path.stem)
    if key is None:
        raise InputError(f"XLA's key for {machine.name} is not known; give --platform, such as sm_90")
    click.echo(collective_tables.xla_table(machine, key), nl=False)


def check(asked: Check) -> None:
    """Answer ``umm machine check``."""
    rows: list[dict[str, Any]] = []
    for name in asked.names_or_files:
        file = Path(name).name
        try:
            wrong = [f"{file}: {line}" for line in mistakes(name)]
        except MachineError as error:
            wrong = [str(error) if file in str(error) else f"{name}: {error}"]
        if wrong:
            rows.append({"machine": name, "ok": False, "error": wrong[0], "errors": wrong})
            for line in wrong:
                click.echo(f"error: {shortened(visible(line), 500)}", err=True)
            continue
        machine = find_machine(name)
        others = copied(machine.facts)
        rows.append({"machine": name, "ok": True, "error": None, "errors": [], "copied": others})
        if not asked.output.as_json:
            counts = f"{machine.device_count} devices, {len(machine.link_names)} links"
            for line in (f"{name}: ok, {counts}", *copied_in_words(others)):
                click.echo(visible(line))
    if asked.output.as_json:
        asked.output.json("machine check", {"machines": rows})
    if not all(row["ok"] for row in rows):
        asked.ctx.exit(InputError.exit_code)


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


MAX_NAMED = 12  # numbers of one table that are named; of a larger one, such as [library], their count is


def copied_in_words(others: Mapping[str, Sequence[str]]) -> list[str]:
    """Return lines that name the numbers of a file that are still another machine's.

    >>> keys = ["launch", *(f"library.ring.{i}" for i in range(90)), "fabric.latency"]
    >>> copied_in_words({"h100-8": keys})
    ['92 numbers still of h100-8: launch, library (90 numbers), fabric.latency']
    """
    lines: list[str] = []
    for other, keys in others.items():
        sizes = Counter(key.partition(".")[0] for key in keys)
        parts = ((key, key.partition(".")[0]) for key in keys)
        names = dict.fromkeys(
            f"{part} ({sizes[part]} numbers)" if sizes[part] > MAX_NAMED else key for key, part in parts
        )
        line = f"{counted(len(keys), 'number')} still of {other}: {', '.join(names)}"
        lines += textwrap.wrap(line, 80, break_on_hyphens=False, break_long_words=False)
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
    loss = ", ".join(f"{kind} {percent(share)}" for kind, share in machine.interference.items())
    table = facts()
    for name, value in (
        ("devices", f"{machine.device_count}, ranks per device ≤ {machine.ranks_per_device}"),
        ("a rank", machine.rank),
        ("memory", f"{format_bytes(machine.memory)} at {format_bandwidth(machine.memory_bandwidth)}"),
        ("peak", peaks),
        ("efficiency", efficiencies(machine)),
        ("launch", format_seconds(machine.launch_s)),
        ("copies", f"{machine.copy_engines} at once per rank, {overhead} each"),
        ("accumulate", f"{percent(machine.accumulate_efficiency)} of a get's bandwidth"),
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
        sure = "" if fact.uncertainty is None else f" ± {percent(fact.uncertainty)}"
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
