"""Bars: where the time of each rank goes, and values side by side."""

from collections.abc import Mapping

import numpy as np

from umm.figures.style import BLUE, GREY, INK, PART_LOOKS, SKY, Parts, as_figure, drawing, time_unit
from umm.traces.breakdown import PARTS, Breakdown


@as_figure
def beside(title: str, seconds: Mapping[str, float], taken: str, over: frozenset[str] = frozenset()) -> Parts:
    """Return a bar for each makespan, the first on top.

    Args:
        title: Above them.
        seconds: Makespans by name.
        taken: The name of the one to take, which is darkest.
        over: Names of those over the budget: grey, hatched, and said to be so.
    """
    unit, per_second = time_unit(max(seconds.values()))
    names = list(seconds)[::-1]  # plotly draws the first at the bottom
    data = {
        "type": "bar",
        "orientation": "h",
        "y": [f"{name} (over budget)" if name in over else name for name in names],
        "x": [seconds[name] * per_second for name in names],
        "text": [f"{seconds[name] * per_second:.4g}" for name in names],
        "textposition": "auto",
        "marker": {
            "color": [GREY if name in over else BLUE if name == taken else SKY for name in names],
            "pattern": {
                "shape": ["/" if name in over else "" for name in names],
                "fgcolor": INK,
                "solidity": 0.2,
            },
        },
        "hovertemplate": f"%{{y}}: %{{x:.4g}} {unit}<extra></extra>",
    }
    return drawing(
        [data],
        title,
        height=130 + 26 * len(names),
        xaxis={"title": {"text": f"makespan ({unit})"}, "rangemode": "tozero"},
        yaxis={"showgrid": False},
    )


@as_figure
def breakdown_bars(parts: Breakdown) -> Parts:
    """Return a bar per rank, stacked from compute, reduce, exposed communication and idle."""
    seconds = {part: getattr(parts, part) for part in PARTS}
    unit, per_second = time_unit(float(sum(seconds.values()).max()))
    data = [
        {
            "type": "bar",
            "x": np.arange(len(parts.idle)),
            "y": seconds[part] * per_second,
            "name": label,
            "marker": {
                "color": colour,
                "pattern": {
                    "shape": pattern,
                    "fgcolor": INK,
                    "size": 6,
                    "solidity": 0.25,
                    "fillmode": "overlay",
                },
            },
            "hovertemplate": f"rank %{{x}}, {label}: %{{y:.4g}} {unit}<extra></extra>",
        }
        for part, (label, colour, pattern) in PART_LOOKS.items()
    ]
    return drawing(
        data,
        "Where the time of each rank goes",
        height=380,
        barmode="stack",
        bargap=0.25,
        xaxis={"title": {"text": "rank"}, "dtick": 1 if len(parts.idle) <= 32 else None},
        yaxis={"title": {"text": f"time ({unit})"}},
    )
