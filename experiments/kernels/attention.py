"""Laws of attention of prompts and tokens, by heads and by latent vectors: numbers of Prefill and Decode."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from experiments.kernels.fitting import FEW, Fit, Law, Numbers, fitted, parted, refined
from umm.arrays import Floats
from umm.dtypes import element_bytes
from umm.machines.decode import MOST_GROUP, SHORT, Decode, Tokens, tokens, unshared_keys
from umm.machines.drafts.measured_serving import CACHED, LATENT
from umm.machines.prefill import Prefill, causal

BACKENDS = ("triton", "flashinfer")
"""Backends that an engine has beside its usual one, for heads, windows or models of their own."""
NAMED = "trtllm_mha"
"""A usual one that can be asked for by name."""
TWO_KERNELS = "torch_flow"
"""TensorRT-LLM's, which before Blackwell has another kernel for tokens of few parts."""
HYBRIDS = ["32/2", "16/1", "24/4", "12/2", "6/1", "3/1", "16/2", "8/1"]
"""Heads of 256 columns of Qwen3-Next and 3.5, for which SGLang takes Triton on Blackwell, and their splits.

Source: sgl-project/sglang, server_args.py, sm100_default_attention_backend of Qwen3-Next.
"""
HYBRID_HEAD = 256
DECODES = "trtllmdecode"
"""Kernels of prompts of one token that are those of tokens."""
L2 = {"a100_sxm": 40e6, "h100_sxm": 50e6, "h200_sxm": 50e6}
"""Bytes of the L2 cache by data sheets; 126 MB of Blackwell."""
BLACKWELL_L2 = 126e6
FAMILIES = (("b200_sxm", "b300_sxm", "gb200", "gb300"), ("h100_sxm", "h200_sxm"))
"""Systems whose chips have the same multiprocessors and kernels, which tokens' tables begin with as one.

A table of one chip has a dozen numbers and may have 13 rows; those of the family have four times as many.
"""
OF_MEMORY = ("memory", "cached", "again", "passes")
"""Rates of tokens' kernels that are fitted as shares of the memory's by the data sheet."""
SEGMENTING = "vllm_triton"
FLASH = {
    "vllm_flash_attn": "flash2",
    "flash_attention": "flash3",
    "fa3": "flash3",
    "vllm_flash_attn_fa3": "flash3",
    "vllm_flash_attn_fa4": "flash3",
}
"""FlashAttention's rules by kernel, with blocks of keys and rows of tiles by their source.

Source: Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp, set_params_splitkv: 128 keys, two parts a
multiprocessor; hopper/tile_size.h, tile_size_fwd_sm8x: 112 keys where they are cut, 64 where not. Heads of
512 columns, of which five rows are, are by version 4.
"""
BLOCKS = {
    "bfloat16": [{64: 128.0, 128: 128.0, 192: 96.0, 256: 80.0, 512: 64.0}],
    "float8": [{64: 160.0, 128: x, 192: 160.0, 256: 128.0} for x in (160.0, 96.0)],
}
"""Keys of its blocks on Hopper by columns: of 8 bits and 128 columns, one or two groups of warps.

Source: hopper/tile_size.h, tile_size_fwd_sm90 of pages without TMA.
"""
GRAPH_PARTS = 32
"""Parts that vLLM has at most in a CUDA graph, VLLM_FLASH_ATTN_MAX_NUM_SPLITS_FOR_CUDA_GRAPH."""
AMPERE_L2 = 40e6


@dataclass(frozen=True)
class Chip:
    """Numbers of a device by its data sheet.

    Attributes:
        units: Multiprocessors.
        memory: Bytes/s.
        peaks: flop/s by type.
        l2: Bytes.
    """

    units: int
    memory: float
    peaks: Mapping[str, float]
    l2: float


def rows_of(table: pd.DataFrame, what: str, latent: bool) -> pd.DataFrame:
    """Return the rows of attention with plain columns: shape, types, kernel, seconds.

    Args:
        table: Rows of one device and engine.
        what: ``context`` of prompts, ``generation`` of tokens.
        latent: Whether by latent vectors.
    """
    head, value = LATENT[what] if latent else (table.head_dim, table.head_dim)
    kv_heads = (table.num_heads if what == "context" else 1) if latent else table.num_key_value_heads
    window = 0.0 if latent else table.window_size.fillna(0)
    keys = table.isl + table.step
    rows = pd.DataFrame({
        "b": table.batch_size, "queries": table.isl, "keys": keys, "heads": table.num_heads,
        "kv_heads": kv_heads, "head": head, "value": value, "window": window,
    }).astype(float)  # fmt: skip
    rows["dtype"] = table["mla_dtype" if latent else "attn_dtype"].map(CACHED)
    rows["cache"] = table.kv_cache_dtype.map(CACHED)
    rows["kernel"], rows["seconds"] = table.kernel_source, table.latency * 1e-3
    rows["key"] = (
        rows[["b", "queries", "keys", "heads", "kv_heads", "head", "window"]]
        .astype(str)
        .agg("/".join, axis=1)
    )
    rows["windowed"] = rows.window > 0
    rows["alone"] = rows.heads == rows.kv_heads
    return rows.reset_index(drop=True)


def tables(
    rows: pd.DataFrame, what: str, latent: bool, chip: Chip, system: str
) -> Iterator[tuple[Numbers, Fit]]:
    """Yield the tables of an engine: the shapes of each, and its numbers.

    Args:
        rows: Of all systems of the family, as :func:`on_chip` returns them.
        what: ``context`` of prompts, ``generation`` of tokens.
        latent: Whether by latent vectors.
        chip: Of the system.
        system: Whose tables they are.
    """
    by_family = what == "generation" and not latent
    if not by_family:
        rows = rows[rows.system == system]
    for (dtype, cache), some in rows.groupby(["dtype", "cache"], sort=False):
        about: Numbers = {"dtype": dtype, "cache": cache} if what == "context" else {"cache": cache}
        about |= {"latent": True} if latent else {}
        if some.kernel.str.endswith(DECODES).any() and what == "context":
            about, some = about | {"least": 2}, some[some.queries > 1]
        fit = partial(_prefill if what == "context" else _decode, chip=chip, about=about)
        columns = ["windowed"] if what == "context" else ["alone", "windowed"]
        beside = columns if by_family else columns[-1:]
        unshared = unshared_keys(_tokens(some, latent), some.units, _bytes(cache))
        some = some.assign(unshared=unshared, short=some["keys"] <= SHORT)
        # The first of several tables for the same heads counts: other backends come before the usual one.
        for backend, part in sorted(
            some.groupby(some.kernel.map(backend_of)), reverse=True, key=lambda x: x[0]
        ):
            if len(part) < FEW // 2:
                continue
            by = _columns(part, chip) if by_family else columns
            for table in parted(fit, part.reset_index(drop=True), beside if backend else by):
                if by_family:
                    table = _of_chip(table, chip, system, partial(decode_law, cache=cache, latent=latent))
                if len(table.rows):
                    yield from _usual(about | dict(table.about), table, str(backend), some)


def on_chip(rows: pd.DataFrame, system: str, chip: Chip) -> pd.DataFrame:
    """Return rows of attention with their system and the numbers of its chip."""
    return rows.assign(
        system=system, units=float(chip.units), memory=chip.memory, peak=chip.peaks["bfloat16"]
    )


def family_of(system: str) -> tuple[str, ...]:
    """Return the systems whose tokens' tables begin with one table, this one among them."""
    return next((x for x in FAMILIES if system in x), (system,))


def _of_chip(family: Fit, chip: Chip, system: str, law: Law) -> Fit:
    """Return a family's table of tokens as one of its chips has it, with rates in bytes/s."""
    rows = family.rows[family.rows.system == system].reset_index(drop=True)
    fit = family
    if len(rows) < len(family.rows):
        fit = refined(law, family, rows, 1.0) if len(rows) else replace(family, rows=rows)
    rates = {x: fit.numbers[x] * chip.memory for x in OF_MEMORY if x in fit.numbers}
    return replace(fit, numbers=dict(fit.numbers) | rates)


def backend_of(kernel: str) -> str:
    """Return the name of a kernel's backend beside the usual one; empty for that.

    >>> backend_of("vllm_triton_attn"), backend_of("torch_flow"), backend_of("vllm_flashinfer_trtllmdecode")
    ('triton', '', '')
    """
    return next((x for x in BACKENDS if x in kernel and "trtllm" not in kernel), "")


def _usual(about: Numbers, fit: Fit, backend: str, rows: pd.DataFrame) -> Iterator[tuple[Numbers, Fit]]:
    """Yield a table, of another backend once for each heads that the engine takes it for unless asked."""
    if not backend:
        yield about | ({"backend": NAMED} if (fit.rows.kernel == NAMED).all() else {}), fit
        return
    windows = [about["windowed"]] if "windowed" in about else [False, True]
    hybrids = (fit.rows["head"] == HYBRID_HEAD) & ~fit.rows.windowed
    hybrid = backend == "triton" and hybrids.any() and not about.get("windowed")
    named: Numbers = {"usual_heads": HYBRIDS} if hybrid else {}
    heads: dict[bool, list[int]] = {}
    for windowed in windows:
        some = rows[rows.windowed == windowed]
        most = some.kernel.map(backend_of).eq(backend).groupby(some["head"]).mean() > 0.5
        heads[windowed] = [int(x) for x in most.index[most] if x in fit.numbers["head"]]
    about = about | {"backend": backend}
    if len({tuple(x) for x in heads.values()}) == 1:
        yield about | {"usual": heads[windows[0]]} | named, fit
        return
    for windowed, usual in heads.items():
        yield about | {"windowed": windowed, "usual": usual} | (named if not windowed else {}), fit


def _by_head(rows: pd.DataFrame, **begin: float) -> tuple[list[int], Numbers]:
    heads = sorted({int(x) for x in rows["head"]})
    return heads, {f"{name}:{i}": x for name, x in begin.items() for i in range(len(heads))}


def prefill_law(rows: pd.DataFrame, peak: float, cache: str) -> Callable[[Mapping[str, Any]], Floats]:
    """Return a function from numbers of Prefill to the seconds of prompts."""
    r = rows
    prompts = causal(
        r.b, r.queries, r.heads, r.kv_heads, r["head"], r["value"], r.window, r["keys"] - r.queries
    )
    return lambda x: Prefill.model_construct(**x).seconds(prompts, peak, _bytes(cache))


def decode_law(rows: pd.DataFrame, cache: str, latent: bool) -> Callable[[Mapping[str, Any]], Floats]:
    """Return a function from numbers of Decode to tokens' seconds.

    Rates are shares of the memory's, those of latent vectors, whose tables are of one chip, bytes/s.
    """
    some = _tokens(rows, latent)
    units, memory, peak = (rows[x].to_numpy() for x in ("units", "memory", "peak"))

    def seconds(numbers: Mapping[str, Any]) -> Floats:
        rates = {x: numbers[x] * memory for x in OF_MEMORY if x in numbers and not latent}
        kernel = Decode.model_construct(**{**numbers, **rates, "units": units})
        return kernel.seconds(some, peak, _bytes(cache))

    return seconds


def _tokens(r: pd.DataFrame, latent: bool) -> Tokens:
    return tokens(r.b, r["keys"], r.heads, r.kv_heads, r["head"], r["value"], r.window, latent)


def _bytes(cache: str) -> float:
    return element_bytes({"float8": "float8_e4m3"}.get(cache, cache))


def _columns(rows: pd.DataFrame, chip: Chip) -> list[str]:
    """Return the columns by which tables of tokens may be parted."""
    rule = _flash(rows)
    if rule is None:
        return ["unshared" if _two_kernels(rows, chip) else "alone", "windowed"]
    return ["alone" if rule == "flash2" else "short" if chip.l2 == AMPERE_L2 else "windowed"]


def _two_kernels(rows: pd.DataFrame, chip: Chip) -> bool:
    return bool((rows.kernel == TWO_KERNELS).all()) and chip.l2 < BLACKWELL_L2


def _flash(rows: pd.DataFrame) -> str | None:
    """Return FlashAttention's rule that cuts keys of these rows; None if another kernel computes them."""
    rules = {FLASH.get(x) for x in rows.kernel}
    return rules.pop() if len(rules) == 1 else None


def _prefill(rows: pd.DataFrame, form: Numbers | None, chip: Chip, about: Numbers) -> Fit:
    heads, begin = _by_head(rows, value=0.5, start=8e-6)
    begin |= {
        "ramp": 2e-6, "keys": 64.0, "tail": 0.5, "split": 1e-4, "norm": 3.0, "memory": 0.7 * chip.memory,
        "write": 0.5 * chip.memory, "token": 1e-9, "sequence": 1e-8,
    }  # fmt: skip
    forms = [
        {"units": chip.units, "head": heads, "tile": tile, "packed": packed}
        for packed in (False, True) for tile in (128, 64)
    ]  # fmt: skip
    if rows.windowed.any() and rows.kernel.str.contains("triton").any():
        begin |= {"skipped": 0.3}
    peak = chip.peaks[about["dtype"]]
    law = partial(prefill_law, peak=peak, cache=about["cache"])
    return fitted(law, [form | {"head": heads}] if form else forms, begin, rows, chip.memory)


def _decode(rows: pd.DataFrame, form: Numbers | None, chip: Chip, about: Numbers) -> Fit:
    heads, begin = _by_head(rows, start=8e-6, feed=4e10)
    latent = bool(about.get("latent"))
    memory = chip.memory if latent else 1.0
    begin |= {
        "ramp": 1e-6, "chunk": 128.0, "tail": 0.5, "split": 2e-6, "value": 0.3, "resident": 1.0, "norm": 3.0,
        "memory": 0.7 * memory, "cached": 1.5 * memory, "passes": memory, "sequence": 1e-8, "token": 1e-9,
    }  # fmt: skip
    if latent:
        begin |= {"again": 2.0 * memory}
    elif len(heads) > 1:
        begin |= {"column": 2e-9}
    plain: Numbers = {"units": chip.units, "l2": int(chip.l2), "head": heads} | about
    forms = [plain | {"rows": size} for size in (8, 16, 64, *((128,) if latent else ()))]
    forms += [plain | {"rows": 64, "key_parts": parts} for parts in (1, 4)]
    forms += [plain | {"rows": 16, "wide": 64} | x for x in ({}, {"key_parts": 4})]
    if rows.windowed.any():
        forms.append(plain | {"rows": 16, "cuts": "past"})
    two_kernels, rule = (False, None) if latent else (_two_kernels(rows, chip), _flash(rows))
    if (rows.heads / rows.kv_heads > MOST_GROUP).any() and not (latent or two_kernels or rule):
        begin |= {"again": 2.0}
        forms += [plain | {"rows": size, "group": MOST_GROUP} for size in (8, 16)]
        forms.append(plain | {"rows": 16, "group": MOST_GROUP, "key_parts": 4})
    if (rows.kernel == NAMED).all():
        begin |= {"merge": 1e-10}
        forms = [x | {"cuts": "context"} for x in forms]
    if rows.kernel.str.startswith(SEGMENTING).all():
        forms = [plain | {"rows": 16, "cuts": "segments"}]
    if two_kernels and rows.unshared.all() and not rows.alone.all():
        begin |= {"again": 2.0}
        forms = [plain | {"rows": 8, "group": 1} | x for x in ({}, {"key_parts": 1}, {"key_parts": 4})]
    elif two_kernels and not rows.unshared.any():
        tiles = ((size, keys) for size in (16, 32, 64) for keys in (16.0, 64.0, 128.0))
        forms = [plain | {"cuts": "xqa", "rows": size, "chunk": keys} for size, keys in tiles]
    if rule == "flash2":
        forms = [plain | {"cuts": rule, "rows": 64, "chunk": 128.0, "resident": 2.0}]
        begin |= {} if rows.alone.all() else {"swap": 5e-6}
    elif rule and chip.l2 == AMPERE_L2:
        cut: Numbers = {"chunk": 64.0} if rows.short.all() else {"chunk": 112.0, "resident": 1.0}
        forms = [plain | {"cuts": rule, "rows": 128} | cut]
    elif rule:
        plain |= {"cuts": rule, "resident": 1.0}
        plain |= {"key_parts": GRAPH_PARTS} if rows.kernel.str.startswith("vllm").any() else {}
        blocks = ([x[y] for y in heads] for x in BLOCKS[about["cache"]])
        forms = [plain | {"chunk": keys, "rows": size} for keys in blocks for size in (64, 128)]
    if two_kernels or rule:
        form = None
        begin = {k: v for k, v in begin.items() if k not in forms[0]}
    if about["cache"] == "float8":
        forms += [x | {"narrow": True} for x in forms]
    law = partial(decode_law, cache=about["cache"], latent=latent)
    return fitted(law, [form | {"head": heads}] if form else forms, begin, rows, memory)
