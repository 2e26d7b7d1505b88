"""The replication heat map: the best time for every two replication factors, the third by its slider."""

from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Ints
from umm.explorer.savings import Growing, paying, saving
from umm.explorer.tables import table
from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.replication import replication_map
from umm.layouts.places import replication_factors
from umm.program.problem import MATRICES
from umm.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd


def show(view: View) -> Shown:
    """Return the heat map of the two operands that the slider does not fix."""
    assert view.point
    priced, state = view.priced, view.state
    if priced.points is None:
        return dict.fromkeys(TAB.outputs) | {"replicas.figure": {}}
    third = MATRICES.index(state.across)
    down, across = (i for i in range(3) if i != third)
    mine = priced.best
    if priced.stage in ("factors", "all"):  # of every factor the best is exact; what is not is no better
        mine = mine[priced.exact[mine]]
    if state.fixed:
        mine = mine[priced.factors[third][mine] == state.fixed]
    where = f", {state.across}@{state.fixed}" if state.fixed else f", any factor of {state.across}"
    selected = None
    if not state.fixed or view.point.problem.layouts[third].replicas == state.fixed:
        selected = (view.point.problem.layouts[down].replicas, view.point.problem.layouts[across].replicas)
    factors = priced.factors[:, mine]
    figure = view.drawn(
        replication_map,
        priced.seconds[mine],
        factors[down],
        factors[across],
        _Labels(view, mine),  # type: ignore[arg-type]
        exact=priced.exact[mine],
        numbers=mine,
        names=(MATRICES[down], MATRICES[across]),
        selected=selected,
        where=where,
    )
    columns = {
        f"c_{MATRICES[down]}": factors[down],
        f"c_{MATRICES[across]}": factors[across],
        f"c_{state.across}": factors[third],
        "makespan_s": priced.seconds[mine],
        "memory_bytes": priced.memory[mine],
        "exact": priced.exact[mine],
    }

    def best() -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(columns).groupby(list(columns)[:2], as_index=False).first()  # fastest first

    return {
        "replicas.figure": figure,
        "replication-words.children": _said(view, mine, down, across),
        "grown.children": _grown(view.growing) if view.growing else None,
        "replication-data.children": view.table(best),
    }


def _said(view: View, mine: Ints, down: int, across: int) -> str:
    """Return what replicas of the operand across save at this m, once the best of every factor is proven."""
    assert view.point
    priced = view.priced
    if priced.stage not in ("factors", "all"):
        return "≥ is a lower bound: what is possible at best is being proven."
    factors, name = replication_factors(view.point.problem.p), MATRICES[across]
    here = view.point.problem.layouts[down].replicas
    found = []
    for kept, whose in (
        (priced.factors[down][mine] == here, f"With {MATRICES[down]}@{here}, this point's, "),
        (np.full(len(mine), True), f"With the best factor of {MATRICES[down]}, "),
    ):
        of = mine[kept]
        times = [
            float(priced.seconds[of[priced.factors[across][of] == x]].min(initial=np.inf)) for x in factors
        ]
        pays = saving(name, factors, times)
        best = f"{pays} ({format_seconds(min(times))} for {format_seconds(times[0])})"
        found.append(whose + (best if pays else f"no replica of {name} saves 1 %"))
    return ". ".join(found) + "."


def _grown(growing: Growing) -> Any:
    """Return the times over m, those with replicas beside those without."""
    from dash import html

    name, rows = MATRICES[growing.operand], []
    for m, times in sorted(growing.found.items()):
        best = paying(times)
        cells = [html.Th(f"{m:,}", scope="row"), html.Td(_time(times[0]))]
        for place, seconds in enumerate(times[1:], 1):
            look = "best" if place == best else ""
            cells.append(html.Td(_change(seconds, times[0]), title=_time(seconds), className=look))
        rows.append(html.Tr(cells))
    headings = ("m", *(f"{name}@{factor}" for factor in growing.factors))
    whole = table(headings, rows, "compared")
    return [html.P(growing.failed or growing.said, className="said"), html.Div(whole, className="scroll")]


def _time(seconds: float) -> str:
    return format_seconds(seconds) if np.isfinite(seconds) else "does not fit"


def _change(seconds: float, before: float) -> str:
    change = 100 * (seconds / before - 1)
    words = f"{change:+.1f} %" if abs(change) >= 0.05 else "0.0 %"
    return words.replace("-", "−") if np.isfinite(change) else "does not fit"


class _Labels:
    """The partitions of points, by their place among those shown; few are ever asked for."""

    def __init__(self, view: View, mine: Ints) -> None:
        self.view, self.mine = view, mine

    def __getitem__(self, place: int) -> str:
        layouts, stationary, _ = self.view.priced.parts(int(self.mine[place]))
        return " ".join(text.split("@")[0] for text in layouts) + f" {stationary}"


def controls() -> list[Any]:
    """Return which operand has the slider, and the slider."""
    from dash import dcc, html

    return [
        html.Div(
            [
                html.Span("Slider for", id="across-label"),
                dcc.RadioItems(
                    list(MATRICES), "C", id="across", inline=True, className="pills", labelClassName="pill"
                ),
                html.Label("its factor", htmlFor="fixed-index"),
                dcc.Input(id="fixed-index", type="range", min=0, max=1, step=1, value=0),
                html.Output("best of all", id="fixed-words"),
                dcc.Checklist(
                    [{"label": "as m grows", "value": "1"}], [], id="grow", className="check", inline=True
                ),
            ],
            className="bar",
        ),
        html.P(id="replication-words", className="said", **{"aria-live": "polite"}),
        html.Div(id="grown"),
    ]


TAB = Tab(
    "replication",
    "Replication",
    "The best time for every two replication factors under the memory budget, with the partitions that reach "
    "it (A, B, C and the stationary matrix). Take a cell to look at its point. As m grows: the same "
    "up to 64 times this m.",
    ("replicas",),
    show,
    controls,
    clicks=("replicas",),
    prices=True,
    others=("replication-words.children", "grown.children"),
)
