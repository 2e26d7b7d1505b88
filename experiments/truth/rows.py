"""The published rows: what was measured, and what the machine predicts of it."""

from collections.abc import Iterator
from typing import NamedTuple

from experiments.truth.parts import all_gather, copies, gemm, h100, mlp1, pvc

MiB = 2**20
DTENSOR = {True: (64.4, 70.8, 71.4, 62.5), False: (59.6, 60.3, 64.3, 64.6)}  # percent of 536 Tflop/s


class Row(NamedTuple):
    """One measurement and its prediction, both in seconds.

    Attributes:
        group: Rows that are judged together.
        name: Which of them.
        predicted: From the machine file.
        measured: As published.
        fitted: Whether a number of the machine file was found from this row.
        source: Where it was published.
    """

    group: str
    name: str
    predicted: float
    measured: float
    fitted: bool
    source: str

    @property
    def error(self) -> float:
        """Return how far the prediction is off, as a share of what was measured; below zero if too fast."""
        return self.predicted / self.measured - 1.0


def dtensor() -> Iterator[Row]:
    """DTensor's MLP-1 in float32, m = 1K to 8K, column and row layouts."""
    machine, source = h100(), "plot scripts of Brock & Golin 2025"
    for columns, shares in DTENSOR.items():
        for m, share in zip((1024, 2048, 4096, 8192), shares, strict=True):
            measured = 2.0 * m * 49152 * 12288 / (share / 100 * 536e12)
            name = f"{'column' if columns else 'row'}, m = {m}"
            yield Row("DTensor MLP-1, float32", name, mlp1(machine, m, columns), measured, True, source)


def cublas() -> Iterator[Row]:
    """One GEMM on one device."""
    machine, source = h100(), "waynehacking8/blackwell-tensorcore-kernels"
    measured = {"float32": {4096: 45.7, 8192: 50.5}, "float16": {2048: 541.0, 4096: 726.0, 8192: 750.0}}
    for dtype, sizes in measured.items():
        for size, rate in sizes.items():
            seconds, fitted = 2.0 * size**3 / (rate * 1e12), (dtype, size) == ("float16", 4096)
            predicted = gemm(machine, dtype, size, size, size)
            yield Row(f"cuBLAS, {dtype}", f"{size} cubed", predicted, seconds, fitted, source)
    for what, seconds in (("all-gather's", 0.846e-3), ("reduce-scatter's", 0.818e-3)):
        shape = (4096, 49152 // 8, 12288) if what == "all-gather's" else (4096, 12288, 49152 // 8)
        predicted = gemm(machine, "bfloat16", *shape)
        yield Row("GEMM of Flux on H800", what, predicted, seconds, False, "bytedance/flux")
    size, tile = 8192, pvc()
    predicted = gemm(tile, "float32", size, size, size)
    measured_s = 2.0 * size**3 / 21.5e12
    yield Row("PVC, one tile", "SGEMM", predicted, measured_s, True, "Argonne user guides")


def pallas() -> Iterator[Row]:
    """The JAX Pallas collective matmul page: 1024 x 4096 x 4096 a device in float16, in microseconds."""
    machine, source = h100(), "JAX Pallas collective matmul page"
    for devices, reference, kernel in ((2, 147, 102), (4, 290, 212), (8, 565, 436)):
        shard = 1024 * 4096 * 2.0
        gathered = all_gather(machine, shard, devices) + gemm(machine, "float16", 1024 * devices, 4096, 4096)
        yield Row("Pallas reference", f"{devices} devices", gathered, reference * 1e-6, False, source)
        step = max(gemm(machine, "float16", 1024, 4096, 4096), copies(machine, shard))
        ring = (devices - 1) * step + gemm(machine, "float16", 1024, 4096, 4096)
        yield Row("Pallas kernel", f"{devices} devices", ring, kernel * 1e-6, False, source)


def gathers() -> Iterator[Row]:
    """All-gathers with a GEMM after them, beside one, and alone; NCCL on eight H100."""
    machine = h100()
    table = {128: (142, 284, 514), 256: (273, 499, 953), 512: (514, 912, 1810)}
    for m, times in table.items():
        for k, micro in zip((4096, 8192, 16384), times, strict=True):
            after = gemm(machine, "bfloat16", 8 * m, 6656, k)
            predicted = all_gather(machine, m * k * 2.0, 8) + after
            name = f"{m} rows a device, k = {k}"
            yield Row("all-gather, then GEMM", name, predicted, micro * 1e-6, False, "kraken pull request 2")
    product, gather = gemm(machine, "float16", 8192, 8192, 8192), all_gather(machine, 64.0 * MiB, 8)
    for name, predicted, milli in (
        ("one after the other", product + gather, 2.96),
        ("overlapped by copy engines", max(product, gather), 1.77),
    ):
        yield Row("8192 cubed and 64 MiB shards", name, predicted, milli * 1e-3, False, "pytorch 172714")
    for size, rate in ((1, 12), (4, 57), (16, 229), (64, 383)):
        predicted, measured = all_gather(machine, size * MiB, 8), 7 * size * MiB / (rate * 1e9)
        yield Row("all-gather alone", f"{size} MiB shards", predicted, measured, False, "pytorch 182850")


def rows() -> list[Row]:
    """Return all rows."""
    return [*dtensor(), *cublas(), *pallas(), *gathers()]
