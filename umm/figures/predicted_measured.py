"""Predicted against measured times, and the runs of two sources side by side."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umm.comparison import Comparison
from umm.errors import InputError
from umm.figures import style
from umm.units import time_unit

if TYPE_CHECKING:
    import pandas as pd

BAND = 0.2


@style.as_figure
def agreement(comparison: Comparison) -> style.Parts:
    """Return the predicted over the measured time of every action, on logarithmic axes.

    Raises:
        InputError: if times cannot be compared, or no action took any in both traces.
    """
    if not comparison.times_comparable:
        raise InputError("these are times of one process in place of all ranks; compare order and bytes")
    frame = comparison.to_frame()
    frame = frame[(frame["predicted_s"] > 0) & (frame["measured_s"] > 0)]
    if frame.empty:
        raise InputError("no action took time in both traces, so there is nothing to draw")
    times = frame[["predicted_s", "measured_s"]].to_numpy()
    unit, per_second = time_unit(float(times.max()))
    ends = np.array([times.min() / 1.5, times.max() * 1.5]) * per_second
    data = band(ends)
    for kind, rows in frame.groupby("kind", sort=False):
        data.append(
            {
                "type": "scattergl",
                "x": rows["measured_s"].to_numpy() * per_second,
                "y": rows["predicted_s"].to_numpy() * per_second,
                "customdata": np.stack((rows.index, rows["rank"]), axis=1),
                "mode": "markers",
                "marker": {
                    "color": style.KIND_COLOURS[str(kind)],
                    "symbol": style.KIND_SYMBOLS[str(kind)],
                    "size": 7,
                    "line": {"width": 0.5, "color": style.BLACK},
                },
                "hovertemplate": f"{kind}, action %{{customdata[0]}} of rank %{{customdata[1]}}<br>"
                f"measured %{{x:.4g}} {unit}, predicted %{{y:.4g}} {unit}<extra></extra>",
                "name": str(kind),
            }
        )
    error = f"{100 * comparison.makespan_error:+.1f} %"
    axis = {"type": "log", "tickvals": style.round_ticks(*ends.tolist())}
    return style.drawing(
        data,
        f"Predicted against measured, per action (makespan {error})",
        height=620,
        xaxis={"title": {"text": f"measured ({unit})"}, **axis},
        yaxis={"title": {"text": f"predicted ({unit})"}, **axis},
    )


def band(ends: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Return y = x from one end to the other, and the band of predictions that are right within ``BAND``."""
    around = {
        "type": "scatter",
        "x": [*ends, *ends[::-1]],
        "y": [*(ends * (1 - BAND)), *(ends[::-1] * (1 + BAND))],
        "fill": "toself",
        "fillcolor": style.GREY,
        "opacity": 0.5,
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "name": f"within ±{100 * BAND:.0f} %",
    }
    line = {"color": style.BLACK, "width": 1, "dash": "dash"}
    equal = {"type": "scatter", "x": ends, "y": ends, "mode": "lines", "line": line, "hoverinfo": "skip"}
    return [around, equal | {"name": "y = x"}]


@style.as_figure
def makespans(pairs: "pd.DataFrame") -> style.Parts:
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
        "marker": {"color": style.BLUE, "size": 7, "line": {"width": 0.5, "color": style.BLACK}},
        "hovertemplate": f"%{{text}}<br>measured %{{x:.4g}} {unit}, "
        f"predicted %{{y:.4g}} {unit}<extra></extra>",
        "name": "runs",
    }
    axis = {"type": "log", "tickvals": style.round_ticks(*ends.tolist())}
    return style.drawing(
        [*band(ends), marks],
        "Predicted against measured, per run",
        height=560,
        xaxis={"title": {"text": f"measured ({unit})"}, **axis},
        yaxis={"title": {"text": f"predicted ({unit})"}, **axis},
    )
