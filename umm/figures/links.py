"""Links in time: how full each is in every part of the makespan, the busiest first."""

import numpy as np
from numpy.typing import NDArray

from umm.figures.style import BLUE, PAPER, Parts, as_figure, drawing, time_unit
from umm.traces.trace import Trace
from umm.traces.traffic import crossings, link_utilisation

BINS = 200
LINKS = 40


@as_figure
def link_map(trace: Trace, links: int = LINKS) -> Parts:
    """Return the heat map of the busiest links over time.

    Args:
        trace: What to show.
        links: How many links to show at most.
    """
    used = link_utilisation(trace)
    names = trace.schedule.links.names
    order = np.argsort(-used, kind="stable")[: min(links, int((used > 0).sum()))]
    unit, per_second = time_unit(trace.makespan_s)
    edges = np.linspace(0, trace.makespan_s, BINS + 1)
    data = []
    title = "Links: nothing is communicated"
    if len(order):
        cells = {
            "type": "heatmap",
            "x": (edges[1:] + edges[:-1]) / 2 * per_second,
            "y": [f"{names[link]}  {100 * used[link]:.0f} %" for link in order],
            "z": np.round(100 * fill(trace, order, edges), 1),
            "zmin": 0,
            "zmax": 100,
            "colorscale": [[0, PAPER], [1, BLUE]],
            "colorbar": {"title": {"text": "% of bandwidth"}},
            "hovertemplate": f"%{{y}} overall<br>%{{x:.4g}} {unit}: %{{z:.0f}} %<extra></extra>",
        }
        data.append(cells)
        title = f"Links: the busiest is {names[order[0]]}, {100 * used[order[0]]:.0f} % used overall"
        if len(order) < len(names):
            title += f" ({len(order)} of {len(names)} shown)"
    return drawing(
        data,
        title,
        height=150 + 18 * len(order),
        xaxis={
            "visible": bool(len(order)),
            "title": {"text": f"time ({unit})"},
            "range": [0, trace.makespan_s * per_second],
        },
        yaxis={"visible": bool(len(order)), "autorange": "reversed", "tickfont": {"size": 11}},
    )


def fill(trace: Trace, links: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how full links are between the edges of bins, as a share of their bandwidth.

    The bytes of a transfer are spread evenly over its time in flight, so where transfers share a link a bin
    can come out slightly over 1.

    Args:
        trace: What to look at.
        links: Numbers of links.
        edges: Increasing times in seconds.

    Returns:
        Shares, shape (links, bins).
    """
    action, link = crossings(trace.schedule)
    could = trace.schedule.links.bandwidth[links, np.newaxis] * np.diff(edges)
    moved = np.zeros((len(links), len(edges)))
    for row, number in enumerate(links.tolist()):
        crossing = action[link == number]
        # In parts, so that the transfers × bins in memory at once stay few.
        for part in np.array_split(crossing, len(crossing) // 20000 + 1):
            start, end = trace.start[part, np.newaxis], trace.end[part, np.newaxis]
            lasts = np.maximum(end - start, np.finfo(np.float64).tiny)
            progress = np.clip((edges - start) / lasts, 0, 1)
            moved[row] += trace.schedule.nbytes[part] @ progress
    return np.diff(moved, axis=1) / could
