"""Problem 7: two multiplies one after the other, or fused weights, on 2x2 chips."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import umm
from experiments.common.bars import Bars, Panel
from experiments.common.bars import figure as bars
from experiments.common.ledger import Entry, refuted
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from experiments.scaling_book.rings import makespan
from umm.figures.style import BLUE
from umm.plans.lower import lower
from umm.schedules.schedule import Schedule
from umm.traces.traffic import bytes_by_kind

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("scaling_book")["problem7"]
TOKENS, HIDDEN, FFN = (SAID[x] for x in ("tokens", "hidden", "ffn"))
CHIPS, BF16 = 4, 2
APART, FUSED = "one after the other", "fused weights"


@dataclass(frozen=True)
class Point:
    """One of two ways.

    Attributes:
        way: Which.
    """

    way: str


def schedules(way: str) -> list[Schedule]:
    """Return the schedules to perform one after the other."""
    machine = shipped("tpu-v5e-4")
    if way == APART:
        outline = umm.chain("mlp", tokens=TOKENS, hidden=HIDDEN, ffn=FFN, dtype="bfloat16")
        layouts = {"X": "row@4", "W1": "col", "H": "col", "G": "col", "W2": "row", "Y": "col"}
        return [lower(outline.laid_out(layouts, CHIPS), machine)]
    types = {"dtype": "bfloat16", "c_dtype": "bfloat16", "ranks": CHIPS}
    fuse = umm.Problem(m=HIDDEN, n=HIDDEN, k=FFN, a="col", b="row", c="col", **types)
    then = umm.Problem(m=TOKENS, n=HIDDEN, k=HIDDEN, a="row@4", b="col", c="col", **types)
    return [umm.schedule(fuse, machine, stationary="A"), umm.schedule(then, machine, stationary="B")]


def performed(point: Point) -> dict[str, float | int]:
    """Return multiply-adds times two, bytes between chips, bytes of the fullest chip, and seconds."""
    made = schedules(point.way)
    one = TOKENS * HIDDEN * FFN
    terms = 2 * one if point.way == APART else HIDDEN * HIDDEN * FFN + TOKENS * HIDDEN * HIDDEN
    return {
        "flop": 2 * terms,
        "moved_bytes": sum(sum(bytes_by_kind(x).values()) for x in made),
        "memory_bytes": max(int(x.memory_bytes.max()) for x in made),
        "seconds": sum(makespan(x) for x in made),
    }


def rows(size: str, jobs: int | None) -> list[Row]:
    """Return both ways."""
    return Table(HERE / "problem7.csv", [Point(APART), Point(FUSED)], performed).rows(size, jobs)


def entry(rows: list[Row]) -> Entry:
    """Return the cost of fusing the weights first."""
    apart, fused = rows
    limit = SAID["limit_mb"]
    shares = 2 * BF16 * HIDDEN * FFN / CHIPS / 1e6, BF16 * HIDDEN * HIDDEN / 1e6
    return refuted(
        SAID["claim"],
        SAID["where"],
        f"fused takes {fused['flop'] / apart['flop']:.0f} times the flop and "
        f"{1e3 * fused['seconds']:.1f} ms, one after the other {1e3 * apart['seconds']:.2f} ms; "
        f"{fused['moved_bytes'] / 1e6:.0f} MB go between chips, one after the other "
        f"{apart['moved_bytes'] / 1e6:.1f} MB; as described a chip holds "
        f"{shares[0]:.0f} MB of weights and a partial product of {shares[1]:.0f} MB, over {limit} MB; our "
        f"schedule of it {fused['memory_bytes'] / 1e6:.0f} MB, one after the other "
        f"{apart['memory_bytes'] / 1e6:.0f} MB",
        fused["seconds"] > apart["seconds"]
        and fused["moved_bytes"] > apart["moved_bytes"]
        and sum(shares) > limit > apart["memory_bytes"] / 1e6,
        "32 times the flop, more communication, and it breaks the limit that it set",
        "peak bfloat16, fabric.bandwidth",
    )


def figure(rows: list[Row]) -> "go.Figure":
    """Return memory beside the limit, bytes between chips, and time."""
    groups = [row["way"].replace(" after", "<br>after").replace(" weights", "<br>weights") for row in rows]
    columns = (
        ("MB on the fullest chip", "memory_bytes", 1e-6, [SAID["limit_mb"]] * 2, 0),
        ("MB between chips", "moved_bytes", 1e-6, [], 0),
        ("time (ms)", "seconds", 1e3, [], 2),
    )
    panels = [
        Panel(
            title, groups, [Bars("simulated", BLUE, [row[key] * unit for row in rows], label)], digits=digits
        )
        for title, key, unit, label, digits in columns
    ]
    title = f"Problem 7: weights fused first, or one multiply after the other, {TOKENS} rows on 2x2 TPU v5e"
    return bars(title, panels, published=f"limit of {SAID['limit_mb']} MB")
