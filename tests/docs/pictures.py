"""``python -m tests.docs.pictures``: draws the pictures of the README and the docs by umm."""

from pathlib import Path

import numpy as np
import plotly.graph_objects as go

import umm
import umm.muon
from experiments.common.image import draw
from umm.figures.lanes import timeline
from umm.figures.style import BLUE, INK, VERMILLION
from umm.figures.tiles import tile_map
from umm.muon.weights import Matrix
from umm.schedules.file.codec import slice_text
from umm.units import format_seconds
from umm_hw.muon.update import target_of

IMAGES = Path(__file__).parents[2] / "docs/images"
RANKS, WIDTH = 4, 1000
KINDS = (
    "row",
    "col",
    "2d:2x3",
    "row@2",
    "row@6",
    "cyclic:2x2:2x3",
    "2d:2x3:colmajor",
    "edges:0-3-12x0-2-7-12:2x3",
)
MOVEMENTS = {
    "flat": "each rank gets it",
    "two-level": "once a node, got on there",
    "gathered": "by a collective, first",
    "chunks": "the same, while multiplying",
}
PLACEMENTS = {
    "duplicated": "gathered on every rank",
    "owners": "gathered at one, sent back",
    "gram": "columns stay, X·Xᵀ is summed",
}
NODE, WIDE = 4, 6.4  # ranks of a node; from panel to panel
PLACES = ((1.5, -2.2), (0.0, -0.9), (0.0, -4.6), (1.5, -5.9))  # in node 0; node 1 is its mirror image
TILE = 512  # rows of A of a rank


def first():
    """Return the first ranks of MLP-2's multiply in 2-D blocks, with a batch of 1024 on twelve PVC tiles."""
    problem = umm.Problem(m=1024, n=12288, k=49152, a="2d", b="2d", c="2d", ranks=12)
    trace = umm.run(umm.schedule(problem, "pvc-12"), executor="sim")
    drawn = timeline(trace, RANKS)
    for line in drawn.data:
        # Rounded, for on another host a float may end otherwise; what is shown at the pointer is not drawn.
        line.update(
            x=[round(x, 4) for x in np.asarray(line.x, dtype=float).tolist()], text=None, customdata=None
        )
    size = f"{problem.m}×{problem.n}×{problem.k}"
    title = f"C = AB, {size} on pvc-12 in 2-D blocks: {format_seconds(trace.makespan_s)}; ranks 0 to 3 of 12"
    return drawn.update_layout(title_text=title)


def kinds(texts=KINDS):
    """Return the kinds of layouts of a 12 × 12 matrix on six ranks: each tile with its owners."""
    drawn, notes = go.Figure(), []
    for place, text in enumerate(texts):
        left, top = 14 * (place % 4), 17 * (place // 4)
        for tiles in tile_map({text: umm.Layout.parse(text, (12, 12), ranks=6)}).data:
            drawn.add_trace(tiles.update(x=tiles.x + left, y=tiles.y + top, xaxis="x", yaxis="y"))
        result = {"x": left, "y": top - 0.3, "text": f"<b>{text}</b>", "xanchor": "left", "yanchor": "bottom"}
        notes.append(result | {"showarrow": False})
    drawn = _bare(drawn, [], notes, "Layouts of a matrix on six ranks; each tile names its owners", 460)
    return drawn.update_yaxes(autorange="reversed")


def muon():
    """Return where four ranks orthogonalise two matrices of 4 × 12: each tile with its owners."""
    drawn, notes = go.Figure(), []
    for place, (name, words) in enumerate(PLACEMENTS.items()):
        plan = umm.muon.plan([Matrix("w", 4, 12, 2)], "fsdp4", "localhost", only=name)
        for number in range(2):
            owner = plan.homes["w"][number] if name == "owners" else -1
            layout = target_of(name, (4, 12), 4, 1, owner)
            for tiles in tile_map({name: layout}).data:
                shifted = tiles.update(x=tiles.x + 15 * place, y=tiles.y + 6 * number, xaxis="x", yaxis="y")
                drawn.add_trace(shifted)
        text = {"x": 15 * place, "y": -0.3, "text": f"<b>{name}</b>: {words}", "xanchor": "left"}
        notes.append(text | {"yanchor": "bottom", "showarrow": False})
    title = "Two matrices on four ranks while they are orthogonalised; each tile names its owners"
    drawn = _bare(drawn, [], notes, title, 260)
    return drawn.update_yaxes(autorange="reversed")


def movements():
    """Return how one tile of A reaches the ranks that multiply with it, on two nodes of four A100."""
    problem = umm.Problem(m=8 * TILE, n=8192, k=8192, a="row", b="col", c="col", ranks=8)
    shapes, notes = [], []
    for place, (name, words) in enumerate(MOVEMENTS.items()):
        schedule = umm.schedule(problem, "a100-2x4", stationary="C", movement=name)
        seconds = format_seconds(umm.run(schedule, executor="sim").makespan_s)
        left = WIDE * place
        moved = list(_transfers(schedule))
        pairs = sorted(set(moved))
        parts = len(moved) // len(pairs)
        across = sum(src // NODE != dst // NODE for src, dst in pairs)
        title = f"<b>{name}</b>: {words}<br>{across}× between nodes"
        title += f", in {parts} parts; {seconds}" if parts > 1 else f"; {seconds}"
        result = {"x": left - 0.6, "y": 0.9, "text": title, "xanchor": "left", "align": "left"}
        notes.append(result | {"showarrow": False})
        for node, x in enumerate((left, left + 2.9)):
            shapes.append(_box(x - 0.6, -6.9, x + 2.1, 0.0))
            notes.append({"x": x + 0.75, "y": -7.4, "text": f"node {node}", "showarrow": False})
        for src, dst in pairs:
            notes.append(_arrow(_spot(src, left), _spot(dst, left), src // NODE != dst // NODE, parts > 1))
        for rank in range(2 * NODE):
            x, y = _spot(rank, left)
            shapes.append(_box(x - 0.36, y - 0.5, x + 0.36, y + 0.5, filled=rank == 0))
            notes.append({"x": x, "y": y, "text": f"r{rank}", "showarrow": False})
    title = "How a tile of A, owned by r0, reaches the other ranks; orange crosses between nodes"
    drawn = _bare(go.Figure(), shapes, notes, title, 330)
    return drawn.update_xaxes(range=[-0.8, 4 * WIDE - 1.2]).update_yaxes(range=[-7.9, 1.7])


def _transfers(schedule):
    """From and to of every transfer between ranks that carries a part of rank 0's tile of A."""
    for i in np.flatnonzero(schedule.src != schedule.dst).tolist():
        if f"A[0:{TILE}," in slice_text(schedule, i, 0):
            yield int(schedule.src[i]), int(schedule.dst[i])


def _spot(rank, left):
    """Where a rank is drawn."""
    node, inside = divmod(rank, NODE)
    x, y = PLACES[inside]
    return left + (4.4 - x if node else x), y


def _box(x0, y0, x1, y1, filled=False):
    fill = {"fillcolor": BLUE, "opacity": 0.35} if filled else {}
    return {
        "type": "rect",
        "x0": x0,
        "y0": y0,
        "x1": x1,
        "y1": y1,
        "line": {"color": INK, "width": 1},
        **fill,
    }


def _arrow(start, stop, crosses, dashed):
    (x0, y0), (x1, y1) = start, stop
    length = np.hypot(x1 - x0, y1 - y0)
    x1, y1 = (round(b - 0.6 * (b - a) / length, 3) for a, b in ((x0, x1), (y0, y1)))
    return {
        "x": x1, "y": y1, "ax": x0, "ay": y0, "axref": "x", "ayref": "y", "text": "", "showarrow": True,
        "arrowhead": 2, "arrowwidth": 1 if dashed else 1.8, "arrowcolor": VERMILLION if crosses else BLUE,
    }  # fmt: skip


def _bare(drawn, shapes, notes, title, height):
    """A figure without axes."""
    hidden = {"visible": False}
    return drawn.update_layout(
        shapes=shapes, annotations=notes, title_text=title, height=height, template="none", showlegend=False,
        xaxis=hidden, yaxis=hidden, margin={"l": 10, "r": 10, "t": 50, "b": 10}, font_family="Inter",
    )  # fmt: skip


PICTURES = {"first": first, "layouts": kinds, "movement": movements, "muon": muon}

if __name__ == "__main__":
    for name, figure in PICTURES.items():
        draw(figure(), IMAGES / f"{name}.svg", width=WIDTH)
