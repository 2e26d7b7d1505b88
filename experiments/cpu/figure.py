"""Predicted against measured makespans, a mark per layout, as one HTML page that opens offline."""

from itertools import product
from pathlib import Path

import numpy as np

from experiments.cpu.points import SHAPES, Point
from umm.figures.page import Section
from umm.figures.page import write_page as write_sections
from umm.figures.predicted_measured import band
from umm.figures.style import BLUE, GREEN, ORANGE, PURPLE, styled

MARKS = tuple(product(("circle", "square"), (GREEN, PURPLE, ORANGE, BLUE)))


def write_page(found: list[Point], path: Path) -> None:
    """Write the page: the figure and, below it, every point as a row."""
    import pandas as pd
    import plotly.graph_objects as go

    times = np.array([[point.time, point.predicted] for point in found]) * 1e3
    ends = np.array([times.min() / 1.2, times.max() * 1.2])
    figure = go.Figure(band(ends))
    for name, (symbol, colour) in zip(SHAPES, MARKS, strict=False):
        rows = [point for point in found if point.shape == name]
        figure.add_scatter(
            x=[1e3 * point.time for point in rows],
            y=[1e3 * point.predicted for point in rows],
            error_x={"array": [1e3 * point.spread for point in rows], "thickness": 1},
            mode="markers",
            marker={"symbol": symbol, "size": 8, "color": colour},
            text=[point.name for point in rows],
            name=f"{name} {'×'.join(map(str, SHAPES[name]))}",
        )
    styled(figure, "Predicted against measured makespan, a mark per layout", height=620)
    figure.update_xaxes(title="measured (ms)", type="log")
    figure.update_yaxes(title="predicted (ms)", type="log")
    table = pd.DataFrame(
        {
            "shape": [point.shape for point in found],
            "layouts": [point.name for point in found],
            "predicted_s": [point.predicted for point in found],
            "measured_s": [point.time for point in found],
            "spread_s": [point.spread for point in found],
        }
    )
    write_sections(path, "Predicted against measured on this host", [Section(figure=figure, table=table)])
