"""Makespans beside each other, a bar each."""

from collections.abc import Mapping

from umm.figures.style import BLUE, GREY, INK, SKY, Parts, as_figure, drawing, time_unit


@as_figure
def beside(title: str, seconds: Mapping[str, float], taken: str, over: frozenset[str] = frozenset()) -> Parts:
    """Return a bar for each makespan, the first on top.

    Args:
        title: Above them.
        seconds: Makespans by name.
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
            "color": [GREY if name in over else BLUE if name == taken else SKY for name in names],
            "pattern": {
                "shape": ["/" if name in over else "" for name in names],
                "fgcolor": INK,
                "solidity": 0.2,
            },
        },
        "hovertemplate": f"%{{y}}: %{{x:.4g}} {unit}<extra></extra>",
    }
    return drawing(
        [data],
        title,
        height=130 + 26 * len(names),
        xaxis={"title": {"text": f"makespan ({unit})"}, "rangemode": "tozero"},
        yaxis={"showgrid": False},
    )
