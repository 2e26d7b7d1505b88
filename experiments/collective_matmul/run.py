"""The table of the page: bound, kernel and reference by the number of devices."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import umm
from experiments.common.bars import Bars, Panel
from experiments.common.bars import figure as bars
from experiments.common.image import draw
from experiments.common.ledger import Entry, Sections, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from experiments.truth.parts import all_gather, fused, gemm
from umm.executor import executor
from umm.figures.style import BLUE, GREEN, ORANGE
from umm.machines import Machine
from umm.machines.curves import EfficiencyTable
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("collective_matmul")
M, N, K = (SAID["shape"][x] for x in ("m_device", "n", "k"))
SHARD = M * K * 2  # bytes in float16
DEVICES = SAID["table"]["devices"]


@dataclass(frozen=True)
class Point:
    """One row of the table.

    Attributes:
        devices: Number of devices, D.
    """

    devices: int


@cache
def ideal() -> Machine:
    """Return `h100-8` with a multiply of 43 µs, a fence of 6 µs a step and no other cost."""
    h100, shape = shipped("h100-8"), SAID["shape"]
    share = 2 * M * N * K / (shape["multiply_us"] * 1e-6) / h100.peak("float16")
    rates = {**h100.efficiency, "float16": EfficiencyTable.measured([1], [1], [1], [[[share]]])}
    return replace(
        h100, efficiency=rates, launch_s=0.0, transfer_overhead_s=0.0, collective_start_s=0.0,
        step_fence_s=shape["fence_us"] * 1e-6,
    )  # fmt: skip


def ring(machine: Machine, devices: int) -> Schedule:
    """Return the schedule of the ring that multiplies while it gathers A."""
    sizes = {"m": M * devices, "n": N * devices, "k": K, "ranks": devices}
    problem = umm.Problem(**sizes, dtype="float16", c_dtype="float16", a="row", b="col", c="col")
    return umm.schedule(problem, machine, algorithm="ring")


def performed(point: Point) -> dict[str, float]:
    """Return microseconds of the bound, the kernel and the reference, and the percent of the peak of each."""
    d, h100 = point.devices, shipped("h100-8")
    reference = all_gather(h100, SHARD, d) + gemm(h100, "float16", M * d, N, K)
    kernel = fused(h100, "float16", M * d, N * d, K, d, "all-gather")
    bound = executor("sim").makespan(ring(ideal(), d))
    us = {"bound": bound * 1e6, "kernel": kernel * 1e6, "reference": reference * 1e6}
    return {f"{x}_us": us[x] for x in us} | {f"{x}_percent": percent(d, us[x]) for x in us}


def run(size: str, jobs: int | None) -> Sections:
    """Perform the points, write data and figure, and return the entries."""
    rows = Table(HERE / "table.csv", [Point(d) for d in DEVICES], performed).rows(size, jobs)
    draw(figure(rows), HERE / "table.svg", size)
    return {"Collective matmul": list(entries(rows))}


def percent(devices: int, us: float) -> float:
    """Return a time as percent of the peak that the page reckons with."""
    return 100 * 2 * M * devices * N * K / (us * 1e-6) / (SAID["shape"]["peak_tflops"] * 1e12)


def entries(rows: list[Row]) -> Iterator[Entry]:
    """Yield the entries."""
    yield _order()
    result = SAID["table"]
    bound = [row["bound_us"] for row in rows]
    yield reproduced(
        "lower bound 43·D + 6·(D − 1) µs: 92, 190 and 386 µs",
        result["where"],
        ", ".join(f"{x:g}" for x in bound) + " µs, simulated with a multiply of 43 µs and a fence of 6 µs",
        bound == result["bound_us"],
        "43 µs a multiply, 6 µs a step",
    )
    shares = [round(percent(d, x)) for d, x in zip(DEVICES, bound, strict=True)]
    kernels = [percent(d, x) for d, x in zip(DEVICES, result["kernel_us"], strict=True)]
    references = [percent(d, x) for d, x in zip(DEVICES, result["reference_us"], strict=True)]
    far = max(
        abs(x - y)
        for x, y in zip(
            [*map(float, shares), *kernels, *references],
            [*result["bound_percent"], *result["kernel_percent"], *result["reference_percent"]],
            strict=True,
        )
    )
    yield reproduced(
        "utilisation of 989 TFLOP/s: bound 75, 73, 72 %, kernel 68, 66, 64 %, reference 47, 48, 49 %",
        result["where"],
        f"from its own times {', '.join(map(str, shares))}; {', '.join(f'{x:.0f}' for x in kernels)}; "
        f"{', '.join(f'{x:.0f}' for x in references)} %: within {far:.1f} points",
        far < 1.6,
        "peak float16",
    )
    for name, what in (("kernel", "step_fence"), ("reference", "collective_start")):
        got, wanted = [row[f"{name}_us"] for row in rows], result[f"{name}_us"]
        off = [100 * (x / y - 1) for x, y in zip(got, wanted, strict=True)]
        yield reproduced(
            f"{name} {', '.join(map(str, wanted))} µs",
            result["where"],
            f"{', '.join(f'{x:.0f}' for x in got)} µs on `h100-8`, {', '.join(f'{x:+.1f}' for x in off)} %; "
            f"{what} was fitted on this column",
            max(map(abs, off)) < 3,
            f"devices.{what}, devices.efficiency.float16, fabric.bandwidth",
        )
    yield from _laws(result)


def _order() -> Entry:
    schedule = ring(shipped("h100-8"), 8)
    orders = []
    for rank in range(8):
        gemms = (schedule.kind == GEMM) & (schedule.rank == rank)
        orders.append((schedule.details.rows[gemms, 1, 0] // M).tolist())
    right = orders == [[(rank + i) % 8 for i in range(8)] for rank in range(8)]
    rooms = {tuple(pool.tolist()) for pool in schedule.pools}
    return reproduced(
        "at step i device d multiplies shard (d + i) mod D and passes it on; scratch of D − 1 shards",
        "algorithm overview; the kernel's out_shape",
        f"D = 8: device 3 multiplies shards {', '.join(map(str, orders[3]))} and has room for "
        f"{len(*rooms)} of "
        f"{SHARD / 2**20:g} MiB",
        right and rooms == {(SHARD,) * 7},
    )


def _laws(result: dict[str, list[float]]) -> Iterator[Entry]:
    """Yield the laws that the two columns imply, with the multiply at 43 µs."""
    d = np.array(DEVICES, dtype=float)
    reference, kernel = np.array(result["reference_us"]), np.array(result["kernel_us"])
    rates = (d - 1) * SHARD / (reference - 43 * d) / 1e3
    yield reproduced(
        "the reference implies an all-gather of 138, 213 and 266 GB/s at 8 MB shards",
        "reference column less 43 µs a multiply",
        f"{', '.join(f'{x:.0f}' for x in rates)} GB/s",
        np.allclose(rates, [138, 213, 266], atol=1.0),
        "43 µs a multiply",
    )
    started = 43 * d + 36 + (d - 1) * SHARD / 316e3
    off = 100 * float(np.abs(started / reference - 1).max())
    yield reproduced(
        "no curve over message size: 43·D + 36 µs + (D − 1)·8.4 MB/(316 GB/s), a start cost a collective",
        "fit of the reference column, within 1.1 %",
        f"within {off:.1f} %",
        off < 1.15,
        "devices.collective_start",
    )
    stepped = 46.4 * d + 9.1 * (d - 1)
    off = 100 * float(np.abs(stepped / kernel - 1).max())
    yield reproduced(
        "the kernel column is 46.4·D + 9.1·(D − 1) µs: a cost a step",
        "fit of the kernel column, within 0.4 %",
        f"within {off:.2f} %",
        off < 0.45,
        "devices.step_fence",
    )


def figure(rows: list[Row]) -> "go.Figure":
    """Return the table as bars."""
    looks = {"reference": ORANGE, "kernel": BLUE, "bound": GREEN}
    panels = [
        Panel(
            title,
            [f"D = {d}" for d in DEVICES],
            [
                Bars(name, colour, [row[f"{name}_{unit}"] for row in rows], SAID["table"][f"{name}_{unit}"])
                for name, colour in looks.items()
            ],
        )
        for title, unit in (("time (µs)", "us"), ("% of 989 TFLOP/s", "percent"))
    ]
    return bars("Collective matmul on H100: reference, kernel and lower bound, simulated", panels)
