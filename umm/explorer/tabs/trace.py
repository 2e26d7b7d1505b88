"""The point's trace: its schedule in time, its links, its tiles and its roofline."""

from typing import Any

import numpy as np
import pandas as pd
from dash import dcc, html

from umm.explorer.point import Point
from umm.explorer.view import Shown, Tab, View, bar, choice
from umm.figures.lanes import RANKS, lane_table, timeline
from umm.figures.links import breakdown_bars, link_map, roofline, work_and_bytes
from umm.figures.tiles import Slice, tile_map
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import link_frame

MOST_PANELS = 4  # tensors beside each other
EVERY = [{"label": "All ranks", "value": -1}]
OWN = [{"label": "of the chosen action, or the first", "value": "0"}]


def schedule(view: View) -> Shown:
    """Return the timelines, of all ranks or of one, and where the time of each goes."""
    assert view.point
    trace = view.point.trace
    zoomed = 0 <= view.state.rank < trace.schedule.ranks
    ranks = [view.state.rank] if zoomed else range(RANKS)
    measured = view.measured
    fits = measured is not None and measured.schedule.ranks > max(ranks[0], 0)

    def drawn(trace: Trace) -> Any:
        return view.drawn(timeline, trace, ranks)

    return {
        "lanes.figure": drawn(trace),
        "lanes-measured.figure": drawn(measured) if measured and fits else {},
        "parts.figure": view.drawn(breakdown_bars, trace.breakdown()),
        "rank.options": EVERY + [{"label": f"rank {x}", "value": x} for x in range(trace.schedule.ranks)],
        "schedule-data.children": view.table(lambda: lane_table(trace)),
    }


def links(view: View) -> Shown:
    """Return how full the busiest links are over time."""
    assert view.point
    trace = view.point.trace
    return {
        "fullness.figure": view.drawn(link_map, trace),
        "links-data.children": view.table(lambda: link_frame(trace)),
    }


def roofs(view: View) -> Shown:
    """Return each rank's rate, under the roofs of its device and its links."""
    assert view.point
    trace = view.point.trace

    def columns() -> dict[str, Any]:
        flop, received = work_and_bytes(trace)
        numbers = {"rank": np.arange(len(flop)), "flop": flop, "received_bytes": received}
        return numbers | {"Tflop/s": flop / trace.makespan_s / 1e12}

    return {"roofs.figure": view.drawn(roofline, trace), "roofline-data.children": view.table(columns)}


def tiles(view: View) -> Shown:
    """Return the tiles of the tensors of a statement, and the slices of the chosen action."""
    point, op = view.point, view.state.op
    assert point
    made = point.trace.schedule
    lit: list[tuple[str, Slice]] = []
    words = "No action is chosen: click a bar of the schedule, or type its number."
    if 0 <= op < len(made):
        lit = slices_of(made, op)
        row = point.trace.to_frame().iloc[op]
        parts = [f"{name}[{top}:{bottom}, {left}:{right}]" for name, (top, bottom, left, right) in lit]
        words = f"Action {op}: {row['kind']} of rank {row['rank']}, {', '.join(parts) or 'no slice'}."
    # The statements of a chain, each with the tensors that it reads and writes; none of a multiply.
    program: Any = point.program
    every = [] if program.kind == "problem" else program.statements
    statements = [(str(x), tuple(dict.fromkeys((*x.reads, x.out)))) for x in every]
    names = statements[min(view.state.statement, len(statements)) - 1][1] if statements else ()
    if statements and not view.state.statement:
        touched = {name for name, _ in lit}
        names = max((x for _, x in statements), key=lambda names: len(touched & set(names)))
    layouts = {x.name: x.layout for x in point.program.tensors}
    if not statements:
        layouts, names = point.layouts, tuple(point.layouts)
    return {
        "owners.figure": view.drawn(tile_map, {x: layouts[x] for x in names[:MOST_PANELS]}, lit),
        "op-words.children": words,
        "statement.options": OWN + [{"label": x, "value": str(i)} for i, (x, _) in enumerate(statements, 1)],
        "statement-bar.hidden": not statements,
        "tiles-data.children": view.table(lambda: shares(point)),
    }


def shares(point: Point) -> pd.DataFrame:
    """Return each rank's share of each tensor, a row each: elements, nbytes."""
    sizes = {x.name: x.itemsize for x in point.program.tensors}
    rows = [
        {
            "tensor": name,
            "layout": str(layout),
            "rank": rank,
            "elements": int(layout.elements_of_rank[rank]),
            "nbytes": int(layout.elements_of_rank[rank]) * sizes[name],
        }
        for name, layout in point.layouts.items()
        for rank in range(layout.ranks)
    ]
    return pd.DataFrame(rows)


def slices_of(schedule: Schedule, action: int) -> list[tuple[str, Slice]]:
    """Return the slices of tensors that an action touches, each with its tensor."""
    slices: list[tuple[str, Slice]] = []
    for operand in range(schedule.details.rows.shape[1]):
        tensor = int(schedule.operand_tensors(operand)[action])
        if tensor < 0:
            continue
        rows, cols = (
            np.asarray(x[action, operand]).tolist() for x in (schedule.details.rows, schedule.details.cols)
        )
        entry = (schedule.tensors[tensor].name, (rows[0], rows[1], cols[0], cols[1]))
        if entry not in slices and rows[1] > rows[0]:
            slices.append(entry)
    return slices


SCHEDULE = Tab(
    "schedule",
    "Schedule",
    "When each rank multiplies and when it communicates; the black line under the bars is the critical path. "
    "A click on a bar lights its slices on the tab Tiles. A trace dropped in on Predicted vs measured is "
    "shown below.",
    ("lanes", "lanes-measured", "parts"),
    schedule,
    [bar(html.Label("Ranks", htmlFor="rank"), choice("rank", EVERY, -1))],
    traces=True,
    others=("rank.options",),
)
LINKS = Tab(
    "links",
    "Links",
    "Load of each link over the makespan, the busiest first.",
    ("fullness",),
    links,
    traces=True,
)
TILES = Tab(
    "tiles",
    "Tiles",
    "Which rank owns which tile, in every replica; the slices of one action are lit.",
    ("owners",),
    tiles,
    [
        bar(
            html.Label("Statement", htmlFor="statement"),
            choice("statement", OWN, "0"),
            id="statement-bar",
            hidden=True,
        ),
        bar(
            html.Label("Action", htmlFor="op"),
            dcc.Input(
                id="op",
                type="text",
                inputMode="numeric",
                placeholder="none",
                debounce=True,
                className="short",
            ),
            html.Span(id="op-words", className="unit", **{"aria-live": "polite"}),
        ),
    ],
    traces=True,
    others=("op-words.children", "statement.options", "statement-bar.hidden"),
)
ROOFLINE = Tab(
    "roofline",
    "Roofline",
    "Rate of each rank against its flop per byte received: under the slope its link limits it, under the "
    "flat roof its multiplies.",
    ("roofs",),
    roofs,
    traces=True,
)
