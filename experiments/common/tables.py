"""A table as a figure, in the look of all others."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from umm.figures.style import GREY, GRID, PAPER, drawn

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROW, HEADING = 30, 60  # heights in pixels


def figure(title: str, columns: Mapping[str, Sequence[str]], widths: Sequence[int]) -> "go.Figure":
    """Return columns side by side under their names.

    Args:
        title: Above the table.
        columns: Cells of each by its name, one a row.
        widths: Of the columns, one beside the other.
    """
    rows = len(next(iter(columns.values())))
    data = {
        "type": "table", "columnwidth": list(widths),
        "header": {
            "values": [f"<b>{name}</b>" for name in columns], "align": "left", "height": ROW,
            "fill": {"color": GREY}, "line": {"color": GRID},
        },
        "cells": {
            "values": [list(cells) for cells in columns.values()], "align": "left", "height": ROW,
            "fill": {"color": PAPER}, "line": {"color": GRID},
        },
    }  # fmt: skip
    return drawn([data], title, HEADING + (rows + 1) * ROW, margin={"l": 10, "r": 10, "t": 48, "b": 2})
