"""Section 5.2 as a figure: how much longer direct execution takes than other schedules."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from experiments.universal.scheduling import ratios
from umm.figures.style import BLACK, BLUE, GREEN, ORANGE, VERMILLION, styled

HEIGHT = 440
SHOWN = {
    "without asynchrony: direct / optimum": "no asynchrony:<br>direct / optimum",
    "with asynchrony: direct / optimum": "asynchrony:<br>direct / that optimum",
    "with asynchrony: direct / best found": "asynchrony:<br>direct / best found",
}


def distributions(frame: pd.DataFrame) -> go.Figure:
    """Return for each ratio the share of cases in which it is at most so large."""
    random, on_pvc = frame["group"] == "corpus", frame["machine"] == "pvc-12"
    lines = {
        "random, even ops": (random & ~frame["uneven"], BLUE, "solid"),
        "random, uneven ops": (random & frame["uneven"], VERMILLION, "solid"),
        "MLP on pvc-12": (~random & on_pvc, ORANGE, "dash"),
        "MLP on h100-8": (~random & ~on_pvc, GREEN, "dash"),
    }
    figure = make_subplots(1, 3, shared_yaxes=True, subplot_titles=list(SHOWN.values()))
    for place, ratio in enumerate(SHOWN, 1):
        for name, (which, colour, dash) in lines.items():
            values = np.sort(ratios(frame[which])[ratio].to_numpy())
            share = np.arange(len(values) + 1) / len(values)
            figure.add_scatter(
                x=[values[0], *values], y=share, name=name, mode="lines", line_shape="vh", row=1, col=place,
                line={"color": colour, "dash": dash}, showlegend=place == 1,
            )  # fmt: skip
    figure.update_xaxes(
        type="log", tickvals=[0.5, 0.7, 1, 1.5, 2, 3], tickangle=0, range=[np.log10(0.48), np.log10(3.6)]
    )  # fmt: skip
    figure.update_xaxes(title="ratio of times", col=2)
    figure.add_vline(1.0, line={"color": BLACK, "width": 1})
    figure.update_yaxes(title="share of cases at or below", tickformat=".0%", col=1)
    styled(figure, "How much longer direct execution takes than other schedules", HEIGHT)
    return figure.update_layout(margin={"t": 90}, legend={"y": 0.0})
