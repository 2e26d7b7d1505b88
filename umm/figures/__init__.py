"""Figures of traces and comparisons, and pages that hold them; plotly is imported when one is made."""

from umm.figures.lanes import timeline
from umm.figures.links import link_map
from umm.figures.page import Section, write_page
from umm.figures.parts import breakdown_bars
from umm.figures.predicted_measured import agreement
from umm.figures.report import trace_sections, write_comparison, write_html

__all__ = [
    "Section",
    "agreement",
    "breakdown_bars",
    "link_map",
    "timeline",
    "trace_sections",
    "write_comparison",
    "write_html",
    "write_page",
]
