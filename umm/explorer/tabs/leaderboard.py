"""The leaderboard beside time against memory."""

from typing import Any

import pandas as pd

from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View, firsts
from umm.figures.pareto import pareto
from umm.traces.verdict import percent
from umm.units import format_bytes, format_seconds

ROWS = 8
LOOKED_AT = 400


def show(view: View) -> Shown:
    """Return the best points as rows and all as marks."""
    assert view.point
    priced = view.priced
    figure = pareto(
        priced.seconds, priced.memory, exact=priced.exact, limit=view.point.limit, selected=view.selected
    )
    return {
        "pareto.figure": view.drawn(figure),
        "leaders.children": _table(view),
        "leaderboard-data.children": view.table(points_frame(view, LOOKED_AT)),
    }


def points_frame(view: View, most: int) -> pd.DataFrame:
    """Return the best points as a frame: a, b, c, stationary, makespan_s, memory_bytes, exact."""
    priced = view.priced
    rows = []
    for number in view.best[:most].tolist():
        (a, b, c), stationary = priced.texts(number)
        row = {"a": a, "b": b, "c": c, "stationary": stationary, "makespan_s": float(priced.seconds[number])}
        rows.append(row | {"memory_bytes": float(priced.memory[number]), "exact": bool(priced.exact[number])})
    return pd.DataFrame(rows)


def _table(view: View) -> Any:
    from dash import html

    assert view.point
    priced = view.priced
    if not len(view.best):
        return html.P(
            f"No layout fits {format_bytes(view.point.limit)} per rank; the smallest needs "
            f"{format_bytes(float(priced.memory.min()))}. Give it a larger budget.",
            className="empty",
        )
    head = html.Tr(
        [html.Th(x, scope="col") for x in ("", "A", "B", "C", "stationary", "makespan", "of peak", "memory")]
    )
    rows = []
    for place, (number, group) in enumerate(
        firsts(view.best[:LOOKED_AT], priced.seconds, priced.memory)[:ROWS], 1
    ):
        (a, b, c), stationary = priced.texts(number)
        same = sorted({priced.texts(other)[1] for other in group if priced.texts(other)[0] == (a, b, c)})
        others = len({priced.texts(other)[0] for other in group}) - 1
        seconds, sure = float(priced.seconds[number]), bool(priced.exact[number])
        peak = view.point.problem.flop / (seconds * view.point.trace.schedule.peak)
        label = f"Take number {place}: A {a}, B {b}, C {c}, stationary {stationary}"
        choose = html.Button(
            str(place), id={"pick": f"{a}|{b}|{c}|{stationary}"}, className="pick", **{"aria-label": label}
        )
        rows.append(
            html.Tr(
                [
                    html.Td(choose),
                    *(html.Td(x, className="layout") for x in (a, b, c)),
                    html.Td(", ".join(same), title="All of these are one schedule" if same[1:] else ""),
                    html.Td(format_seconds(seconds) if sure else f"≥ {format_seconds(seconds)}"),
                    html.Td(percent(peak)),
                    html.Td(format_bytes(float(priced.memory[number]))),
                ],
                className="chosen" if view.selected in group else "",
            )
        )
        if others:
            words = f"and {others} more layouts with the same time and memory"
            rows.append(html.Tr(html.Td(words, colSpan=8, className="same")))
    return html.Table([html.Thead(head), html.Tbody(rows)], className="leaders")


def controls() -> list[Any]:
    """Return the place of the table."""
    from dash import html

    return [html.Div(id="leaders", className="scroll")]


TAB = Tab(
    "leaderboard",
    "Leaderboard",
    "The best layouts of this problem with these choices, and every other as a mark. Take one by its number "
    "or its mark; the page then shows it.",
    ("pareto",),
    show,
    controls,
    clicks=("pareto",),
    prices=True,
    others=("leaders.children",),
)
