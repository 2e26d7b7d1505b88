"""The schedule in time: a line per rank and lane, a bar per action, the critical path marked."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Floats, Ints
from umm.figures.style import BLACK, KIND_COLOURS, KIND_WIDTHS, styled, time_unit
from umm.traces.critical_path import critical_path
from umm.traces.frame import touched_words
from umm.traces.trace import Trace
from umm.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

RANKS = 16
# Up to this many actions each has its own bar and a mark at its start. Of more, those of a kind that follow
# each other on a lane within a pixel, one of so many across the makespan, share a bar.
SINGLE_UP_TO = 10_000
PIXELS = 2000


def timeline(trace: Trace, ranks: int = RANKS, webgl: bool = True) -> "go.Figure":
    """Return the Gantt chart of a trace by rank and lane, one plotly trace per kind.

    Args:
        trace: What to show.
        ranks: How many ranks to show at most, from rank 0.
        webgl: Drawn by WebGL, which takes thousands of bars; but a browser has room for few such figures on a
            page.
    """
    import plotly.graph_objects as go

    schedule = trace.schedule
    shown = (schedule.lane >= 0) & (schedule.rank < ranks)
    lanes = np.unique(schedule.lane[shown])
    place = np.searchsorted(lanes, schedule.lane)
    unit, per_second = time_unit(trace.makespan_s)
    frame = trace.to_frame()
    count = int(shown.sum())
    gap = -np.inf if count <= SINGLE_UP_TO else trace.makespan_s / PIXELS
    figure = go.Figure()
    add = figure.add_scattergl if webgl else figure.add_scatter
    for kind, width in KIND_WIDTHS.items():
        mine = np.flatnonzero(shown & (frame["kind"] == kind).to_numpy())
        if not len(mine):
            continue
        first, last, shares = _bars(trace, mine, gap)
        start, end = trace.start[first] * per_second, trace.end[last] * per_second
        rows = frame.iloc[first].itertuples(index=False)
        texts = [
            _text(row, tiles) if n == 1 else f"{n} {kind} actions of rank {row.rank}, {row.lane}"
            for row, n, tiles in zip(rows, shares.tolist(), touched_words(schedule, first), strict=True)
        ]
        add(
            x=np.stack((start, (start + end) / 2, end, np.full(len(first), np.nan)), axis=1).ravel(),
            y=np.repeat(place[first], 4),
            text=[text for text in texts for _ in range(4)],
            mode="lines",
            line={"color": KIND_COLOURS[kind], "width": width},
            hovertemplate="%{text}<extra></extra>",
            name=kind,
        )
    path = critical_path(trace)
    path = path[shown[path]]
    first, last, _ = _bars(trace, path, gap)
    _add_path(add, trace.start[first] * per_second, trace.end[last] * per_second, place[first])
    if count <= SINGLE_UP_TO:
        add(
            x=trace.start[shown] * per_second,
            y=place[shown],
            mode="markers",
            marker={"symbol": "line-ns-open", "size": 12, "color": "white", "line": {"width": 1}},
            hoverinfo="skip",
            showlegend=False,
        )
    for barrier in trace.end[schedule.lane < 0].tolist():
        figure.add_vline(x=barrier * per_second, line={"color": BLACK, "width": 1, "dash": "dot"})
    title = "Schedule by rank and lane"
    if schedule.ranks > ranks:
        title += f", ranks 0 to {ranks - 1} of {schedule.ranks}"
    names = [f"rank {schedule.lanes.rank[lane]} {schedule.lanes.names[lane]}" for lane in lanes.tolist()]
    styled(figure, title, height=170 + 18 * len(lanes), hovermode="closest")
    figure.update_layout(margin_t=74, legend={"yref": "paper", "y": 1.0})  # in sight: the figure may be tall
    figure.update_xaxes(title=f"time ({unit})", range=[0, trace.makespan_s * per_second])
    figure.update_yaxes(
        tickvals=np.arange(len(lanes)), ticktext=names, range=[len(lanes) - 0.4, -0.6], tickfont={"size": 11}
    )
    return figure


def _bars(trace: Trace, actions: Ints, gap: float) -> tuple[Ints, Ints, Ints]:
    """Return the first and the last action of every bar and how many share it.

    Args:
        trace: The trace the actions are of.
        actions: Actions of one kind, or of the critical path.
        gap: Actions on one lane share a bar if the next starts less than this after the last, in seconds.
    """
    lane = trace.schedule.lane[actions]
    order = np.lexsort((trace.start[actions], lane))
    actions, lane = actions[order], lane[order]
    apart = trace.start[actions[1:]] - trace.end[actions[:-1]] >= gap
    opens = np.flatnonzero(np.concatenate(([True], (lane[1:] != lane[:-1]) | apart))[: len(actions)])
    count = np.diff(np.append(opens, len(actions)))
    return actions[opens], actions[opens + count - 1], count


def _add_path(add: Callable[..., Any], start: Floats, end: Floats, place: Ints) -> None:
    add(
        x=np.stack((start, end, np.full(len(start), np.nan)), axis=1).ravel(),
        y=np.repeat(place, 3) + 0.42,
        mode="lines",
        line={"color": BLACK, "width": 2},
        hoverinfo="skip",
        name="critical path",
    )


def _text(row: Any, tiles: str) -> str:
    """Return what is shown beside the pointer for a row of a trace's frame."""
    moved = f"{format_bytes(row.nbytes)} with rank {row.peer}" if row.nbytes else ""
    when = f"{format_seconds(row.start_s)} to {format_seconds(row.end_s)}"
    parts = [
        f"{row.kind} of rank {row.rank}, {row.lane}, op {row.op}",
        tiles,
        moved,
        f"{when}: {format_seconds(row.end_s - row.start_s)}",
    ]
    return "<br>".join(part for part in parts if part)


def lane_table(trace: Trace) -> "pd.DataFrame":
    """Return a row per lane that is used and kind: actions, nbytes, busy_s, first start, last end."""
    frame = trace.to_frame()
    frame["busy_s"] = frame["end_s"] - frame["start_s"]
    grouped = frame[frame["rank"] >= 0].groupby(["rank", "lane", "kind"])
    return grouped.agg(
        actions=("op", "size"),
        nbytes=("nbytes", "sum"),
        busy_s=("busy_s", "sum"),
        first_start_s=("start_s", "min"),
        last_end_s=("end_s", "max"),
    ).reset_index()
