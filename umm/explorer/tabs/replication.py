"""The replication heat map: the best time for every two replication factors, the third by its slider."""

from typing import Any

import numpy as np
import pandas as pd

from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.replication import replication_map
from umm.problem import MATRICES


def show(view: View) -> Shown:
    """Return the heat map of the two operands that the slider does not fix."""
    assert view.point
    priced, state = view.priced, view.state
    third = MATRICES.index(state.across)
    down, across = (i for i in range(3) if i != third)
    mine = view.best
    if state.fixed:
        mine = mine[priced.factors[third][mine] == state.fixed]
    where = f", {state.across}@{state.fixed}" if state.fixed else f", any factor of {state.across}"
    labels = _Labels(view, mine)
    selected = None
    if not state.fixed or view.point.problem.layouts[third].replicas == state.fixed:
        selected = tuple(view.point.problem.layouts[i].replicas for i in (down, across))
    factors = priced.factors[:, mine]
    figure = replication_map(
        priced.seconds[mine],
        factors[down],
        factors[across],
        labels,  # type: ignore[arg-type]
        names=(MATRICES[down], MATRICES[across]),
        selected=selected,  # type: ignore[arg-type]
        where=where,
    )
    if len(figure.data):  # a cell tells the number of its point in the space
        cells = np.asarray(figure.data[0]["customdata"])
        figure.data[0]["customdata"] = np.where(cells >= 0, mine[cells], -1) if len(mine) else cells
    frame = pd.DataFrame(
        {
            f"c_{MATRICES[down]}": factors[down],
            f"c_{MATRICES[across]}": factors[across],
            f"c_{state.across}": factors[third],
            "makespan_s": priced.seconds[mine],
            "memory_bytes": priced.memory[mine],
        }
    )
    grouped = frame.groupby(list(frame.columns[:2]), as_index=False).first()  # fastest first
    return {"replicas.figure": view.drawn(figure), "replication-data.children": view.table(grouped)}


class _Labels:
    """The partitions of points, by their place among those shown; few are ever asked for."""

    def __init__(self, view: View, mine: Any) -> None:
        self.view, self.mine = view, mine

    def __getitem__(self, place: int) -> str:
        layouts, stationary = self.view.priced.texts(int(self.mine[place]))
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
            ],
            className="bar",
        )
    ]


TAB = Tab(
    "replication",
    "Replication",
    "The best time for every two replication factors under the memory budget, with the partitions that reach "
    "it (A, B, C and the stationary matrix). Take a cell to look at its point.",
    ("replicas",),
    show,
    controls,
    clicks=("replicas",),
    prices=True,
)
