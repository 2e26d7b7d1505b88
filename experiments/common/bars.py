"""Bars in groups beside published ones, one panel or several side by side."""

from collections.abc import Sequence
from itertools import chain
from math import log10
from typing import TYPE_CHECKING, Any, NamedTuple

from umm.figures.style import BLACK, BLUE, DARK_GREY, VERMILLION, drawn

if TYPE_CHECKING:
    import plotly.graph_objects as go

Values = Sequence[float]
DIAMOND = {"symbol": "diamond", "color": BLACK, "size": 9, "line": {"color": "white", "width": 1}}
LOG_TICKS = [1, 2, 5, 10, 20, 50, 100]
LOW = 0.06  # of the highest bar: a number does not fit into a lower one


class Bars(NamedTuple):
    """One bar in each group.

    Attributes:
        name: What they are.
        colour: Of all of them.
        values: One a group.
        published: What was published instead, as diamonds; nothing if empty.
    """

    name: str
    colour: str
    values: Values
    published: Values = ()


class Panel(NamedTuple):
    """Groups of bars.

    Attributes:
        title: Of its vertical axis.
        groups: What stands below each group.
        bars: One series each.
        log: Whether the axis is logarithmic.
        digits: How many digits after the point its numbers have.
    """

    title: str
    groups: Sequence[str]
    bars: Sequence[Bars]
    log: bool = False
    digits: int = 0


def figure(
    title: str, panels: Sequence[Panel], height: int = 420, published: str = "published"
) -> "go.Figure":
    """Return panels side by side; the legend names the bars of the first."""
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    wide = (1.0 - 0.1 * (len(panels) - 1)) / len(panels)
    for number, panel in enumerate(panels):
        end = str(number + 1) if number else ""
        left = number * (wide + 0.1)
        layout[f"xaxis{end}"] = {
            "domain": [left, left + wide], "anchor": f"y{end}", "tickvals": list(range(len(panel.groups))),
            "ticktext": list(panel.groups), "ticks": "", "showgrid": False, "tickangle": 0,
        }  # fmt: skip
        layout[f"yaxis{end}"] = {"anchor": f"x{end}", "title": {"text": panel.title}, **_scale(panel)}
        data += _panel(panel, {"xaxis": f"x{end}", "yaxis": f"y{end}"}, wide, not number, published)
    return drawn(data, title, height, barmode="overlay", **layout)


def ink(colour: str) -> str:
    """Return the colour of text on a bar of a colour."""
    return "white" if colour in (BLUE, VERMILLION, DARK_GREY) else BLACK


def _scale(panel: Panel) -> dict[str, Any]:
    values = list(chain.from_iterable((*bars.values, *bars.published) for bars in panel.bars))
    if panel.log:
        ends = [log10(min(values) / 1.4), log10(max(values) * 1.15)]
        return {"type": "log", "range": ends, "tickvals": LOG_TICKS}
    return {"range": [0, 1.08 * max(values)]} | ({"dtick": 1} if all(x in range(9) for x in values) else {})


def _panel(
    panel: Panel, axes: dict[str, str], wide: float, first: bool, published: str
) -> list[dict[str, Any]]:
    place = 0.84 / len(panel.bars)
    texts = [[f"{x:.{panel.digits}f}" for x in bars.values] for bars in panel.bars]
    room = 690 * wide / len(panel.groups) * place * 0.92 - 6  # pixels in a bar
    font = {"size": min(13, int(room / (0.62 * max(map(len, chain.from_iterable(texts))))))}
    low = 0.0 if panel.log else LOW * max(chain.from_iterable(bars.values for bars in panel.bars))
    result: list[dict[str, Any]] = []
    marks: list[tuple[float, float]] = []
    for number, bars in enumerate(panel.bars):
        at = [x + place * (number - (len(panel.bars) - 1) / 2) for x in range(len(panel.groups))]
        result.append(
            {
                "type": "bar", "name": bars.name, "showlegend": first, "x": at,
                "y": [float(f"{x:.6g}") for x in bars.values], "width": place * 0.92,
                "text": texts[number], "textfont": font,
                "textposition": ["inside" if x > low else "outside" for x in bars.values], "textangle": 0,
                "insidetextanchor": "start", "insidetextfont": {"color": ink(bars.colour), **font},
                "marker": {"color": bars.colour}, **axes,
            }
        )  # fmt: skip
        marks += [(x, y) for x, y in zip(at, bars.published, strict=False)]
    if marks:
        result.append(
            {
                "type": "scatter", "mode": "markers", "name": published, "showlegend": first,
                "x": [x for x, _ in marks], "y": [float(f"{y:.6g}") for _, y in marks], **axes,
                "marker": DIAMOND,
            }
        )  # fmt: skip
    return result
