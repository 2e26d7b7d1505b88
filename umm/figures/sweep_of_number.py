"""How the times of a few points change when one number of the machine is turned up or down."""

from collections.abc import Mapping, Sequence

import numpy as np

from umm.arrays import Floats
from umm.figures.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Parts,
    as_figure,
    drawing,
    time_unit,
)

LOOKS = tuple(
    zip(
        (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY),
        ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot"),
        strict=True,
    )
)


@as_figure
def turned(what: str, factors: Sequence[float], words: Sequence[str], times: Mapping[str, Floats]) -> Parts:
    """Return a line for each point over the factors.

    Args:
        what: The number that is turned.
        factors: What it is multiplied by, ascending.
        words: The number itself at each factor.
        times: Makespans at each factor by the point's name; the first is the one that is looked at.
    """
    unit, per_second = time_unit(float(np.concatenate(list(times.values())).max()))
    data = [
        {
            "type": "scatter",
            "x": list(factors),
            "y": seconds * per_second,
            "text": list(words),
            "name": name,
            "mode": "lines+markers",
            "line": {
                "color": LOOKS[i % len(LOOKS)][0],
                "dash": LOOKS[i % len(LOOKS)][1],
                "width": 4 if i == 0 else 2,
            },
            "hovertemplate": f"%{{text}}: %{{y:.4g}} {unit}<extra>%{{fullData.name}}</extra>",
        }
        for i, (name, seconds) in enumerate(times.items())
    ]
    ticks = [f"{factor:g}" for factor in factors]
    return drawing(
        data,
        f"Makespan when {what} changes",
        height=460,
        xaxis={
            "title": {"text": f"{what}, times what it is"},
            "type": "log",
            "tickvals": list(factors),
            "ticktext": ticks,
        },
        yaxis={"title": {"text": f"makespan ({unit})"}, "rangemode": "tozero"},
    )
