"""Figures of traces and comparisons, and pages that hold them; plotly is imported when one is made."""
