"""The best time for every two replication factors, and the partitions that reach it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.figures.style import BLACK, BLUE, DARK_GREY, GREY, SKY, Parts, as_figure, drawing
from umm.units import format_seconds

PALE = "#F4F8FB"
SPREAD = (0.14, 2.0)
"""The least and the most doublings over the best that the colours span: from a tenth longer to four times."""


@as_figure
def replication_map(
    seconds: Floats,
    down: Ints,
    across: Ints,
    labels: Sequence[str],
    *,
    exact: Bools,
    numbers: Ints,
    names: tuple[str, str],
    selected: tuple[int, int] | None = None,
    where: str = "",
) -> Parts:
    """Return the heat map of the best time by two replication factors.

    Args:
        seconds: Makespan of each point, or its lower bound.
        down: Replication factor of one operand in each point.
        across: That of another.
        labels: What each point is called, without its replication factors.
        exact: Whether its makespan was simulated; the cell of a bound is hatched grey and says ≥.
        numbers: The number of each, told where its cell is clicked.
        names: The operands that lie down and across.
        selected: The factors of the point that is looked at.
        where: What is said of the third operand, in the title.
    """
    rows, cols = np.unique(down), np.unique(across)
    z = np.full((len(rows), len(cols)), np.nan)
    text = np.full(z.shape, "", dtype=object)
    points, sure = np.full(z.shape, -1), np.full(z.shape, False)
    for i, row in enumerate(rows.tolist()):
        for j, col in enumerate(cols.tolist()):
            mine = np.flatnonzero((down == row) & (across == col))
            if len(mine):
                best = int(mine[np.argmin(seconds[mine])])
                z[i, j], points[i, j], sure[i, j] = seconds[best], numbers[best], exact[best]
                time = format_seconds(seconds[best])
                time = f"<b>{time}</b>" if exact[best] else f"<i>≥ {time}</i>"
                text[i, j] = f"{time}<br>{labels[best]}"
    proven = np.where(sure, z, np.nan)  # a bound must not look like the best
    times = np.log2(proven / np.nanmin(proven)) if sure.any() else proven
    worst = float(np.clip(np.nanmax(times, initial=0.0), *SPREAD))
    ticks = worst * np.arange(4) / 3
    cells = {
        "type": "heatmap",
        "x": [f"{names[1]}@{c}" for c in cols.tolist()],
        "y": [f"{names[0]}@{c}" for c in rows.tolist()],
        "z": times,
        "text": text,
        "texttemplate": "%{text}",
        "customdata": points,
        "colorscale": [[0, SKY], [1, PALE]],
        "zmin": 0,
        "zmax": worst,
        "colorbar": {
            "title": {"text": "times the best"},
            "tickvals": ticks,
            "ticktext": [f"{2**tick:.3g}" for tick in ticks],
        },
        "textfont": {"color": BLACK},
        "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "showscale": bool(sure.any()),
        "xgap": 2,
        "ygap": 2,
    }
    bounds = np.isfinite(z) & ~sure
    grey = {"z": np.where(bounds, 0.0, np.nan), "colorscale": [[0, GREY], [1, GREY]], "showscale": False}
    shapes = [_hatch(i, j) for i, j in np.argwhere(bounds).tolist()]
    if selected and selected[0] in rows and selected[1] in cols:
        j, i = int(np.searchsorted(cols, selected[1])), int(np.searchsorted(rows, selected[0]))
        line = {"color": BLUE, "width": 4}
        shapes += [{"type": "rect", "x0": j - 0.5, "x1": j + 0.5, "y0": i - 0.5, "y1": i + 0.5, "line": line}]
    return drawing(
        [cells, *([cells | grey] if bounds.any() else [])],
        f"Best time by replication factor{where}",
        height=160 + 62 * len(rows),
        shapes=shapes,
        xaxis={"title": {"text": f"replicas of {names[1]}"}, "type": "category", "ticks": ""},
        yaxis={
            "title": {"text": f"replicas of {names[0]}"},
            "type": "category",
            "autorange": "reversed",
            "ticks": "",
        },
    )


def _hatch(row: int, col: int) -> dict[str, Any]:
    """Return lines across a cell, which reaches half of one from its numbers either way."""
    edge, lines = 0.48, []
    for up in np.linspace(-1.75, 1.75, 8) * edge:
        left, right = max(-edge, -edge - up), min(edge, edge - up)
        ends = ((col + left, row + left + up), (col + right, row + right + up))
        lines.append("M{:.3f},{:.3f}L{:.3f},{:.3f}".format(*ends[0], *ends[1]))
    line = {"color": DARK_GREY, "width": 1}
    return {"type": "path", "path": "".join(lines), "line": line, "opacity": 0.35}
