"""Ownership: the tiles of the matrices in their owners' colours, and the slices of one op highlighted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from umm.figures.style import BLACK, INK, VERMILLION, Parts, as_figure, drawing
from umm.layouts.layout import Layout

Slice = tuple[int, int, int, int]
MOST_TILES = 4096  # of one matrix
MOST_NAMED = 256
# Source: Paul Tol, Qualitative colour schemes, "light"; neighbours differ, and each tile says its rank.
LIGHT = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00", "#DDDDDD")
SCALE = [[x, LIGHT[i]] for i in range(len(LIGHT)) for x in (i / len(LIGHT), (i + 1) / len(LIGHT))]
"""The colours as steps of a heat map whose values are their numbers."""


@as_figure
def tile_map(layouts: Mapping[str, Layout], lit: Sequence[tuple[str, Slice]] = ()) -> Parts:
    """Return a panel for each matrix with its tiles, each in the colour of its owner.

    Args:
        layouts: The matrices by name.
        lit: Slices to light, each of a matrix: first row, row after the last, first column, column after.
    """
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    notes, shapes = [], []
    count = len(layouts)
    look = {"showgrid": False, "tickformat": "~s", "tickfont": {"size": 11}}  # short: panels stand close
    for place, (name, layout) in enumerate(layouts.items()):
        tail = "" if place == 0 else str(place + 1)
        start = place / count + (0.025 if place else 0.0)
        domain = [start, (place + 1) / count - 0.02]
        axes[f"xaxis{tail}"] = {"domain": domain, "side": "top", "anchor": f"y{tail}", **look}
        axes[f"yaxis{tail}"] = {"autorange": "reversed", "anchor": f"x{tail}", **look}
        label = f"<b>{name}</b> {layout}  {layout.shape[0]} × {layout.shape[1]}"
        note = {"text": label, "xref": "paper", "yref": "paper", "x": domain[0], "y": 1.0, "yshift": 44}
        notes.append(note | {"showarrow": False, "xanchor": "left"})
        data += _tiles(layout, tail)
        for matrix, (top, bottom, left, right) in lit:
            if matrix == name:
                box = {"x0": left, "x1": right, "y0": top, "y1": bottom}
                paint = {"line": {"color": VERMILLION, "width": 4}, "fillcolor": VERMILLION, "opacity": 0.55}
                shapes.append({"type": "rect", "xref": f"x{tail}", "yref": f"y{tail}", **box, **paint})
    return drawing(
        data, "Who owns what", height=470, annotations=notes, shapes=shapes,
        margin={"t": 110, "l": 10, "r": 10, "b": 10}, **axes,
    )  # fmt: skip


def _tiles(layout: Layout, tail: str) -> list[dict[str, Any]]:
    """Return the tiles of one matrix as a heat map of their owners in the first replica."""
    axes: dict[str, Any] = {"xaxis": f"x{tail}", "yaxis": f"y{tail}"}
    rows, cols = (np.unique(np.asarray(x)) for x in (layout.row_edges, layout.col_edges))  # no empty tiles
    if (len(rows) - 1) * (len(cols) - 1) > MOST_TILES:
        words = f"{layout.grid_shape()[0]} × {layout.grid_shape()[1]} tiles are too many to draw"
        x, y = [layout.shape[1] / 2], [layout.shape[0] / 2]
        look = {"mode": "text", "text": [words], "textfont": {"color": INK}, "hoverinfo": "skip"}
        return [{"type": "scatter", "x": x, "y": y, **axes, **look, "showlegend": False}]
    tops = np.searchsorted(layout.row_edges, rows[:-1], side="right") - 1
    lefts = np.searchsorted(layout.col_edges, cols[:-1], side="right") - 1
    owners = layout.owners[:, tops][:, :, lefts]
    names = np.full(owners.shape[1:], "", dtype=object)
    for i, j in np.ndindex(names.shape):
        ranks = [f"r{rank}" for rank in owners[:, i, j].tolist()]
        names[i, j] = " ".join(ranks) if len(ranks) <= 4 else f"{' '.join(ranks[:3])} … {ranks[-1]}"
    cells = axes | owned(cols, rows, owners[0] % len(LIGHT), names)
    cells |= {"type": "heatmap", "showscale": False, "textfont": {"color": BLACK}}
    if names.size <= MOST_NAMED:
        cells["texttemplate"] = "%{text}"
    return [cells]


def owned(cols: Any, rows: Any, colours: Any, names: Any) -> dict[str, Any]:
    """Return cells between edges, each in a colour of ``LIGHT`` by its number and with a name."""
    return {
        "x": cols, "y": rows, "z": colours, "zmin": 0, "zmax": len(LIGHT), "colorscale": SCALE,
        "text": names, "xgap": 1, "ygap": 1,
        "hovertemplate": "rows from %{y}, columns from %{x}: %{text}<extra></extra>",
    }  # fmt: skip
