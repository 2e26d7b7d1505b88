"""Parallel coordinates: a line for each of the best points, through its layouts, its time and its memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from umm.figures.style import BLUE, DARK_GREY, SKY, VERMILLION, Parts, as_figure, drawing


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
        points: The number of each, told where it is clicked.
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
        data.append(
            {
                "type": "scatter",
                "x": across,
                "y": [place[row] for place in places],
                "customdata": [points[row]] * len(axes),
                "text": [f"{name} {_said(values[row], words.get(name))}" for name, values in axes.items()],
                "mode": "lines+markers",
                "line": {"color": VERMILLION, "width": 4} if chosen else line,
                "marker": {"size": 9 if chosen else 5},
                "opacity": 1.0 if chosen or row < 10 else 0.45,
                "hovertemplate": f"number {row + 1}: %{{text}}<extra></extra>",
                "showlegend": False,
                "zorder": 1 if chosen else 0,
            }
        )
    labels = [
        {
            "x": x,
            "y": y,
            "text": text,
            "showarrow": False,
            "xanchor": "left",
            "xshift": 7,
            "font": {"size": 11},
        }
        for x, axis in enumerate(ticks)
        for text, y in axis
    ]
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
        },
        yaxis={"visible": False, "range": [-0.05, 1.05]},
        margin={"t": 80, "l": 10, "r": 20, "b": 10},
    )


def _said(value: Any, words: Callable[[float], str] | None) -> str:
    return words(value) if words else str(value)


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
