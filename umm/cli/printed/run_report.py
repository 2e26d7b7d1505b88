"""Measured runs and comparisons in words."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.cli.printed.output import Output
from umm.cli.printed.report import facts, moved
from umm.comparison import Comparison
from umm.errors import InfeasibleError
from umm.figures.style import time_unit
from umm.measure import Measured, Needs
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM
from umm.units import counted, duration, format_bytes, format_rate, format_seconds


def note_scale(scale: Fraction | None, schedule: Schedule, output: Output) -> None:
    """Say what a scale has changed."""
    if scale is None:
        return
    if schedule.program.kind == "problem":
        sizes = ", ".join(f"{x} = {getattr(schedule.problem, x)}" for x in "mnk")
        idle = schedule.ranks - len(np.unique(schedule.rank[schedule.kind == GEMM]))
        alike = (
            "the layouts cut it alike" if not idle else f"{idle} of {schedule.ranks} ranks multiply nothing"
        )
        output.note(f"at {scale} of every dimension: {sizes}; {alike}")
    else:
        output.note(f"at {scale} of tokens, hidden and ffn; as many heads, each smaller")


def say_needs(needs: Needs | None, output: Output, offers: bool) -> None:
    """Say what runs will take of this host, if more than a second.

    Args:
        needs: What they take; None if that is not known.
        output: Where it is said.
        offers: Whether the problem can be scaled down.

    Raises:
        InfeasibleError: if this host lacks the memory; says what would fit.
    """
    if needs is None:
        return
    takes = f"{format_bytes(needs.nbytes)} of this host's memory"
    if needs.nbytes > needs.free:
        by = needs.scale_within(nbytes=needs.free)
        fits = f"--scale 1/{by} takes {format_bytes(needs.nbytes / by**2)}" if offers else "run a smaller one"
        raise InfeasibleError(f"this would take {takes}, of which {format_bytes(needs.free)} is free; {fits}")
    if needs.seconds < 1.0:
        return
    work = format_rate(needs.flop).removesuffix("/s")
    said = f"about {duration(needs.seconds)} and {takes}: {counted(needs.runs, 'run')} of {work}"
    by = needs.scale_within(seconds=10.0)
    if offers and by > 1:
        said += f"; --scale 1/{by} takes about {duration(needs.seconds / by**3)}"
    output.note(said)


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
        "predicted_range_s": None if comparison.ends is None else list(comparison.ends),
        "inside_range": comparison.inside,
        "order_kept": comparison.order_kept,
        "order_tau": comparison.order_tau,
        "phases": phases.astype(object).where(phases.notna(), None).to_dict("records"),
    }
