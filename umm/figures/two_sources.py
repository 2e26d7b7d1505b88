"""Predicted against measured makespans of many runs, with y = x and a ±20 % band."""

from typing import TYPE_CHECKING

import numpy as np

from umm.figures.predicted_measured import band
from umm.figures.style import BLACK, BLUE, Parts, as_figure, drawing, time_unit

if TYPE_CHECKING:
    import pandas as pd


@as_figure
def makespans(pairs: "pd.DataFrame") -> Parts:
    """Return a mark for each run.

    Args:
        pairs: Columns label, predicted_s, measured_s; at least a row.
    """
    times = pairs[["predicted_s", "measured_s"]].to_numpy()
    unit, per_second = time_unit(float(times.max()))
    ends = np.array([times.min() / 1.5, times.max() * 1.5]) * per_second
    marks = {
        "type": "scattergl",
        "x": pairs["measured_s"].to_numpy() * per_second,
        "y": pairs["predicted_s"].to_numpy() * per_second,
        "text": pairs["label"].tolist(),
        "mode": "markers",
        "marker": {"color": BLUE, "size": 7, "line": {"width": 0.5, "color": BLACK}},
        "hovertemplate": f"%{{text}}<br>measured %{{x:.4g}} {unit}, "
        f"predicted %{{y:.4g}} {unit}<extra></extra>",
        "name": "runs",
    }
    axis = {"type": "log", "dtick": 1, "tickformat": "~g", "minor": {"ticks": "outside"}}
    return drawing(
        [*band(ends), marks],
        "Predicted against measured, per run",
        height=560,
        xaxis={"title": {"text": f"measured ({unit})"}, **axis},
        yaxis={"title": {"text": f"predicted ({unit})"}, **axis},
    )
