"""The published rows: what was measured, and what a machine predicts of it."""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.truth.parts import all_gather, collective, dtensor, fused, gemm
from umm.machines import Machine

MiB = 2**20
Predict = Callable[[Machine], float]
SIZES = {"MLP-1": (49152, 12288), "MLP-2": (12288, 49152)}
# Tflop/s of all eight devices at m = 1024, 2048, 4096, 8192.
DTENSOR = {
    ("MLP-1", "col"): (345.23, 379.73, 382.92, 335.12),
    ("MLP-1", "row"): (319.64, 323.40, 344.54, 346.34),
    ("MLP-2", "col"): (329.30, 328.86, 357.04, 360.30),
    ("MLP-2", "row"): (360.37, 372.26, 376.81, 364.24),
}
CUBLAS = {  # Tflop/s of one device, by the size of three equal sides
    "float32": {4096: 45.7, 8192: 50.5},
    "tf32": {2048: 319.0, 4096: 399.0, 8192: 412.0},
    "float16": {2048: 541.0, 4096: 726.0, 8192: 750.0},
}
FLUX = {  # machine, what: GEMM, NCCL, total, fused, in milliseconds
    ("a800-8", "all-gather"): (2.438, 0.662, 3.099, 2.469),
    ("a800-8", "reduce-scatter"): (2.453, 0.646, 3.100, 2.508),
    ("h800-8", "all-gather"): (0.846, 0.583, 1.429, 0.957),
    ("h800-8", "reduce-scatter"): (0.818, 0.590, 1.408, 0.932),
}
KRAKEN = {128: (142, 284, 514), 256: (273, 499, 953), 512: (514, 912, 1810)}  # microseconds, k = 4K, 8K, 16K


class Row(NamedTuple):
    """One measurement and what predicts it.

    Attributes:
        group: Rows that are judged together.
        name: Which of them.
        machine: The shipped machine it was measured on such as.
        predict: Returns the seconds that a machine takes.
        measured: Seconds, as published.
        source: Where.
        fitted: Whether a number of the machine file was found from this row.
    """

    group: str
    name: str
    machine: str
    predict: Predict
    measured: float
    source: str
    fitted: bool = False


def dtensors() -> Iterator[Row]:
    """DTensor's multiplies in float32, m = 1K to 8K, column and row layouts."""
    source = "BenBrock/universal_gemm, plot_mlp1.py and plot_mlp2.py"
    for (layer, layout), rates in DTENSOR.items():
        n, k = SIZES[layer]
        for m, rate in zip((1024, 2048, 4096, 8192), rates, strict=True):
            predict = partial(dtensor, m=m, n=n, k=k, layout=layout)
            name = f"{layout}, m = {m}"
            seconds = 2.0 * m * n * k / (rate * 1e12)
            yield Row(f"DTensor {layer}, float32", name, "h100-8", predict, seconds, source, layer == "MLP-1")


def gemms() -> Iterator[Row]:
    """One GEMM on one device."""
    source = "waynehacking8/blackwell-tensorcore-kernels, bench_sm90a.csv"
    for dtype, sizes in CUBLAS.items():
        for s, rate in sizes.items():
            machine, of = ("h100-8:tf32", "float32") if dtype == "tf32" else ("h100-8", dtype)
            predict = partial(gemm, dtype=of, m=s, n=s, k=s)
            seconds, used = 2.0 * s**3 / (rate * 1e12), (dtype, s) == ("tf32", 4096)
            yield Row(f"cuBLAS, {dtype}", f"{s} cubed", machine, predict, seconds, source, used)
    with (Path(__file__).parent / "gemms.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            m, n, k = (int(row[d]) for d in "mnk")
            seconds = 2.0 * m * n * k / (float(row["bfloat16"]) * 1e12)
            predict = partial(gemm, dtype="bfloat16", m=m, n=n, k=k)
            where = "openxla/xla, matmul_interpolator_data.h, sm_90"
            yield Row("XLA's table, bfloat16", f"{m}x{n}x{k}", "h100-8", predict, seconds, where, True)
    predict, seconds = partial(gemm, dtype="float32", m=8192, n=8192, k=8192), 2.0 * 8192**3 / 21.5e12
    yield Row("PVC, one tile", "SGEMM", "pvc-12-planes", predict, seconds, "Argonne user guides", True)


def flux() -> Iterator[Row]:
    """A GEMM and a collective after or before it, 4096 x 12288 x 49152 in bfloat16 on 8 devices."""
    source = "bytedance/flux, docs/performance_report.md"
    for (machine, what), times in FLUX.items():
        n, k = SIZES["MLP-1"] if what == "all-gather" else SIZES["MLP-2"]
        own = (n // 8, k) if what == "all-gather" else (n, k // 8)
        one = partial(gemm, dtype="bfloat16", m=4096, n=own[0], k=own[1])
        moved = partial(collective, what=what, nbytes=4096.0 * 12288 * 2, devices=8)
        ring = partial(fused, dtype="bfloat16", m=4096, n=n, k=k, devices=8, what=what)

        def both(found: Machine, one: Predict = one, moved: Predict = moved) -> float:
            return one(found) + moved(found)

        name = f"{machine[:4].upper()}, {what}"
        for part, predict, milli in zip(
            ("GEMM", "NCCL", "total", "fused"), (one, moved, both, ring), times, strict=True
        ):
            yield Row(f"Flux, {part}", name, machine, predict, milli * 1e-3, source)


def pallas() -> Iterator[Row]:
    """The JAX Pallas collective matmul page: 1024 x 4096 x 4096 a device in float16, in microseconds."""
    source = "JAX Pallas collective matmul page"
    for devices, reference, kernel in ((2, 147, 102), (4, 290, 212), (8, 565, 436)):

        def gathered(found: Machine, p: int = devices) -> float:
            return all_gather(found, 1024 * 4096 * 2.0, p) + gemm(found, "float16", 1024 * p, 4096, 4096)

        ring = partial(
            fused, dtype="float16", m=1024 * devices, n=4096 * devices, k=4096, devices=devices,
            what="all-gather",
        )  # fmt: skip
        name = f"{devices} devices"
        yield Row("Pallas reference", name, "h100-8", gathered, reference * 1e-6, source, True)
        yield Row("Pallas kernel", name, "h100-8", ring, kernel * 1e-6, source, True)


def gathers() -> Iterator[Row]:
    """All-gathers with a GEMM after them, beside one, and alone; NCCL on eight H100."""
    for m, times in KRAKEN.items():
        for k, micro in zip((4096, 8192, 16384), times, strict=True):

            def after(found: Machine, m: int = m, k: int = k) -> float:
                return all_gather(found, m * k * 2.0, 8) + gemm(found, "bfloat16", 8 * m, 6656, k)

            name, source = f"{m} rows a device, k = {k}", "kraken pull request 2"
            yield Row("all-gather, then GEMM", name, "h100-8", after, micro * 1e-6, source)
    product, gather = partial(gemm, dtype="float16", m=8192, n=8192, k=8192), partial(
        all_gather, shard=64.0 * MiB, devices=8
    )  # fmt: skip

    def beside(found: Machine) -> float:
        return product(found) + found.means["collective"].interference * gather(found)

    for name, predict, milli in (
        ("one after the other", lambda found: product(found) + gather(found), 2.96),
        ("overlapped by NCCL's kernels", beside, 2.02),
        ("overlapped by copy engines", lambda found: max(product(found), gather(found)), 1.77),
    ):
        yield Row("8192 cubed and 64 MiB shards", name, "h100-8", predict, milli * 1e-3, "pytorch 172714")
    for size, rate in ((1, 12), (4, 57), (16, 229), (64, 383)):
        predict = partial(all_gather, shard=size * MiB, devices=8)
        measured = 7 * size * MiB / (rate * 1e9)
        yield Row("all-gather alone", f"{size} MiB shards", "h100-8", predict, measured, "pytorch 182850")


def rows() -> list[Row]:
    """Return all rows."""
    return [*dtensors(), *gemms(), *flux(), *pallas(), *gathers()]
