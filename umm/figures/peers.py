"""The page of a comparison with peers: verdict, table, and timelines side by side on one scale."""

from pathlib import Path

from umm.figures.lanes import timeline
from umm.figures.page import Section, write_page
from umm.figures.report import computed, found
from umm.figures.style import time_unit
from umm.space.peers.table import Peers

RANKS = 2
"""Ranks whose lanes are shown of each; the others do alike."""


def write_peers(peers: Peers, path: str | Path) -> None:
    """Write a comparison as one HTML file that opens offline.

    Raises:
        InputError: if the file cannot be written.
    """
    start = peers.start
    where = (
        f"m={start.m} n={start.n} k={start.k} {start.types}, {start.p} ranks of {peers.machine.name}. Every "
        f"row goes from A {start.a}, B {start.b} to C {start.c}. Timelines show {RANKS} ranks on one scale."
    )
    sections = [Section(verdict=peers.verdict, text=where), Section(table=peers.to_frame())]
    traces = peers.traces()
    slowest = max(trace.makespan_s for _, trace in traces)
    for row, trace in traces:
        figure = timeline(trace, ranks=RANKS, webgl=False)
        figure.update_xaxes(range=[0, slowest * time_unit(trace.makespan_s)[1]])
        figure.update_layout(title_text="")
        heading = f"{row.algorithm}: A {row.a}, B {row.b}, C {row.c}"
        sections.append(Section(heading, text=found(trace), figure=figure, half=True))
    write_page(path, f"Peers: {computed(start)}", sections)
