"""Where the time of each rank goes, as stacked bars."""

from typing import TYPE_CHECKING

from umm.figures.style import INK, PART_LOOKS, drawn, time_unit
from umm.traces.breakdown import Breakdown

if TYPE_CHECKING:
    import plotly.graph_objects as go


def breakdown_bars(parts: Breakdown) -> "go.Figure":
    """Return a bar per rank, stacked from compute, reduce, exposed communication and idle."""
    frame = parts.to_frame()
    unit, per_second = time_unit(float(frame.sum(axis=1).max()))
    data = [
        {
            "type": "bar",
            "x": frame.index.to_numpy(),
            "y": (frame[part] * per_second).to_numpy(),
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
    return drawn(
        data,
        "Where the time of each rank goes",
        height=380,
        barmode="stack",
        bargap=0.25,
        xaxis={"title": {"text": "rank"}, "dtick": 1 if len(frame) <= 32 else None},
        yaxis={"title": {"text": f"time ({unit})"}},
    )
