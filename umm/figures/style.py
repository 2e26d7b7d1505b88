"""How figures look: Okabe and Ito's colours, a second mark beside each, one layout for all."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Source: Okabe, M. & Ito, K. (2008), Color Universal Design, jfly.uni-koeln.de/color.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, DARK_GREY = "#D9D9D9", "#777777"

# Of a kind of action its colour; the height of its bars in pixels, so that kinds on one lane differ without
# colour; and its mark.
_KINDS = {
    "gemm": (GREEN, 13, "circle"),
    "get": (SKY, 9, "square"),
    "put": (BLUE, 7, "triangle-up"),
    "accumulate": (ORANGE, 9, "diamond"),
    "reduce": (VERMILLION, 5, "cross"),
    "broadcast": (PURPLE, 3, "x"),
    "map": (DARK_GREY, 9, "triangle-down"),
    "local": (YELLOW, 3, "star"),
}
KIND_COLOURS = {kind: colour for kind, (colour, _, _) in _KINDS.items()} | {"barrier": BLACK}
KIND_WIDTHS = {kind: width for kind, (_, width, _) in _KINDS.items()}
KIND_SYMBOLS = {kind: symbol for kind, (_, _, symbol) in _KINDS.items()}
# Part of a breakdown: its label, colour and pattern.
PART_LOOKS = {
    "compute": ("compute", GREEN, ""),
    "reduce": ("reduce", VERMILLION, "\\"),
    "exposed_communication": ("exposed communication", SKY, "/"),
    "idle": ("idle", GREY, "."),
}


INK, PAPER, GRID = "#222222", "#FFFFFF", "#E5E8EC"
_AXIS = {
    "gridcolor": GRID,
    "linecolor": DARK_GREY,
    "zerolinecolor": DARK_GREY,
    "ticks": "outside",
    "automargin": True,
    "ticklabeloverflow": "allow",  # they fit; to look whether they do takes plotly.js a third of a redraw
}
# Few keys: checking plotly's own templates takes longer than drawing.
TEMPLATE = {
    "layout": {
        "colorway": [BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE, YELLOW],
        "font": {"family": "Inter, system-ui, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "hoverlabel": {"align": "left"},
        "margin": {"l": 10, "r": 20, "t": 48, "b": 10},
        # Below the plot, where as many rows as the width needs do not meet the title.
        "legend": {"orientation": "h", "x": 0.0, "yref": "container", "y": 0.0, "yanchor": "bottom"},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
}


P = ParamSpec("P")
Parts = dict[str, Any]  # the data and the layout of a figure as plotly.js takes them


def as_figure(parts: Callable[P, Parts]) -> Callable[P, "go.Figure"]:
    """Let a function that gives the parts of a figure give plotly.py's figure of them."""

    @wraps(parts)
    def figure(*args: P.args, **named: P.kwargs) -> "go.Figure":
        import plotly.graph_objects as go

        # plotly's check of every property takes longer than all else; tests do it.
        return go.Figure(parts(*args, **named), _validate=False)

    vars(figure)["__signature__"] = signature(parts).replace(return_annotation="go.Figure")  # for the docs
    return figure


def parts_of(figure: Callable[P, "go.Figure"]) -> Callable[P, Parts]:
    """Return the function that gives a figure's parts: building plotly's own object takes longest."""
    return figure.__wrapped__  # type: ignore[attr-defined,no-any-return]


def drawing(data: Sequence[Mapping[str, Any]], title: str, height: int, **layout: Any) -> Parts:
    """Return the parts of a figure in the look of all others.

    Args:
        data: Its traces as plotly.js takes them.
        layout: What else its layout has, as plotly.js takes it.
    """
    return {"data": list(data), "layout": _look(title, height, layout)}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    return {"title": {"text": title}, **more}


def log_axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """Return a logarithmic axis, with numbers from low to high that are easy to read."""
    return axis(title, type="log", tickvals=round_ticks(low, high), **more)


def curve(x: Any, y: Any, name: str, **more: Any) -> dict[str, Any]:
    """Return a line, or marks, under a name."""
    return {"type": "scatter", "x": x, "y": y, "mode": "lines", "name": name, **more}


drawn = as_figure(drawing)  # return a figure in the look of all others, as `drawing` gives its parts


def styled(figure: "go.Figure", title: str, height: int, **layout: Any) -> "go.Figure":
    """Give a figure that plotly.py made its title, its height in pixels and the look of all others."""
    return figure.update_layout(_look(title, height, layout))


def _look(title: str, height: int, layout: Mapping[str, Any]) -> dict[str, Any]:
    heading = {"text": title, "x": 0.01, "xanchor": "left", "y": 1.0, "yanchor": "top", "pad": {"t": 12}}
    return {"title": heading, "height": height, "template": TEMPLATE, **layout}


DARK = {
    BLACK: "#F2F4F7",
    INK: "#E4E7EB",
    PAPER: "#14181D",
    GRID: "#2C333B",
    GREY: "#5A636E",
    DARK_GREY: "#9AA4AF",
}
_STAY = "textfont"  # it lies on coloured cells


def themed(figure: Mapping[str, Any], dark: bool) -> Mapping[str, Any]:
    """Return a figure as plain values, in dark colours if asked; the colours of kinds and ranks stay."""

    def darkened(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: value if key == _STAY else darkened(value) for key, value in part.items()}
        if isinstance(part, list | tuple):
            return [darkened(value) for value in part] if len(part) < _LONG else part
        return DARK.get(part, part) if isinstance(part, str) else part

    return darkened(figure) if dark else figure


_LONG = 500  # a column of values has no colours


def round_ticks(low: float, high: float) -> list[float]:
    """Return the numbers of a logarithmic axis from low to high that are easy to read, each in full.

    >>> round_ticks(0.8, 300.0)[2:6]
    [0.5, 1.0, 2.0, 5.0]
    """
    steps: tuple[float, ...] = (1, 2, 3, 5, 7)
    if high < 4 * low:
        steps = (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8)
    elif high > 100 * low:
        steps = (1, 2, 5) if high < 1e4 * low else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [float(f"{step * 10.0**decade:.3g}") for decade in decades for step in steps]
