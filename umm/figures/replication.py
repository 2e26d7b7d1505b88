"""Replication factors as a heat map, and many choices as parallel coordinates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.figures import style
from umm.figures.style import BLACK, BLUE, DARK_GREY, GREY, SKY, VERMILLION, Parts, as_figure, axis, drawing
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
        labels: What each point is called, without its replication factors.
        exact: Whether its makespan was simulated; the cell of a bound is hatched grey and says ≥.
        numbers: The number of each, passed on when its cell is clicked.
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
        xaxis=axis(f"replicas of {names[1]}", type="category", ticks=""),
        yaxis=axis(f"replicas of {names[0]}", type="category", autorange="reversed", ticks=""),
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


@as_figure
def parallel_coordinates(
    axes: Mapping[str, Sequence[Any]],
    points: Sequence[int],
    *,
    words: Mapping[str, Callable[[float], str]],
    selected: int | None = None,
) -> Parts:
    """Return a line for each point, the first darkest.

    Args:
        axes: The values of all points by the axis' name; texts stand in order of first appearance, numbers
            by size. The points come best first.
        words: How a number is written, by the axis' name.
        selected: The number of the one that is looked at; it is drawn last and thickest.
    """
    places, ticks = zip(
        *(_placed(values, words.get(name, str)) for name, values in axes.items()), strict=True
    )
    across = np.arange(len(axes))
    data: list[dict[str, Any]] = []
    for row in reversed(range(len(points))):
        chosen = points[row] == selected
        line = {"color": BLUE if row < 10 else SKY, "width": 2.5 if row < 10 else 1}
        texts = [f"{name} {words.get(name, str)(values[row])}" for name, values in axes.items()]
        data.append({
            "type": "scatter", "x": across, "y": [place[row] for place in places],
            "customdata": [points[row]] * len(axes), "text": texts, "mode": "lines+markers",
            "line": {"color": VERMILLION, "width": 4} if chosen else line,
            "marker": {"size": 9 if chosen else 5}, "opacity": 1.0 if chosen or row < 10 else 0.45,
            "hovertemplate": f"number {row + 1}: %{{text}}<extra></extra>",
            "showlegend": False, "zorder": 1 if chosen else 0,
        })  # fmt: skip
    look = {"showarrow": False, "xanchor": "left", "xshift": 7, "font": {"size": 11}, "bgcolor": style.PAPER}
    labels = [{"x": x, "y": y, "text": text, **look} for x, marks in enumerate(ticks) for text, y in marks]
    rules = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": {"color": DARK_GREY, "width": 1}}
        for x in across.tolist()
    ]
    return drawing(
        data,
        f"The best {len(points)} points",
        height=520,
        hovermode="closest",
        clickmode="event",
        annotations=labels,
        shapes=rules,
        xaxis={
            "tickvals": across,
            "ticktext": list(axes),
            "side": "top",
            "range": [-0.1, len(axes) - 0.4],
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={"visible": False, "range": [-0.05, 1.05]},
        margin={"t": 80, "l": 10, "r": 20, "b": 10},
    )


def _placed(
    values: Sequence[Any], words: Callable[[float], str]
) -> tuple[list[float], list[tuple[str, float]]]:
    """Return where each value lies on its axis from 0 to 1, and the labels with their places."""
    if len(set(values)) > 8 and all(isinstance(value, int | float) for value in values):
        low, high = min(values), max(values)
        places = [(value - low) / (high - low) for value in values]
        return places, [(words(low), 0.0), (words((low + high) / 2), 0.5), (words(high), 1.0)]
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in values):
        distinct.sort()
    at = {value: (i + 0.5) / len(distinct) for i, value in enumerate(distinct)}
    return [at[value] for value in values], [(words(value), at[value]) for value in distinct]
