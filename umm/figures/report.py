"""Results as pages: the title and the sections of each kind of result, in one HTML file."""

from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from umm.comparison import Comparison
from umm.figures.lanes import lane_table, timeline
from umm.figures.links import breakdown_bars, link_map
from umm.figures.page import Section, write_page
from umm.figures.predicted_measured import agreement
from umm.layouts.text import brief
from umm.program.problem import MATRICES
from umm.space.peers.table import Peers
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind, link_frame
from umm.units import format_bytes, format_seconds, percent, time_unit

RANKS = 2  # ranks whose lanes are shown of each contender; the others do alike
NO_FLIPS = "No number changes the choice within reach."
Page = tuple[str, list[Section]]  # a title, and what stands below it


def write_html(trace: Trace, path: str | Path, verdict: str = "") -> None:
    """Write the report of a trace as one HTML file that opens offline.

    InputError if the file cannot be written.

    Args:
        verdict: What is said of it; the trace's own verdict if empty.
    """
    write_page(path, *page(trace, verdict))


def write_comparison(comparison: Comparison, path: str | Path) -> None:
    """Write two traces, one checked against the other, as one HTML file that opens offline.

    InputError if the file cannot be written.
    """
    write_page(path, *page(comparison))


@singledispatch
def page(result: Any, *more: Any) -> Page:
    """Return the title and the sections of a result's page; :mod:`umm.figures.pages` has more of them."""
    raise TypeError(f"there is no page for a {type(result).__name__}")


@page.register
def _trace(trace: Trace, verdict: str = "") -> Page:
    schedule = trace.schedule
    return f"{schedule.program.title} on {schedule.machine}", trace_sections(trace, verdict=verdict)


@page.register
def _comparison(comparison: Comparison) -> Page:
    predicted, measured = comparison.predicted, comparison.measured
    by_action = comparison.to_frame().reset_index()
    if comparison.times_comparable:
        actions = Section(figure=agreement(comparison), table=by_action)
    else:
        actions = Section(heading="By action", table=by_action)
    sections = [
        Section(verdict=str(comparison), text=asked(predicted)),
        Section(heading="By kind", table=comparison.phases().reset_index()),
        actions,
        *(
            Section(heading=f"{trace.source}: {trace.verdict}", text=found(trace), figure=timeline(trace))
            for trace in (predicted, measured)
        ),
    ]
    return f"Predicted against measured: {predicted.schedule.program.title}", sections


@page.register
def _peers(peers: Peers) -> Page:
    start, frame = peers.start, peers.to_frame()
    if peers.size == "m":
        a, b, c = map(brief, (start.a, start.b, start.c))
        where = (
            f"m={start.m} n={start.n} k={start.k} {start.types}, {start.p} ranks of {peers.machine.name}. "
            f"Every row goes from A {a}, B {b} to C {c}. Timelines show {RANKS} ranks on "
            "one scale."
        )
    else:
        where = f"{start}; {peers.ranks} ranks of {peers.machine.name}. Timelines show {RANKS} ranks."
        if peers.stack is not None:
            where += f" Times are of {peers.stack.layers} layers, timelines of one."
        frame = frame.drop(columns="layouts")
    sections = [Section(verdict=peers.verdict, text=where), Section(table=frame)]
    traces = list(peers.traces())
    slowest = max(trace.makespan_s for _, trace in traces)
    for row, trace in traces:  # two beside each other, all on one scale
        layouts = ", ".join(f"{name} {brief(layout)}" for name, layout in row.layouts.items())
        heading = f"{row.algorithm}: {layouts}" if peers.size == "m" else row.algorithm
        figure = timeline(trace, ranks=RANKS)
        figure.update_xaxes(range=[0, slowest * time_unit(trace.makespan_s)[1]])
        figure.update_layout(title_text="")
        sections.append(Section(heading, text=found(trace), figure=figure, half=True))
    return f"Peers: {start.title}", sections


def trace_sections(trace: Trace, heading: str = "", verdict: str = "") -> list[Section]:
    """Return the parts of a page that show a trace.

    Args:
        heading: Heading above its verdict.
        verdict: What is said of it; the trace's own verdict if empty.
    """
    parts = trace.breakdown()
    moves = any(bytes_by_kind(trace.schedule).values())
    return [
        Section(heading, verdict=verdict or trace.verdict, text=asked(trace)),
        Section(text=found(trace)),
        Section(figure=timeline(trace), table=lane_table(trace)),
        *([Section(figure=link_map(trace), table=link_frame(trace))] if moves else []),
        Section(figure=breakdown_bars(parts), table=parts.to_frame().add_suffix("_s").reset_index()),
    ]


def asked(trace: Trace) -> str:
    """Return program, machine and options of a trace as one line."""
    from umm.algorithms.scheduling import choices_in_words

    schedule, program = trace.schedule, trace.schedule.program
    options = choices_in_words(schedule)
    how = f"stationary {schedule.name}" if schedule.name in MATRICES else schedule.name
    joint = ", " if program.kind == "problem" else "; "
    return (
        f"{program.words}{joint}{how}, ranks {schedule.ranks} of {schedule.machine}"
        f"{', ' + options if options else ''}; times from {trace.source}."
    )


def found(trace: Trace) -> str:
    """Return the numbers of a trace as one line: makespan, fraction of peak, bytes, memory."""
    peak = trace.fraction_of_peak
    moved = [f"{kind} {format_bytes(n)}, " for kind, n in bytes_by_kind(trace.schedule).items() if n]
    return (
        f"Makespan {format_seconds(trace.makespan_s)}"
        + ("" if np.isnan(peak) else f", {percent(peak)} of peak")
        + f"; {''.join(moved) + 'all ranks together' if moved else 'no bytes moved'}; the fullest rank holds "
        f"{format_bytes(trace.memory_bytes)}, {format_bytes(trace.pool_bytes)} of it pool; "
        f"actions: {len(trace.schedule)}."
    )
