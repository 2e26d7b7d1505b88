"""Predictions beside public measurements: fitted numbers, found again, and the rows that judge."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.image import draw
from experiments.common.kept import FULL, keep
from experiments.common.ledger import Entry, Sections, given, reproduced
from experiments.common.machines import shipped
from experiments.common.points import csv_text
from experiments.common.published import published
from experiments.truth import holdout, multiplies, order
from experiments.truth.collectives import collectives
from experiments.truth.figure import figure
from experiments.truth.fits import fits
from experiments.truth.page import Judged, csv_rows, fitted_in, judged, with_figures
from experiments.universal.layers import BATCHES, SIZES
from umm.algorithms.dtensor.choice import SHARD_0, SHARD_1, Mesh, chosen_way

HERE = Path(__file__).parent
SAID = published("truth")
WITHIN = 0.1
RANKS = re.compile(r"(?: of|,) (\d+|all ranks|\d+ (?:nodes|ranks|(?:MI|H|B)\d+))$")
"""The end of a group's name that says its ranks."""
TWO = "XLA's 8 B200, fitted, take {} us at 2 MiB and 2 GiB, Vultr's {}"
LATER = {
    "all-gather": TWO.format("45 and 3,048", "22 and 2,874"),
    "reduce-scatter": TWO.format("41 and 2,928", "23 and 2,805"),
    "all-reduce": TWO.format("62 and 6,122", "33 and 4,603") + "; `gb200-nvl72` fits these rows",
    "all-to-all": TWO.format("41 and 3,196", "23 and 3,041"),
}
PAIR = "4 MiB take 45 us where 1 and 8 MiB take 39 and 66"
WHY = {
    "all-gather, then GEMM": "at the slow end of the range: one rate stands between the power states",
    "XLA, b200-8, all-to-all of 2": PAIR,
} | {
    f"Vultr, b200-8, {what}, all ranks": why for what, why in LATER.items()
} | {
    "Vultr, b200-8, reduce-scatter, 2 nodes":
        "at 64 MiB all-gathers take 235 and 278 us on Google's clusters, Vultr's 490",
    "small all-reduces, two-shot by vLLM, 8 MI355X":
        "vLLM's earlier kernel; AITER's was fitted",
    "small all-reduces, NCCL, 4 H100":
        "vLLM's four take 37 us for 4 MiB, XLA's two, fitted, 43",
    "many nodes, all-gather":
        "200 GB/s on 32 nodes, where SimAI's rings of half as much reach 225 on 64",
}  # fmt: skip


def run(size: str, jobs: int | None) -> Sections:
    """Judge the rows, of a full run fit again, write data, figure and README, and return the entries."""
    result = judged()
    page = HERE / "README.md"
    before = page.read_text(encoding="utf-8")
    fitted = "".join(f"- {line}\n" for line in fits()) if size == FULL else fitted_in(before)
    keep(HERE / "rows.csv", csv_text(csv_rows(result)), size)
    draw(figure(result, WITHIN), HERE / "rows.svg", size)
    keep(page, with_figures(before, result, fitted), size)
    keep(HERE / "GEMMS.md", multiplies.page(), size)
    keep(HERE / "fusing.csv", csv_text([x._asdict() for x in multiplies.pairs()]), size)
    draw(multiplies.figure(), HERE / "gemms.svg", size)
    return {
        "Public measurements": [*_given(), *_groups(result), _dtensor()],
        "GEMMs and whether to fuse": [*multiplies.entries()],
        "Which all-reduce, by size": [*order.entries()],
        "Collectives, whole groups left out": [*holdout.entries()],
    }


def claims() -> dict[str, str]:
    """Return the claim of each group of rows, in the numbers of published.toml."""
    result = {
        f"cuBLAS, {dtype}": f"cuBLAS on one H100, {dtype}: {_list(rates.values())} TFLOP/s at "
        f"{_list(f'{int(x) // 1024}K' for x in rates)} cubed"
        for dtype, rates in _numbers("cublas_tflops").items()
    }
    result["DeepGEMM, fp8"] = "DeepGEMM's table, fp8 on one H800, 64 to 4,096 rows"
    result["LLMCompass, float16"] = "GEMMs of torch on one A100, 64 to 32,768 rows, each launched alone"
    result["XLA's table, bfloat16"] = "XLA's table of GEMMs on H100"
    least, most = SAID["pvc_tile"]["sgemm_tflops"]
    result["PVC, one tile"] = f"PVC, one tile: SGEMM {least} to {most} TFLOP/s"
    flux = [times for each in _numbers("flux_ms").values() for times in each.values()]
    for number, part in enumerate(("GEMM", "NCCL", "total", "fused")):
        result[f"Flux, {part}"] = f"Flux on 8 A800 and 8 H800: {part} {_list(x[number] for x in flux)} ms"
    micro = [us for each in _numbers("gather_then_gemm_us").values() for us in each]
    result["all-gather, then GEMM"] = f"all-gather then GEMM, bf16, 8 H100: {min(micro)} to {max(micro)} µs"
    overlap = _list(_numbers("overlap_ms").values())
    result["8192 cubed and 64 MiB shards"] = f"8192³ fp16 and a 64 MiB all-gather: {overlap} ms"
    for row in collectives():
        result.setdefault(row.group, row.group)
    return result


def _numbers(table: str) -> dict[str, Any]:
    return {key: value for key, value in SAID[table].items() if key != "where"}


def _list(values: Iterable[str | float]) -> str:
    return ", ".join(x if isinstance(x, str) else f"{x:g}" for x in values)


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
        f"PVC: triad {tile['triad_tbs']:g} TB/s; GPU to GPU {_list(tile['gpu_to_gpu_gbs'])} GB/s and tile to "
        f"tile {_list(tile['tile_to_tile_gbs'])} GB/s, by edition",
        tile["where"],
        f"`pvc-12-planes` has {pvc.memory_bandwidth / 1e12:g} TB/s, {pair:g} GB/s tile to tile, "
        "and the paper's "
        f"{xe:g} GB/s between GPUs",
        pvc.memory_bandwidth / 1e12 == tile["triad_tbs"] and pair in tile["tile_to_tile_gbs"],
        "devices.memory_bandwidth, fabric.types.pair.bandwidth, fabric.types.xe.bandwidth",
    )
    share = h100.means["collective"].interference
    yield given(
        f"GEMMs beside NCCL's kernels are {100 * beside['least']:g} to {100 * beside['most']:g} % slower",
        beside["where"],
        f"`h100-8` takes {100 * share:g} %",
        beside["least"] <= share <= beside["most"],
        "devices.means.collective.interference",
    )


def _groups(result: list[Judged]) -> Iterator[Entry]:
    """Yield a line for groups that differ in their ranks alone, with the figures of each between slashes."""
    families: dict[tuple[str, str], dict[str, list[Judged]]] = {}
    texts = claims()
    rows: dict[str, list[Judged]] = {group: [] for group in texts}
    for x in result:
        if x.row.group in rows:
            rows[x.row.group].append(x)
    for group, some in rows.items():
        match = RANKS.search(group)
        family, ranks = (group[: match.start()], match[1]) if match else (texts[group], "")
        families.setdefault((family, some[0].row.machine), {})[ranks] = some
    for (family, machine), parts in families.items():
        yield _family(family, machine, parts)


def _family(family: str, machine: str, parts: Mapping[str, list[Judged]]) -> Entry:
    """Return the line of a family's groups, by their ranks."""
    several = list(parts.values())
    group = {ranks: some[0].row.group for ranks, some in parts.items()}
    off = [[abs(x.error) for x in some] for some in several]
    medians = {ranks: np.mean([abs(x.by_median) for x in some]) for ranks, some in parts.items()}
    output = (
        f"off {_slashes(f'{100 * np.mean(x):.1f}' for x in off)} %, "
        f"at most {_slashes(f'{100 * max(x):.1f}' for x in off)} %; "
        f"{_slashes(sum(x.inside for x in some) for some in several)} of "
        f"{_slashes(len(some) for some in several)} in range"
    )
    if any(x.row.fitted for some in several for x in some):
        output += f"; {_slashes(sum(x.row.fitted for x in some) for some in several)} fitted"
    if any(x.contradicted for some in several for x in some):
        output += f"; {_slashes(sum(x.contradicted for x in some) for some in several)} contradicted"
    if any(x.by_median != x.error for some in several for x in some):
        output += f", {_slashes(f'{100 * x:.1f}' for x in medians.values())} % by the median"
    wrong = [ranks for ranks, some in parts.items() if medians[ranks] > some[0].row.tolerance]
    entry = reproduced(
        ", ".join(filter(None, (family, *parts))),
        ", ".join(dict.fromkeys(x.row.source for some in several for x in some)),
        output,
        not wrong,
        f"`{machine}`",
        "; ".join(WHY.get(group[ranks], "") for ranks in wrong),
    )
    if wrong and len(wrong) < len(parts):
        return entry._replace(verdict=entry.verdict.replace(":", f" of {_list(wrong)}:", 1))
    return entry


def _slashes(values: Iterable[object]) -> str:
    return "/".join(map(str, values))


def _dtensor() -> Entry:
    n, k = SIZES["MLP-1"]
    mesh = Mesh.of(shipped("h100-8"), (8,))
    result = {
        (name, m): chosen_way(((m, k), (k, n)), 4, (x,), (x,), mesh).c[0]
        for name, x in (("column", SHARD_1), ("row", SHARD_0))
        for m in BATCHES
    }
    gathers = [m for (name, m), c in result.items() if name == "column" and c == SHARD_1]
    rates = published("universal")["dtensor_tflops"]["mlp1"]["col"]
    peak = 8 * shipped("h100-8").peak("float32") / 1e12
    return reproduced(
        "DTensor's choice is its redistribute_cost: column layouts gather A if mk < kn/p, else all-to-all of "
        "B, outer product, reduce-scatter; row layouts always the latter; so "
        f"{100 * rates[-2] / peak:.1f} → {100 * rates[-1] / peak:.1f} % at m = {BATCHES[-1] // 1024}K",
        "PyTorch 2.13, torch/distributed/tensor",
        f"column layouts gather A at m = {_list(map(str, gathers))}, where m < n/p = {n // 8}, and not at "
        f"{BATCHES[-1]}; row layouts sum partial products at every m",
        gathers == [m for m in BATCHES if m < n // 8] == list(BATCHES[:-1])
        and all(result["row", m] == "Partial" for m in BATCHES),
    )
