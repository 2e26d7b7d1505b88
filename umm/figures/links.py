"""Where time and bytes go: bars by rank, links over time, and the roofline."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umm.figures import style
from umm.schedules.table.details import GEMM
from umm.traces.breakdown import PARTS, Breakdown
from umm.traces.trace import Trace
from umm.traces.traffic import crossings, link_utilisation
from umm.units import format_bandwidth, format_rate, percent, time_unit

if TYPE_CHECKING:
    from umm.arrays import Floats


@style.as_figure
def beside(
    title: str, seconds: Mapping[str, float], taken: str, over: frozenset[str] = frozenset()
) -> style.Parts:
    """Return a bar for each makespan, the first on top.

    Args:
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
            "color": [
                style.GREY if name in over else style.BLUE if name == taken else style.SKY for name in names
            ],
            "pattern": {
                "shape": ["/" if name in over else "" for name in names],
                "fgcolor": style.INK,
                "solidity": 0.2,
            },
        },
        "hovertemplate": f"%{{y}}: %{{x:.4g}} {unit}<extra></extra>",
    }
    return style.drawing(
        [data],
        title,
        height=130 + 26 * len(names),
        xaxis=style.axis(f"makespan ({unit})", rangemode="tozero"),
        yaxis={"showgrid": False},
    )


@style.as_figure
def breakdown_bars(parts: Breakdown) -> style.Parts:
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
                    "fgcolor": style.INK,
                    "size": 6,
                    "solidity": 0.25,
                    "fillmode": "overlay",
                },
            },
            "hovertemplate": f"rank %{{x}}, {label}: %{{y:.4g}} {unit}<extra></extra>",
        }
        for part, (label, colour, pattern) in style.PART_LOOKS.items()
    ]
    return style.drawing(
        data,
        "Where the time of each rank goes",
        height=380,
        barmode="stack",
        bargap=0.25,
        xaxis=style.axis("rank", dtick=1 if len(parts.idle) <= 32 else None),
        yaxis=style.axis(f"time ({unit})"),
    )


BINS = 200
LINKS = 40


@style.as_figure
def link_map(trace: Trace, links: int = LINKS) -> style.Parts:
    """Return the heat map of the busiest links over time."""
    used = link_utilisation(trace)
    names = trace.schedule.links.names
    order = np.argsort(-used, kind="stable")[: min(links, int((used > 0).sum()))]
    unit, per_second = time_unit(trace.makespan_s)
    edges = np.linspace(0, trace.makespan_s, BINS + 1)
    data = []
    title = "Links: nothing is communicated"
    if len(order):
        cells = {
            "type": "heatmap",
            "x": (edges[1:] + edges[:-1]) / 2 * per_second,
            "y": [f"{names[link]}  {percent(used[link])}" for link in order],
            "z": np.round(100 * fill(trace, order, edges), 1),
            "zmin": 0,
            "zmax": 100,
            "colorscale": [[0, style.PAPER], [1, style.BLUE]],
            "colorbar": {"title": {"text": "% of bandwidth"}},
            "hovertemplate": f"%{{y}} overall<br>%{{x:.4g}} {unit}: %{{z:.0f}} %<extra></extra>",
        }
        data.append(cells)
        title = f"Links: the busiest is {names[order[0]]}, {percent(used[order[0]])} used overall"
        if len(order) < len(names):
            title += f" ({len(order)} of {len(names)} shown)"
    return style.drawing(
        data,
        title,
        height=150 + 18 * len(order),
        xaxis=style.axis(
            f"time ({unit})", visible=bool(len(order)), range=[0, trace.makespan_s * per_second]
        ),
        yaxis={"visible": bool(len(order)), "autorange": "reversed", "tickfont": {"size": 11}},
    )


def fill(trace: Trace, links: NDArray[np.int64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how full links are between edges of bins, as a share of their bandwidth, shape (links, bins).

    The bytes of a transfer are spread evenly over its time in flight, so where transfers share a link a bin
    can come out slightly over 1.
    """
    action, link = crossings(trace.schedule)
    could = trace.schedule.links.bandwidth[links, np.newaxis] * np.diff(edges)
    moved = np.zeros((len(links), len(edges)))
    for row, number in enumerate(links.tolist()):
        crossing = action[link == number]
        # In parts, so that the transfers × bins in memory at once stay few.
        for part in np.array_split(crossing, len(crossing) // 20000 + 1):
            start, end = trace.start[part, np.newaxis], trace.end[part, np.newaxis]
            lasts = np.maximum(end - start, np.finfo(np.float64).tiny)
            progress = np.clip((edges - start) / lasts, 0, 1)
            moved[row] += trace.schedule.nbytes[part] @ progress
    return np.diff(moved, axis=1) / could


SLOPES = 3


@style.as_figure
def roofline(trace: Trace) -> style.Parts:
    """Return a mark for each rank under the peak, the rate of its gemms, and the bandwidths of links it uses.

    Under a slope a rank can be no faster than a single such link brings it bytes; a rank that several links
    feed may lie above.
    """
    flop, received = work_and_bytes(trace)
    busy = flop > 0
    if not busy.any():  # such as of an embedding
        blank = {"visible": False}
        return style.drawing([], "Roofline: no rank does any flop", height=90, xaxis=blank, yaxis=blank)
    rate = flop[busy] / trace.makespan_s / 1e12
    intensity = flop[busy] / np.maximum(received[busy], 1)
    quiet = received[busy] == 0
    low, high = (f(intensity[~quiet]) for f in (np.min, np.max)) if (~quiet).any() else (100.0, 1000.0)
    ends = np.array([low / 5, high * 5])  # the range of the ranks' values, with room
    peak = trace.schedule.peak / trace.schedule.ranks / 1e12
    gemm = (trace.schedule.kind == GEMM) & (trace.schedule.flop > 0)
    data = [_roof(ends, np.full(2, peak), f"peak, {format_rate(peak * 1e12)}", style.BLACK)]
    if gemm.any() and trace.times != "meaningless":
        seconds = (trace.end - trace.start)[gemm]
        best = float(trace.schedule.flop[gemm].sum() / max(seconds.sum(), 1e-300)) / 1e12
        name = f"its gemms, {format_rate(best * 1e12)}"
        data.append(_roof(ends, np.full(2, best), name, style.GREEN, "dash"))
    for bandwidth in _slopes(trace):
        x = np.geomspace(float(ends[0]), float(ends[1]), 50)
        roof = np.minimum(x * bandwidth / 1e12, peak)
        data.append(_roof(x, roof, f"a link of {format_bandwidth(bandwidth)}", style.DARK_GREY, "dot"))
    ranks = np.flatnonzero(busy)
    for mine, name, symbol in (
        (~quiet, "ranks", "circle"),
        (quiet, "ranks that receive nothing", "triangle-left"),
    ):
        if mine.any():
            colour = style.VERMILLION if symbol == "circle" else style.BLUE
            marks = style.curve(np.where(quiet, ends[1], intensity)[mine], rate[mine], name)
            data.append(marks | {
                "mode": "markers", "text": [f"rank {rank}" for rank in ranks[mine].tolist()],
                "marker": {"color": colour, "size": 11, "symbol": symbol},
                "hovertemplate": "%{text}: %{y:.4g} Tflop/s, %{x:.4g} flop/B<extra></extra>",
            })  # fmt: skip
    low = min(float(rate.min(initial=peak)), peak) / 3
    return style.drawing(
        data,
        "Roofline: what a rank reaches, by the flop it does per byte it gets",
        height=460,
        xaxis=style.log_axis(
            "flop per byte from other ranks", *ends.tolist(), range=np.log10(ends), tickformat="~s"
        ),
        yaxis=style.log_axis("Tflop/s of a rank", low, peak * 1.5, range=np.log10([low, peak * 1.5])),
    )


def work_and_bytes(trace: Trace) -> "tuple[Floats, Floats]":
    """Return the flop each rank does, and the bytes it gets from others or adds into its tiles for them."""
    schedule = trace.schedule
    works = (schedule.rank >= 0) & (schedule.flop > 0)
    flop = np.bincount(schedule.rank[works], schedule.flop[works], schedule.ranks)
    moving = np.flatnonzero(schedule.src != schedule.dst)
    received = np.bincount(schedule.dst[moving], schedule.payload[moving], schedule.ranks)
    return flop.astype(np.float64), received.astype(np.float64)


def _slopes(trace: Trace) -> list[float]:
    """Return the bandwidths of the links that carry most, few of them."""
    action, link = crossings(trace.schedule)
    if not len(link):
        return []
    bandwidths, which = np.unique(trace.schedule.links.bandwidth[link], return_inverse=True)
    carried = np.bincount(which, weights=trace.schedule.nbytes[action].astype(np.float64))
    return sorted(bandwidths[np.argsort(-carried, kind="stable")[:SLOPES]].tolist(), reverse=True)


def _roof(x: "Floats", y: "Floats", name: str, colour: str, dash: str = "solid") -> dict[str, Any]:
    return style.curve(x, y, name, line={"color": colour, "dash": dash, "width": 2}, hoverinfo="name")
