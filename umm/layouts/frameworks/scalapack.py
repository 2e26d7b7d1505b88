"""ScaLAPACK: an array descriptor, and the process grid of its BLACS context.

A descriptor says where elements lie, not how a process keeps them: ScaLAPACK keeps the local matrix column by
column, umm tile by tile.

Source: ScaLAPACK Users' Guide, section 4.3.3, array descriptor for in-core dense matrices (DTYPE_ = 1).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.layouts.edges import tile_edges
from umm.layouts.frameworks.held import held_by
from umm.layouts.frameworks.mesh import Laid, Parts
from umm.layouts.frameworks.words import edges_text, ranks_of
from umm.numbers import parse_whole

HOW = "scalapack:desc=1,0,M,N,MB,NB,RSRC,CSRC,LLD;grid=2x4;order=R"


@dataclass(frozen=True)
class ScalapackLayout:
    """A descriptor and its grid; ``str`` is the text that ``--a`` takes."""

    # DTYPE_, CTXT_, M_, N_, MB_, NB_, RSRC_, CSRC_, LLD_; the context is 0, and LLD_ is that of the process
    # with most rows.
    desc: tuple[int, ...]
    grid: tuple[int, int]  # rows and columns of processes
    # `R` or `C`, as BLACS_GRIDINIT takes it, or the ranks one by one along the rows of the grid, for
    # BLACS_GRIDMAP.
    order: str | tuple[int, ...]

    def __str__(self) -> str:
        order = self.order if isinstance(self.order, str) else "-".join(map(str, self.order))
        return (
            f"scalapack:desc={','.join(map(str, self.desc))};grid={self.grid[0]}x{self.grid[1]};order={order}"
        )


def parts(desc: Sequence[int], grid: Sequence[int], order: str | Sequence[int] = "R") -> Parts:
    """Return how a matrix lies that a descriptor describes on a grid of processes.

    LayoutError for a descriptor of another kind, or one that does not fit the grid.

    >>> parts((1, 0, 8, 6, 2, 3, 1, 0, 4), (2, 2)).places.tolist()  # row 0 lies at process row 1
    [[[2, 3], [0, 1]]]
    """
    nine = [int(x) for x in desc]
    rows, cols = int(grid[0]), int(grid[1])
    if len(nine) != 9 or nine[0] != 1:
        raise LayoutError(
            f"descriptor {nine} is not one of a dense matrix: 1, CTXT, M, N, MB, NB, RSRC, CSRC, LLD"
        )
    _, _, m, n, mb, nb, rsrc, csrc, _ = nine
    if min(m, n, mb, nb, rows, cols) < 1 or not (0 <= rsrc < rows and 0 <= csrc < cols):
        raise LayoutError(
            f"descriptor {nine} does not fit a grid of {rows}x{cols}: sizes start at 1, RSRC and CSRC at 0 "
            "and stay below the grid's"
        )
    if isinstance(order, str):
        if order.upper()[:1] not in ("R", "C") or not order:
            raise LayoutError(f"order {order!r} is neither R, along rows, nor C, down columns")
        down = order.upper()[0] == "C"
        at = ranks_of((cols, rows)).T if down else ranks_of((rows, cols))
    else:
        if len(order) != rows * cols:
            raise LayoutError(f"{len(order)} ranks do not fill a grid of {rows}x{cols}")
        at = ranks_of(list(order)).reshape(rows, cols)
    places = np.roll(at, (-rsrc, -csrc), axis=(0, 1))[None]
    return Parts(tile_edges(m, mb), tile_edges(n, nb), (rows, cols), places)


def read(text: str, shape: tuple[int, int], ranks: int) -> Parts:
    """Parse the text after ``scalapack:``.

    LayoutError if it means nothing, or is for another shape or number of ranks.
    """
    match = re.fullmatch(
        r"desc=([0-9,-]+);grid=([0-9]{1,6})x([0-9]{1,6})(?:;order=([A-Za-z]+|[0-9]{1,9}(?:-[0-9]{1,9})*))?",
        text,
    )
    if match is None or not all(re.fullmatch("-?[0-9]{1,18}", x) for x in match[1].split(",")):
        raise LayoutError(f"{text!r} is no descriptor with its grid; write {HOW}")
    desc, grid = (
        [parse_whole(x, "desc", -(10**18)) for x in match[1].split(",")],
        (parse_whole(match[2]), parse_whole(match[3])),
    )
    order = match[4] or "R"
    result = parts(
        desc, grid, order if order[0].isalpha() else [parse_whole(x, "order") for x in order.split("-")]
    )
    if tuple(desc[2:4]) != shape:
        raise LayoutError(
            f"the descriptor is for {desc[2]}x{desc[3]}, but the matrix is {shape[0]}x{shape[1]}"
        )
    if grid[0] * grid[1] != ranks:
        raise LayoutError(f"a grid of {grid[0]}x{grid[1]} processes cannot be laid over {ranks} ranks")
    return result


def written(layout: Laid, text: str) -> ScalapackLayout:
    """Return a layout as a descriptor; LayoutError naming the part without a descriptor."""
    if len(layout.places) > 1:
        raise LayoutError(f"{text}: ScaLAPACK holds a matrix once, not in {len(layout.places)} replicas")
    rows, cols = layout.process_grid
    tiles = [_tile(layout, dim, text) for dim in (0, 1)]
    at: Ints = layout.places[0]
    ranges = held_by(layout.row_edges, rows)
    most = max(sum(stop - start for start, stop in spans) for spans in ranges)  # rows that a process holds
    desc = (1, 0, *layout.shape, *tiles, 0, 0, max(1, most))
    usual = {"R": ranks_of((rows, cols)), "C": ranks_of((cols, rows)).T}
    for order, ranks in usual.items():
        for source in np.argwhere(ranks == at[0, 0]).tolist():
            if np.array_equal(np.roll(ranks, (-source[0], -source[1]), axis=(0, 1)), at):
                return ScalapackLayout((*desc[:6], *source, desc[8]), (rows, cols), order)
    return ScalapackLayout(desc, (rows, cols), tuple(at.reshape(-1).tolist()))


def _tile(layout: Laid, dim: int, text: str) -> int:
    """Return the one size of tiles that are dealt out in turn along a dimension."""
    edges, size, places = (
        (layout.row_edges, layout.col_edges)[dim],
        layout.shape[dim],
        layout.process_grid[dim],
    )
    cuts = np.unique(edges)
    tile = int(cuts[1]) if places > 1 or len(cuts) > 2 else size
    if held_by(tile_edges(size, tile), places) != held_by(edges, places):
        raise LayoutError(
            f"{text}: ScaLAPACK cannot have {edges_text(layout, dim)}: it deals out tiles of one size in turn"
        )
    return tile
