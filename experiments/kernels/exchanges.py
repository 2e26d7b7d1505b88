"""Laws of DeepEP: the numbers of Exchange that fit its measured dispatch and combine best."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.kernels.fitting import Fit, Numbers, fitted
from umm.arrays import Floats
from umm.machines import Machine
from umm.machines.exchange import Exchange

RANKS = 8
ITEMS = {"dispatch": 1.03, "combine": 2.0}
"""Bytes of an element: 8 bits with a scale of 128 of them, and 16 bits back (deepseek-ai/DeepEP)."""
SMS = 24
"""Multiprocessors that DeepEP takes where nothing else is asked for."""


def rows_of(folder: Path, system: str, low_latency: bool, direction: str) -> pd.DataFrame:
    """Return the rows of one device and direction with plain columns."""
    table = pd.read_parquet(folder / f"wideep_deepep_{'ll' if low_latency else 'normal'}.parquet")
    table = table[table.system == system]
    rows = table[["num_token", "hidden_size", "num_topk", "num_experts"]]
    rows = rows.set_axis(["tokens", "hidden", "top_k", "experts"], axis=1).reset_index(drop=True)
    rows["blocks"] = SMS if low_latency else table.dispatch_sms.to_numpy()
    rows["key"] = rows.astype(str).agg("/".join, axis=1)
    micro = table[f"{direction}_{'avg_t' if low_latency else 'transmit'}_us"]
    rows["seconds"] = micro.to_numpy() * 1e-6
    return rows


def _law(rows: pd.DataFrame, width: float, units: int | None) -> Callable[[Mapping[str, Any]], Floats]:
    shape = [rows[x].to_numpy(float) for x in ("tokens", "hidden", "top_k", "experts")]
    blocks = rows.blocks.to_numpy(float) if units is None else units
    return lambda x: Exchange.model_construct(**x).seconds(*shape, RANKS, width, blocks)


def tables(folder: Path, system: str, machine: Machine) -> Iterator[tuple[str, Numbers, Fit]]:
    """Yield the version, the shapes and the numbers of each table of one device."""
    width = machine.hears(range(min(RANKS, machine.device_count)))[0]
    units = machine.document["devices"]["accumulate_blocks"]["units"]["value"]
    for low_latency in (False, True):
        for direction, item in ITEMS.items():
            rows = rows_of(folder, system, low_latency, direction)
            if rows.empty:
                continue
            about = {
                "direction": direction, "low_latency": low_latency, "item": item,
                "blocks": units if low_latency else SMS,
            }  # fmt: skip
            begin = {
                "start": 1e-5, "column": 1e-10, "expert": 1e-9, "token": 1e-8, "link": 0.7, "block": 2e10,
            }  # fmt: skip
            law = partial(_law, width=width, units=units if low_latency else None)
            yield "0.5.12", about, fitted(law, [about], begin, rows, machine.memory_bandwidth)
