"""A page of figures and tables in one HTML file that opens offline and asks nothing of any server."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umm.files import whole_file
from umm.units import format_bytes, format_seconds, percent

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROWS = 500
CONFIG = {
    "displaylogo": False,
    "showSendToCloud": False,
    "modeBarButtonsToRemove": ["sendChartToCloud"],
    "plotlyServerURL": "",
    "responsive": True,
}
# The browser itself refuses every request; WebGL plots compile their shaders with eval.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
_PAGE_CSS = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; margin: 1.5rem auto;
       max-width: 80rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
"""
SECTION_CSS = """
h2 { font-size: 1.2rem; margin: 2rem 0 .4rem; }
p { margin: .4rem 0; } .verdict { font-size: 1.1rem; font-weight: 600; border-left: .3rem solid #0072B2;
    padding: .4rem .8rem; background: #f3f7fa; }
.table { overflow: auto; max-height: 24rem; width: fit-content; max-width: 100%; padding-right: 1rem; }
summary { cursor: pointer; color: #0072B2; padding: .3rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th { position: sticky; top: 0; background: #fff; border-bottom: 2px solid #888; }
td:first-child, th:first-child { text-align: left; }
.half { display: inline-block; width: 49%; vertical-align: top; } .half h2 { font-size: 1rem; }
@media (max-width: 60rem) { .half { width: 100%; } }
"""


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a page: any of a heading, a sentence that matters, a paragraph, a figure and a table."""

    heading: str = ""  # heading of the part
    verdict: str = ""  # one sentence, set off from the rest
    text: str = ""  # a plain paragraph
    figure: "go.Figure | None" = None  # a plotly figure
    # The data: under a figure it unfolds, alone it is open; its first rows are shown.
    table: "pd.DataFrame | None" = None
    half: bool = False  # whether it takes half of the width, beside the next that does


def write_page(path: str | Path, title: str, sections: Sequence[Section]) -> None:
    """Write a page, plotly.js included; InputError if the file cannot be written."""
    from plotly.offline import get_plotlyjs

    body = "\n".join(section_html(section, f"plot-{number}") for number, section in enumerate(sections))
    script = ""
    if any(section.figure is not None for section in sections):
        # Set for the whole page, because plotly drops an empty plotlyServerURL from a figure's own config.
        script = f"<script>{get_plotlyjs()}\nPlotly.setPlotConfig({json.dumps(CONFIG)});</script>"
    text = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{_PAGE_CSS}{SECTION_CSS}</style>\n{script}\n</head>\n"
        f"<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def section_html(section: Section, figure_id: str) -> str:
    """Return a section as HTML; its figure is drawn by the plotly.js of the page.

    Args:
        figure_id: The id of its figure, another for each figure on a page.
    """
    parts = []
    if section.heading:
        parts.append(f"<h2>{escape(section.heading)}</h2>")
    if section.verdict:
        parts.append(f'<p class="verdict">{escape(section.verdict)}</p>')
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    if section.figure is not None:
        parts.append(section.figure.to_html(full_html=False, include_plotlyjs=False, div_id=figure_id))
    if section.table is not None:
        table = _table(section.table)
        if section.figure is not None:
            rows = f"{len(section.table)} row" + ("s" if len(section.table) != 1 else "")
            table = f"<details><summary>Data of this figure, {rows}</summary>{table}</details>"
        parts.append(table)
    opening = '<section class="half">' if section.half else "<section>"
    return opening + "\n" + "\n".join(parts) + "\n</section>"


def _table(frame: "pd.DataFrame") -> str:
    shown = frame.head(ROWS).fillna(float("nan"))  # pandas writes None out, whatever `na_rep` is
    shown = shown.apply(lambda column: column.astype(object).map(formatter(column.name), na_action="ignore"))
    html = shown.set_axis([heading(name) for name in frame.columns], axis="columns").to_html(
        index=False, border=0, na_rep=""
    )
    more = f"<p>The first {ROWS} of {len(frame)} rows.</p>" if len(frame) > ROWS else ""
    return f'<div class="table" tabindex="0" role="region" aria-label="data">{html}</div>{more}'


HEADINGS = {"nbytes": "bytes", "fraction_of_peak": "of peak", "what": "number", "index": "action"}
HEADINGS |= {"a": "A", "b": "B", "c": "C"}


def heading(column: str) -> str:
    """Return the heading of a frame's column, without the unit, which its values have.

    >>> [heading(x) for x in ("makespan_s", "memory_bytes", "nbytes", "exposed_communication", "a", "m")]
    ['makespan', 'memory', 'bytes', 'exposed communication', 'A', 'm']
    """
    return HEADINGS.get(column) or column.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def formatter(column: str) -> Any:
    """Return the formatter of a column's values, by the unit in its name."""
    if column.endswith("_s"):
        return format_seconds
    if column.endswith("bytes"):
        return format_bytes
    if column in ("utilisation", "fraction_of_peak"):
        return percent
    return _plain


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
