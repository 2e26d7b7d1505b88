"""Answers of the commands in :mod:`umm.cli.commands.tiles`."""

from itertools import pairwise
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.cli.commands.tiles import Tiles
from umm.cli.printed.output import CUT, cut
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.program.problem import MATRICES
from umm.units import format_bytes


def tiles(asked: Tiles) -> None:
    """Answer ``umm tiles``."""
    asked = asked.with_model()

    chain = asked.laid_out()
    texts: dict[str, str] = {}
    layouts: dict[str, tuple[Layout, int]]  # with the bytes of an element
    if chain is not None:
        if asked.words is not None:
            raise InputError("--as applies to one multiply; leave out --as or --chain")
        layouts = {x.name: (x.layout, x.itemsize) for x in chain.tensors}
        record: dict[str, Any] = {"problem": {"chain": str(chain), "ranks": chain.p}}
    else:
        problem = asked.problem
        texts = {x: str(problem.layout(x).said_in(asked.words)) for x in MATRICES} if asked.words else {}
        layouts = {x: (problem.layout(x), problem.itemsize(x)) for x in MATRICES}
        record = {"problem": problem.to_dict() | {"ranks": problem.p}}
    record["tiles"] = {
        name: {
            "layout": str(layout),
            "row_edges": layout.row_edges.tolist(),
            "col_edges": layout.col_edges.tolist(),
            "owners": layout.owners.tolist(),
        }
        for name, (layout, _) in layouts.items()
    }

    def shown(console: Console) -> None:
        if texts:
            click.echo("\n".join(f"{matrix}  {text}" for matrix, text in texts.items()))
            return
        for name, (layout, itemsize) in layouts.items():
            rows, cols = layout.grid_shape()
            size = format_bytes(layout.shape[0] * layout.shape[1] * itemsize)
            replicas = "1 replica" if layout.replicas == 1 else f"{layout.replicas} replicas"
            console.print(
                Text(f"{name} = {layout}", style="bold"),
                f"  {layout.shape[0]} x {layout.shape[1]}, {size}; {rows} x {cols} tiles, {replicas}, "
                f"{format_bytes(int(layout.elements_of_rank.max()) * itemsize)} a rank",
            )
            console.print(grid(layout, console.width))

    asked.answer(lambda: record | ({"as": texts} if texts else {}), shown)


# Okabe and Ito's colours, light enough for black text, then again for rank 8 and up; the label decides.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#4C9BD0", "#D98A4E", "#CC79A7", "#BBBBBB")


MOST_ROWS = 12


def grid(layout: Layout, width: int) -> Table:
    """Return the tiles of a layout as a table that fits a width in characters."""
    row_spans, col_spans = spans(layout.row_edges.tolist()), spans(layout.col_edges.tolist())
    owners = layout.owners
    # The four corner tiles have the longest texts, or nearly so.
    corners = [owner_text(owners[:, i, j].tolist()) for i in (0, -1) for j in (0, -1)]
    cell = max(map(len, (*col_spans, *corners)))
    room = (width - max(map(len, row_spans)) - 4) // (cell + 3)
    shown_rows, shown_cols = cut(len(row_spans), MOST_ROWS), cut(len(col_spans), max(room, 3))
    table = Table(box=box.SQUARE, show_lines=True, show_header=True, header_style="")
    table.add_column("", no_wrap=True, justify="right")
    for j in shown_cols:
        table.add_column(CUT if j is None else col_spans[j], no_wrap=True, justify="center")

    def owned(i: int, j: int) -> Text:
        ranks = owners[:, i, j].tolist()
        return Text(owner_text(ranks).center(cell), style=f"black on {COLOURS[ranks[0] % len(COLOURS)]}")

    for i in shown_rows:
        cells = [Text(CUT) if i is None or j is None else owned(i, j) for j in shown_cols]
        table.add_row(CUT if i is None else row_spans[i], *cells)
    return table


def spans(edges: list[int]) -> list[str]:
    """Return each part's range; an empty part says so.

    >>> spans([0, 4, 8, 8])
    ['0:4', '4:8', 'empty']
    """
    return [f"{a}:{b}" if a < b else "empty" for a, b in pairwise(edges)]


def owner_text(ranks: list[int]) -> str:
    """Return the owners of a tile, one per replica, cut short if many.

    >>> owner_text([0]), owner_text([0, 4]), owner_text([0, 1, 2, 3, 4, 5])
    ('r0', 'r0 r4', 'r0 r1 … r5')
    """
    names = [f"r{rank}" for rank in ranks]
    return " ".join(names if len(names) <= 4 else [*names[:2], CUT, names[-1]])
