"""Figures 2 and 3 as images: percent of peak by batch, a bar for each family of layouts."""

from typing import TYPE_CHECKING, Any

from experiments.common.bars import DIAMOND, ink
from experiments.common.published import published
from experiments.universal.curves import Curves
from experiments.universal.layers import H100, PEERS, SIZES
from umm.figures.style import (
    BLACK,
    BLUE,
    DARK_GREY,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    drawn,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

KEY = "in a bar the matrix that stays; over it the replication factor, in MLP-2 of A and B, then that of C"
WIDTH, HEIGHT = 1040, 760
LOOKS = {
    "Row": (BLUE, ""),
    "Column": (ORANGE, ""),
    "Block": (GREEN, ""),
    "Inner": (SKY, ""),
    "Outer": (VERMILLION, ""),
    "Traditional": (PURPLE, ""),
    "DTensor-Row": (GREY, "/"),
    "DTensor-Column": (DARK_GREY, "\\"),
    "COSMA": (YELLOW, "x"),
}
FILL = {"fgcolor": BLACK, "fillmode": "overlay"}
PLACE = 0.9 / len(LOOKS)
ENDS = [-0.55, 3.55]


def figure(curves: Curves, title: str) -> "go.Figure":
    """Return both layers, one above the other.

    Over each bar of ours are its replication factors, in MLP-2 of A and B, then of C; in it is the matrix
    that stays. Diamonds are what was measured.
    """
    data = [x for number, layer in enumerate(SIZES) for x in _layer(curves, layer, number)]
    ticks = {
        "tickmode": "array",
        "tickvals": list(range(len(curves.batches))),
        "ticktext": [f"m = {m}" for m in curves.batches],
    }
    layout: dict[str, Any] = {}
    for number, layer in enumerate(SIZES):
        end = str(number + 1) if number else ""
        layout[f"xaxis{end}"] = {**ticks, "anchor": f"y{end}", "ticks": "", "showgrid": False, "range": ENDS}
        low = 0.56 * (1 - number)
        name = {"text": f"{layer}, % of peak"}
        layout[f"yaxis{end}"] = {
            "anchor": f"x{end}", "domain": [low, low + 0.44], "title": name, "range": [0, _top(curves)]
        }  # fmt: skip
    layout["xaxis2"]["title"] = {"text": KEY, "font": {"size": 11}}
    return drawn(data, title, HEIGHT, barmode="overlay", bargap=0, **layout)


def _top(curves: Curves) -> float:
    return 108.0 if curves.machine.name != H100 else 84.0


def _layer(curves: Curves, layer: str, number: int) -> list[dict[str, object]]:
    end = str(number + 1) if number else ""
    axes = {"xaxis": f"x{end}", "yaxis": f"y{end}"}
    result: list[dict[str, object]] = []
    names = [*curves.families(layer), *(x for x in PEERS if curves.peer(layer, curves.batches[0], x))]
    above: list[tuple[float, float, str]] = []
    for place, name in enumerate(names):
        colour, pattern = LOOKS[name]
        at = [group + PLACE * (place - (len(names) - 1) / 2) for group in range(len(curves.batches))]
        bars, inside = [], []
        for x, m in zip(at, curves.batches, strict=True):
            seconds = curves.peer(layer, m, name)
            if name not in PEERS:
                seconds, choice = curves.best(layer, m, name)
                factors = f"{choice.ab}-{choice.c}" if layer == "MLP-2" else f"{choice.ab}"
                above.append((x, curves.percent(layer, m, seconds), factors))
                inside.append(f"S-{choice.stationary}")
            bars.append(round(curves.percent(layer, m, float(seconds or 0)), 2))
        result.append(
            {
                "type": "bar", "name": name, "showlegend": not number, "x": at, "y": bars,
                "width": PLACE * 0.9, "text": inside, "textposition": "inside", "insidetextanchor": "start",
                "textangle": -90, "insidetextfont": {"color": ink(colour), "size": 11}, **axes,
                "marker": {"color": colour, "pattern": FILL | {"shape": pattern}},
            }
        )  # fmt: skip
    result.append(
        {
            "type": "scatter", "mode": "text", "x": [x for x, _, _ in above], "y": [y for _, y, _ in above],
            "text": [text for _, _, text in above], "textposition": "top center", "showlegend": False,
            "textfont": {"size": 10}, **axes,
        }
    )  # fmt: skip
    if curves.machine.name == H100:
        result.append(_measured(curves, layer, names, not number) | axes)
    return result


def _measured(curves: Curves, layer: str, names: list[str], shown: bool) -> dict[str, object]:
    """Return the authors' measurements of others."""
    key, result = layer.lower().replace("-", ""), published("universal")
    peak = curves.ranks * curves.machine.peak("float32") / 1e12
    rates = result["dtensor_tflops"][key]
    percent = {
        f"DTensor-{x}": [100 * rate / peak for rate in rates[x.lower()[:3]]] for x in ("Row", "Column")
    }  # fmt: skip
    percent |= {"COSMA": result["cosma_percent"].get(key, [])}
    points = [
        (group + PLACE * (names.index(name) - (len(names) - 1) / 2), round(value, 1))
        for name, values in percent.items()
        for group, value in enumerate(values)
    ]
    return {
        "type": "scatter", "mode": "markers", "name": "measured by the paper's authors", "showlegend": shown,
        "x": [x for x, _ in points], "y": [y for _, y in points],
        "marker": DIAMOND,
    }  # fmt: skip
