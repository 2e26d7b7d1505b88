"""Measured attention and experts from tables of others, by AIConfigurator's columns."""

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
SPLIT = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
UNTUNED = "experts whose tuned tactics may be of another split"
TACTICS, REPLAYED = "moe_torch_flow_", ("bfloat16", "fp8")
"""Kernels and types of TensorRT-LLM's experts that may lack tuned tactics; see :func:`replayed`."""
Key = tuple[str, str, str]  # kernel, format and sizes as a table beside a machine file has them


class Split(NamedTuple):
    """Experts of a model as ranks hold them."""

    dtype: str
    hidden: int
    inner: int
    top_k: int
    experts: int
    tp: int
    ep: int

    @property
    def file(self) -> str:
        """Name of the file of its tactics, after the type and hidden columns."""
        return f"{self.inner // self.tp}_{self.experts // self.ep}"


def is_serving(line: Mapping[str, Any]) -> bool:
    """Whether a table's row is of attention or experts, by its columns."""
    return bool({"moe_dtype", "attn_dtype", "mla_dtype"} & line.keys())


def read_serving_tables(paths: Iterable[Path]) -> tuple[dict[Key, float], dict[str, int]]:
    """Return the least seconds of each kernel, format and sizes; and the rows left out, by why.

    InputError if a file is not such a table.
    """
    rows: dict[Key, float] = {}
    left: dict[str, int] = {}
    tuned: dict[Key, Split] = {}
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
            if may_replay(line.get("moe_dtype", ""), str(line.get("kernel_source"))):
                tuned[key] = Split(str(line["moe_dtype"]), *_counts(line, *SPLIT))
            if len(rows) > MOST_ROWS:
                raise InputError(f"{name} has more than {MOST_ROWS:,} shapes, which are not read")
    others = replayed(set(tuned.values()))
    for key in [key for key, split in tuned.items() if split in others]:
        del rows[key]
        left[UNTUNED] = left.get(UNTUNED, 0) + 1
    return rows, left


def may_replay(moe_dtype: str, kernel: str) -> bool:
    """Whether a row is of experts whose tactics TensorRT-LLM tunes and AIConfigurator keeps in files."""
    return moe_dtype in REPLAYED and kernel.startswith(TACTICS)


def replayed(splits: Collection[Split], among: Collection[Split] = ()) -> set[Split]:
    """Return the splits whose file of tuned tactics may be that of another.

    A file is named for the type, hidden columns, and inner columns and experts of a rank; it is read by its
    first letters, so that of 1 expert may be that of 16. TensorRT-LLM knows tactics by all of a split, and
    takes the default where it knows none, which is up to 8 times as slow.

    Args:
        splits: Of a table.
        among: Splits that were measured, if the table has not all.

    Source: ai-dynamo/aiconfigurator, collector/trtllm/collect_moe.py, cache_path; NVIDIA/TensorRT-LLM,
    _torch/autotuner.py, choose_one.

    >>> one, other = Split("fp8", 4096, 1024, 8, 16, 2, 4), Split("fp8", 4096, 2048, 8, 16, 4, 4)
    >>> replayed({one, other, Split("fp8", 4096, 1024, 8, 32, 1, 4)}) == {one, other}
    True
    """
    files: dict[tuple[str, int], list[str]] = {}
    for split in {*splits, *among}:
        files.setdefault((split.dtype, split.hidden), []).append(split.file)
    same = {(x.dtype, x.hidden, x.file) for x in splits}
    shared = {x for x in same if sum(y.startswith(x[2]) for y in files[x[:2]]) > 1}
    return {x for x in splits if (x.dtype, x.hidden, x.file) in shared}


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
    loads = str(line["distribution"]).rpartition("_")
    skew = real_in(loads[2]) if loads[1] else 0.0
    if skew is None:
        return f"experts with {line['distribution']} loads"
    shape = format_text(EXPERTS[line["moe_dtype"]], *_counts(line, *SPLIT), skew)
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
