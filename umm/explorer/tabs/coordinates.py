"""Parallel coordinates of the best points."""

from umm.explorer.tabs.leaderboard import points_frame
from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.coordinates import parallel_coordinates
from umm.problem import MATRICES
from umm.units import format_bytes, format_seconds

LINES = 80


def show(view: View) -> Shown:
    """Return a line for each of the best points."""
    priced, best = view.priced, view.best[:LINES]
    texts = [priced.texts(number) for number in best.tolist()]
    axes = {}
    for i, matrix in enumerate(MATRICES):
        axes[matrix] = [layouts[i].split("@")[0] for layouts, _ in texts]
        axes[f"c_{matrix}"] = priced.factors[i, best].tolist()
    axes["stationary"] = [stationary for _, stationary in texts]
    axes["makespan"] = priced.seconds[best].tolist()
    axes["memory"] = priced.memory[best].tolist()
    words = {"makespan": format_seconds, "memory": format_bytes}
    figure = parallel_coordinates(axes, best.tolist(), words=words, selected=view.selected)
    return {
        "lines.figure": view.drawn(figure),
        "coordinates-data.children": view.table(points_frame(view, LINES)),
    }


TAB = Tab(
    "coordinates",
    "Coordinates",
    f"The best {LINES} points as lines through their partitions, replication factors, time and memory; the "
    "ten fastest are dark. Take a line to look at its point.",
    ("lines",),
    show,
    clicks=("lines",),
    prices=True,
)
