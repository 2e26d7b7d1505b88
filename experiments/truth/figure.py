"""How far each prediction is off, a row of marks for each group."""

from typing import TYPE_CHECKING, Any

from experiments.truth.page import Judged
from umm.figures.style import BLUE, DARK_GREY, GREY, ORANGE, drawn

if TYPE_CHECKING:
    import plotly.graph_objects as go

ENDS = [-60.0, 140.0]
EACH = 17  # pixels of a group
LOOKS = (
    ("judges the machine file, in the stated range", BLUE, "circle"),
    ("judges it, outside", ORANGE, "diamond"),
    ("was fitted to", DARK_GREY, "square-open"),
)


def _of(one: Judged) -> str:
    """Return a row's group; sizes of group of XLA's collectives share one."""
    return one.row.group.partition(" of ")[0] if one.row.group.startswith("XLA, ") else one.row.group


def figure(result: list[Judged], within: float) -> "go.Figure":
    """Return the rows by group, those that were fitted apart, and the band of groups that are reproduced.

    Args:
        found: All rows, predicted.
        within: How far a group may be off in the mean.
    """
    groups = list(dict.fromkeys(_of(x) for x in result))
    marked: list[list[Judged]] = [[], [], []]
    for one in result:
        marked[2 if one.row.fitted else int(not one.inside)].append(one)
    around = [-100 * within, 100 * within]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "none", "fill": "toself", "fillcolor": GREY, "opacity": 0.6,
            "x": [*around, *around[::-1]], "y": [-0.6, -0.6, len(groups) - 0.4, len(groups) - 0.4],
            "name": f"within ±{100 * within:.0f} %",
        }
    ]  # fmt: skip
    data += [
        {
            "type": "scatter", "mode": "markers", "name": name,
            "x": [round(100 * x.error, 2) for x in points], "y": [groups.index(_of(x)) for x in points],
            "marker": {"color": colour, "symbol": symbol, "size": 8},
        }
        for points, (name, colour, symbol) in zip(marked, LOOKS, strict=True)
    ]  # fmt: skip
    counts = [sum(_of(x) == group for x in result) for group in groups]
    names = [f"{group} ({count})" for group, count in zip(groups, counts, strict=True)]
    height = 220 + EACH * len(groups)
    return drawn(
        data, "What the shipped machines predict, beside what others measured: how far off", height,
        xaxis={"title": {"text": "predicted over measured, less one (%)"},
               "range": ENDS, "tickangle": 0},
        yaxis={"tickvals": list(range(len(groups))), "ticktext": names, "ticks": "", "showgrid": True,
               "range": [len(groups) - 0.4, -0.6], "zeroline": False},
    )  # fmt: skip
