"""Figures of traces, comparisons and decision maps, and HTML pages of them."""

from umm.figures.lanes import timeline
from umm.figures.links import breakdown_bars, link_map
from umm.figures.page import Section, write_page
from umm.figures.predicted_measured import agreement
from umm.figures.report import trace_sections, write_comparison, write_html
from umm.figures.what_if import decision_figure

__all__ = [
    "Section",
    "agreement",
    "breakdown_bars",
    "decision_figure",
    "link_map",
    "timeline",
    "trace_sections",
    "write_comparison",
    "write_html",
    "write_page",
]
