"""The replication heat map: the best time for every two replication factors, the third by its slider."""

from typing import TYPE_CHECKING, Any

from umm.arrays import Ints
from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.replication import replication_map
from umm.problem import MATRICES

if TYPE_CHECKING:
    import pandas as pd


def show(view: View) -> Shown:
    """Return the heat map of the two operands that the slider does not fix."""
    assert view.point
    priced, state = view.priced, view.state
    if priced.points is None:
        return {"replicas.figure": {}, "replication-data.children": None}
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
    figure = replication_map(
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

    return {"replicas.figure": view.drawn(figure), "replication-data.children": view.table(best)}


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
