"""Local shapes by rule, bytes that the two patterns move, errors, futures, and checkpoints."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

import umm
import umm_hw
from experiments.common.bars import Bars, Panel
from experiments.common.bars import figure as bars
from experiments.common.image import draw
from experiments.common.ledger import Entry, Sections, refuted, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from umm import Layout
from umm.algorithms.writing import counted
from umm.errors import UmmError
from umm.executor import executor
from umm.figures.style import BLUE, GREEN, ORANGE
from umm_hw.matrix import DistributedMatrix
from umm_hw.numpy.executor import NumpyExecutor
from umm_hw.numpy.transport import NumpyTransport, run_ranks

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("dtensor_report")
SIZES = {"m": 2048, "n": 8192, "k": 4096}
RANKS = 8
PATTERNS = {"column-parallel": ("row@8", "col", "col"), "row-parallel": ("col", "row", "row@8")}
LAYOUTS = ("row", "col", "2d", "col@2", "cyclic:3x2:1x{}", "row:balanced", "edges:0-1-13x0-4-11:{}x1")


@dataclass(frozen=True)
class Point:
    """One pattern, forward.

    Attributes:
        pattern: Its name.
        a: Layout of X.
        b: Layout of W.
        c: Layout of Y.
    """

    pattern: str
    a: str
    b: str
    c: str


def performed(point: Point) -> dict[str, float | int]:
    """Return a rank's words from others and simulated seconds on `h100-8`."""
    problem = umm.Problem(**SIZES, a=point.a, b=point.b, c=point.c, ranks=RANKS)
    schedule = umm.schedule(problem, shipped("h100-8"), algorithm="dtensor", placements="as-given")
    return {"words": counted(schedule).words, "seconds": executor("sim").makespan(schedule)}


def run(size: str, jobs: int | None) -> Sections:
    """Perform the patterns, write data and figure, and return the entries."""
    points = [Point(name, *layouts) for name, layouts in PATTERNS.items()]
    rows = Table(HERE / "patterns.csv", points, performed).rows(size, jobs)
    draw(figure(rows), HERE / "layouts.svg", size)
    return {"DTensor report": [*_shapes(), *_patterns(rows), _error(), _future(), _printed(), _checkpoints()]}


def rows_of(rule: str, layout: str = "row{}") -> list[int]:
    """Return how many of ten rows each of three ranks has."""
    result = Layout.parse(
        layout.format(rule), (SAID["local_shape"]["elements"], 4), SAID["local_shape"]["ranks"]
    )
    return [result.tile_shape((rank, 0))[0] for rank in range(result.ranks)]


def _shapes() -> Iterator[Entry]:
    result = SAID["local_shape"]
    ceil, balanced = rows_of(""), rows_of(":balanced")
    yield refuted(
        f"extra elements go to the first ranks; 10 over 3 are {', '.join(map(str, result['printed']))}",
        result["where"],
        f"`ceil`, as torch.chunk and ScaLAPACK: {', '.join(map(str, ceil))}; `balanced`, as the words say: "
        f"{', '.join(map(str, balanced))}",
        ceil == result["printed"] != balanced,
        "the printed numbers are of the other rule; both are there by name",
    )
    full = Layout.parse("row@3", (10, 4), 3)
    rows = [sum(full.tile_shape(x)[0] for x in full.tiles_of(rank)) for rank in range(3)]
    yield reproduced(
        "a tensor is replicated, or sharded along one dimension",
        result["where"],
        f"`row@3`, DTensor's Replicate: {', '.join(map(str, rows))} of 10 rows; `row` is Shard(0), "
        "`col` Shard(1)",
        rows == [10] * 3 and str(Layout.parse("col", (10, 4), 3).to_dtensor()) == "dtensor:mesh=3;Shard(1)",
    )


def _patterns(rows: list[Row]) -> Iterator[Entry]:
    by_pattern = {row["pattern"]: row for row in rows}
    right = {name: "exact" if _is_right(name) else "wrong" for name in PATTERNS}
    column, row = by_pattern["column-parallel"], by_pattern["row-parallel"]
    yield reproduced(
        "column-parallel needs no communication and gives Shard(1)",
        SAID["patterns"]["where"],
        f"{column['words']} words move; the product in `col`, Shard(1), is {right['column-parallel']}",
        column["words"] == 0 and right["column-parallel"] == "exact",
    )
    all_reduce = 2 * SIZES["m"] * SIZES["n"] * (RANKS - 1) // RANKS
    yield reproduced(
        "row-parallel all-reduces and gives a replicated result",
        SAID["patterns"]["where"],
        f"{row['words'] / (SIZES['m'] * SIZES['n']):g} · MN words a rank, 2(p − 1)/p; all {RANKS} copies are "
        f"{right['row-parallel']}; {1e3 * row['seconds']:.2f} ms on "
        "`h100-8`, column-parallel "
        f"{1e3 * column['seconds']:.2f} ms",
        row["words"] == all_reduce and right["row-parallel"] == "exact",
        "fabric.bandwidth",
    )


def _is_right(pattern: str) -> bool:
    """Whether a pattern's product is exact, in every replica."""
    a, b, c = PATTERNS[pattern]
    problem = umm.Problem(m=19, n=23, k=17, a=a, b=b, c=c, ranks=RANKS, dtype="float64")
    random = np.random.default_rng(8)
    operands = tuple(random.integers(-9, 9, problem.shape(x)).astype(np.float64) for x in "AB")
    made = umm.schedule(problem, shipped("h100-8"), algorithm="dtensor", placements="as-given")
    result = NumpyExecutor(replica=None).run(made, operands).result
    return bool(np.array_equal(result, np.broadcast_to(operands[0] @ operands[1], result.shape)))


def _error() -> Entry:
    problem = umm.Problem(m=64, n=48, k=32, a="2d", b="cyclic:4x4:2x4", c="row", ranks=RANKS)
    try:
        umm.schedule(problem, shipped("h100-8"), algorithm="dtensor", placements="as-given")
        result = "nothing"
    except UmmError as error:
        result = str(error)
    parts = ("64x32", "32x48", "2d", "cyclic:4x4:2x4", f"{RANKS} ranks")
    return reproduced(
        "an unsupported pair raises an error that names both layouts, both shapes and the rank",
        SAID["errors"]["where"],
        f"“{result}”",
        all(x in result for x in parts),
        "placements = as-given",
    )


def _future() -> Entry:
    layout = Layout.parse("2d", (8, 6), 4)
    full = np.arange(48, dtype=np.float64).reshape(8, 6)

    def program(transport: NumpyTransport) -> bool:
        matrix = DistributedMatrix(transport, layout, "float64")
        matrix.scatter(full)
        transport.barrier()
        futures = [matrix.get_tile_async((i, j)) for i in range(2) for j in range(2)]
        return all(np.isin(x.result(), full).all() for x in futures) and len(futures) == 4

    return reproduced(
        "asynchronous work handles",
        SAID["work"]["where"],
        "`get_tile_async` gives a future; four at once on each of 4 ranks bring the tiles",
        all(run_ranks(4, program)),
    )


def _printed() -> Entry:
    layout = Layout.parse("col@2", (10, 6), 4)
    return reproduced(
        "a layout prints its global shape, how it is cut, and local shapes",
        "debugging and visualization",
        f"`{layout!r}`, tiles "
        f"{', '.join('x'.join(map(str, layout.tile_shape((0, j)))) for j in range(2))}; `umm "
        "tiles` draws who owns what",
        repr(layout) == "Layout('col@2', shape=(10, 6), ranks=4)",
    )


def _checkpoints() -> Entry:
    """Save by four ranks in one layout, load by six in another, and compare every bit."""
    random, shape, right, tried = Random(9), (13, 11), 0, 0
    full = np.random.default_rng(10).standard_normal(shape)
    for before in LAYOUTS:
        after = random.choice(LAYOUTS)

        def kept(transport: NumpyTransport, folder: str, text: str, saves: bool) -> bool:
            factor = 2 if "@2" in text else 1
            layout = Layout.parse(text.format(transport.size // factor), shape, transport.size)
            matrix = DistributedMatrix(transport, layout, "float64")
            if saves:
                matrix.scatter(full)
                transport.barrier()
                umm_hw.save(folder, {"X": matrix})
                return True
            umm_hw.load(folder, {"X": matrix})
            transport.barrier()
            return bool(np.array_equal(matrix.gather(matrix.replica), full))

        with tempfile.TemporaryDirectory() as folder:
            place = f"{folder}/saved"
            run_ranks(4, lambda t, place=place, text=before: kept(t, place, text, True))
            right += all(run_ranks(6, lambda t, place=place, text=after: kept(t, place, text, False)))
        tried += 1
    return reproduced(
        "save and load of a distributed matrix of any layout, each rank its own part",
        SAID["checkpoints"]["where"],
        f"{right} of {tried} matrices saved by 4 ranks and loaded by 6 in another layout are the "
        "same bit for bit",
        right == tried,
    )


def figure(rows: list[Row]) -> "go.Figure":
    """Return the rows of each rank by both rules, and the bytes that the patterns move."""
    shapes = [
        Bars(f"10 rows, {name}", colour, rows_of(rule), SAID["local_shape"]["printed"] if not rule else ())
        for name, rule, colour in (("ceil", "", BLUE), ("balanced", ":balanced", ORANGE))
    ]
    words = [row["words"] * 4 / 2**20 for row in rows]
    moved = [Bars("moved", GREEN, words)]
    names = [row["pattern"] for row in rows]
    panels = [
        Panel("rows of a rank", [f"rank {x}" for x in range(3)], shapes),
        Panel("MiB that reach a rank", names, moved),
    ]
    return bars("Local shapes of 10 rows on 3 ranks; what two patterns move on 8", panels)
