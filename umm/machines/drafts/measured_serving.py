"""Measured attention and experts from tables of others, by AIConfigurator's columns."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from umm.errors import InputError
from umm.machines.drafts.measured import AIC_TABLE, MAX_SIDE, TIMES, lines_of, newest
from umm.machines.serving_tables import format_text
from umm.machines.tables import MOST_ROWS
from umm.numbers import real_in
from umm.quoting.terminal import visible

NAMES = ("context_attention", "generation_attention", "context_mla", "generation_mla", "moe")
"""AIConfigurator's tables."""
CACHED = {"bfloat16": "bfloat16", "fp8": "float8", "float8": "float8"}
"""Types of attention as tables call them, and as machine files do."""
LATENT = {"context": (192, 128), "generation": (576, 512)}
"""Columns of keys and of values of latent attention, of prompts and of the cache (DeepSeek-V2 and V3)."""
MODULES = ("context_mla", "generation_mla")
"""Names of rows of vLLM 0.14 of a layer with its projections, not of a kernel; they are left out."""
EXPERTS = {
    "bfloat16": "bfloat16", "fp8": "float8", "fp8_block": "float8:128", "nvfp4": "float4", "int4_wo": "int4",
    "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4:float8",
}  # fmt: skip
"""Types of experts as tables call them, and as machine files do."""
Key = tuple[str, str, str]  # kernel, format and sizes as a table beside a machine file has them


def is_serving(line: Mapping[str, Any]) -> bool:
    """Whether a table's row is of attention or experts, by its columns."""
    return bool({"moe_dtype", "attn_dtype", "mla_dtype"} & line.keys())


def read_serving_tables(paths: Iterable[Path]) -> tuple[dict[Key, float], dict[str, int]]:
    """Return the least seconds of each kernel, format and sizes; and the rows left out, by why.

    InputError if a file is not such a table.
    """
    rows: dict[Key, float] = {}
    left: dict[str, int] = {}
    for path in paths:
        name = visible(path.name)
        for number, line in enumerate(lines_of(path), 1):
            try:
                key = (_experts if "moe_dtype" in line else _attention)(line)
                time = next(x for x in TIMES if x in line)
                seconds = _number(line, time) * TIMES[time]
                if seconds <= 0:
                    raise ValueError(f"{time} must be more than 0")
            except (KeyError, StopIteration, ValueError) as error:
                raise InputError(f"{name}, row {number} is no attention or experts: {error}") from None
            if isinstance(key, str):
                left[key] = left.get(key, 0) + 1
                continue
            rows[key] = min(seconds, rows.get(key, math.inf))
            if len(rows) > MOST_ROWS:
                raise InputError(f"{name} has more than {MOST_ROWS:,} shapes, which are not read")
    return rows, left


def _number(line: Mapping[str, Any], name: str, least: float = 0.0) -> float:
    """Return a number of a row; ValueError if it is none, or too small."""
    value = real_in(str(line[name]).strip())
    if value is None or not value >= least:
        raise ValueError(f"{name} must be a number of at least {least:g}")
    return value


def _counts(line: Mapping[str, Any], *names: str) -> list[int]:
    values = [_number(line, name, 1.0) for name in names]
    for name, value in zip(names, values, strict=True):
        if not value.is_integer() or value >= MAX_SIDE:
            raise ValueError(f"{name} must be a whole number below 2^31")
    return [*map(int, values)]


def _experts(line: Mapping[str, Any]) -> Key | str:
    if line["moe_dtype"] not in EXPERTS:
        return f"experts of {line['moe_dtype']}"
    names = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    loads = str(line["distribution"]).rpartition("_")
    skew = real_in(loads[2]) if loads[1] else 0.0
    if skew is None:
        return f"experts with {line['distribution']} loads"
    shape = format_text(EXPERTS[line["moe_dtype"]], *_counts(line, *names), skew)
    return "experts", shape, str(*_counts(line, "num_tokens"))


def _attention(line: Mapping[str, Any]) -> Key | str:
    latent, op = "mla_dtype" in line, str(line["op_name"])
    dtype, cache = line["mla_dtype" if latent else "attn_dtype"], line["kv_cache_dtype"]
    if op in MODULES or dtype not in CACHED or cache not in CACHED:
        return "layers with projections" if op in MODULES else f"attention of {dtype}, cache of {cache}"
    prompts = "context" in op
    b, queries, heads = _counts(line, "batch_size", "isl", "num_heads")
    keys = queries + int(_number(line, "step"))
    if latent:
        kv_heads, window = heads if prompts else 1, 0
        head, value = LATENT["context" if prompts else "generation"]
    else:
        kv_heads, head = _counts(line, "num_key_value_heads", "head_dim")
        value, window = head, int(real_in(str(line.get("window_size") or 0)) or 0)
    if prompts:
        shape = format_text(CACHED[dtype], CACHED[cache], head, value, window, int(latent))
        return "prefill", shape, f"{b} {queries} {keys} {heads} {kv_heads}"
    few = int(0 < window < keys)
    shape = format_text(CACHED[cache], head, value, window, int(latent), int(heads == kv_heads), few)
    return "decode", shape, f"{b} {keys} {heads} {kv_heads}"


def aic_serving(multiplies: Path) -> list[Path]:
    """Return AIConfigurator's tables of attention and experts of the system and engine of one of multiplies.

    Of the same version where there is one, else of the newest.
    """
    data, engine, version = multiplies.parents[3], multiplies.parents[1].name, multiplies.parent.name
    tables = []
    for name in NAMES:
        versions = {x.parent.name: x for x in data.glob(f"*/{engine}/*/{name}_{AIC_TABLE}")}
        if versions:
            tables.append(versions[version if version in versions else newest(versions)])
    return tables
