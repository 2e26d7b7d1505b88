"""``python -m tests.benchmarks.figure``: draws cost against p from build/bench.json into docs/.

plotly draws; a headless Chromium turns its figure into SVG.
"""

import html
import json
import shutil
import subprocess
import sys
import tempfile
from math import log10
from pathlib import Path

import plotly.graph_objects as go

from tests.benchmarks.__main__ import OUTPUT
from umm.figures.style import BLUE, VERMILLION, styled

FIGURE = Path("docs/images/simulator-speed.svg")
WIDTH, HEIGHT = 760, 440
# Put the figure's SVG into the page as text, where --dump-dom prints it.
TO_TEXT = f"""
Plotly.toImage("figure", {{format: "svg", width: {WIDTH}, height: {HEIGHT}}}).then(url => {{
    document.body.textContent = decodeURIComponent(url.slice(url.indexOf(",") + 1));
}});
"""


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


def to_svg(figure):
    """Return a plotly figure as SVG."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        sys.exit(
            "the figure is turned into SVG by Chromium, which is not installed: apt-get install chromium"
        )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        page.write_text(figure.to_html(div_id="figure", post_script=TO_TEXT), encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--virtual-time-budget=20000",
            "--dump-dom",
            page.as_uri(),
        ]
        dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    start, end = dumped.index("&lt;svg"), dumped.rindex("/svg&gt;") + len("/svg&gt;")
    return html.unescape(dumped[start:end]) + "\n"


def main():
    rows = json.loads(OUTPUT.read_text(encoding="utf-8"))["growth"]
    FIGURE.write_text(to_svg(cost_against_ranks(rows)), encoding="utf-8")
    print(f"written to {FIGURE}")


if __name__ == "__main__":
    main()
