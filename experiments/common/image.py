"""Figures as committed images: SVG that a headless Chromium makes of plotly's, the same bytes every time.

An image names its figure, its look and the plotly.js that drew it by a hash, so that a test without a browser
can tell whether it is up to date. Where text lies hangs on its font, and on how the host renders that: it is
Inter without hinting, or nothing is drawn.
"""

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs_version

from experiments.common.kept import FULL, stale
from umm.files import whole_file

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH = 760
FONT = "Inter"
MISSING = f"{FONT} is missing"
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><include ignore_missing="yes">{0}</include><match target="font">
<edit name="hinting" mode="assign"><bool>false</bool></edit>
<edit name="hintstyle" mode="assign"><const>hintnone</const></edit></match></fontconfig>
"""


class MissingFontError(Exception):
    """The font that images are drawn in is not there."""


def draw(figure: "go.Figure", file: Path, size: str = FULL, width: int = WIDTH) -> None:
    """Write a figure as SVG; of a smoke run see that the file is of this figure.

    Where there is no browser, or no font, the file stays as it is, which is said if it is of another figure.

    Raises:
        StaleError: if a smoke run finds the image of another figure.
    """
    if size != FULL:
        if not is_current(figure, file):
            raise stale(file)
        return
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        svg = to_svg(figure, browser, width) if browser else ""
    except MissingFontError:
        svg = ""
    if svg:
        with whole_file(file) as partial:
            partial.write_text(_mark(figure) + svg, encoding="utf-8")
    elif not is_current(figure, file):
        why = f"it takes Chromium and the font {FONT}; apt-get install chromium fonts-inter"
        print(f"{file.name} is not drawn: {why}", file=sys.stderr)


def is_current(figure: "go.Figure", file: Path) -> bool:
    """Whether a file is the image of a figure."""
    return file.exists() and file.read_text(encoding="utf-8").startswith(_mark(figure))


def to_svg(figure: "go.Figure", browser: str, width: int = WIDTH) -> str:
    """Return a figure as SVG, with ids that do not change from one time to the next.

    Raises:
        MissingFontError: where the host has no such font, so that lengths of text would be others.
    """
    height = figure.layout.height
    for number, trace in enumerate(figure.data):
        trace.uid = f"t{number}"
    # Put the figure's SVG into the page as text, where --dump-dom prints it. A font that is not there is as
    # wide as the one after it.
    script = (
        'const pen = document.createElement("canvas").getContext("2d");'
        'const wide = font => (pen.font = "40px " + font, pen.measureText("umm, 0.1 %").width);'
        f'if (wide("{FONT}, monospace") === wide("monospace")) document.body.textContent = "{MISSING}"; else '
        f'Plotly.toImage("figure", {{format: "svg", width: {width}, height: {height}}}).then(url => {{'
        'document.body.textContent = decodeURIComponent(url.slice(url.indexOf(",") + 1));});'
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        page.write_text(figure.to_html(div_id="figure", post_script=script), encoding="utf-8")
        fonts = Path(folder) / "fonts.conf"
        config = os.environ.get("FONTCONFIG_FILE", "/etc/fonts/fonts.conf")
        fonts.write_text(FONTS.format(html.escape(config)), encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom"]
        dumped = subprocess.run(
            [*command, page.as_uri()],
            check=True, capture_output=True, text=True, env={**os.environ, "FONTCONFIG_FILE": str(fonts)},
        ).stdout  # fmt: skip
    if f"<body>{MISSING}" in dumped:
        raise MissingFontError(FONT)
    start, end = dumped.index("&lt;svg"), dumped.rindex("/svg&gt;") + len("/svg&gt;")
    svg = html.unescape(dumped[start:end])
    drawn = re.search(r'id="(?:top)?defs-([0-9a-f]{6})"', svg)
    return (svg.replace(drawn[1], "figure") if drawn else svg) + "\n"


def _mark(figure: "go.Figure") -> str:
    """Return a comment with a hash of a figure, all of its look, and the version of plotly.js."""
    shown = [json.loads(str(figure.to_json())), get_plotlyjs_version()]
    digest = hashlib.blake2b(json.dumps(shown, sort_keys=True).encode(), digest_size=8).hexdigest()
    return f"<!-- figure {digest} -->\n"
