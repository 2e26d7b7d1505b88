"""Time, efficiency and device time over the number of ranks, and the page of them."""

from pathlib import Path
from typing import Any

from umm.figures.page import Section, write_page
from umm.figures.style import BLUE, GREEN, VERMILLION, Parts, as_figure, drawing, time_unit
from umm.space.scaling import Scaling


def scaling_parts(found: Scaling) -> Parts:
    """Return makespan, and what it would be at the first row's efficiency, over the number of ranks."""
    ranks = [row.ranks for row in found.rows]
    unit, per_second = time_unit(max(row.makespan_s for row in found.rows))
    first = found.rows[0]
    ideal = [row.makespan_s * found.efficiency(row) * per_second for row in found.rows]
    data = [
        _line(ranks, [row.makespan_s * per_second for row in found.rows], "makespan", BLUE, "circle"),
        _line(ranks, ideal, f"at the efficiency of {first.ranks} ranks", GREEN, "diamond")
        | {"line": {"dash": "dot"}},
    ]
    return drawing(
        data,
        "Time over ranks",
        height=380,
        xaxis={
            "title": {"text": "ranks"},
            "type": "log",
            "tickvals": ranks,
            "ticktext": [str(x) for x in ranks],
        },
        yaxis={"title": {"text": f"makespan ({unit})"}, "type": "log"},
    )


def efficiency_parts(found: Scaling) -> Parts:
    """Return efficiency and device time over the number of ranks."""
    ranks = [row.ranks for row in found.rows]
    paid = [found.device_seconds(row) / found.device_seconds(found.rows[0]) * 100 for row in found.rows]
    data = [
        _line(ranks, [100 * found.efficiency(row) for row in found.rows], "efficiency", BLUE, "circle"),
        _line(ranks, paid, "device time", VERMILLION, "square"),
    ]
    return drawing(
        data,
        "Efficiency and device time",
        height=380,
        xaxis={
            "title": {"text": "ranks"},
            "type": "log",
            "tickvals": ranks,
            "ticktext": [str(x) for x in ranks],
        },
        yaxis={"title": {"text": "% of the first"}, "rangemode": "tozero"},
    )


scaling_figure = as_figure(scaling_parts)
"""Return a figure of :func:`scaling_parts`."""
efficiency_figure = as_figure(efficiency_parts)
"""Return a figure of :func:`efficiency_parts`."""


def _line(x: list[int], y: list[float], name: str, colour: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": x,
        "y": y,
        "name": name,
        "mode": "lines+markers",
        "marker": {"color": colour, "symbol": symbol, "size": 9},
        "hovertemplate": "%{y:.4g} with %{x} ranks<extra>%{fullData.name}</extra>",
    }


def write_scaling(found: Scaling, path: str | Path) -> None:
    """Write numbers of nodes or ranks side by side as one HTML file that opens offline.

    Raises:
        InputError: if the file cannot be written.
    """
    import pandas as pd

    sections = [
        Section(verdict=found.verdict, table=pd.DataFrame(found.records())),
        Section(figure=scaling_figure(found), half=True),
        Section(figure=efficiency_figure(found), half=True),
    ]
    write_page(path, f"{found.words} on {found.machine}", sections)
