"""Time against memory: points and their front."""

from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.figures import style
from umm.space import Found
from umm.units import byte_unit, format_bytes, time_unit

SLOWEST = 4.0  # points that take more times the best are left out: nobody chooses among them
COLUMNS, ROWS = 150, 100  # of points that would share a spot of so many across and down one is drawn


@style.as_figure
def pareto(
    seconds: Floats,
    memory: Floats,
    *,
    exact: Bools,
    front: Ints,
    limit: float | None = None,
    here: tuple[float, float] | None = None,
) -> style.Parts:
    """Return the points as marks, circles where simulated and small squares where bounds; with the front.

    Args:
        seconds: Makespan of each point, or its lower bound.
        memory: Bytes of its fullest rank.
        exact: Whether its makespan was simulated.
        front: The points that no other beats in both, by ascending memory; none while they are not known.
        limit: The budget in bytes; what is over it is greyed, and says by how much.
        here: Makespan and bytes of the point that is looked at, simulated; it need not be among them.
    """
    unit, per_second = time_unit(float(seconds.min(initial=np.inf)) if len(seconds) else 1.0)
    shown = _apart(seconds, memory)
    wide, scale = byte_unit(float(memory[shown].max(initial=0.0)))
    hover = f"%{{y:.4g}} {unit}, %{{x:.4g}} {wide}<extra>%{{fullData.name}}</extra>"
    fits = np.full(len(seconds), True) if limit is None else memory <= limit
    data = [
        _marks(seconds, memory, shown[exact[shown] & fits[shown]], "simulated", style.BLUE, "circle"),
        _marks(seconds, memory, shown[~exact[shown] & fits[shown]], "lower bound", style.DARK_GREY, "square"),
    ]
    data[0]["marker"]["size"] = 7
    data[1]["opacity"] = 0.35
    if limit is not None and not fits[shown].all():
        over = _marks(seconds, memory, shown[~fits[shown]], "over the budget", style.GREY, "x")
        short = [
            f"{format_bytes(nbytes - limit)} too much" for nbytes in memory[shown[~fits[shown]]].tolist()
        ]
        data.append(over | {"text": short})
    if len(front):
        line = {"shape": "hv", "color": style.GREEN, "width": 2}
        look = {"mode": "lines+markers", "line": line, "marker": {"symbol": "diamond", "size": 8}}
        marks = style.curve(memory[front], seconds[front], "front")
        data.append(marks | {"customdata": front.tolist()} | look)
    if here is not None:
        marker = {"symbol": "circle-open", "size": 18, "color": style.VERMILLION, "line": {"width": 3}}
        second, nbyte = (np.array([x], dtype=np.float64) for x in here)
        data.append(_marks(second, nbyte, np.array([0]), "this point", style.VERMILLION, "circle-open"))
        del data[-1]["customdata"]  # it is taken already
        data[-1] |= {"type": "scatter", "marker": marker}
    for trace in data:
        trace["x"], trace["y"] = np.round(trace["x"] / scale, 6), np.round(trace["y"] * per_second, 6)
        trace["hovertemplate"] = hover + ("<br>%{text}" if "text" in trace else "")
    every = np.concatenate([trace["y"] for trace in data])
    ticks = style.round_ticks(float(every.min()), float(every.max())) if len(every) else []
    return style.drawing(
        data,
        "Time against memory",
        height=460,
        hovermode="closest",
        clickmode="event",
        xaxis=style.axis(f"memory of the fullest rank ({wide})", rangemode="tozero"),
        yaxis=style.axis(f"makespan ({unit})", type="log", tickvals=ticks),
    )


def _marks(
    seconds: Floats, memory: Floats, mine: Ints, name: str, colour: str, symbol: str
) -> dict[str, Any]:
    return {
        "type": "scattergl",
        "x": memory[mine],
        "y": seconds[mine],
        "customdata": mine.tolist(),  # Dash passes on nothing of an array that is written as bytes
        "mode": "markers",
        "marker": {"color": colour, "symbol": symbol, "size": 3},
        "name": name,
    }


def _apart(seconds: Floats, memory: Floats) -> Ints:
    """Return the points to draw: one of those that share a spot, none that takes far too long."""
    if not len(seconds):
        return np.zeros(0, dtype=np.int64)
    near = np.flatnonzero(seconds <= SLOWEST * seconds.min())
    high = np.log(seconds[near] / seconds.min()) / np.log(SLOWEST) * ROWS
    wide = memory[near] / memory[near].max() * COLUMNS
    spots = high.astype(np.int64) * (COLUMNS + 1) + wide.astype(np.int64)
    return np.asarray(near[np.unique(spots, return_index=True)[1]])


def found_figure(result: Found) -> Any:
    """Return time against memory of all points of a search; those without a simulation have their bounds."""
    pricer: Any = result.pricer
    front = result.frontier  # it simulates more points
    place = {point: i for i, point in enumerate(pricer.points.allowed.tolist())}
    seconds, memory = pricer.bounds.seconds.copy(), pricer.bounds.memory.copy()
    exact = np.zeros(len(seconds), dtype=bool)
    marks = {}
    for point, choice in pricer.choices.items():
        i = place[point]
        seconds[i], memory[i], exact[i] = choice.makespan_s, choice.memory_bytes, True
        marks[choice.makespan_s, choice.memory_bytes] = i
    ends = np.array([marks[choice.makespan_s, choice.memory_bytes] for choice in front], dtype=np.int64)
    return pareto(seconds, memory, exact=exact, front=ends, limit=float(result.limit))
