"""The replication heat map: the best time for every two replication factors, the third by its slider."""

from typing import Any

import numpy as np
import pandas as pd
from dash import dcc, html

from umm.arrays import Ints
from umm.explorer.savings import Growing, paying, saving
from umm.explorer.view import Shown, Tab, View, bar, blank, choice, pills, table, words_of
from umm.figures.replication import replication_map
from umm.layouts.places import replication_factors
from umm.program.problem import MATRICES
from umm.units import format_seconds


def show(view: View) -> Shown:
    """Return the heat map of two groups of tensors: of a multiply those that the slider does not fix."""
    priced, state, point = view.priced, view.state, view.point
    controls = _controls(view)
    if priced.points is None:
        return blank(TAB.outputs) | {"replicas.figure": {}} | controls
    down, right, third = _groups(view)
    mine = priced.best
    if priced.stage in ("factors", "all"):  # of every factor the best is exact; what is not is no better
        mine = mine[priced.exact[mine]]
    every = priced.points.factors
    names = [group[0] for group in priced.points.tensors]
    where = ", the others as is best"
    if third is not None:
        if state.fixed:
            mine = mine[every[third][mine] == state.fixed]
        where = f", {state.across}@{state.fixed}" if state.fixed else f", any factor of {state.across}"
    selected = None
    if point and (third is None or not state.fixed or point.layouts[names[third]].replicas == state.fixed):
        selected = (point.layouts[names[down]].replicas, point.layouts[names[right]].replicas)
    factors = every[:, mine]
    figure = view.drawn(
        replication_map,
        priced.seconds[mine],
        factors[down],
        factors[right],
        _Labels(view, mine, (names[down], names[right])),  # type: ignore[arg-type]
        exact=priced.exact[mine],
        numbers=mine,
        names=(names[down], names[right]),
        selected=selected,
        where=where,
    )
    columns = {
        f"c_{names[down]}": factors[down],
        f"c_{names[right]}": factors[right],
        **({} if third is None else {f"c_{names[third]}": factors[third]}),
        "makespan_s": priced.seconds[mine],
        "memory_bytes": priced.memory[mine],
        "exact": priced.exact[mine],
    }

    def best() -> pd.DataFrame:
        return pd.DataFrame(columns).groupby(list(columns)[:2], as_index=False).first()  # fastest first

    words = "≥ on grey is a lower bound: no layouts with these factors are faster."
    return controls | {
        "replicas.figure": figure,
        "replication-words.children": words if third is None else _said(view, mine, down, right),
        "grown.children": _grown(view.growing) if view.growing else None,
        "replication-data.children": view.table(best),
    }


def _groups(view: View) -> tuple[int, int, int | None]:
    """Return which groups of tensors lie down and to the right, and the one with the slider, if any has it.

    Of a chain the first two with several factors, where none is asked for.
    """
    state, points = view.state, view.priced.points
    assert points
    if not state.chain:
        third = MATRICES.index(state.across)
        down, right = (i for i in range(3) if i != third)
        return down, right, third
    group_of = {name: i for i, group in enumerate(points.tensors) for name in group}
    free = sorted(range(len(points.tensors)), key=lambda i: len(np.unique(points.factors[i])) == 1)
    down = group_of.get(state.down, free[0])
    right = group_of.get(state.right, next((i for i in free if i != down), down))
    return down, right, None


def _controls(view: View) -> Shown:
    """Return the choices of tensors of a chain; a multiply has the slider of the third in their place."""
    points = view.priced.points
    if not view.state.chain:
        return {"pair-bar.hidden": True, "slider-bar.hidden": False} | blank(PAIR)
    shown: Shown = {"pair-bar.hidden": False, "slider-bar.hidden": True} | blank(PAIR)
    if points is not None:
        down, right, _ = _groups(view)
        options = [{"label": " ".join(group), "value": group[0]} for group in points.tensors]
        names = [group[0] for group in points.tensors]
        shown |= dict.fromkeys(("down.options", "right.options"), options)
        shown |= {"down.value": names[down], "right.value": names[right]}
    return shown


PAIR = ("down.options", "down.value", "right.options", "right.value")


def _said(view: View, mine: Ints, down: int, across: int) -> str:
    """Return the savings of replicas of the operand across at this m, once each factor's best is proven."""
    priced = view.priced
    if priced.stage not in ("factors", "all") or view.point is None:
        return "≥ on grey is a lower bound; the best of each pair of factors is being proven."
    assert priced.points
    every = priced.points.factors
    factors, name = replication_factors(view.point.problem.p), MATRICES[across]
    here = view.point.problem.layouts[down].replicas
    sentences = []
    for kept, whose in (
        (every[down][mine] == here, f"With {MATRICES[down]}@{here}, this point's, "),
        (np.full(len(mine), True), f"With the best factor of {MATRICES[down]}, "),
    ):
        points_of = mine[kept]
        times = [
            float(priced.seconds[points_of[every[across][points_of] == x]].min(initial=np.inf))
            for x in factors
        ]
        pays = saving(name, factors, times)
        best = f"{pays} ({format_seconds(min(times))} for {format_seconds(times[0])})"
        sentences.append(whose + (best if pays else f"no replica of {name} saves 1 %"))
    return ". ".join(sentences) + "."


def _grown(growing: Growing) -> Any:
    """Return the times over m, those with replicas beside those without."""
    name, rows = MATRICES[growing.operand], []
    for m, times in sorted(growing.found.items()):
        best = paying(times)
        cells = [html.Th(f"{m:,}", scope="row"), html.Td(_time(times[0]))]
        for place, seconds in enumerate(times[1:], 1):
            look = "best" if place == best else ""
            cells.append(html.Td(_change(seconds, times[0]), title=_time(seconds), className=look))
        rows.append(html.Tr(cells))
    headings = ("m", *(f"{name}@{factor}" for factor in growing.factors))
    grid = table(headings, rows, "compared")
    return [html.P(growing.failed or growing.said, className="said"), html.Div(grid, className="scroll")]


def _time(seconds: float) -> str:
    return format_seconds(seconds) if np.isfinite(seconds) else "does not fit"


def _change(seconds: float, before: float) -> str:
    change = 100 * (seconds / before - 1)
    words = f"{change:+.1f} %" if abs(change) >= 0.05 else "0.0 %"
    return words.replace("-", "−") if np.isfinite(change) else "does not fit"


class _Labels:
    """The partitions of points, by their place among those shown; few are ever asked for."""

    def __init__(self, view: View, mine: Ints, names: tuple[str, str]) -> None:
        self.view, self.mine, self.names = view, mine, names

    def __getitem__(self, place: int) -> str:
        points = self.view.priced.points
        assert points
        layouts, stationary, _ = points.parts(int(self.mine[place]))
        if self.view.state.chain:
            return " ".join(layouts[name].split("@")[0] for name in self.names)
        return " ".join(text.split("@")[0] for text in layouts.values()) + f" {stationary}"


TAB = Tab(
    "replication",
    "Replication",
    "The best time for each pair of replication factors under the memory budget, with the partitions that "
    "reach it (of a multiply those of A, B, C and the stationary matrix). Click a cell to show its point. As "
    "m grows: the same up to 64 times this m.",
    ("replicas",),
    show,
    [
        bar(
            html.Span("Slider for", id="across-label"),
            pills("across", MATRICES, "C"),
            html.Label("its factor", htmlFor="fixed-index"),
            dcc.Input(id="fixed-index", type="range", min=0, max=1, step=1, value=0),
            html.Output("best of all", id="fixed-words"),
            dcc.Checklist(
                [{"label": "as m grows", "value": "1"}], [], id="grow", className="check", inline=True
            ),
            id="slider-bar",
        ),
        bar(
            html.Label("Down", htmlFor="down"),
            choice("down", []),
            html.Label("To the right", htmlFor="right"),
            choice("right", []),
            id="pair-bar",
            hidden=True,
        ),
        words_of("replication-words"),
        html.Div(id="grown"),
    ],
    clicks=("replicas",),
    prices=True,
    others=("replication-words.children", "grown.children", "pair-bar.hidden", "slider-bar.hidden", *PAIR),
)
