"""Problem 6: three shardings of one multiply on 4x4 chips, each axis taken as a ring of four."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import umm
from experiments.common.bars import Bars, Panel
from experiments.common.bars import figure as bars
from experiments.common.ledger import Entry, refuted, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from experiments.scaling_book.rings import chips, makespan, round_a_ring
from umm.figures.style import BLUE, GREY
from umm.plans.collectives.closed_forms import bandwidth
from umm.traces.traffic import bytes_by_kind

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("scaling_book")["problem6"]
MESH = "jax:mesh=x:4,y:4;P({})"
SIDE, CHIPS, BF16 = 8192, 4, 2
WHOLE = BF16 * SIDE * SIDE  # bytes of one matrix
GATHER, REDUCE, LINE = "gather B", "sum C", "gather B along a row"


@dataclass(frozen=True)
class Point:
    """One way of one pattern.

    Attributes:
        pattern: Which of the three.
        way: What is communicated: B gathered round a ring, or along a row of the mesh; or C summed.
    """

    pattern: int
    way: str


POINTS = (Point(1, GATHER), Point(2, GATHER), Point(3, "nothing"), Point(1, REDUCE), Point(1, LINE))


def performed(point: Point) -> dict[str, float | str]:
    """Return simulated seconds of the communication, those of the right law, and those printed if any."""
    ring = chips("ring-4")
    width = bandwidth(ring, CHIPS)
    if point.pattern == 3:
        return {"seconds": 0.0, "bytes": product()[0], "law_s": 0.0, "printed_s": 0.0}
    nbytes = WHOLE // CHIPS if point.pattern == 2 or point.way == REDUCE else WHOLE
    machine = shipped("tpu-v5e-16") if point.way == LINE else ring
    what = "all-reduce" if point.way == REDUCE else "all-gather"
    printed = (WHOLE if point.pattern == 1 else SIDE * SIDE) / CHIPS / width
    return {
        "seconds": round_a_ring(machine, what, nbytes, CHIPS),
        "bytes": nbytes,
        "law_s": (2 if point.way == REDUCE else 1) * nbytes / width,
        "printed_s": printed if point.way == GATHER else "",
    }


def product() -> tuple[int, float]:
    """Return the bytes that pattern 3 moves, multiplied whole on the mesh, and its seconds."""
    layouts = {x: MESH.format(y) for x, y in (("a", "x,None"), ("b", "None,y"), ("c", "x,y"))}
    problem = umm.Problem(m=SIDE, n=SIDE, k=SIDE, **layouts, dtype="bfloat16", c_dtype="bfloat16", ranks=16)
    schedule = umm.schedule(problem, shipped("tpu-v5e-16"), stationary="C")
    return sum(bytes_by_kind(schedule).values()), makespan(schedule)


def rows(size: str, jobs: int | None) -> list[Row]:
    """Return all ways."""
    return Table(HERE / "problem6.csv", list(POINTS), performed).rows(size, jobs)


def entries(rows: list[Row]) -> Iterator[Entry]:
    """Yield the cost of each pattern beside the printed one."""
    by_way = {(row["pattern"], row["way"]): row for row in rows}
    gather, summed, line = by_way[1, GATHER], by_way[1, REDUCE], by_way[1, LINE]
    yield refuted(
        f"pattern 1, {SAID['pattern1']}",
        SAID["where"],
        f"I = J = K = {SIDE}: gathering B takes {1e3 * gather['seconds']:.3f} ms, "
        f"{gather['seconds'] / gather['law_s']:.2f} · 2JK/W and "
        f"{gather['seconds'] / gather['printed_s']:.1f} times what is printed; summing C instead "
        f"{1e3 * summed['seconds']:.3f} ms, {summed['seconds'] / summed['law_s']:.2f} · 4IK/(X·W); along a "
        f"row of the 4x4 mesh, which is no ring, the gather takes {1e3 * line['seconds']:.3f} ms",
        gather["seconds"] > 2 * gather["printed_s"] and summed["seconds"] < gather["seconds"],
        "every chip needs all of B: gathering costs 2JK/W, reducing the output 4IK/(X·W)",
        "fabric.bandwidth",
    )
    gather = by_way[2, GATHER]
    yield refuted(
        f"pattern 2, {SAID['pattern2']}",
        SAID["where"],
        f"{1e3 * gather['seconds']:.3f} ms, {gather['seconds'] / gather['printed_s']:.2f} times what is "
        f"printed, {gather['seconds'] / gather['law_s']:.2f} · 2JK/(Y·W)",
        gather["seconds"] / gather["printed_s"] > 1.4,
        "it drops bfloat16's factor 2",
        "fabric.bandwidth",
    )
    moved, seconds = product()
    yield reproduced(
        f"pattern 3, {SAID['pattern3']}",
        SAID["where"],
        f"{moved} bytes move on `tpu-v5e-16`, {1e3 * seconds:.3f} ms",
        moved == 0,
    )


def figure(rows: list[Row]) -> "go.Figure":
    """Return the communication beside the right law and the printed one."""
    groups = [f"{row['pattern']}: {row['way']}".replace(" along", "<br>along") for row in rows]
    printed = [1e3 * row["printed_s"] for row in rows if row["printed_s"] != ""]
    series = [
        Bars("V/W, 2V/W where C is summed", GREY, [1e3 * row["law_s"] for row in rows], printed),
        Bars("simulated", BLUE, [1e3 * row["seconds"] for row in rows]),
    ]
    title = f"Problem 6: what three shardings of {SIDE} cubed communicate on 4x4 TPU v5e"
    return bars(title, [Panel("time (ms)", groups, series, digits=2)])
