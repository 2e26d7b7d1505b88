"""The page of a comparison with peers: verdict, table, and timelines side by side on one scale."""

from pathlib import Path

from umm.figures.lanes import timeline
from umm.figures.page import Section, write_page
from umm.figures.report import found
from umm.figures.style import time_unit
from umm.space.peers.contender import Row
from umm.space.peers.table import Peers
from umm.traces.trace import Trace

RANKS = 2
"""Ranks whose lanes are shown of each; the others do alike."""


def write_peers(peers: Peers, path: str | Path) -> None:
    """Write a comparison as one HTML file that opens offline.

    Raises:
        InputError: if the file cannot be written.
    """
    start, frame = peers.start, peers.to_frame()
    if peers.size == "m":
        where = (
            f"m={start.m} n={start.n} k={start.k} {start.types}, {start.p} ranks of {peers.machine.name}. "
            f"Every row goes from A {start.a}, B {start.b} to C {start.c}. Timelines show {RANKS} ranks on "
            "one scale."
        )
    else:
        where = f"{start}; {peers.ranks} ranks of {peers.machine.name}. Timelines show {RANKS} ranks."
        frame = frame.drop(columns="layouts")
    sections = [Section(verdict=peers.verdict, text=where), Section(table=frame)]
    traces = [(_heading(peers, row), trace) for row, trace in peers.traces()]
    write_page(path, f"Peers: {start.title}", [*sections, *_timelines(traces)])


def _heading(peers: Peers, row: Row) -> str:
    if peers.size != "m":
        return row.algorithm
    return f"{row.algorithm}: {', '.join(f'{name} {layout}' for name, layout in row.layouts.items())}"


def _timelines(traces: list[tuple[str, Trace]]) -> list[Section]:
    """Return a section for each trace under its heading, two beside each other, all on one scale."""
    slowest = max(trace.makespan_s for _, trace in traces)
    sections = []
    for heading, trace in traces:
        figure = timeline(trace, ranks=RANKS)
        figure.update_xaxes(range=[0, slowest * time_unit(trace.makespan_s)[1]])
        figure.update_layout(title_text="")
        sections.append(Section(heading, text=found(trace), figure=figure, half=True))
    return sections
