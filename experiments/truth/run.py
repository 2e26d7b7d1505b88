"""Predictions beside public measurements: what was fitted, found again, and what judges it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.common.kept import FULL, keep
from experiments.common.ledger import Entry, Sections, given, reproduced
from experiments.common.machines import shipped
from experiments.common.points import csv_text
from experiments.common.published import published
from experiments.truth.fits import fits
from experiments.truth.page import Judged, csv_rows, fitted_in, judged, with_tables
from umm.algorithms.dtensor_choice import SHARD_0, SHARD_1, Mesh, chosen_way

HERE = Path(__file__).parent
SAID = published("truth")
WITHIN = 0.1
WHY = {
    "all-gather, then GEMM": "at the slow end of the range: one rate stands between the power states",
    "8192 cubed and 64 MiB shards": "copies take memory bandwidth from the GEMM, in the file they do not",
    "all-gather alone": "these take half a millisecond up to 16 MiB, and what that is, is not said there",
}
CLAIMS = {
    "cuBLAS, float32": "cuBLAS on one H100, fp32 45.7 and 50.5 TFLOP/s at 4K and 8K cubed",
    "cuBLAS, tf32": "cuBLAS, TF32 319, 399 and 412 TFLOP/s at 2K, 4K, 8K cubed",
    "cuBLAS, float16": "cuBLAS, fp16 541, 726 and 750 TFLOP/s",
    "XLA's table, bfloat16": "XLA's table of GEMMs on H100",
    "PVC, one tile": "PVC, one tile: SGEMM 21 to 22 TFLOP/s",
    "Flux, GEMM": "Flux on 8 A800 and 8 H800: GEMM 2.438, 2.453, 0.846, 0.818 ms",
    "Flux, NCCL": "Flux: NCCL 0.662, 0.646, 0.583, 0.590 ms",
    "Flux, total": "Flux: total 3.099, 3.100, 1.429, 1.408 ms",
    "Flux, fused": "Flux: fused 2.469, 2.508, 0.957, 0.932 ms",
    "all-gather, then GEMM": "all-gather then GEMM, bf16, 8 H100: 142 to 1810 µs",
    "8192 cubed and 64 MiB shards": "8192³ fp16 and a 64 MiB all-gather: 2.96, 2.02, 1.77 ms",
    "all-gather alone": "all-gather by shard: 1 MiB 12, 4 MiB 57, 16 MiB 229, 64 MiB 383 GB/s",
}


def run(size: str, jobs: int | None) -> Sections:
    """Judge the rows, of a full run fit again, write data and README, and return the entries."""
    found = judged()
    page = HERE / "README.md"
    before = page.read_text(encoding="utf-8")
    fitted = "".join(f"- {line}\n" for line in fits()) if size == FULL else fitted_in(before)
    keep(HERE / "rows.csv", csv_text(csv_rows(found)), size)
    keep(page, with_tables(before, found, fitted), size)
    return {"Public measurements": [*_given(), *_groups(found), _dtensor()]}


def _given() -> Iterator[Entry]:
    h100, pvc = shipped("h100-8"), shipped("pvc-12-planes")
    copies, tile, beside = (SAID[x] for x in ("copies_gbs", "pvc_tile", "interference"))
    rate = h100.bandwidth_matrix()[0, 1] / 1e9
    yield given(
        f"copy-engine peer copies on H100 reach {copies['least']} to {copies['most']} of 450 GB/s",
        copies["where"],
        f"`h100-8` has {rate:g} GB/s",
        copies["least"] <= rate <= copies["most"],
        "fabric.bandwidth",
    )
    xe, pair = pvc.bandwidth_matrix()[0, [3, 1]] / 1e9
    yield given(
        "PVC: triad 1.0 TB/s; GPU to GPU 29 GB/s; tile to tile 73, 196 or 296 GB/s by edition",
        tile["where"],
        f"`pvc-12-planes` has {pvc.memory_bandwidth / 1e12:g} TB/s, {pair:g} GB/s tile to tile, "
        "and the paper's "
        f"{xe:g} GB/s between GPUs",
        pvc.memory_bandwidth / 1e12 == tile["triad_tbs"] and pair in tile["tile_to_tile_gbs"],
        "devices.memory_bandwidth, fabric.types.pair.bandwidth, fabric.types.xe.bandwidth",
    )
    share = h100.means["collective"].interference
    yield given(
        "GEMMs beside NCCL's kernels are 30 to 40 % slower",
        beside["where"],
        f"`h100-8` takes {100 * share:g} %",
        beside["least"] <= share <= beside["most"],
        "devices.means.collective.interference",
    )


def _groups(found: list[Judged]) -> Iterator[Entry]:
    for group, claim in CLAIMS.items():
        own = [x for x in found if x.row.group == group]
        errors = [abs(x.error) for x in own]
        used = sum(x.row.fitted for x in own)
        said = ", and was fitted to" if used == len(own) else f", {used} fitted" if used else ""
        yield reproduced(
            claim,
            own[0].row.source,
            f"off {100 * np.mean(errors):.1f} % in the mean, {100 * max(errors):.1f} % at most; "
            f"{sum(x.inside for x in own)} of {len(own)} in the stated range{said}",
            bool(np.mean(errors) <= WITHIN),
            f"`{own[0].row.machine}`",
            WHY.get(group, ""),
        )


def _dtensor() -> Entry:
    mesh = Mesh.of(shipped("h100-8"), (8,))
    found = {
        (name, m): chosen_way(((m, 12288), (12288, 49152)), 4, (x,), (x,), mesh).c[0]
        for name, x in (("column", SHARD_1), ("row", SHARD_0))
        for m in (1024, 2048, 4096, 8192)
    }
    gathers = [m for (name, m), c in found.items() if name == "column" and c == SHARD_1]
    return reproduced(
        "DTensor's choice is its redistribute_cost: column layouts gather A if mk < kn/p, else "
        "all-to-all of B, "
        "outer product, reduce-scatter; row layouts always the latter; so 71.4 → 62.5 % at m = 8K",
        "PyTorch 2.13, torch/distributed/tensor",
        f"column layouts gather A at m = {', '.join(map(str, gathers))}, where m < n/p = "
        f"{49152 // 8}, and not at 8192; row layouts sum partial products at every m",
        gathers == [1024, 2048, 4096] and all(found["row", m] == "Partial" for m in (1024, 2048, 4096, 8192)),
    )
