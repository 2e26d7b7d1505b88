"""How figures look: Okabe and Ito's colours, a second mark beside each, one layout for all."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

# Source: Okabe, M. & Ito, K. (2008), Color Universal Design, jfly.uni-koeln.de/color.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, DARK_GREY = "#D9D9D9", "#777777"

KIND_COLOURS = {
    "gemm": GREEN,
    "get": SKY,
    "put": BLUE,
    "accumulate": ORANGE,
    "reduce": VERMILLION,
    "broadcast": PURPLE,
    "map": DARK_GREY,
    "local": YELLOW,
    "barrier": BLACK,
}
# Height of a kind's bars in pixels, so that kinds on one lane differ without colour.
KIND_WIDTHS = {
    "gemm": 13,
    "get": 9,
    "put": 7,
    "accumulate": 9,
    "reduce": 5,
    "broadcast": 3,
    "map": 9,
    "local": 3,
}
KIND_SYMBOLS = {
    "gemm": "circle",
    "get": "square",
    "put": "triangle-up",
    "accumulate": "diamond",
    "reduce": "cross",
    "broadcast": "x",
    "map": "triangle-down",
    "local": "star",
}
# Part of a breakdown: its label, colour and pattern.
PART_LOOKS = {
    "compute": ("compute", GREEN, ""),
    "reduce": ("reduce", VERMILLION, "\\"),
    "exposed_communication": ("exposed communication", SKY, "/"),
    "idle": ("idle", GREY, "."),
}


def styled(figure: "go.Figure", title: str, height: int, **layout: Any) -> "go.Figure":
    """Give a figure its title, its height in pixels and the look of all others."""
    figure.update_layout(
        title={"text": title, "x": 0.01, "xanchor": "left", "y": 1.0, "yanchor": "top", "pad": {"t": 12}},
        height=height,
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#222222"},
        margin={"l": 10, "r": 20, "t": 48, "b": 10},
        # Below the plot, where as many rows as the width needs do not meet the title.
        legend={"orientation": "h", "x": 0.0, "yref": "container", "y": 0.0, "yanchor": "bottom"},
        **layout,
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    return figure


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit that suits times up to this many seconds, and how many of it a second has.

    >>> time_unit(0.02)
    ('ms', 1000.0)
    """
    for unit, per_second in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * per_second >= 1:
            return unit, per_second
    return "ns", 1e9
