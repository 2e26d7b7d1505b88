"""Figures as committed images: SVG that a headless Chromium makes of plotly's, the same bytes every time.

An image names its figure by a hash, so that a test without a browser can tell whether it is up to date.
"""

import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.common.kept import FULL, stale

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH = 760


def draw(figure: "go.Figure", file: Path, size: str = FULL, width: int = WIDTH) -> None:
    """Write a figure as SVG; of a smoke run see that the file is of this figure, whatever its look.

    Where there is no browser the file stays as it is, which is said if it is of another figure.

    Raises:
        StaleError: if a smoke run finds the image of another figure.
    """
    mark = _mark(figure)
    current = file.exists() and file.read_text(encoding="utf-8").startswith(mark)
    if size != FULL:
        if not current:
            raise stale(file)
        return
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser:
        file.write_text(mark + to_svg(figure, browser, width), encoding="utf-8")
    elif not current:
        print(f"{file.name} is not drawn: Chromium makes the SVG; apt-get install chromium", file=sys.stderr)


def to_svg(figure: "go.Figure", browser: str, width: int = WIDTH) -> str:
    """Return a figure as SVG, with ids that do not change from one time to the next."""
    height = figure.layout.height
    for number, trace in enumerate(figure.data):
        trace.uid = f"t{number}"
    # Put the figure's SVG into the page as text, where --dump-dom prints it.
    script = (
        f'Plotly.toImage("figure", {{format: "svg", width: {width}, height: {height}}}).then(url => {{'
        'document.body.textContent = decodeURIComponent(url.slice(url.indexOf(",") + 1));});'
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        page.write_text(figure.to_html(div_id="figure", post_script=script), encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom"]
        dumped = subprocess.run(
            [*command, page.as_uri()], check=True, capture_output=True, text=True
        ).stdout  # fmt: skip
    start, end = dumped.index("&lt;svg"), dumped.rindex("/svg&gt;") + len("/svg&gt;")
    svg = html.unescape(dumped[start:end])
    drawn = re.search(r'id="(?:top)?defs-([0-9a-f]{6})"', svg)
    return (svg.replace(drawn[1], "figure") if drawn else svg) + "\n"


def _mark(figure: "go.Figure") -> str:
    """Return a comment with a hash of what a figure shows; the look that all figures share is left out."""
    shown = json.loads(str(figure.to_json()))
    shown["layout"].pop("template")
    digest = hashlib.blake2b(json.dumps(shown, sort_keys=True).encode(), digest_size=8).hexdigest()
    return f"<!-- figure {digest} -->\n"
