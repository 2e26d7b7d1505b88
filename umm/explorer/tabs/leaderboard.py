"""The leaderboard beside time against memory."""

from typing import TYPE_CHECKING, Any

import numpy as np

from umm.algorithms.universal.options import known
from umm.explorer.tables import table
from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.pareto import pareto
from umm.space import Choice
from umm.traces.verdict import percent
from umm.units import format_bytes, format_seconds, range_in_words

if TYPE_CHECKING:
    import pandas as pd

ROWS = 10
HEADINGS = ("", "A", "B", "C", "stays", "makespan", "range", "of peak", "memory")


def show(view: View) -> Shown:
    """Return the best points as rows and all as marks."""
    assert view.point
    priced, trace = view.priced, view.point.trace
    front = [priced.number_of(choice) for choice in priced.front] if priced.stage != "top" else []
    figure: Any = {}
    if priced.points:
        figure = view.drawn(
            pareto,
            priced.seconds,
            priced.memory,
            exact=priced.exact,
            front=np.array(front, dtype=np.int64),
            limit=priced.limit,
            here=(trace.makespan_s, trace.memory_bytes),
        )
    return {
        "pareto.figure": figure,
        "leaders.children": _table(view),
        "leaderboard-data.children": view.table(lambda: top_frame(view)),
    }


def top_frame(view: View) -> "pd.DataFrame":
    """Return the best points as a frame, proven: a, b, c, how, makespan_s, memory_bytes, fraction_of_peak."""
    import pandas as pd

    rows = []
    for choice in view.priced.top:
        layouts = {x: str(getattr(choice.problem, x)) for x in "abc"}
        figures = {x: getattr(choice, x) for x in ("makespan_s", "memory_bytes", "fraction_of_peak")}
        rows.append(layouts | {"how": how(choice)} | figures)
    return pd.DataFrame(rows)


def how(choice: Choice) -> str:
    """Return what stays in place and what is not the default, in few words: ``B slice``, ``any``."""
    said = choice.how
    stays = "any" if "," in said["stationary"] else said["stationary"]
    unlike = (x.name for x in known() if getattr(choice.options, x.name) != x.default)
    return " ".join([stays, *(said[name] for name in unlike if "," not in said[name])])


def _table(view: View) -> Any:
    from dash import html

    priced = view.priced
    if not priced.top:
        words = priced.words if priced.refusal or priced.failed else "The best layouts are being proven."
        return html.P(words, className="empty")
    rows = [_row(view, place, choice) for place, choice in enumerate(priced.top[:ROWS], 1)]
    return table(HEADINGS, rows, "leaders")


def _row(view: View, place: int, choice: Choice) -> Any:
    from dash import html

    priced, seconds = view.priced, choice.makespan_s
    layouts = tuple(str(getattr(choice.problem, x)) for x in "abc")
    there = view.state.at(layouts, choice.kept, choice.options).query or "?"  # type: ignore[arg-type]
    label = f"Take number {place}: A {layouts[0]}, B {layouts[1]}, C {layouts[2]}, stationary {how(choice)}"
    button = html.Button(str(place), id={"pick": there}, className="pick", **{"aria-label": label})
    ends = priced.ranges[place - 1] if place <= len(priced.ranges) else None
    ties = f"{len(choice.ties) + 1} points of the space are this schedule" if choice.ties else ""
    cells = [
        html.Td(button),
        *(html.Td(x, className="layout") for x in layouts),
        html.Td(how(choice), className="layout", title=ties),
        html.Td(format_seconds(seconds)),
        html.Td(range_in_words(seconds, ends) if ends else "", className="soft"),
        html.Td(percent(choice.fraction_of_peak)),
        html.Td(format_bytes(choice.memory_bytes)),
    ]
    return html.Tr(cells, className="chosen" if view.selected in _numbers(view, choice) else "")


def _numbers(view: View, choice: Choice) -> set[int | None]:
    """Return the points that are the schedule of a row."""
    ways = ((choice.kept, choice.options), *choice.ties)
    return {view.priced.number(choice.problem.layouts, x, options) for x, options in ways} - {None}


def controls() -> list[Any]:
    """Return the place of the table."""
    from dash import html

    return [html.Div(id="leaders", className="scroll")]


TAB = Tab(
    "leaderboard",
    "Leaderboard",
    "The best layouts of this problem, proven, and every other as a mark. Take one by its number or its "
    "mark; the page then shows it.",
    ("pareto",),
    show,
    controls,
    clicks=("pareto",),
    prices=True,
    others=("leaders.children",),
)
