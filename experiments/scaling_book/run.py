"""The four primitives over sizes, and the worked problems 4, 6, 7 and 10."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import umm
from experiments.common.bars import Bars, Panel
from experiments.common.bars import figure as bars
from experiments.common.image import draw
from experiments.common.ledger import Entry, Sections, given, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from experiments.scaling_book import problem4, problem6, problem7
from experiments.scaling_book.rings import Point, performed
from umm.figures.style import BLUE, DARK_GREY, GREEN, ORANGE, VERMILLION, drawn
from umm.schedules.table.details import TRANSFERS

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("scaling_book")
COSTS = SAID["primitives"]["costs_v_w"]
SIZES = [2**x for x in range(10, 31, 2)]
RINGS = (4, 5, 8, 16, 64)
EACH = 2**20  # bytes of a block that one chip has for another, large enough for latency not to matter


def run(size: str, jobs: int | None) -> Sections:
    """Perform the points, write data and figures, and return the entries."""
    sizes = Table(HERE / "primitives.csv", list(primitives()), performed, 4).rows(size, jobs)
    rings = Table(HERE / "rings.csv", list(turns()), performed, 3).rows(size, jobs)
    draw(primitives_figure(sizes), HERE / "primitives.svg", size)
    draw(problem4.figure(problem4.rows(size, jobs)), HERE / "problem4.svg", size)
    shardings, weights = problem6.rows(size, jobs), problem7.rows(size, jobs)
    draw(problem6.figure(shardings), HERE / "problem6.svg", size)
    draw(problem7.figure(weights), HERE / "problem7.svg", size)
    draw(rings_figure(rings), HERE / "problem10.svg", size)
    return {
        "Scaling book: the primitives": list(costs(sizes, rings)),
        "Scaling book: the problems": [
            *problem4.entries(),
            *problem6.entries(shardings),
            problem7.entry(weights),
            *problem10(rings),
            _machines(),
        ],
    }


def primitives() -> Iterator[Point]:
    """Yield the four over sizes on 2x2 chips, a ring of four."""
    for what in COSTS:
        for nbytes in SIZES:
            yield Point("tpu-v5e-4", what, nbytes)


def turns() -> Iterator[Point]:
    """Yield all-gather and all-to-all on rings, one way round and both; the 4x4 mesh, relayed and not."""
    for chips in RINGS:
        for directions in (1, 2):
            for what in ("all-gather", "all-to-all"):
                yield Point(f"ring-{chips}", what, chips * chips * EACH, "ring", directions)
    for way in ("ring", "grid", "direct"):
        yield Point("tpu-v5e-16", "all-gather", 16 * 16 * EACH, way)


def costs(sizes: list[Row], rings: list[Row]) -> Iterator[Entry]:
    """Yield the costs of the primitives, and where they stop holding."""
    where = SAID["primitives"]["where"]
    large = {row["what"]: row["times_v_w"] for row in sizes if row["nbytes"] == SIZES[-1]}
    small = {row["what"]: row["times_v_w"] for row in sizes if row["nbytes"] == SIZES[0]}
    for what, cost in COSTS.items():
        asymptote = cost if what == "all-to-all" else cost * 3 / 4
        law = "V/(4W)" if what == "all-to-all" else f"(D − 1)/D of {cost:g} · V/W"
        yield reproduced(
            f"{what} takes {cost:g} · V/W",
            where,
            f"on 4 chips {large[what]:.3f} · V/W at 1 GiB, {law}; {small[what]:.0f} · V/W at 1 KiB, where "
            "latency decides",
            abs(large[what] / asymptote - 1) < 0.01,
            "fabric.latency, fabric.bandwidth",
        )
    result = {
        int(row["machine"].split("-")[1]): row["times_v_w"]
        for row in rings
        if row["machine"].startswith("ring") and row["what"] == "all-gather" and row["directions"] == 2
    }
    yield reproduced(
        "an all-gather on 4 chips takes the same time as on 64",
        "the golden rule",
        ", ".join(f"D = {chips}: {x:.3f} · V/W" for chips, x in result.items()),
        max(abs(x - (1 - 1 / chips)) for chips, x in result.items()) < 0.02,
        "(D − 1)/D, fabric.latency",
    )
    odd = next(x for x in rings if (x["machine"], x["what"], x["directions"]) == ("ring-5", "all-to-all", 2))
    yield reproduced(
        "all-to-all takes V/(4W) for even D where antipodal blocks go half each way, (1 − 1/D²) · "
        "V/(4W) for odd D",
        where,
        f"D = 5: {odd['times_v_w']:.4f} · V/W, (1 − 1/25)/4 is {(1 - 1 / 25) / 4:.4f}",
        abs(odd["times_v_w"] / ((1 - 1 / 25) / 4) - 1) < 0.04,
        "fabric.latency",
    )
    yield _mesh(rings)


def _mesh(rings: list[Row]) -> Entry:
    machine = shipped("tpu-v5e-16")
    result = {row["way"]: row["times_v_w"] for row in rings if row["machine"] == "tpu-v5e-16"}
    asked = {"nbytes": 256 * EACH, "machine": machine, "dtype": "bfloat16"}
    schedule = umm.collective("all-gather", algorithm="direct", **asked)
    moves = np.isin(schedule.kind, TRANSFERS)
    over = moves & (schedule.src // 8 == 0) & (schedule.dst // 8 == 1)
    across = float(schedule.nbytes[over].sum()) / (256 * EACH)
    return reproduced(
        "direct gets on a 4×4 mesh send every byte once a receiver: the closed forms need relayed "
        "collectives",
        "the four core primitives",
        f"{across:g} V cross the middle one way, over four links; ring {result['ring']:.2f}, grid "
        f"{result['grid']:.2f}, "
        f"direct {result['direct']:.2f} · V/W with W the two links of a corner",
        result["direct"] > 2 > 1 > max(result["ring"], result["grid"]) and across == 4.0,
        "fabric.shape",
    )


def problem10(rings: list[Row]) -> Iterator[Entry]:
    """Yield the ratios of all-to-all to all-gather."""
    for directions, name in ((1, "one_way"), (2, "both_ways")):
        wanted, result = SAID["problem10"]["ratios"][name], ratios(rings, directions)
        yield reproduced(
            f"all-to-all takes {wanted} of an all-gather round a ring, {name.replace('_', ' ')}",
            SAID["problem10"]["where"],
            ", ".join(f"D = {chips}: {x:.3f}" for chips, x in result.items())
            + ("" if directions == 1 else "; D/(4(D − 1)) for even D, a quarter for many chips"),
            abs(result[RINGS[-1]] / wanted - 1) < 0.04,
            "D, fabric.latency",
        )


def ratios(rings: list[Row], directions: int) -> dict[int, float]:
    """Return the seconds of an all-to-all over those of an all-gather by the number of chips."""
    seconds = {
        (row["machine"], row["what"]): row["seconds"] for row in rings if row["directions"] == directions
    }  # fmt: skip
    return {x: seconds[f"ring-{x}", "all-to-all"] / seconds[f"ring-{x}", "all-gather"] for x in RINGS}


def _machines() -> Entry:
    shapes = {x: shipped(x).document["fabric"]["shape"]["value"] for x in ("tpu-v5e-16", "tpu-v5e-4")}
    return given(
        "TPU v5e, 4×4 and 2×2",
        "problems 6 and 7",
        ", ".join(f"`{name}` {rows}x{cols} without wraparound" for name, (rows, cols) in shapes.items()),
        list(shapes.values()) == [[4, 4], [2, 2]],
        "fabric.shape, fabric.bandwidth",
    )


def primitives_figure(rows: list[Row]) -> "go.Figure":
    """Return time over V/W by V, with the published one and with (D − 1)/D of it as lines."""
    looks = dict(
        zip(COSTS, ((BLUE, "circle"), (ORANGE, "square"), (GREEN, "diamond"), (VERMILLION, "x")), strict=True)
    )
    data = []
    for what, (colour, symbol) in looks.items():
        part = [row for row in rows if row["what"] == what]
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": what,
                "x": [row["nbytes"] for row in part], "y": [row["times_v_w"] for row in part],
                "line": {"color": colour, "dash": "dash" if what == "reduce-scatter" else "solid"},
                "marker": {"symbol": symbol, "size": 8},
            }
        )  # fmt: skip
        ends = [SIZES[0], SIZES[-1]]
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": "published", "showlegend": what == "all-to-all",
                "x": ends, "y": [COSTS[what]] * 2, "line": {"color": DARK_GREY, "dash": "dot"},
            }
        )  # fmt: skip
    return drawn(
        data, "Collectives on a ring of four TPU v5e: simulated, in units of V/W", 440,
        xaxis={
            "type": "log", "title": {"text": "V, bytes of the whole array"},
            "tickvals": [2**10, 2**15, 2**20, 2**25, 2**30],
            "ticktext": ["1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"],
        },
        yaxis={"type": "log", "title": {"text": "time · W/V"}, "tickvals": [0.25, 1, 2, 10, 100, 1000],
               "ticktext": ["1/4", "1", "2", "10", "100", "1000"]},
    )  # fmt: skip


def rings_figure(rows: list[Row]) -> "go.Figure":
    """Return the ratios of problem 10 by the number of chips."""
    series = []
    for directions, name, colour in ((1, "one way round", ORANGE), (2, "both ways round", BLUE)):
        published_ = [SAID["problem10"]["ratios"][("one_way", "both_ways")[directions - 1]]] * len(RINGS)
        series.append(Bars(name, colour, list(ratios(rows, directions).values()), published_))
    panel = Panel("time of all-to-all over all-gather", [f"D = {x}" for x in RINGS], series, digits=2)
    return bars("Problem 10: an all-to-all against an all-gather round a ring, simulated", [panel])
