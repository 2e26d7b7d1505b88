"""The schedule in time: a line per rank and lane, a bar per action, the critical path marked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Floats, Ints
from umm.figures.style import BLACK, KIND_COLOURS, KIND_WIDTHS, PAPER, drawn, time_unit
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
MARK = 0.35  # half of the height of the mark at an action's start, in lanes


def timeline(trace: Trace, ranks: int | Sequence[int] = RANKS, webgl: bool = True) -> "go.Figure":
    """Return the Gantt chart of a trace by rank and lane, one plotly trace per kind.

    Args:
        trace: What to show.
        ranks: The ranks to show, or how many at most, from rank 0.
        webgl: Drawn by WebGL, which takes thousands of bars; but a browser has room for few such figures on a
            page.
    """
    schedule = trace.schedule
    wanted = range(ranks) if isinstance(ranks, int) else ranks
    shown = (schedule.lane >= 0) & np.isin(schedule.rank, wanted)
    lanes = np.unique(schedule.lane[shown])
    place = np.searchsorted(lanes, schedule.lane)
    unit, per_second = time_unit(trace.makespan_s)
    frame = trace.to_frame()
    count = int(shown.sum())
    gap = -np.inf if count <= SINGLE_UP_TO else trace.makespan_s / PIXELS
    data: list[dict[str, Any]] = []
    lines = "scattergl" if webgl else "scatter"
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
        ends = np.stack((start, (start + end) / 2, end, np.full(len(first), np.nan)), axis=1)
        data.append(
            {
                "type": lines,
                "x": ends.ravel(),
                "y": np.repeat(place[first], 4),
                "text": [text for text in texts for _ in range(4)],
                "customdata": np.repeat(first, 4),
                "mode": "lines",
                "line": {"color": KIND_COLOURS[kind], "width": width},
                "hovertemplate": "%{text}<extra></extra>",
                "name": kind,
            }
        )
    path = critical_path(trace)
    path = path[shown[path]]
    first, last, _ = _bars(trace, path, gap)
    data.append(_path(lines, trace.start[first] * per_second, trace.end[last] * per_second, place[first]))
    if count <= SINGLE_UP_TO:
        starts, at = trace.start[shown] * per_second, place[shown]
        data.append(
            {
                "type": lines,
                "x": np.stack((starts, starts, np.full(len(at), np.nan)), axis=1).ravel(),
                "y": np.stack((at - MARK, at + MARK, np.full(len(at), np.nan)), axis=1).ravel(),
                "mode": "lines",
                "line": {"width": 1, "color": PAPER},
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    barriers = (trace.end[schedule.lane < 0] * per_second).tolist()
    title = "Schedule by rank and lane"
    if len(wanted) == 1:
        title += f", rank {wanted[0]} of {schedule.ranks}"
    elif schedule.ranks > len(wanted):
        title += f", ranks {wanted[0]} to {wanted[-1]} of {schedule.ranks}"
    names = [f"rank {schedule.lanes.rank[lane]} {schedule.lanes.names[lane]}" for lane in lanes.tolist()]
    return drawn(
        data,
        title,
        height=170 + 18 * len(lanes),
        hovermode="closest",
        margin={"t": 74, "l": 10, "r": 20, "b": 10},
        legend={"yref": "paper", "y": 1.0},  # in sight: the figure may be tall
        shapes=[_barrier(at) for at in barriers],
        xaxis={"title": {"text": f"time ({unit})"}, "range": [0, trace.makespan_s * per_second]},
        yaxis={
            "tickvals": np.arange(len(lanes)),
            "ticktext": names,
            "range": [len(lanes) - 0.4, -0.6],
            "tickfont": {"size": 11},
        },
    )


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


def _path(lines: str, start: Floats, end: Floats, place: Ints) -> dict[str, Any]:
    """Return the critical path as a line under the bars it goes through."""
    return {
        "type": lines,
        "x": np.stack((start, end, np.full(len(start), np.nan)), axis=1).ravel(),
        "y": np.repeat(place, 3) + 0.42,
        "mode": "lines",
        "line": {"color": BLACK, "width": 2},
        "hoverinfo": "skip",
        "name": "critical path",
    }


def _barrier(at: float) -> dict[str, Any]:
    """Return the line where all ranks meet."""
    line = {"color": BLACK, "width": 1, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "y domain", "line": line}


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
