"""Results in a notebook: the verdict, the main figure, and the figure's data as a table."""

import json
from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
import pandas as pd

from umm.comparison import Comparison
from umm.errors import InputError
from umm.figures.lanes import lane_table, timeline
from umm.figures.links import beside
from umm.figures.page import CONFIG, SECTION_CSS, Section, section_html
from umm.figures.pareto import pareto
from umm.figures.predicted_measured import agreement
from umm.figures.report import NO_FLIPS, asked, found
from umm.figures.tiles import tile_map
from umm.figures.what_if import decision_figure, sensitivity_figure
from umm.layouts.layout import Layout
from umm.space import Found
from umm.space.peers.table import Peers
from umm.space.what_if.decision_map import DecisionMap
from umm.space.what_if.sensitivity import Sensitivity
from umm.traces.trace import Trace

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MISSING = "What draws this figure came with an earlier output: restart the kernel and run its cells again."


class Card(NamedTuple):
    """A result's display."""

    verdict: str  # one sentence
    text: str  # the question, in a line
    draw: "Callable[[], go.Figure]"  # returns the main figure
    table: Callable[[], pd.DataFrame]  # returns its data


class Session:
    """State shared by the outputs of a session."""

    has_plotly = False  # whether an output or the page around them carries plotly.js already; it has 5 MB


def figure(result: Any) -> "go.Figure":
    """Return the main figure of a result; InputError if there is nothing to draw, saying why."""
    return card(result).draw()


def html(result: Any) -> str:
    """Return a result as a part of a page; the first of a session carries plotly.js for all."""
    from plotly.offline import get_plotlyjs

    shown = card(result)
    try:
        drawing = shown.draw()
    except InputError:
        drawing = None
    name = f"umm-{uuid4().hex}"
    section = Section(verdict=shown.verdict, text=shown.text, figure=drawing, table=shown.table())
    parts = [f"<style>.umm {{ color: #222; background: #fff; padding: .3rem; {SECTION_CSS} }}</style>"]
    if drawing is not None and Session.has_plotly:
        parts.append(f"<script>window.Plotly || document.currentScript.after({_MISSING!r});</script>")
    elif drawing is not None:
        Session.has_plotly = True
        parts.append(f"<script>{get_plotlyjs()}\nPlotly.setPlotConfig({json.dumps(CONFIG)});</script>")
    parts.append(section_html(section, name))
    return f'<div class="umm">{"".join(parts)}</div>'


@singledispatch
def card(result: Any) -> Card:
    """Return a result's display."""
    raise TypeError(f"there is no display for a {type(result).__name__}")


@card.register
def _trace(trace: Trace) -> Card:
    text = f"{asked(trace)} {found(trace)}"
    return Card(trace.verdict, text, lambda: timeline(trace), lambda: lane_table(trace))


@card.register
def _comparison(comparison: Comparison) -> Card:
    question = asked(comparison.predicted)
    draw, table = lambda: agreement(comparison), lambda: comparison.phases().reset_index()
    return Card(str(comparison), question, draw, table)


@card.register
def _layout(layout: Layout) -> Card:
    return Card(layout.describe(), "", lambda: tile_map({"": layout}), lambda: _held(layout))


def _held(layout: Layout) -> pd.DataFrame:
    """Return a row per rank: its replica, its tiles that are not empty, its elements."""
    ranks = range(layout.ranks)
    tiles = [len(layout.filled_of(rank)) for rank in ranks]
    columns = {"rank": ranks, "replica": layout.replica_of_rank, "tiles": tiles}
    return pd.DataFrame({**columns, "elements": layout.elements_of_rank})


@card.register
def _search(result: Found) -> Card:
    if not result.space.is_multiply:
        best = result.top[0]
        named = {name: seconds for name, seconds in result.named.items() if seconds is not None}
        seconds = {"best": best.makespan_s, **named}
        draw = lambda: beside("The best layouts beside others", seconds, "best")  # noqa: E731
        return Card(f"{result}.", f"Layouts: {best.words}.", draw, result.to_frame)
    proof = "Proven best" if result.proven else "Not proven: the best so far"
    names = ("a", "b", "c", "stationary", "makespan_s", "fraction_of_peak", "memory_bytes")
    return Card(
        f"{result.top[0]}.",
        f"{proof} of {result.distinct:,} points on {result.machine}, {result.simulated} of them simulated.",
        lambda: _simulated(result),
        lambda: result.to_frame()[list(names)],
    )


def _simulated(result: Found) -> "go.Figure":
    """Return time against memory of the points that were simulated, the front among them."""
    choices = list({*result.frontier, *result.top, *result.pricer.choices.values()})
    front = np.array([choices.index(choice) for choice in result.frontier], dtype=np.int64)
    seconds = np.array([choice.makespan_s for choice in choices])
    memory = np.array([float(choice.memory_bytes) for choice in choices])
    return pareto(seconds, memory, exact=np.full(len(choices), True), front=front, limit=result.limit)


@card.register
def _peers(peers: Peers) -> Card:
    start = peers.start
    if peers.size != "m":
        text = f"{start.name}, {peers.ranks} ranks of {peers.machine.name}."
        frame = peers.to_frame().drop(columns="layouts")
        return Card(peers.verdict, text, lambda: _rows(peers), lambda: frame)
    text = f"From A {start.a}, B {start.b} to C {start.c}, {start.p} ranks of {peers.machine.name}."
    return Card(peers.verdict, text, lambda: _rows(peers), peers.to_frame)


def _rows(peers: Peers) -> "go.Figure":
    seconds = {row.algorithm: row.makespan_s for row in peers.rows}
    over = frozenset(row.algorithm for row in peers.rows if not row.fits)
    return beside("Ways to multiply", seconds, peers.best.algorithm, over)


@card.register
def _sensitivity(answer: Sensitivity) -> Card:
    flips = [str(flip) for flip in answer.flips if flip.factor is not None]
    text = "; ".join(flips) if flips else NO_FLIPS
    return Card(f"{answer.choice}.", text, lambda: sensitivity_figure(answer), answer.moves_frame)


@card.register
def _map(decisions: DecisionMap) -> Card:
    verdict = f"Best layouts by m and {decisions.over} on {decisions.machine}."
    return Card(verdict, "", lambda: decision_figure(decisions), decisions.to_frame)
