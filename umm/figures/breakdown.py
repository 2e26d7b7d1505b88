"""Where the time of each rank goes, as stacked bars."""

import numpy as np

from umm.figures.style import INK, PART_LOOKS, Parts, as_figure, drawing, time_unit
from umm.traces.breakdown import PARTS, Breakdown


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
