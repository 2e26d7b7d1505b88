"""Decision maps, times over one number, and speed-up over ranks."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Floats
from umm.figures import style
from umm.space.scaling import Scaling
from umm.units import counted, time_unit

if TYPE_CHECKING:
    from umm.space.what_if.decision_map import DecisionMap
    from umm.space.what_if.sensitivity import Sensitivity

COLOURS = (style.BLUE, style.ORANGE, style.GREEN, style.SKY, style.VERMILLION, style.PURPLE, style.YELLOW)
PATTERNS = ("", "/", "\\", "x", "-", "|", "+", ".")


@style.as_figure
def decision_figure(decisions: "DecisionMap") -> style.Parts:
    """Return a column per m, cut where the best choice changes; choices differ in colour and pattern.

    The borders between columns' stretches are the crossovers. Nothing fits where a column is empty.
    """
    data = []
    for number, label in enumerate(dict.fromkeys(x.label for x in decisions.stretches)):
        mine = [x for x in decisions.stretches if x.label == label]
        pattern = PATTERNS[number // len(COLOURS) % len(PATTERNS)]
        data.append({
            "type": "bar", "name": label, "x": [str(x.m) for x in mine],
            "base": [x.start for x in mine], "y": [x.stop - x.start for x in mine],
            "marker": {
                "color": COLOURS[number % len(COLOURS)], "line": {"color": "white", "width": 1},
                "pattern": {"shape": pattern},
            },
            "customdata": [
                [x.start, x.stop, f"{x.choice.makespan_s * 1e3:.4g} ms at {x.start:.3g}"] for x in mine
            ],
            "hovertemplate": "m=%{x}<br>%{customdata[0]:.3g} to %{customdata[1]:.3g}<br>%{customdata[2]}",
        })  # fmt: skip
    every = [str(m) for m in dict.fromkeys(x.m for x in decisions.stretches)]
    title = f"{decisions.over} (1 is {decisions.unit.replace(', ', ',<br>')})"
    ends = min(x.start for x in decisions.stretches), max(x.stop for x in decisions.stretches)
    return style.drawing(
        data,
        f"Best layouts of A, B, C and stationary matrix on {decisions.machine}",
        480,
        barmode="overlay",
        bargap=0.04,
        xaxis=style.axis("m", type="category", categoryorder="array", categoryarray=every),
        yaxis=style.axis(title) if decisions.over == "memory" else style.log_axis(title, *ends),
    )


def _ticked(title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis with a tick at each value."""
    return style.axis(title, type="log", tickvals=list(values), ticktext=[f"{x:g}" for x in values])


LOOKS = tuple(
    zip(
        (style.VERMILLION, style.BLUE, style.GREEN, style.ORANGE, style.PURPLE, style.SKY),
        ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot"),
        strict=True,
    )
)


@style.as_figure
def turned(
    what: str, factors: Sequence[float], words: Sequence[str], times: Mapping[str, Floats]
) -> style.Parts:
    """Return a line for each point over the factors.

    Args:
        what: The number that is turned.
        factors: What it is multiplied by, ascending.
        times: Makespans at each factor by the point's name; the first is the one that is looked at.
    """
    unit, per_second = time_unit(float(np.concatenate(list(times.values())).max()))
    hover = f"%{{text}}: %{{y:.4g}} {unit}<extra>%{{fullData.name}}</extra>"
    data = []
    for i, (name, seconds) in enumerate(times.items()):
        colour, dash = LOOKS[i % len(LOOKS)]
        line = {"color": colour, "dash": dash, "width": 4 if i == 0 else 2}
        look = {"mode": "lines+markers", "line": line, "hovertemplate": hover}
        data.append(style.curve(list(factors), seconds * per_second, name, text=list(words)) | look)
    return style.drawing(
        data,
        f"Makespan when {what} changes",
        height=460,
        xaxis=_ticked(f"{what}, times its value", factors),
        yaxis=style.axis(f"makespan ({unit})", rangemode="tozero"),
    )


@style.as_figure
def sensitivity_figure(answer: "Sensitivity") -> style.Parts:
    """Return two bars for each machine number: the time with half of it and with twice of it."""
    now = answer.choice.makespan_s
    moves = answer.moves[::-1]  # plotly draws the first at the bottom
    data = [
        {
            "type": "bar", "name": name, "y": [f"{move.what}<br>{move.now}" for move in moves],
            "x": [100 * (x / now - 1) for x in seconds], "orientation": "h",
            "marker": {"color": colour, "pattern": {"shape": pattern}},
            "hovertemplate": "%{y}: %{x:+.1f} %<extra>" + name + "</extra>",
        }
        for name, colour, pattern, seconds in (
            ("half", style.ORANGE, "/", [move.half_s for move in moves]),
            ("twice as much, or all of it", style.BLUE, "", [move.most_s for move in moves]),
        )
    ]  # fmt: skip
    title, height = "How much each number of the machine moves the time", 160 + 44 * len(moves)
    change = style.axis("change of the makespan (%)", zeroline=True)
    return style.drawing(data, title, height, barmode="group", xaxis=change)


@style.as_figure
def scaling_figure(scaling: Scaling) -> style.Parts:
    """Return makespan, and makespan at the first row's efficiency, over the number of ranks."""
    ranks = [row.ranks for row in scaling.rows]
    unit, per_second = time_unit(max(row.makespan_s for row in scaling.rows))
    first = scaling.rows[0]
    ideal = [row.makespan_s * scaling.efficiency(row) * per_second for row in scaling.rows]
    taken = [row.makespan_s * per_second for row in scaling.rows]
    data = [
        _marked(ranks, taken, "makespan", style.BLUE, "circle"),
        _marked(ranks, ideal, f"at the efficiency of {counted(first.ranks, 'rank')}", style.GREEN, "diamond")
        | {"line": {"dash": "dot"}},
    ]
    return style.drawing(
        data,
        "Time over ranks",
        height=380,
        xaxis=_ticked("ranks", ranks),
        yaxis=style.log_axis(f"makespan ({unit})", min(taken), max(taken)),
    )


@style.as_figure
def efficiency_figure(scaling: Scaling) -> style.Parts:
    """Return efficiency and device time over the number of ranks."""
    rows, ranks = scaling.rows, [row.ranks for row in scaling.rows]
    efficiency = [100 * scaling.efficiency(row) for row in rows]
    paid = [scaling.device_seconds(row) / scaling.device_seconds(rows[0]) * 100 for row in rows]
    data = [
        _marked(ranks, efficiency, "efficiency", style.BLUE, "circle"),
        _marked(ranks, paid, "device time", style.VERMILLION, "square"),
    ]
    return style.drawing(
        data,
        "Efficiency and device time",
        height=380,
        xaxis=_ticked("ranks", ranks),
        yaxis=style.axis("% of the first", rangemode="tozero"),
    )


def _marked(x: list[int], y: list[float], name: str, colour: str, symbol: str) -> dict[str, Any]:
    marker = {"color": colour, "symbol": symbol, "size": 9}
    hover = "%{y:.4g} with %{x} ranks<extra>%{fullData.name}</extra>"
    return style.curve(x, y, name, marker=marker, hovertemplate=hover) | {"mode": "lines+markers"}
