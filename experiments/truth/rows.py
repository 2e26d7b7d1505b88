"""The published rows: a measurement, and a machine's prediction of it."""

import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from experiments.common.published import published
from experiments.truth.parts import all_gather, collective, dtensor, fused, gemm, library
from experiments.universal.layers import BATCHES, SIZES
from umm.machines import Machine
from umm.space.fusing import fusing

MiB = 2**20
Predict = Callable[[Machine], float]
SAID = published("truth")


class Row(NamedTuple):
    """One measurement and its predictor.

    Attributes:
        group: Rows that are judged together.
        name: Which of them.
        machine: The shipped machine it was measured on such as.
        predict: Returns the seconds that a machine takes.
        measured: Seconds, as published.
        source: Where.
        fitted: Whether a number of the machine file was found from this row.
        quantity: What was measured, equal for all sources that measured the same; empty if nobody else did.
        tolerance: How far a prediction of it may be off, as a share.
    """

    group: str
    name: str
    machine: str
    predict: Predict
    measured: float
    source: str
    fitted: bool = False
    quantity: tuple[str | int, ...] = ()
    tolerance: float = 0.1


def dtensors() -> Iterator[Row]:
    """DTensor's multiplies in float32, m = 1K to 8K, column and row layouts."""
    source = "BenBrock/universal_gemm, plot_mlp1.py and plot_mlp2.py"
    for layer, (n, k) in SIZES.items():
        rates = published("universal")["dtensor_tflops"][layer.lower().replace("-", "")]
        for layout, m, rate in ((x, *each) for x in rates for each in zip(BATCHES, rates[x], strict=True)):
            predict = partial(dtensor, m=m, n=n, k=k, layout=layout)
            name = f"{layout}, m = {m}"
            seconds = 2.0 * m * n * k / (rate * 1e12)
            yield Row(f"DTensor {layer}, float32", name, "h100-8", predict, seconds, source, layer == "MLP-1")


def gemms() -> Iterator[Row]:
    """One GEMM on one device."""
    result = dict(SAID["cublas_tflops"])
    source = result.pop("where").partition(":")[0]
    for dtype, sizes in result.items():
        for s, rate in ((int(size), rate) for size, rate in sizes.items()):
            machine, types = ("h100-8:tf32", "float32") if dtype == "tf32" else ("h100-8", dtype)
            predict = partial(gemm, dtype=types, m=s, n=s, k=s)
            seconds = 2.0 * s**3 / (rate * 1e12)
            yield Row(f"cuBLAS, {dtype}", f"{s} cubed", machine, predict, seconds, source)
    with (Path(__file__).parent / "gemms.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            m, n, k = (int(row[d]) for d in "mnk")
            seconds = 2.0 * m * n * k / (float(row["bfloat16"]) * 1e12)
            predict = partial(gemm, dtype="bfloat16", m=m, n=n, k=k)
            where = "openxla/xla, matmul_interpolator_data.h, sm_90"
            yield Row("XLA's table, bfloat16", f"{m}x{n}x{k}", "h100-8", predict, seconds, where)
    for m, n, k, rate in SAID["deepgemm_tflops"]["rows"]:
        predict = partial(gemm, dtype="float8_e4m3", m=m, n=n, k=k, of_c="bfloat16", by_columns=True)
        seconds, where = 2.0 * m * n * k / (rate * 1e12), SAID["deepgemm_tflops"]["where"].partition(":")[0]
        yield Row("DeepGEMM, fp8", f"{m}x{n}x{k}", "h800-8", predict, seconds, where)
    result = SAID["llmcompass_ms"]
    for m, n, k, milli in result["rows"]:

        def alone(results: Machine, m: int = m, n: int = n, k: int = k) -> float:
            return result["launch_us"] * 1e-6 + gemm(results, "float16", m, n, k)

        name, where = f"{m}x{n}x{k}", result["where"].partition(":")[0]
        yield Row("LLMCompass, float16", name, "a100-8", alone, milli * 1e-3, where, milli < 0.04)
    predict, seconds = partial(gemm, dtype="float32", m=8192, n=8192, k=8192), 2.0 * 8192**3 / 21.5e12
    yield Row("PVC, one tile", "SGEMM", "pvc-12-planes", predict, seconds, "Argonne user guides", True)


def flux() -> Iterator[Row]:
    """A GEMM and a collective after or before it, 4096 x 12288 x 49152 in bfloat16 on 8 devices."""
    output = dict(SAID["flux_ms"])
    source = output.pop("where").partition(":")[0]
    for machine, what, times in ((x, y, output[x][y]) for x in output for y in output[x]):
        n, k = SIZES["MLP-1"] if what == "all-gather" else SIZES["MLP-2"]
        local = (n // 8, k) if what == "all-gather" else (n, k // 8)
        one = partial(gemm, dtype="bfloat16", m=4096, n=local[0], k=local[1])
        moved = partial(collective, what=what, nbytes=4096.0 * 12288 * 2, devices=8)
        kernel = partial(_by_hand, m=4096, n=n, k=k, what=what)

        def both(result: Machine, one: Predict = one, moved: Predict = moved) -> float:
            return one(result) + moved(result)

        name = f"{machine[:4].upper()}, {what}"
        for part, predict, milli in zip(
            ("GEMM", "NCCL", "total", "fused"), (one, moved, both, kernel), times, strict=True
        ):
            yield Row(f"Flux, {part}", name, machine, predict, milli * 1e-3, source)


def _by_hand(machine: Machine, m: int, n: int, k: int, what: str) -> float:
    """Return the seconds of one kernel that stores or reads tiles of other ranks, as Flux's does."""
    return float(fusing(machine, m, n, k, what, "bfloat16").way("fused by hand").seconds)


def pallas() -> Iterator[Row]:
    """The JAX Pallas collective matmul page: 1024 x 4096 x 4096 a device in float16, in microseconds."""
    source, result = "JAX Pallas collective matmul page", published("collective_matmul")["table"]
    columns = (result[x] for x in ("devices", "reference_us", "kernel_us"))
    for devices, reference, kernel in zip(*columns, strict=True):

        def gathered(results: Machine, p: int = devices) -> float:
            return all_gather(results, 1024 * 4096 * 2.0, p) + gemm(results, "float16", 1024 * p, 4096, 4096)

        ring = partial(
            fused, dtype="float16", m=1024 * devices, n=4096 * devices, k=4096, devices=devices,
            what="all-gather",
        )  # fmt: skip
        name = f"{devices} devices"
        yield Row("Pallas reference", name, "h100-8", gathered, reference * 1e-6, source, True)
        yield Row("Pallas kernel", name, "h100-8", ring, kernel * 1e-6, source, True)


def gathers() -> Iterator[Row]:
    """All-gathers with a GEMM after them, beside one, and alone; NCCL on eight H100."""
    output = SAID["gather_then_gemm_us"]
    for m, times in ((int(x), times) for x, times in output.items() if x != "where"):
        for k, micro in zip((4096, 8192, 16384), times, strict=True):

            def after(results: Machine, m: int = m, k: int = k) -> float:
                return library(results, "all-gather", 16 * m * k, 8) + gemm(
                    results, "bfloat16", 8 * m, 6656, k
                )

            name, source = f"{m} rows a device, k = {k}", output["where"].partition(":")[0]
            yield Row("all-gather, then GEMM", name, "h100-8", after, micro * 1e-6, source)
    product, gather = partial(gemm, dtype="float16", m=8192, n=8192, k=8192), partial(
        library, what="all-gather", nbytes=512 * MiB, ranks=8
    )  # fmt: skip

    def beside(result: Machine) -> float:
        return product(result) + result.means["collective"].interference * gather(result)

    def copied(machine: Machine) -> float:
        copies = 448 * MiB / machine.bandwidth_matrix()[0, 1]
        return product(machine) + machine.means["copy_engine"].interference * copies

    overlaps: dict[str, Predict] = {
        "one after the other": lambda outcome: product(outcome) + gather(outcome),
        "overlapped by NCCL's kernels": beside,
        "overlapped by copy engines": copied,
    }
    for name, predict in overlaps.items():
        seconds = SAID["overlap_ms"][name] * 1e-3
        yield Row("8192 cubed and 64 MiB shards", name, "h100-8", predict, seconds, "pytorch 172714")


def rows() -> list[Row]:
    """Return all rows."""
    return [*dtensors(), *gemms(), *flux(), *pallas(), *gathers()]
