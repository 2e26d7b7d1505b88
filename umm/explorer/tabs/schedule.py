"""The schedule: rank and lane over time, predicted above measured."""

from typing import Any

from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.breakdown import breakdown_bars
from umm.figures.lanes import RANKS, lane_table, timeline
from umm.traces.trace import Trace


def show(view: View) -> Shown:
    """Return the timelines, of all ranks or of one, and where the time of each goes."""
    assert view.point
    trace = view.point.trace
    zoomed = 0 <= view.state.rank < trace.schedule.ranks
    ranks = [view.state.rank] if zoomed else range(RANKS)
    measured = view.measured
    fits = measured is not None and measured.schedule.ranks > max(ranks[0], 0)

    def drawn(of: Trace) -> Any:
        return view.drawn(timeline, of, ranks)

    return {
        "lanes.figure": drawn(trace),
        "lanes-measured.figure": drawn(measured) if measured and fits else {},
        "parts.figure": view.drawn(breakdown_bars, trace.breakdown()),
        "schedule-data.children": view.table(lambda: lane_table(trace)),
    }


def controls() -> list[Any]:
    """Return the choice of a rank."""
    from dash import dcc, html

    return [
        html.Div(
            [
                html.Label("Rank", htmlFor="rank"),
                dcc.Input(
                    id="rank", type="number", min=-1, step=1, value=-1, debounce=True, className="short"
                ),
                html.Span("−1 shows all", className="unit"),
            ],
            className="bar",
        )
    ]


TAB = Tab(
    "schedule",
    "Schedule",
    "When each rank multiplies and when it communicates; the black line under the bars is the critical path. "
    "A click on a bar lights its slices on the tab Tiles. A trace dropped in on Predicted vs measured stands "
    "below.",
    ("lanes", "lanes-measured", "parts"),
    show,
    controls,
)
