"""Predicted against measured makespans, a mark per layout: a page, and the committed image."""

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import umm
from experiments.common.image import draw
from experiments.cpu.points import SHAPES, Point, add, judge, points
from umm.figures.page import Section
from umm.figures.page import write_page as write_sections
from umm.figures.predicted_measured import band
from umm.figures.style import BLUE, GREEN, ORANGE, PURPLE, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
IMAGE, DRAWN = HERE / "agreement.svg", "all-avx512"
TITLE = "Predicted against measured makespan on two cores, a mark per layout"
MARKS = tuple(product(("circle", "square"), (GREEN, PURPLE, ORANGE, BLUE)))


def figure(result: list[Point]) -> "go.Figure":
    """Return the marks of each shape, their standard errors, and the band of ±20 %."""
    import plotly.graph_objects as go

    times = np.array([[point.time, point.predicted] for point in result]) * 1e3
    drawn = go.Figure(band(np.array([times.min() / 1.1, times.max() * 1.1])))
    for name, (symbol, colour) in zip(SHAPES, MARKS, strict=False):
        rows = [point for point in result if point.shape == name]
        drawn.add_scatter(
            x=[float(f"{1e3 * point.time:.5g}") for point in rows],
            y=[float(f"{1e3 * point.predicted:.5g}") for point in rows],
            error_x={"array": [float(f"{1e3 * point.spread:.3g}") for point in rows], "thickness": 1},
            mode="markers",
            marker={"symbol": symbol, "size": 7, "color": colour},
            text=[point.name for point in rows],
            name=f"{name} {'×'.join(map(str, SHAPES[name]))}",
        )
    styled(drawn, TITLE, height=620)
    ticks = {"type": "log", "tickvals": [10, 15, 20, 25, 30, 40, 50, 60, 80, 100]}
    drawn.update_xaxes(title="measured (ms)", **ticks)
    drawn.update_yaxes(title="predicted (ms)", **ticks)
    return drawn


def write_page(result: list[Point], path: Path) -> None:
    """Write the page: the figure and, below it, every point as a row."""
    import pandas as pd

    table = pd.DataFrame(
        {
            "shape": [point.shape for point in result],
            "layouts": [point.name for point in result],
            "predicted_s": [point.predicted for point in result],
            "measured_s": [point.time for point in result],
            "spread_s": [point.spread for point in result],
        }
    )
    write_sections(
        path, "Predicted against measured on this host", [Section(figure=figure(result), table=table)]
    )


def committed(name: str) -> list[Point]:
    """Return the points of a committed file, predicted then."""
    rows = json.loads((HERE / f"data/{name}.json").read_text(encoding="utf-8"))
    machine = umm.machine(HERE / f"data/localhost-{name}.toml")
    predicted = {(row["shape"], row["layouts"]): row["predicted_s"] for row in rows}
    result = list(points(machine, 2, "float32", list(SHAPES)))
    add(result, rows)
    judge(result)
    result = [point for point in result if predicted.get((point.shape, point.name))]
    for point in result:
        point.predicted = predicted[point.shape, point.name]
    return result


if __name__ == "__main__":
    draw(figure(committed(DRAWN)), IMAGE)
