"""Links over time."""

from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.links import link_map
from umm.traces.traffic import link_frame


def show(view: View) -> Shown:
    """Return how full the busiest links are over time."""
    assert view.point
    trace = view.point.trace
    return {
        "fullness.figure": view.drawn(link_map, trace),
        "links-data.children": view.table(lambda: link_frame(trace)),
    }


TAB = Tab(
    "links",
    "Links",
    "How full each link is in every part of the makespan, the busiest first.",
    ("fullness",),
    show,
)
