"""The page of a comparison with peers: verdict, table, and timelines side by side on one scale."""

from pathlib import Path

from umm.figures.lanes import timeline
from umm.figures.page import Section, write_page
from umm.figures.report import computed, found
from umm.figures.style import time_unit
from umm.space.peers.chains import ChainPeers
from umm.space.peers.table import Peers
from umm.traces.trace import Trace

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
    traces = [(f"{row.algorithm}: A {row.a}, B {row.b}, C {row.c}", trace) for row, trace in peers.traces()]
    write_page(path, f"Peers: {computed(start)}", [*sections, *_timelines(traces)])


def write_chain_peers(peers: ChainPeers, path: str | Path) -> None:
    """Write a comparison of a chain's layouts as one HTML file that opens offline.

    Raises:
        InputError: if the file cannot be written.
    """
    where = f"{peers.outline}; {peers.ranks} ranks of {peers.machine.name}. Timelines show {RANKS} ranks."
    frame = peers.to_frame().drop(columns="layouts")
    sections = [Section(verdict=peers.verdict, text=where), Section(table=frame)]
    traces = [(row.algorithm, trace) for row, trace in peers.traces()]
    write_page(path, f"Peers: {peers.outline.name}", [*sections, *_timelines(traces)])


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
