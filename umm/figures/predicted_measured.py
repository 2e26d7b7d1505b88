"""Predicted against measured times, and the runs of two sources side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umm.comparison import Comparison
from umm.errors import InputError
from umm.figures import style
from umm.units import percent, time_unit

if TYPE_CHECKING:
    import pandas as pd

BAND = 0.2


@style.as_figure
def agreement(comparison: Comparison) -> style.Parts:
    """Return the predicted over the measured time of every action, on logarithmic axes.

    InputError if times cannot be compared, or no action took any in both traces.
    """
    if not comparison.times_comparable:
        raise InputError("these are times of one process in place of all ranks; compare order and bytes")
    frame = comparison.to_frame()
    frame = frame[(frame["predicted_s"] > 0) & (frame["measured_s"] > 0)]
    if frame.empty:
        raise InputError("no action took time in both traces, so there is nothing to draw")
    times = frame[["predicted_s", "measured_s"]].to_numpy()
    marks = []
    for kind, rows in frame.groupby("kind", sort=False):
        look = {"color": style.KIND_COLOURS[str(kind)], "symbol": style.KIND_SYMBOLS[str(kind)]}
        numbers = np.stack((rows.index, rows["rank"]), axis=1)
        words = f"{kind}, action %{{customdata[0]}} of rank %{{customdata[1]}}"
        marks.append((rows, look, words, {"customdata": numbers, "name": str(kind)}))
    error = percent(comparison.makespan_error, 1, signed=True)
    return _beside(times, f"Predicted against measured, per action (makespan {error})", 620, marks)


def _beside(
    times: NDArray[np.float64], title: str, height: int, marks: Sequence[tuple[Any, ...]]
) -> style.Parts:
    """Return predicted over measured times, with y = x and the band around it.

    Args:
        times: All of them, by which the axes are chosen.
        marks: Of each kind its rows, the look of its marks, how one is called, and the rest of them.
    """
    unit, per_second = time_unit(float(times.max()))
    ends = np.array([times.min() / 1.5, times.max() * 1.5]) * per_second
    data = band(ends)
    for rows, look, words, more in marks:
        data.append({
            "type": "scattergl", "mode": "markers",
            "x": rows["measured_s"].to_numpy() * per_second,
            "y": rows["predicted_s"].to_numpy() * per_second,
            "marker": {**look, "size": 7, "line": {"width": 0.5, "color": style.BLACK}},
            "hovertemplate": f"{words}<br>measured %{{x:.4g}} {unit}, predicted %{{y:.4g}} {unit}"
            "<extra></extra>",
            **more,
        })  # fmt: skip
    axes = (style.log_axis(f"{what} ({unit})", *ends.tolist()) for what in ("measured", "predicted"))
    return style.drawing(data, title, height=height, **dict(zip(("xaxis", "yaxis"), axes, strict=True)))


def band(ends: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Return y = x from one end to the other, and the band of predictions that are right within ``BAND``."""
    sides = [*(ends * (1 - BAND)), *(ends[::-1] * (1 + BAND))]
    filled: dict[str, Any] = {"fill": "toself", "fillcolor": style.GREY, "opacity": 0.5, "line": {"width": 0}}
    line = {"color": style.BLACK, "width": 1, "dash": "dash"}
    return [
        style.curve([*ends, *ends[::-1]], sides, f"within ±{percent(BAND)}", hoverinfo="skip", **filled),
        style.curve(ends, ends, "y = x", hoverinfo="skip", line=line),
    ]


@style.as_figure
def makespans(pairs: "pd.DataFrame") -> style.Parts:
    """Return a mark for each run.

    Args:
        pairs: Columns label, predicted_s, measured_s; at least a row.
    """
    times = pairs[["predicted_s", "measured_s"]].to_numpy()
    more = {"text": pairs["label"].tolist(), "name": "runs"}
    marks = [(pairs, {"color": style.BLUE}, "%{text}", more)]
    return _beside(times, "Predicted against measured, per run", 560, marks)
