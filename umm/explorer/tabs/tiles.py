"""Who owns which tiles, and the slices that one multiply touches."""

from typing import TYPE_CHECKING, Any

import numpy as np

from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.tiles import Slice, tile_map
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule

if TYPE_CHECKING:
    import pandas as pd


def show(view: View) -> Shown:
    """Return the tiles of A, B and C, and the slices of the chosen action."""
    assert view.point
    schedule, problem, op = view.point.trace.schedule, view.point.problem, view.state.op
    layouts = dict(zip(MATRICES, problem.layouts, strict=True))
    lit: list[tuple[str, Slice]] = []
    words = "No action is chosen: click on a bar of the schedule, or type its number."
    if 0 <= op < len(schedule):
        lit = slices_of(schedule, op)
        row = view.point.trace.to_frame().iloc[op]
        parts = [f"{name}[{top}:{bottom}, {left}:{right}]" for name, (top, bottom, left, right) in lit]
        words = f"Action {op}: {row['kind']} of rank {row['rank']}, {', '.join(parts) or 'no slice'}."
    return {
        "owners.figure": view.drawn(tile_map, layouts, lit),
        "op-words.children": words,
        "tiles-data.children": view.table(lambda: shares(problem)),
    }


def shares(problem: Problem) -> "pd.DataFrame":
    """Return what each rank holds of each matrix, a row each: elements, nbytes."""
    import pandas as pd

    rows = [
        {
            "matrix": matrix,
            "layout": str(layout),
            "rank": rank,
            "elements": int(layout.elements_of_rank[rank]),
            "nbytes": int(layout.elements_of_rank[rank]) * problem.itemsize(matrix),
        }
        for matrix, layout in zip(MATRICES, problem.layouts, strict=True)
        for rank in range(layout.ranks)
    ]
    return pd.DataFrame(rows)


def slices_of(schedule: Schedule, action: int) -> list[tuple[str, Slice]]:
    """Return the slices of matrices that an action touches, each with its matrix."""
    found: list[tuple[str, Slice]] = []
    for operand in range(schedule.details.rows.shape[1]):
        tensor = int(schedule.operand_tensors(operand)[action])
        if tensor < 0:
            continue
        rows, cols = (
            np.asarray(x[action, operand]).tolist() for x in (schedule.details.rows, schedule.details.cols)
        )
        entry = (schedule.tensors[tensor].name, (rows[0], rows[1], cols[0], cols[1]))
        if entry not in found and rows[1] > rows[0]:
            found.append(entry)
    return found


def controls() -> list[Any]:
    """Return the choice of an action."""
    from dash import dcc, html

    return [
        html.Div(
            [
                html.Label("Action", htmlFor="op"),
                dcc.Input(id="op", type="number", min=-1, step=1, value=-1, debounce=0.2, className="short"),
                html.Span(id="op-words", className="unit", **{"aria-live": "polite"}),
            ],
            className="bar",
        )
    ]


TAB = Tab(
    "tiles",
    "Tiles",
    "Who owns which tile of A, B and C, in every replica; the slices of one action are lit.",
    ("owners",),
    show,
    controls,
    others=("op-words.children",),
)
