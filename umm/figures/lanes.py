"""The schedule in time: a line per rank and lane, a bar per action, the critical path marked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Floats, Ints
from umm.figures.style import BLACK, KIND_COLOURS, KIND_WIDTHS, PAPER, Parts, as_figure, drawing
from umm.schedules.table.details import KINDS
from umm.traces.bottleneck import critical_path
from umm.traces.perfetto import touched_words
from umm.traces.trace import Trace
from umm.units import format_bytes, format_seconds, time_unit

if TYPE_CHECKING:
    import pandas as pd

RANKS = 16
# Up to this many actions each has its own bar and a mark at its start. Of more, those of a kind that follow
# each other on a lane within a pixel, one of so many across the makespan, share a bar.
SINGLE_UP_TO = 10_000
PIXELS = 2000
LANE = 18  # pixels
MARK = 0.42  # half of the height of the mark at an action's start, in lanes: bars end before it
UNDER = (0.36, 0.36 + 2 / LANE)  # where the critical path lies under its bars, in lanes


@as_figure
def timeline(trace: Trace, ranks: int | Sequence[int] = RANKS) -> Parts:
    """Return the Gantt chart of a trace by rank and lane: for each kind its bars, with their texts.

    All bars of a kind are one path, for thousands of paths take a browser long.

    Args:
        ranks: The ranks to show, or how many at most, from rank 0.
    """
    schedule = trace.schedule
    wanted = range(ranks) if isinstance(ranks, int) else ranks
    shown = (schedule.lane >= 0) & np.isin(schedule.rank, wanted)
    lanes = np.unique(schedule.lane[shown])
    place = np.searchsorted(lanes, schedule.lane)
    unit, per_second = time_unit(trace.makespan_s)
    count = int(shown.sum())
    gap = -np.inf if count <= SINGLE_UP_TO else trace.makespan_s / PIXELS
    data: list[dict[str, Any]] = []
    for kind, width in KIND_WIDTHS.items():
        mine = np.flatnonzero(shown & (schedule.kind == KINDS.index(kind)))
        if not len(mine):
            continue
        first, last, shares = _bars(trace, mine, gap)
        start, end, at = trace.start[first] * per_second, trace.end[last] * per_second, place[first]
        half = width / LANE / 2
        data.append(_filled(start, end, at, (-half, half), kind, KIND_COLOURS[kind]))
        data.append(
            {
                "type": "scatter",
                "x": np.stack((start, (start + end) / 2, end), axis=1).ravel(),
                "y": np.repeat(at, 3),
                "text": np.repeat(_texts(trace, first, shares), 3),  # of a list plotly.py copies each text
                "customdata": np.repeat(first, 3).tolist(),  # Dash passes on nothing of bytes
                "mode": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "hoverlabel": {"bgcolor": KIND_COLOURS[kind]},
                "legendgroup": kind,
                "showlegend": False,
            }
        )
    if count <= SINGLE_UP_TO:
        data.append(_marks(trace.start[shown] * per_second, place[shown]))
    path = critical_path(trace)
    path = path[shown[path]]
    first, last, _ = _bars(trace, path, gap)
    start, end, at = trace.start[first] * per_second, trace.end[last] * per_second, place[first]
    data.append(_filled(start, end, at, UNDER, "critical path", BLACK))
    title = "Schedule by rank and lane"
    if len(wanted) == 1:
        title += f", rank {wanted[0]} of {schedule.ranks}"
    elif schedule.ranks > len(wanted):
        title += f", ranks {wanted[0]} to {wanted[-1]} of {schedule.ranks}"
    height = 198 + LANE * len(lanes)
    meeting = {"color": BLACK, "width": 1, "dash": "dot"}  # where all ranks meet
    names = [f"rank {schedule.lanes.rank[lane]} {schedule.lanes.names[lane]}" for lane in lanes.tolist()]
    return drawing(
        data,
        title,
        height=height,
        hovermode="closest",
        margin={"t": 112, "l": 10, "r": 20, "b": 10},
        # The figure may be tall: what its colours mean, and the time, stand above it.
        legend={"y": 1 - 66 / height},
        shapes=[
            {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "y domain", "line": meeting}
            for at in (trace.end[schedule.lane < 0] * per_second).tolist()
        ],
        xaxis={
            "title": {"text": f"time ({unit})", "standoff": 4},
            "range": [0, trace.makespan_s * per_second],
            "side": "top",
        },
        yaxis={
            "tickvals": np.arange(len(lanes)),
            "ticktext": names,
            "range": [len(lanes) - 0.4, -0.6],
            "tickfont": {"size": 11},
        },
    )


def _bars(trace: Trace, actions: Ints, gap: float) -> tuple[Ints, Ints, Ints]:
    """Return the first and the last action of every bar and how many share it."""
    # trace: the trace the actions are of. actions: actions of one kind, or of the critical path. gap: actions
    # on one lane share a bar if the next starts less than this after the last, in seconds.
    lane = trace.schedule.lane[actions]
    order = np.lexsort((trace.start[actions], lane))
    actions, lane = actions[order], lane[order]
    apart = trace.start[actions[1:]] - trace.end[actions[:-1]] >= gap
    opens = np.flatnonzero(np.concatenate(([True], (lane[1:] != lane[:-1]) | apart))[: len(actions)])
    count = np.diff(np.append(opens, len(actions)))
    return actions[opens], actions[opens + count - 1], count


def _filled(
    start: Floats, end: Floats, place: Ints, sides: tuple[float, float], name: str, colour: str
) -> dict[str, Any]:
    """Return bars as one path, closed for each lane: along one side of its bars, and around each."""
    # start: where each bar begins; sorted by lane. sides: how far its sides are from the middle of the lane.
    ends = np.stack((start, start, end, end), axis=1).ravel()
    low, high = place + sides[0], place + sides[1]
    between = 4 * (np.flatnonzero(np.diff(place)) + 1)
    return {
        "type": "scatter",
        "x": np.insert(ends, between, np.nan),
        "y": np.insert(np.stack((low, high, high, low), axis=1).ravel(), between, np.nan),
        "mode": "none",
        "fill": "toself",
        "fillcolor": colour,
        "line": {"simplify": False},
        "hoverinfo": "skip",
        "name": name,
        "legendgroup": name,
    }


def _marks(start: Floats, place: Ints) -> dict[str, Any]:
    """Return the marks at the starts of actions as one line to and fro between the sides of their lanes."""
    # From lane to lane it runs between the two, on paper: a line of its own for each takes plotly.js longer.
    order = np.lexsort((start, place))
    start, place = start[order], place[order]
    side = np.where(np.arange(len(place)) % 2, MARK, -MARK)
    last = np.flatnonzero(np.diff(place))
    across, ends = np.repeat(2 * (last + 1), 2), np.stack((start[last], start[last + 1]), axis=1).ravel()
    return {
        "type": "scatter",
        "x": np.insert(np.repeat(start, 2), across, ends),
        "y": np.insert(
            np.stack((place + side, place - side), axis=1).ravel(), across, np.repeat(place[last] + 0.5, 2)
        ),
        "mode": "lines",
        "line": {"width": 1, "color": PAPER, "simplify": False},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _texts(trace: Trace, actions: Ints, shares: Ints) -> list[str]:
    """Return the text shown beside the pointer at each bar: of its action, or of how many."""
    schedule = trace.schedule
    peers = np.where(schedule.src == schedule.rank, schedule.dst, schedule.src)
    columns = (
        schedule.kind, schedule.rank, schedule.lane, schedule.details.op, schedule.payload, peers,
        trace.start, trace.end,
    )  # fmt: skip
    values = (column[actions].tolist() for column in columns)
    texts = []
    for tiles, count, kind, rank, lane, op, nbytes, peer, start, end in zip(
        touched_words(schedule, actions), shares.tolist(), *values, strict=True
    ):
        name, where = KINDS[kind], f"rank {rank}, {schedule.lanes.names[lane]}"
        if count > 1:
            texts.append(f"{count} {name} actions of {where}")
            continue
        moved = f"{format_bytes(nbytes)} with rank {peer}" if nbytes else ""
        when = f"{format_seconds(start)} to {format_seconds(end)}: {format_seconds(end - start)}"
        texts.append("<br>".join(x for x in (f"{name} of {where}, op {op}", tiles, moved, when) if x))
    return texts


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
