"""Parallel coordinates of the best points."""

from typing import Any

from umm.explorer.tabs.leaderboard import how, top_frame
from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.coordinates import parallel_coordinates
from umm.program.problem import MATRICES
from umm.units import format_bytes, format_seconds


def show(view: View) -> Shown:
    """Return a line for each of the best points."""
    best = view.priced.top
    axes: dict[str, list[Any]] = {}
    for matrix in MATRICES:
        layouts = [getattr(choice.problem, matrix.lower()) for choice in best]
        axes[matrix] = [str(layout).split("@")[0] for layout in layouts]
        axes[f"c_{matrix}"] = [choice.problem.layout(matrix).replicas for choice in best]
    axes["stays"] = [how(choice) for choice in best]
    axes["makespan"] = [choice.makespan_s for choice in best]
    axes["memory"] = [choice.memory_bytes for choice in best]
    words = {"makespan": format_seconds, "memory": format_bytes}
    numbers = [view.priced.number_of(choice) for choice in best]
    figure: Any = {}
    if best:
        figure = view.drawn(parallel_coordinates, axes, numbers, words=words, selected=view.selected)
    return {"lines.figure": figure, "coordinates-data.children": view.table(lambda: top_frame(view))}


TAB = Tab(
    "coordinates",
    "Coordinates",
    "The best points as lines through their partitions, replication factors, time and memory; the ten "
    "fastest are dark. Take a line to look at its point.",
    ("lines",),
    show,
    clicks=("lines",),
    prices=True,
)
