"""Where the time of each rank goes, as stacked bars."""

from typing import TYPE_CHECKING

from umm.figures.style import PART_LOOKS, styled, time_unit
from umm.traces.breakdown import Breakdown

if TYPE_CHECKING:
    import plotly.graph_objects as go


def breakdown_bars(parts: Breakdown) -> "go.Figure":
    """Return a bar per rank, stacked from compute, reduce, exposed communication and idle."""
    import plotly.graph_objects as go

    frame = parts.to_frame()
    unit, per_second = time_unit(float(frame.sum(axis=1).max()))
    figure = go.Figure()
    for part, (label, colour, pattern) in PART_LOOKS.items():
        figure.add_bar(
            x=frame.index,
            y=frame[part] * per_second,
            name=label,
            marker={
                "color": colour,
                "pattern": {"shape": pattern, "fgcolor": "#222222", "size": 6, "solidity": 0.25},
            },
            hovertemplate=f"rank %{{x}}, {label}: %{{y:.4g}} {unit}<extra></extra>",
        )
    styled(figure, "Where the time of each rank goes", height=380, barmode="stack", bargap=0.25)
    figure.update_xaxes(title="rank", dtick=1 if len(frame) <= 32 else None)
    figure.update_yaxes(title=f"time ({unit})")
    return figure
