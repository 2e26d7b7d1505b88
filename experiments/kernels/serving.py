"""All laws of attention and experts of one device, and as the part of a machine file that has them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.common.machines import shipped
from experiments.kernels import attention, exchanges, experts, write
from experiments.kernels.attention import BLACKWELL_L2, L2, Chip
from experiments.kernels.chips import ENGINES, MACHINES
from experiments.kernels.fitting import Fit, Numbers, in_words
from umm.arrays import Floats
from umm.errors import MachineError
from umm.machines import Machine
from umm.machines.drafts.measured_serving import MODULES

PEAKS = {"bfloat16": "bfloat16", "float8": "float8_e4m3", "float4": "float4_e2m1"}
KINDS = {"context_attention": "prefill", "context_mla": "prefill", "generation_attention": "decode",
         "generation_mla": "decode", "moe": "experts"}  # fmt: skip
"""Tables, and the name that a machine file gives to the laws of each."""
MISLABELLED = ("a100_sxm", "trtllm", "generation_attention")
"""Tokens of heads that share keys read them at more than the memory's rate: the cache had 8 bits."""


def chip(machine: Machine, system: str) -> Chip:
    """Return the numbers of a machine's device by data sheets."""
    peaks = {}
    for name, dtype in PEAKS.items():
        try:
            peaks[name] = machine.peak(dtype)
        except MachineError:
            continue
    units = machine.document["devices"]["accumulate_blocks"]["units"]["value"]
    return Chip(units, machine.memory_bandwidth, peaks, L2.get(system, BLACKWELL_L2))


def _chip(system: str) -> Chip:
    return chip(shipped(MACHINES[system]), system)


def fits(
    folder: Path, system: str, machine: Machine, part: str
) -> Iterator[tuple[str, str, str, Numbers, Fit]]:
    """Yield each table that is fitted: its kind, engine, version, shapes and numbers."""
    device = chip(machine, system)
    for name, kind in KINDS.items():
        if part != ("experts" if kind == "experts" else "attention"):
            continue
        every = pd.read_parquet(folder / f"{name}.parquet")
        every = every[~every.op_name.isin(MODULES)]
        for library, some in every[every.system == system].groupby("library"):
            engine, _, version = str(library).partition(" ")
            what, _, variant = name.partition("_")
            if (system, engine, name) == MISLABELLED:
                some = some[some.num_heads == some.num_key_value_heads]
            if kind == "experts":
                rows = experts.rows_of(some)
                fitted = experts.tables(rows[~rows.replayed].reset_index(drop=True), device)
            else:
                latent = variant == "mla"
                systems = attention.family_of(system)
                kin = (every[(every.library == library) & (every.system == x)] for x in systems)
                rows = pd.concat(
                    [
                        attention.on_chip(
                            attention.rows_of(some if x == system else y, what, latent), x, _chip(x)
                        )
                        for x, y in zip(systems, kin, strict=True)
                    ],
                    ignore_index=True,
                )
                fitted = attention.tables(rows, what, latent, device, system)
            for about, fit in fitted:
                yield kind, engine, version, about, fit
    if part == "exchange":
        for version, about, fit in exchanges.tables(folder, system, machine):
            yield "exchange", "sglang", version, about, fit


def text(folder: Path, system: str, machine: Machine, part: str) -> Iterator[str]:
    """Yield the tables of a machine file, and the errors of each kind as comments."""
    errors: dict[str, list[Floats]] = {}
    for kind, engine, version, about, fit in fits(folder, system, machine, part):
        errors.setdefault("latent " * bool(about.get("latent")) + kind, []).append(fit.errors)
        source = f"{ENGINES[engine]} {version} in {write.TABLE}, {len(fit.rows)} rows: {in_words(fit.errors)}"
        error = float(np.expm1(np.abs(fit.errors).mean())) if len(fit.errors) else 1.0
        yield write.serving(
            engine, kind, about | {k: v for k, v in fit.numbers.items() if k not in about}, source, error
        )
    for name, some in errors.items():
        yield f"# {name}: {in_words(np.concatenate(some))}"
