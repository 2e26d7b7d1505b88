"""Laws of experts: the numbers of Experts that fit an engine's measured layers of experts best."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from experiments.kernels.attention import Chip
from experiments.kernels.fitting import BETTER, FEW, Fit, Numbers, fitted, parted
from umm.arrays import Bools, Floats
from umm.dtypes import rated
from umm.machines.drafts.measured_serving import EXPERTS, SPLIT, Split, may_replay, replayed
from umm.machines.experts import (
    ALIGNED,
    FORMATS,
    ROWS,
    Experts,
    Load,
    drawn_rows,
    load_of,
    rows_of_experts,
)

PLAIN = {(2048, 5120, 22), (8192, 5120, 22), (1024, 2688, 22), (4096, 2688, 22), (2688, 1856, 6)}
"""Hidden and inner columns and experts a token of Nemotron-H, whose experts have no gate."""

GATED_ALONE = ("vllm 0.14.0", "sglang 0.5.10", "trtllm 1.0.0")
"""Versions whose measured kernels gate every expert."""

AT_ONCE = ("vllm 0.14.0",)
"""Versions measured with loads of which rounding's rest went to the emptiest experts, whatever their rank."""

TUNED = {
    ("a100_sxm", "vllm 0.14.0"): {
        "1x1792", "1x3584", "1x7168", "1x14336", "8x1792", "8x2048", "8x3584", "8x4096", "8x7168", "16x1344",
        "16x1792", "16x2688", "16x3584", "16x7168", "16x14336", "64x640", "64x1280", "128x192", "512x64",
        "512x128",
    },
    ("h100_sxm", "sglang 0.5.14"): {
        "8x2048", "8x4096", "8x7168", "16x1024", "16x2048", "64x192", "64x320", "64x384", "64x768", "64x1280",
        "128x192", "128x352", "128x384", "128x512", "128x704", "128x768", "512x64", "512x128",
    },
    ("h200_sxm", "sglang 0.5.14"): {
        "8x2048", "8x4096", "8x7168", "16x1024", "64x320", "64x1280", "64x2560", "128x192", "128x384",
        "128x704", "128x768", "512x64", "512x128", "512x256",
    },
}  # fmt: skip
"""Experts and inner columns that Triton's tiles are tuned for in bfloat16: files of vLLM's fused_moe/configs,
and of SGLang's moe_runner/triton_utils/configs those of models with gates that tables have."""

ANY, LARGE, MARLIN = (8, 16, 32, 64, 128), (8, 16, 32, 64, 128, 256), (8, 16, 32, 48, 64)
"""Rows of tiles: of most kernels, of TensorRT-LLM's on Blackwell, and of Marlin's."""
TRITON = "triton|vllm_fused_moe"
"""Names of Triton's kernels; a program of these takes the columns of some rows after each other."""
ARRIVED = {"arrived": True, "computed": True}
"""Of SGLang's rows, whose first expert gets what is of other ranks'."""
BY_MEAN = (1.0, 1.11, 2.0)
"""TensorRT-LLM's generated kernels have 1: ``computeSelectedTileN`` rounds to the next power of two."""
IN_STEP = "mxfp4:float8"
"""Type of kernels whose rows of 8 bits the first tiles read in step."""


def rows_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of experts with plain columns, and the load of the rank that was measured."""
    shape = ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
    rows = table[shape].set_axis(["tokens", "hidden", "inter", "top_k", "experts", "tp", "ep"], axis=1)
    rows = rows.reset_index(drop=True)
    rows["key"] = rows.astype(str).agg("/".join, axis=1)
    rows["dtype"], rows["kernel"] = table.moe_dtype.map(EXPERTS).array, table.kernel_source.array
    rows["seconds"] = table.latency.to_numpy() * 1e-3
    rows["skew"] = [float(x.rpartition("_")[2]) if "_" in x else 0.0 for x in table.distribution]
    rows["spread"] = rows.ep > 1
    rows["rows_of"] = [rows_at_once if x in AT_ONCE else rows_of_experts for x in table.library]
    rows["shape"] = [
        f"{e}x{n}" for e, n in zip(rows.experts // rows.ep, -(-rows.inter // rows.tp), strict=True)
    ]
    tuned = [TUNED.get(x, ()) for x in zip(table.system, table.library, strict=True)]
    rows["tuned"] = [x in some for x, some in zip(rows["shape"], tuned, strict=True)]
    rows["tuned"] &= rows.kernel.str.contains(TRITON) & (rows.dtype == "bfloat16")
    models = zip(rows.hidden, rows.inter, rows.top_k, strict=True)
    ungated = ~table.library.isin(GATED_ALONE).to_numpy()
    rows["gated"] = ~(ungated & np.array([x in PLAIN for x in models]))
    rows["model"] = rows.hidden.astype(str) + "x" + rows.inter.astype(str)
    rows["replayed"] = _replayed(table)
    return rows


def _replayed(table: pd.DataFrame) -> Bools:
    """Return which rows may have run without tuned tactics; a table is a part of the splits of its models."""
    may = [may_replay(*x) for x in zip(table.moe_dtype, table.kernel_source, strict=True)]
    splits = [Split(*x) for x in table[["moe_dtype", *SPLIT]].itertuples(index=False, name=None)]
    models = {x[:5] for x, tunes in zip(splits, may, strict=True) if tunes}
    pairs = product(models, {x[5:] for x in splits})
    every = {Split(*x, tp, ep) for x, (tp, ep) in pairs if x[2] % tp == 0 and x[4] % ep == 0}
    shared = replayed(set(splits), every)
    return np.array([tunes and x in shared for x, tunes in zip(splits, may, strict=True)])


@lru_cache(maxsize=2**14)
def rows_at_once(tokens: int, experts: int, top_k: int, groups: int, skew: float) -> Floats:
    """Return the rows of each expert as :func:`rows_of_experts`, of the collector that measured `AT_ONCE`.

    A token has most of its experts on one rank.

    >>> rows_at_once(1, 384, 8, 16, 1.2).sum(axis=1).tolist()
    [8.0, 8.0, 8.0, 8.0, 8.0]
    """
    if not skew:
        return rows_of_experts(tokens, experts, top_k, groups)
    return drawn_rows(tokens, experts, top_k, groups, skew, 1)


def loads(rows: pd.DataFrame) -> Load:
    """Return the loads of rows, as arrays."""
    shapes = rows[["tokens", "experts", "top_k", "ep", "skew"]].itertuples(index=False, name=None)
    some = [load_of(f(*x), x[0], x[2]) for f, x in zip(rows.rows_of, shapes, strict=True)]
    tiles = {size: np.array([x.tiles[size] for x in some]) for size in ROWS}
    return Load(tiles, *(np.array([x[i] for x in some]) for i in range(1, len(Load._fields))))


def tables(rows: pd.DataFrame, chip: Chip) -> Iterator[tuple[Numbers, Fit]]:
    """Yield the tables of an engine: the shapes of each, and its numbers."""
    for dtype, some in rows.groupby("dtype", sort=False):
        about = {"dtype": dtype}
        fit = partial(_fit, chip=chip, dtype=dtype)
        tuned, some = some[some.tuned].reset_index(drop=True), some[~some.tuned]
        if len(tuned):
            yield about | {"shapes": sorted(tuned["shape"].unique())}, fit(tuned, None)
        best = parted(fit, some.reset_index(drop=True), ["spread"])
        usual = some.groupby("model").kernel.agg(lambda x: x.mode()[0])
        kernel = some.model.map(usual)
        most = kernel.mode()[0]
        # Kernels of too few rows for a table of their own are taken for the most usual one.
        kernel = kernel.where(kernel.map(kernel.value_counts()) >= FEW, most)
        usual = usual.where(usual.isin(kernel.unique()), most)
        parts = [x.reset_index(drop=True) for _, x in some.groupby(kernel)]
        if len(parts) > 1:
            split = [
                table for part in parts for table in parted(fit, part, ["spread"], _models(part, usual, most))
            ]
            if sum(x.cost for x in split) < BETTER * sum(x.cost for x in best):
                best = split
        for table in best:
            yield about | dict(table.about), table


def _models(part: pd.DataFrame, usual: "pd.Series[str]", most: str) -> Numbers:
    """Return which models' kernels a part has, if they are not the most usual ones."""
    kernel = usual[part.model.iloc[0]]
    return {} if kernel == most else {"models": sorted(usual.index[usual == kernel])}


def law(rows: pd.DataFrame, peak: float) -> Callable[[Mapping[str, Any]], Floats]:
    """Return a function from numbers of Experts to the seconds of experts."""
    load, inner = loads(rows), np.ceil(rows.inter / rows.tp).to_numpy()
    hidden, gated = rows.hidden.to_numpy(float), rows.gated.to_numpy()
    return lambda x: Experts.model_construct(**x).seconds(load, hidden, inner, gated, peak, warm=True)


def _fit(rows: pd.DataFrame, form: Numbers | None, chip: Chip, dtype: str) -> Fit:
    begin = {
        "start": 2e-5, "ramp": 1e-6, "tail": 0.5, "memory": 0.7 * chip.memory, "cached": 2 * chip.memory,
        "norm": 3.0, "value": 0.5, "feed": 5e10, "passes": 0.5 * chip.memory, "token": 1e-10, "expert": 1e-9,
    }  # fmt: skip
    plain: Numbers = {"units": chip.units, "l2": int(chip.l2 / 2), "dtype": dtype}
    forms = [plain | {"tiles": list(x)} for x in (ANY, ANY[3:], (16, 64))]
    forms += [plain | {"tiles": list(x), "by_mean": y} for x in (ANY, LARGE, MARLIN) for y in BY_MEAN]
    plainly = list(forms)
    if rows.kernel.str.contains(TRITON).any():
        plainly.append(plain | {"tiles": [16, 64], "by_tokens": True})
        forms = list(plainly)
    else:
        forms += [x | {"reread": True} for x in forms if "by_mean" in x]
    if np.any(np.ceil(rows.inter / rows.tp) % ALIGNED):
        begin |= {"unaligned": 0.7}
    if dtype == IN_STEP:
        begin |= {"first": 2 * chip.memory}
    if rows.spread.any():
        forms += [x | {"everywhere": True} for x in forms]
        forms += [x | y for x in plainly for y in ({"arrived": True}, ARRIVED)]
    peak = rated(FORMATS[dtype].dtype)
    peak = {"float8_e4m3": "float8", "float4_e2m1": "float4"}.get(peak, peak)
    return fitted(partial(law, peak=chip.peaks[peak]), [form] if form else forms, begin, rows, chip.memory)
