"""Measured runs and comparisons in words."""

import math
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.cli.printed.report import facts, moved
from umm.comparison import Comparison
from umm.figures.style import time_unit
from umm.measure import Measured
from umm.units import format_bytes, format_seconds


def print_measured(console: Console, executor: str, measured: Measured) -> None:
    """Print the best, the mean and the spread of the runs, what moved, and whether C is right."""
    record, trace = measured.record(), measured.best
    table = facts()
    table.add_row("executor", executor)
    runs = "1 run" if record["iters"] == 1 else f"{record['iters']} runs"
    table.add_row(
        "measured",
        f"best {format_seconds(record['best_s'])}, mean {format_seconds(record['mean_s'])} "
        f"± {format_seconds(record['std_s'])} over {runs}",
    )
    table.add_row("moved", moved(trace))
    table.add_row("memory", f"{format_bytes(trace.memory_bytes)} on the fullest rank")
    table.add_row("verdict", trace.verdict)
    if measured.check is not None:
        table.add_row("check", Text(str(measured.check), style="bold"))
    console.print(table)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print the makespans and their error, then each kind of action: how many, bytes, seconds, ratio."""
    predicted, measured = comparison.predicted, comparison.measured
    console.print(Text(str(comparison), style="bold"))
    phases = comparison.phases()
    unit, per_second = time_unit(max(phases.predicted_s.max(), phases.measured_s.max(), 0.0))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("kind", no_wrap=True)
    for header in (
        "actions",
        "bytes",
        f"{predicted.source} ({unit})",
        f"{measured.source} ({unit})",
        f"{predicted.source} / {measured.source}",
    ):
        table.add_column(header, justify="right")
    for kind, row in phases.iterrows():
        ratio = row["median_ratio"]
        table.add_row(
            str(kind),
            str(int(row["actions"])),
            format_bytes(row["nbytes"]),
            f"{row['predicted_s'] * per_second:.4g}",
            f"{row['measured_s'] * per_second:.4g}",
            "–" if math.isnan(ratio) else f"{ratio:.2f}",
        )
    console.print(table)
    console.print("Times are sums over all actions of a kind, the ratio is the median over them.")


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain values; what cannot be compared is None."""
    phases = comparison.phases().reset_index()
    comparable = comparison.times_comparable
    return {
        "times_comparable": comparable,
        "makespan_error": comparison.makespan_error if comparable else None,
        "order_kept": comparison.order_kept,
        "order_tau": comparison.order_tau,
        "phases": phases.astype(object).where(phases.notna(), None).to_dict("records"),
    }
