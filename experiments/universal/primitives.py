"""Table 1: the nine primitives of the data structure, each against NumPy on random shapes and layouts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from experiments.common.ledger import Entry, reproduced
from experiments.common.points import Row, Table
from experiments.common.tables import figure as table
from umm import Interval, Layout
from umm_hw.matrix import DistributedMatrix
from umm_hw.numpy.transport import NumpyTransport, run_ranks

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
RANKS, FACTORS, EACH = 6, (1, 2, 3, 6), 6
PRIMITIVES = {
    "grid_shape": "shape of the tile grid",
    "tile": "view of a tile, without copying",
    "get_tile": "copy of a tile, of any replica",
    "get_tile_async": "future of that copy",
    "accumulate_tile": "add to a tile or to a part of one",
    "broadcast_replica": "make every replica equal to one",
    "reduce_replicas": "add all replicas to one",
    "overlapping_tiles": "tiles that share an element with a submatrix",
    "tile_bounds": "rows and columns of a tile",
}
GRIDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 6: (2, 3)}  # of "2d" by the ranks of a replica


@dataclass(frozen=True)
class Point:
    """One matrix.

    Attributes:
        layout: Its layout, without the replication factor.
        replicas: The replication factor.
        rows: Of the matrix.
        cols: Of the matrix.
    """

    layout: str
    replicas: int
    rows: int
    cols: int


def points() -> Iterator[Point]:
    """Yield matrices of random shapes and layouts with every replication factor of six ranks."""
    random = Random(1)
    for c in FACTORS:
        for _ in range(EACH):
            rows, cols = random.randint(1, 17), random.randint(1, 17)
            cut = "cyclic:3x4:1x{2}", "edges:0-1-{0}x0-{1}:{2}x1"
            text = random.choice(("row", "col", "2d", *cut)).format(rows, cols, RANKS // c)
            yield Point(text, c, rows, cols)


def performed(point: Point) -> dict[str, int]:
    """Return for each primitive on how many of six ranks it equals NumPy."""
    result = run_ranks(RANKS, _program(point))
    return {name: sum(bool(rank[name]) for rank in result) for name in PRIMITIVES}


def rows(size: str, jobs: int | None) -> list[Row]:
    """Return all matrices."""
    return Table(HERE / "table1.csv", list(points()), performed).rows(size, jobs)


def entry(rows: list[Row]) -> Entry:
    """Return the entry of the table."""
    right = sum(all(row[name] == RANKS for name in PRIMITIVES) for row in rows)
    return reproduced(
        f"nine primitives: {', '.join(PRIMITIVES)}",
        "table 1",
        f"equal to NumPy for {right} of {len(rows)} random shapes and layouts on {RANKS} ranks, c = "
        f"{', '.join(map(str, FACTORS))}",
        right == len(rows),
    )


def figure(rows: list[Row]) -> "go.Figure":
    """Return for each primitive how many matrices it is right for, by replication factor."""
    columns = {"primitive": list(PRIMITIVES), "what it does": list(PRIMITIVES.values())}
    for c in FACTORS:
        layouts = [row for row in rows if row["replicas"] == c]
        columns[f"c = {c}"] = [
            f"{sum(row[name] == RANKS for row in layouts)} of {len(layouts)}" for name in PRIMITIVES
        ]
    title = f"Table 1: matrices on {RANKS} ranks for which each primitive does what NumPy does"
    return table(title, columns, (140, 340, 65, 65, 65, 65))


def _program(point: Point) -> Callable[[NumpyTransport], dict[str, bool]]:
    """Return a rank's program: every primitive, on whole numbers."""
    shape, c = (point.rows, point.cols), point.replicas
    layout = Layout.parse(f"{point.layout}@{c}", shape, RANKS)
    full = np.random.default_rng(2).integers(-9, 9, shape).astype(np.float64)
    added = full + RANKS
    added[0] += RANKS  # row 0 is given once more

    def program(transport: NumpyTransport) -> dict[str, bool]:
        matrix = DistributedMatrix(transport, layout, "float64")
        matrix.scatter(full)
        transport.barrier()
        fine = {"grid_shape": matrix.grid_shape() == _grid(point)}
        tiles = list(product(*map(range, matrix.grid_shape())))
        bounds = {tile: tuple(x.slice for x in matrix.tile_bounds(tile)) for tile in tiles}
        covered = np.zeros(shape)
        for cut in bounds.values():
            covered[cut] += 1
        fine["tile_bounds"] = bool((covered == 1).all())
        part = Interval(shape[0] // 3, shape[0]), Interval(0, -(-shape[1] // 2))
        inside = np.zeros(shape, dtype=bool)
        inside[part[0].slice, part[1].slice] = True
        overlapping = [x for x in tiles if inside[bounds[x]].any()]
        fine["overlapping_tiles"] = matrix.overlapping_tiles(*part) == overlapping
        asked = [(x, replica) for x in tiles for replica in (None, *range(c))]
        fine["get_tile"] = all(np.array_equal(matrix.get_tile(*x), full[bounds[x[0]]]) for x in asked)
        futures = [(x, matrix.get_tile_async(x, replica)) for x, replica in asked]
        fine["get_tile_async"] = all(np.array_equal(y.result(), full[bounds[x]]) for x, y in futures)
        views = {x: matrix.tile(x) for x in layout.tiles_of(transport.rank)}
        fine["tile"] = all(np.array_equal(view, full[bounds[x]]) for x, view in views.items())
        transport.barrier()
        for replica, tile in product(range(c), tiles):
            matrix.accumulate_tile(tile, np.ones(layout.tile_shape(tile)), replica)
            below, beside = matrix.tile_bounds(tile)
            if below.start == 0 < min(below.size, beside.size):
                matrix.accumulate_tile(tile, np.ones((1, beside.size)), replica, rows=Interval(0, 1))
        transport.quiet()
        transport.barrier()
        fine["tile"] &= all(np.array_equal(view, added[bounds[x]]) for x, view in views.items())
        fine["accumulate_tile"] = all(np.array_equal(matrix.gather(x), added) for x in range(c))
        matrix.reduce_replicas(0)
        fine["reduce_replicas"] = all(
            np.array_equal(matrix.gather(x), added if x else c * added) for x in range(c)
        )
        matrix.broadcast_replica(0)
        fine["broadcast_replica"] = all(np.array_equal(matrix.gather(x), c * added) for x in range(c))
        return fine

    return program


def _grid(point: Point) -> tuple[int, int]:
    """Return the tile grid that a layout's text asks for."""
    ranks, kind = RANKS // point.replicas, point.layout.partition(":")[0]
    return {
        "row": (ranks, 1), "col": (1, ranks), "2d": GRIDS[ranks], "edges": (2, 1),
        "cyclic": (-(-point.rows // 3), -(-point.cols // 4)),
    }[kind]  # fmt: skip
