"""``python -m tests.benchmarks.figure``: draws cost against p from build/bench.json into docs/.

plotly draws; a headless Chromium turns its figure into SVG.
"""

import json
from math import log10
from pathlib import Path

import plotly.graph_objects as go

from experiments.common.image import draw
from tests.benchmarks.__main__ import OUTPUT
from umm.figures.style import BLUE, VERMILLION, styled

FIGURE = Path("docs/images/simulator-speed.svg")
HEIGHT = 440


def cost_against_ranks(rows):
    """Return seconds of lowering and of simulating against the number of ranks, both axes logarithmic."""
    ranks = [row["ranks"] for row in rows]
    figure = go.Figure()
    for name, key, colour, symbol in (
        ("lowering", "lower_s", BLUE, "square"),
        ("simulating", "simulate_s", VERMILLION, "circle"),
    ):
        seconds = [row[key] for row in rows]
        figure.add_scatter(
            x=ranks, y=seconds, name=name, mode="lines+markers", line_color=colour, marker_symbol=symbol
        )
    for row in rows[3::2]:
        figure.add_annotation(
            # Positions on logarithmic axes are exponents.
            x=log10(row["ranks"]), y=log10(row["simulate_s"]), text=f"{row['actions']:,} actions",
            showarrow=False, xshift=-10, yshift=14, xanchor="right",
        )  # fmt: skip
    figure.update_xaxes(type="log", title="ranks p", tickvals=ranks)
    figure.update_yaxes(type="log", title="processor seconds", dtick=1, exponentformat="power")
    return styled(figure, "Column layout, MLP-1: cost of one schedule against the number of ranks", HEIGHT)


def main():
    rows = json.loads(OUTPUT.read_text(encoding="utf-8"))["growth"]
    draw(cost_against_ranks(rows), FIGURE)


if __name__ == "__main__":
    main()
