"""Problem 4: gather Y or sum the product, and from which size on each is bound by compute."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.ledger import Entry, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from experiments.scaling_book.rings import round_a_ring
from experiments.truth.parts import gemm
from umm.figures.style import BLACK, BLUE, ORANGE, drawn
from umm.plans.collectives.closed_forms import bandwidth

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("scaling_book")["problem4"]
MACHINE, CHIPS, BF16 = "tpu-v5e-4", 4, 2
B, D, F = 1024, 8192, 32768
GATHER, SUM = "gather Y", "sum the product"
SWEPT = {GATHER: [2**x for x in range(7, 15)], SUM: [2**x for x in range(10, 18)]}


@dataclass(frozen=True)
class Point:
    """One strategy at one size.

    Attributes:
        strategy: Which.
        size: B where Y is gathered, D where the product is summed.
    """

    strategy: str
    size: int


def performed(point: Point) -> dict[str, float]:
    """Return the seconds of the collective and of a chip's multiply on a ring of four chips."""
    machine = shipped(MACHINE)
    if point.strategy == GATHER:
        moved, local = ("all-gather", BF16 * D * F), (point.size, F, D)
    else:
        moved, local = ("all-reduce", BF16 * B * F), (B, F, point.size // CHIPS)
    m, n, k = local
    return {
        "communicate_s": round_a_ring(machine, *moved),
        "compute_s": gemm(machine, "bfloat16", m, n, k),
    }


def rows(size: str, jobs: int | None) -> list[Row]:
    """Return both strategies over sizes."""
    points = [Point(strategy, x) for strategy, sizes in SWEPT.items() for x in sizes]
    return Table(HERE / "problem4.csv", points, performed, 4).rows(size, jobs)


def limits() -> dict[str, float]:
    """Return B and D from which on the document says that each is bound by compute."""
    machine = shipped(MACHINE)
    rate = machine.peak("bfloat16") * float(machine.efficiency["bfloat16"].values.max())
    ratio = rate / bandwidth(machine, CHIPS)
    return {GATHER: ratio, SUM: 2 * CHIPS * ratio}


def crossover(strategy: str, low: int, high: int) -> int:
    """Return the first size above low at which compute takes at least as long; high if none below is."""

    def bound_by_compute(size: int) -> bool:
        result = performed(Point(strategy, size))
        return result["communicate_s"] <= result["compute_s"]

    sizes = range(low + 1, high)
    return low + 1 + bisect_left(sizes, True, key=bound_by_compute)


def entries() -> Iterator[Entry]:
    """Yield where each is bound by compute, on a ring of four chips."""
    machine, wanted = shipped(MACHINE), limits()
    rate = wanted[GATHER] * bandwidth(machine, CHIPS)
    reached = f" with the {rate / 1e12:.0f} TFLOP/s that multiplies reach"
    for strategy, low, high, claim, sizes, size, limit, more in (
        (GATHER, 1, 16384, "gathering Y", f"D = {D}, F = {F} on `{MACHINE}`", "B", "F/W", reached),
        (SUM, 4, 65536, "summing the product", f"B = {B}, F = {F}", "D", "2X·F/W", ""),
    ):
        result, share = crossover(strategy, low, high), 0.75 * wanted[strategy]
        yield reproduced(
            f"{claim} is bound by compute where {size} > {limit}",
            SAID["where"],
            f"{sizes}: from {size} = {result} on; {limit} = {wanted[strategy]:.0f}{more}, of which (X − 1)/X "
            f"is {share:.0f}",
            abs(result / share - 1) < 0.02,
            "peak and efficiency bfloat16, fabric.bandwidth",
        )


def figure(rows: list[Row]) -> "go.Figure":
    """Return the times of both parts of both strategies by size, and the size that the document gives."""
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    names = {GATHER: f"B, with D = {D} and F = {F}", SUM: f"D, with B = {B} and F = {F}"}
    for number, (strategy, limit) in enumerate(limits().items()):
        end = str(number + 1) if number else ""
        style = {"type": "scatter", "xaxis": f"x{end}", "yaxis": f"y{end}", "showlegend": not number}
        points = [row for row in rows if row["strategy"] == strategy]
        sizes = [row["size"] for row in points]
        for name, key, colour, symbol in (
            ("communicate", "communicate_s", ORANGE, "square"),
            ("compute", "compute_s", BLUE, "circle"),
        ):
            times = [float(f"{1e3 * row[key]:.5g}") for row in points]
            marks = {"symbol": symbol, "size": 8, "color": colour}
            data.append(
                style | {"name": name, "x": sizes, "y": times, "marker": marks, "line": {"color": colour}}
            )
        line = {"color": BLACK, "dash": "dot"}
        result = {"name": "published: bound by compute from here on", "mode": "lines", "line": line}
        data.append(style | result | {"x": [round(limit, 1)] * 2, "y": [0.01, 100]})
        left = 0.56 * number
        axes[f"xaxis{end}"] = {
            "type": "log", "domain": [left, left + 0.44], "anchor": f"y{end}", "tickangle": 0,
            "title": {"text": names[strategy]}, "tickvals": sizes[::2],
            "ticktext": list(map(str, sizes[::2])),
            "range": [log10(sizes[0] / 1.3), log10(sizes[-1] * 1.3)],
        }  # fmt: skip
        axes[f"yaxis{end}"] = {
            "type": "log", "anchor": f"x{end}", "title": {"text": f"{strategy}: time (ms)"},
            "tickvals": [0.1, 1, 10], "range": [log10(0.07), log10(80)],
        }  # fmt: skip
    return drawn(data, "Problem 4 on a ring of four TPU v5e, simulated", 440, **axes)
