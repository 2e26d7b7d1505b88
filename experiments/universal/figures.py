"""Figures of the scheduling experiment: how far direct execution is from the best."""

from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from experiments.universal.scheduling import groups, ratios
from umm.figures.page import Section, write_page

SHOWN = ("without asynchrony: direct / optimum", "with asynchrony: direct / best found")


def write_figures(frame: pd.DataFrame, path: Path) -> None:
    """Write one page: the distributions, and every case."""
    sections = [
        Section(
            heading=ratio,
            text="The share of cases (across) in which the ratio is at most so large (up).",
            figure=_distribution(frame, ratio),
        )
        for ratio in SHOWN
    ]
    scatter = go.Figure()
    for name, part in groups(frame).items():
        if "," not in name or name in ("corpus, even", "corpus, uneven"):
            found = ratios(part)
            scatter.add_scatter(x=found[SHOWN[0]], y=found[SHOWN[1]], mode="markers", name=name)
    scatter.update_layout(xaxis_title=SHOWN[0], yaxis_title=SHOWN[1], template="plotly_white")
    sections.append(Section(heading="Every case", figure=scatter, table=frame))
    write_page(path, "Does the order of ops matter?", sections)


def _distribution(frame: pd.DataFrame, ratio: str) -> go.Figure:
    figure = go.Figure()
    for name, part in groups(frame).items():
        if "best layout" not in name:
            values = np.sort(ratios(part)[ratio].to_numpy())
            share = (np.arange(len(values)) + 1) / len(values)
            figure.add_scatter(x=share, y=values, mode="lines", line_shape="hv", name=name)
    figure.update_layout(xaxis_title="share of cases", yaxis_title=ratio, template="plotly_white")
    return figure
