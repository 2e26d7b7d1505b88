"""GEMMs of the public tables and multiplies fused with collectives, beside the shipped machines' times.

A shape of a fitted type was used where the CRC-32 of its text leaves less than 3 of 5, so that three of five
shapes were; all other rows judge. Rows above what a device can do are left out, with the reason in GEMMS.md.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np

from experiments.common.ledger import Entry, reproduced
from experiments.common.machines import shipped
from experiments.common.order import rank_correlation
from experiments.common.published import published
from umm.arrays import Bools, Floats, Ints
from umm.cost import gemm_seconds
from umm.dtypes import itemsize
from umm.figures.style import BLUE, ORANGE, drawn
from umm.machines import Machine
from umm.space.fusing import fusing

if TYPE_CHECKING:
    import plotly.graph_objects as go

TABLE = Path(__file__).parent / "xla_gemms.csv"
AGAIN = Path(__file__).parents[1] / "hardware" / "nvidia-h100-1" / "kernels.csv"
"""Kernels of cuBLAS 13.1 on an H100, clocked by experiments.hardware."""
LAUNCHED = 3.25e-6
"""Seconds that the table's times are longer than a kernel's."""
SOURCE = "openxla/xla, default_matmul_perf_table.txtpb"
MACHINES = {"sm_90": "h100-8", "sm_100_B200": "b200-8", "gfx950": "mi355x-8"}
TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f8e4m3fn": "float8_e4m3",
    "f8e5m2": "float8_e5m2",
}
MOST = {("h100-8", 1): 1979, ("mi355x-8", 4): 157, ("mi355x-8", 1): 5000}
"""Tflop/s above which a row is left out, by machine and bytes of an element."""
FITTED = ("bf16xbf16->bf16", "f32xf32->f32", "f8e4m3fnxf8e4m3fn->bf16", "f16xf16->f16", "bf16xbf16->f32")
BEATEN = 1.2
"""How many times longer than a multiply that contains it a row must take to be contradicted."""
CLOCK = {("h100-8", 1): 2141e12}
"""The peak at the highest clock, 1,980 MHz, by machine and bytes of an element."""
LARGE = 4e9  # flop from which the time beyond the least of the table says a rate
ALL_OF_8_BITS = ("h100-8", "mi355x-8")
"""Machines of which rows of all 8-bit types were fitted, unlike factors and C in float32 too."""
MEAN, NEAR, SHARE = 0.08, 0.2, 0.95
SHOWN = 4  # of so many rows the figure has one


Shape = tuple[int, ...]
"""Batch, m, n and k."""


class Group(NamedTuple):
    """The rows of one machine and combination of types.

    Attributes:
        machine: Where.
        types: A × B → C, as the table has them.
        shapes: Batch, m, n and k, one column a row.
        predicted: Seconds.
        measured: Seconds.
        fitted: Which rows a number of the machine file was found from.
    """

    machine: str
    types: str
    shapes: Ints
    predicted: Floats
    measured: Floats
    fitted: Bools

    def by(self, seconds: Floats) -> dict[Shape, float]:
        """Return seconds of each row by batch, m, n and k."""
        return dict(zip(map(tuple, self.shapes.T.tolist()), seconds.tolist(), strict=True))

    @property
    def off(self) -> Floats:
        """How far the rows that judge are off, as logarithms; below zero where too fast."""
        result: Floats = np.log(self.predicted / self.measured)[~self.fitted]
        return result

    @property
    def mean(self) -> float:
        """Their geometric mean, as a share."""
        return float(np.expm1(np.abs(self.off).mean()))

    @property
    def near(self) -> float:
        """The share of them within 20 %."""
        return float((np.abs(self.off) < np.log1p(NEAR)).mean())

    @property
    def contradicted(self) -> Bools:
        """Which rows that judge the table itself contradicts.

        A multiply that contains such a row, none of its sizes smaller, takes less than 1 / 1.2 of its time.
        Or the time beyond the least of the table would need more than the peak at the highest clock.
        """
        contains = (self.shapes[:, :, None] <= self.shapes[:, None]).all(axis=0)
        result = (contains & (self.measured * BEATEN < self.measured[:, None])).any(axis=1)
        peak = CLOCK.get((self.machine, itemsize(TYPES[self.types.partition("x")[0]])))
        if peak is not None:
            flop = 2.0 * np.prod(self.shapes, axis=0)
            result |= (flop > LARGE) & (flop > peak * (self.measured - self.measured.min()))
        judges: Bools = result[~self.fitted]
        return judges

    def without(self) -> str:
        """Return the mean and the share within 20 % without rows that the table itself contradicts."""
        off = np.abs(self.off[~self.contradicted])
        return f"{100 * np.expm1(off.mean()):.1f} | {100 * (off < np.log1p(NEAR)).mean():.0f}"


class Pair(NamedTuple):
    """A multiply and a collective, one after the other and overlapped.

    Attributes:
        source: Who measured.
        shape: m, n and k.
        way: As ``umm fuse`` names it.
        measured: How many times faster the way is.
        predicted: The same.
    """

    source: str
    shape: str
    way: str
    measured: float
    predicted: float


def groups() -> Iterator[Group]:
    """Yield the rows of XLA's table, by device and types."""
    result: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = MACHINES[row["device"]], row["types"]
            a = row["types"].partition("x")[0]
            if row["types"].partition("->")[2].startswith("f8"):
                continue
            if float(row["tflops"]) <= MOST.get((key[0], itemsize(TYPES[a])), np.inf):
                result.setdefault(key, []).append((*(int(row[x]) for x in "bmnk"), float(row["tflops"])))
    for (name, types), rows in sorted(result.items()):
        *sizes, rate = np.array(rows).T
        shapes = np.array(sizes, dtype=np.int64)
        measured = 2.0 * np.prod(np.array(sizes), axis=0) / (rate * 1e12)
        fitted = types in FITTED or (types.startswith("f8") and name in ALL_OF_8_BITS)
        used = [fitted and _chosen(shape) for shape in shapes.T.tolist()]
        yield Group(name, types, shapes, _predicted(name, types, shapes), measured, np.array(used))


def _chosen(shape: list[int]) -> bool:
    return crc32("x".join(map(str, shape)).encode()) % 5 < 3


def _predicted(name: str, types: str, shapes: Ints) -> Floats:
    """Return the seconds of whole batches; float32 is multiplied in TF32 on NVIDIA's devices."""
    factors, _, of_c = types.partition("->")
    a, b = (TYPES[x] for x in factors.split("x"))
    machine: Machine = shipped(name)
    if a == "float32" and machine.tf32_peak:
        machine = machine.with_tf32()
    batch, m, n, k = shapes
    dtype = a if a == b else f"{a}x{b}"
    start = machine.gemm_start(dtype)
    each = gemm_seconds(machine, dtype, m, n, k, itemsize(TYPES[of_c]), batch)
    result: Floats = start + batch * (each - start)
    return result


def pairs() -> Iterator[Pair]:
    """Yield the published pairs of fused and unfused multiplies."""
    for table, output in published("truth")["fusing"].items():
        if table == "where":
            continue
        for m, n, k, plain, *times in output["rows"]:
            result = fusing(shipped(output["machine"]), m, n, k, output["collective"], output["dtype"])
            for way, time in zip(output["ways"], times, strict=True):
                ratio = result.way("unfused").seconds / result.way(way).seconds
                yield Pair(table, f"{m}x{n}x{k}", way, round(plain / time, 3), round(ratio, 3))


def entries() -> Iterator[Entry]:
    """Yield the ledger's lines: one a machine, one for whether to fuse."""
    every = list(groups())
    for machine in dict.fromkeys(x.machine for x in every):
        some = [x for x in every if x.machine == machine]
        reasons: dict[str, list[str]] = {}
        for group in some:
            if group.mean > MEAN or group.near < SHARE:
                reasons.setdefault(_why(group), []).append(group.types)
        yield reproduced(
            f"XLA's table, {machine}: {sum(len(x.off) for x in some)} GEMMs of {len(some)} types, not fitted",
            SOURCE,
            f"off {_least_to_most(100 * x.mean for x in some)} % in the geometric mean by type, "
            f"{_least_to_most((100 * x.near for x in some), 0)} % within 20 % ([by type](truth/GEMMS.md))",
            not reasons,
            f"`{machine}`",
            "; ".join(f"{', '.join(types)}: {why}" for why, types in reasons.items()),
        )
    result = list(pairs())
    right = sum((x.measured > 1) == (x.predicted > 1) for x in result)
    agree = rank_correlation([x.predicted for x in result], [x.measured for x in result])
    yield reproduced(
        f"whether to fuse: {len(result)} published pairs on H100, H800, A800, L20 and B300",
        "kraken pull request 2, Triton-distributed, Flux, pytorch 179770",
        f"the sign is right in {right}, rank correlation {agree:.2f}; three constants were fitted on them",
        right >= 0.9 * len(result) and agree >= 0.9,
        "`umm.space.fusing`",
    )


def _least_to_most(values: Iterable[float], digits: int = 1) -> str:
    ordered = sorted(values)
    return f"{ordered[0]:.{digits}f} to {ordered[-1]:.{digits}f}"


def again() -> dict[str, dict[Shape, float]]:
    """Return the seconds of a later cuBLAS on an H100, by types and shape, with the table's launch."""
    result: dict[str, dict[Shape, float]] = {}
    with AGAIN.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["case"] == "gemm":
                shape = tuple(int(row[x]) for x in "bmnk")
                result.setdefault(row["types"], {})[shape] = float(row["seconds"]) + LAUNCHED
    return result


def differ(one: Mapping[Shape, float], other: Mapping[Shape, float]) -> float:
    """Return how far the shapes that both have are apart: the geometric mean, as a share."""
    return float(np.expm1(np.mean([abs(np.log(one[x] / other[x])) for x in one.keys() & other.keys()])))


def _why(group: Group) -> str:
    """Return why a group is off."""
    if group.machine == "h100-8" and group.types in again():
        return "a later cuBLAS is itself off the table"
    factors, _, c = group.types.partition("->")
    if factors == "f8e4m3fnxf8e4m3fn" and c == "f32":
        return "2^19 elements of C take 6, 10 and 7 us at k = 256, 512, 1024, by other kernels"
    if factors.startswith("f8"):
        return "from k = 2048 on kernels up to 3 times as fast alternate by no known law"
    return "below 2^20 elements of C kernels change with k by no known law"


def _apart() -> str:
    """Return how far the table's H100 and ``h100-8`` are from a later cuBLAS, by types that both have."""
    later, result = again(), []
    for group in groups():
        if group.machine == "h100-8" and group.types in later:
            table, ours = (differ(group.by(x), later[group.types]) for x in (group.measured, group.predicted))
            result.append(f"{100 * table:.1f} % ({100 * ours:.1f}) in {group.types}")
    return "off the table (off `h100-8`) " + ", ".join(result)


def page() -> str:
    """Return GEMMS.md."""
    lines = [
        "# GEMMs and fused multiplies, beside what was measured", "",
        "`python -m experiments truth` writes this page: XLA's table of cuBLAS and hipBLASLt, medians of 20 "
        "runs on uninitialised operands. Left out, as above what the device can do: 8-bit rows of "
        "H100 above 1,979 Tflop/s, of MI355X above 5,000, its float32 above 157; products kept in 8 bits. "
        "Three of five shapes of types marked * were fitted; the numbers, in %, are of the others; *near* is "
        "within 20 %.", "",
        "*Contradicted*: a multiply that contains the row's, none of its sizes smaller, takes less than "
        "1 / 1.2 of its time; or an 8-bit row of H100 from 4 Gflop on would need more than 2,141 Tflop/s "
        "beyond the least of the table. The last two columns are without them.", "",
        f"cuBLAS 13.1 [on an H100](../hardware/README.md#kernels) is {_apart()}.", "",
        "![Predicted over measured time by flop, one panel of marks a machine](gemms.svg)", "",
        "| machine | types | rows | mean | near | contradicted | mean | near |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for group in groups():
        star = "*" if group.fitted.any() else ""
        lines.append(
            f"| `{group.machine}` | {group.types}{star} | {len(group.off)} | {100 * group.mean:.1f} "
            f"| {100 * group.near:.0f} | {int(group.contradicted.sum())} | {group.without()} |"
        )
    lines += [
        "", "Whether to fuse (`fusing.csv`): how many times faster the way is than one after the other.", "",
        "| measured by, way | pairs | sign right | measured | predicted |", "|---|---|---|---|---|",
    ]  # fmt: skip
    every = list(pairs())
    for way in dict.fromkeys((x.source, x.way) for x in every):
        some = [x for x in every if (x.source, x.way) == way]
        right = sum((x.measured > 1) == (x.predicted > 1) for x in some)
        measured, predicted = (
            _least_to_most((getattr(x, name) for x in some), 2) for name in ("measured", "predicted")
        )
        lines.append(f"| {', '.join(way)} | {len(some)} | {right} | {measured} | {predicted} |")
    return "\n".join(lines) + "\n"


def figure() -> "go.Figure":
    """Return predicted over measured time by flop, of the rows that judge."""
    result = list(groups())
    data: list[dict[str, Any]] = []
    for name, colour, symbol in (
        ("h100-8", BLUE, "circle"),
        ("b200-8", ORANGE, "diamond"),
        ("mi355x-8", "#777", "x"),
    ):
        shown = [group for group in result if group.machine == name]
        flop = np.concatenate([2.0 * np.prod(x.shapes[:, ~x.fitted], axis=0) for x in shown])
        off = np.concatenate([np.exp(x.off) for x in shown])
        data.append({
            "type": "scatter", "mode": "markers", "name": name,
            "x": flop[::SHOWN].tolist(), "y": off[::SHOWN].round(3).tolist(),
            "marker": {"color": colour, "symbol": symbol, "size": 3, "opacity": 0.5},
        })  # fmt: skip
    return drawn(
        data, "GEMMs of XLA's table that were not fitted, every fourth: predicted over measured time", 420,
        xaxis={"type": "log", "title": {"text": "flop"}},
        yaxis={"type": "log", "title": {"text": "predicted / measured"}, "range": [-0.5, 0.5]},
    )  # fmt: skip
