"""A plan as pictures: who computes which piece of a tensor, and the bytes that go from whom to whom."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from umm.arrays import Ints
from umm.figures.style import BLUE, PAPER, Parts, as_figure, drawing
from umm.figures.tiles import LIGHT, MOST_NAMED, owned
from umm.program.plan import Jobs, Moves, Plan, Regions
from umm.schedules.schedule import Schedule
from umm.units import counted, format_bytes

ACROSS, HEIGHT = 4, 250  # panels in a row; pixels of a row
MOST_PANELS = 40


@as_figure
def plan_figure(plan: Plan, schedule: Schedule) -> Parts:
    """Return a panel for each entry of a plan, in order.

    Jobs show the tensor that they write: each piece in the colour of the first rank that computes it. Moves
    show the bytes from the rank of a row to the rank of a column.

    Args:
        plan: See :func:`umm.plans.written.plan_on`; of more than 40 entries the first are drawn.
        schedule: With the tensors' shapes and types.
    """
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    notes = []
    shown, itemsize = plan[:MOST_PANELS], {x.name: x.itemsize for x in schedule.tensors}
    rows = -(-len(shown) // ACROSS)
    for place, entry in enumerate(shown):
        down, across = divmod(place, ACROSS)
        x = [(across + 0.16) / ACROSS, (across + 0.97) / ACROSS]
        y = [1 - (down + 0.9) / rows, 1 - (down + 0.2) / rows]
        tail = str(place + 1) if place else ""
        bare = {"showgrid": False, "zeroline": False}
        layout[f"xaxis{tail}"] = {"domain": x, "anchor": f"y{tail}", **bare}
        layout[f"yaxis{tail}"] = {"domain": y, "anchor": f"x{tail}", "autorange": "reversed", **bare}
        amount = counted(len(entry), "job" if isinstance(entry, Jobs) else "message")
        if isinstance(entry, Moves):
            amount = f"{format_bytes(entry.elements * itemsize[entry.into.tensor])}, {amount}"
        text = f"<b>{place + 1}</b> {entry.title}<br>{amount}"
        corner = {"x": x[0], "y": y[1], "xref": "paper", "yref": "paper", "yanchor": "bottom"}
        notes.append({"text": text, "align": "left", "xanchor": "left", "showarrow": False, **corner})
        cells = _computed(entry.out) if isinstance(entry, Jobs) else _moved(entry, itemsize, schedule.ranks)
        data.append(
            {"type": "heatmap", "showscale": False, "xaxis": f"x{tail}", "yaxis": f"y{tail}", **cells}
        )
    more = f", the first {len(shown)} of {len(plan)} entries" if len(plan) > len(shown) else ""
    title = f"Who computes, and what moves from whom (down) to whom (across){more}"
    return drawing(
        data, title, height=60 + HEIGHT * rows, annotations=notes,
        margin={"t": 50, "l": 10, "r": 10, "b": 10}, **layout,
    )  # fmt: skip


def _computed(out: Regions) -> dict[str, Any]:
    """Return the pieces of a tensor as cells: the colour of the first rank that has one, the names of all."""
    # Pieces of several ranks may cut each other, so cells lie between all edges of any piece.
    rows, cols = (np.unique(out.spans[:, side : side + 2]) for side in (0, 2))
    cells = len(rows) - 1, len(cols) - 1
    first, count = np.full(cells, -1), np.zeros(cells, dtype=np.int64)
    last: Ints = np.full(cells, -1)
    order = np.argsort(out.rank, kind="stable")[::-1]  # the lowest rank is written last
    corners = np.searchsorted(rows, out.spans[:, :2]), np.searchsorted(cols, out.spans[:, 2:])
    for piece in order.tolist():
        where = tuple(slice(*side[piece].tolist()) for side in corners)
        rank = int(out.rank[piece])
        last[where] = np.where(count[where] > 0, last[where], rank)
        count[where] += first[where] != rank
        first[where] = rank
    names = np.full(cells, "", dtype=object)
    for i, j in zip(*np.nonzero(count), strict=True):
        names[i, j] = f"r{first[i, j]}" + (f"…r{last[i, j]}" if count[i, j] > 1 else "")
    look = owned(cols, rows, np.where(first < 0, np.nan, first % len(LIGHT)), names)
    return look | ({"texttemplate": "%{text}"} if names.size <= MOST_NAMED // 4 else {})


def _moved(moves: Moves, itemsize: Mapping[str, int], ranks: int) -> dict[str, Any]:
    """Return the bytes between every two ranks as cells."""
    nbytes = moves.by_pair(itemsize[moves.into.tensor], ranks)
    texts = [[format_bytes(int(x)) for x in row] for row in nbytes]
    return {
        "z": np.where(nbytes > 0, nbytes, np.nan), "zmin": 0, "zmax": float(nbytes.max()) or 1.0,
        "text": texts, "colorscale": [[0, PAPER], [1, BLUE]], "xgap": 1, "ygap": 1,
        "hovertemplate": "%{text} from rank %{y} to rank %{x}<extra></extra>",
    }  # fmt: skip
