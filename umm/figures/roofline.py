"""The roofline of a trace: what each rank reaches against the flop it does per byte that others send it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from umm.figures.style import BLACK, BLUE, DARK_GREY, GREEN, VERMILLION, Parts, as_figure, drawing
from umm.schedules.table.details import GEMM
from umm.traces.trace import Trace
from umm.traces.traffic import crossings
from umm.units import format_bandwidth, format_rate

if TYPE_CHECKING:
    from umm.arrays import Floats

SLOPES = 3


@as_figure
def roofline(trace: Trace) -> Parts:
    """Return a mark for each rank under the peak, the rate of its gemms, and the bandwidths of links it uses.

    Under a slope a rank can be no faster than a single such link brings it bytes; a rank that several links
    feed may lie above.
    """
    flop, received = work_and_bytes(trace)
    busy = flop > 0
    rate = flop[busy] / trace.makespan_s / 1e12
    intensity = flop[busy] / np.maximum(received[busy], 1)
    quiet = received[busy] == 0
    ends = _ends(intensity[~quiet])
    peak = trace.schedule.peak / trace.schedule.ranks / 1e12
    gemm = (trace.schedule.kind == GEMM) & (trace.schedule.flop > 0)
    data: list[dict[str, Any]] = [_line(ends, np.full(2, peak), f"peak, {format_rate(peak * 1e12)}", BLACK)]
    if gemm.any() and trace.times != "meaningless":
        seconds = (trace.end - trace.start)[gemm]
        best = float(trace.schedule.flop[gemm].sum() / max(seconds.sum(), 1e-300)) / 1e12
        data.append(_line(ends, np.full(2, best), f"its gemms, {format_rate(best * 1e12)}", GREEN, "dash"))
    for bandwidth in _slopes(trace):
        x = np.geomspace(float(ends[0]), float(ends[1]), 50)
        roof = np.minimum(x * bandwidth / 1e12, peak)
        data.append(_line(x, roof, f"a link of {format_bandwidth(bandwidth)}", DARK_GREY, "dot"))
    ranks = np.flatnonzero(busy)
    for mine, name, symbol in (
        (~quiet, "ranks", "circle"),
        (quiet, "ranks that get nothing", "triangle-left"),
    ):
        if mine.any():
            data.append(
                {
                    "type": "scatter",
                    "x": np.where(quiet, ends[1], intensity)[mine],
                    "y": rate[mine],
                    "text": [f"rank {rank}" for rank in ranks[mine].tolist()],
                    "mode": "markers",
                    "marker": {
                        "color": VERMILLION if symbol == "circle" else BLUE,
                        "size": 11,
                        "symbol": symbol,
                    },
                    "name": name,
                    "hovertemplate": "%{text}: %{y:.4g} Tflop/s, %{x:.4g} flop/B<extra></extra>",
                }
            )
    low = min(float(rate.min(initial=peak)), peak) / 3
    return drawing(
        data,
        "Roofline: what a rank reaches, by the flop it does per byte it gets",
        height=460,
        xaxis={"title": {"text": "flop per byte from other ranks"}, "type": "log", "range": np.log10(ends)},
        yaxis={"title": {"text": "Tflop/s of a rank"}, "type": "log", "range": np.log10([low, peak * 1.5])},
    )


def work_and_bytes(trace: Trace) -> "tuple[Floats, Floats]":
    """Return the flop each rank does, and the bytes it gets from others or adds into its tiles for them."""
    schedule = trace.schedule
    flop = np.zeros(schedule.ranks)
    works = (schedule.rank >= 0) & (schedule.flop > 0)
    np.add.at(flop, schedule.rank[works], schedule.flop[works])
    received = np.zeros(schedule.ranks)
    moving = np.flatnonzero(schedule.src != schedule.dst)
    np.add.at(received, schedule.dst[moving], schedule.payload[moving])
    return flop, received


def _slopes(trace: Trace) -> list[float]:
    """Return the bandwidths of the links that carry most, few of them."""
    action, link = crossings(trace.schedule)
    if not len(link):
        return []
    bandwidths, which = np.unique(trace.schedule.links.bandwidth[link], return_inverse=True)
    carried = np.bincount(which, weights=trace.schedule.nbytes[action].astype(np.float64))
    return sorted(bandwidths[np.argsort(-carried, kind="stable")[:SLOPES]].tolist(), reverse=True)


def _ends(intensity: "Floats") -> "Floats":
    """Return the ends of the axis: what ranks have, with room."""
    low, high = (intensity.min(), intensity.max()) if len(intensity) else (100.0, 1000.0)
    return np.array([low / 5, high * 5])


def _line(x: "Floats", y: "Floats", name: str, colour: str, dash: str = "solid") -> dict[str, Any]:
    line = {"color": colour, "dash": dash, "width": 2}
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "mode": "lines",
        "name": name,
        "line": line,
        "hoverinfo": "name",
    }
