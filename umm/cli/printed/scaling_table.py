"""Numbers of nodes or ranks side by side, as a table."""

from rich.console import Console
from rich.text import Text

from umm.cli.printed.output import print_fitting
from umm.space.scaling import Scaling
from umm.units import format_bytes, format_seconds

NUMBERS = (
    "nodes",
    "ranks",
    "m",
    "n",
    "k",
    "tokens",
    "makespan",
    "speed-up",
    "efficiency",
    "GPU-s",
    "memory",
    "gap",
    "$/million",
)
"""Headings of columns that are aligned on the right."""


def print_scaling(console: Console, found: Scaling) -> None:
    """Print a row for each number, and what to use."""
    grows = f", {found.weak} grows with the ranks" if found.weak else ""
    console.print(f"{found.words} on {found.machine}{grows}")
    nodes = any(row.nodes is not None for row in found.rows)
    gaps = any(row.gap for row in found.rows)
    heads = [*(["nodes"] if nodes else []), "ranks", *([found.weak] if found.weak else [])]
    heads += [
        "makespan",
        "speed-up",
        "efficiency",
        "GPU-s",
        *(["$/million"] if found.price else []),
        "memory",
    ]
    lines = [[*heads, *(["gap"] if gaps else []), "best"]]
    for row in found.rows:
        cells = [
            *([str(row.nodes)] if nodes else []),
            str(row.ranks),
            *([str(row.size)] if found.weak else []),
        ]
        cells += [
            format_seconds(row.makespan_s),
            f"{found.speed_up(row):.2f}",
            f"{100 * found.efficiency(row):.0f} %",
        ]
        cells.append(f"{found.device_seconds(row):.3g}")
        if found.price:
            cells.append(f"{1e6 * found.dollars(row):,.2f}")
        cells.append(format_bytes(row.memory_bytes))
        if gaps:
            cells.append(f"{100 * row.gap:.2g} %" if row.gap else "")
        lines.append([*cells, row.chosen])
    print_fitting(console, lines, NUMBERS, ["dim", *[""] * len(found.rows)])
    if found.rows:
        console.print(Text(found.verdict, style="bold"))
