"""The league of attention and experts: umm by law, umm by table and a roofline, on shapes not fitted."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.common.machines import shipped
from experiments.kernels import attention, experts
from experiments.kernels.fitting import left_out
from experiments.kernels.serving import KINDS, MISLABELLED
from umm.arrays import Floats
from umm.cost import decode_seconds, experts_seconds, prefill_seconds
from umm.errors import MachineError
from umm.machines import Machine
from umm.machines.drafts.measured import SYSTEMS, table_text
from umm.machines.drafts.measured_serving import MODULES, read_serving_tables
from umm.machines.experts import FORMATS, load_of
from umm.machines.prefill import causal
from umm.machines.serving_tables import COLUMNS, ServingTables, read_kernels
from umm.machines.settings import with_settings

PEAKS = {"bfloat16": "bfloat16", "float8": "float8_e4m3"}


class Game(NamedTuple):
    """Measured kernels of one table, system and engine.

    Attributes:
        name: Of these.
        machine: With the engine's kernels.
        tabled: The same with a table of the rows that laws are fitted on.
        kind: Of kernel.
        rows: Those that judge.
    """

    name: str
    machine: Machine
    tabled: Machine
    kind: str
    rows: pd.DataFrame


def games(folder: Path) -> Iterator[Game]:
    """Yield the games of tables."""
    for table, kind in KINDS.items():
        every = pd.read_parquet(folder / f"{table}.parquet")
        every = every[~every.op_name.isin(MODULES)]
        what, _, variant = table.partition("_")
        backends = every.kernel_source.map(_asked) if kind != "experts" else ""
        every = every.assign(backend=backends)
        for (system, library, backend), some in every.groupby(["system", "library", "backend"]):
            key = "+".join(filter(None, (library.partition(" ")[0], backend)))
            try:
                machine = with_settings(shipped(SYSTEMS[system]), {"kernels": key})
            except (KeyError, MachineError):
                continue
            rows = (
                experts.rows_of(some)
                if kind == "experts"
                else attention.rows_of(some, what, variant == "mla")
            )
            rows["latent"] = variant == "mla"
            judges = left_out(rows)
            if (system, key, table) == MISLABELLED:
                judges = judges & np.asarray(rows.heads == rows.kv_heads)
            tabled = _with_table(machine, some[~np.asarray(judges)])
            replayed = rows.get("replayed", pd.Series(False, rows.index))
            for which, beside in ((~replayed, ""), (replayed, ", tactics of another split")):
                if (judges & which).any():
                    yield Game(f"{system} {key} {table}{beside}", machine, tabled, kind, rows[judges & which])


def _asked(kernel: str) -> str:
    """Return the backend of attention by which a row's kernel is asked for; empty for the usual one."""
    return kernel if kernel == attention.NAMED else attention.backend_of(kernel)


def _with_table(machine: Machine, known: pd.DataFrame) -> Machine:
    """Return a machine with a table of rows beside it, as ``umm machine import`` writes one."""
    with TemporaryDirectory() as folder:
        source, table = Path(folder) / "known.parquet", Path(folder) / "known.csv"
        known.to_parquet(source)
        table.write_text(table_text(read_serving_tables([source])[0], COLUMNS), encoding="utf-8")
        return replace(machine, serving=ServingTables(read_kernels(table, machine), machine))


def law(game: Game) -> Floats:
    """Return seconds by umm's laws; nan where the engine has none of a type."""
    return _seconds(game.machine, game.kind, game.rows)


def table(game: Game) -> Floats:
    """Return the same with the table."""
    return _seconds(game.tabled, game.kind, game.rows)


def _seconds(machine: Machine, kind: str, rows: pd.DataFrame) -> Floats:
    priced: Callable[..., Floats | float | None] = {
        "prefill": _prefill, "decode": _decode, "experts": _experts,
    }[kind]  # fmt: skip
    took = [priced(machine, row) for row in rows.itertuples()]
    return np.array([np.nan if x is None else float(x) for x in took])


def _prefill(machine: Machine, r: "pd.Series[float]") -> Floats | None:
    return prefill_seconds(
        machine, r.dtype, r.cache, r.b, r.queries, r.heads, r.kv_heads, r.head, r.value, r.window,
        r.keys - r.queries, r.latent,
    )  # fmt: skip


def _decode(machine: Machine, r: "pd.Series[float]") -> Floats | None:
    return decode_seconds(
        machine, r.cache, r.b, r.keys, r.heads, r.kv_heads, r.head, r.value, r.window, r.latent, warm=True
    )


def _experts(machine: Machine, r: "pd.Series[float]") -> float | None:
    return experts_seconds(
        machine,
        r.dtype,
        r.tokens,
        r.hidden,
        r.inter,
        r.top_k,
        r.experts,
        r.tp,
        r.ep,
        r.gated,
        r.skew,
        warm=True,
        rows_of=r.rows_of,
    )


def roofline(game: Game) -> Floats:
    """Return the larger of arithmetic at the peak and traffic at the memory's bandwidth, of data sheets."""
    machine, kind, rows = game.machine, game.kind, game.rows
    memory = machine.memory_bandwidth
    if kind == "experts":
        return np.array([_roofline_of_experts(machine, r) for r in rows.itertuples()])
    r = rows
    size = r.cache.map({"float8": 1.0, "bfloat16": 2.0})
    seen = causal(
        r.b, r.queries, r.heads, r.kv_heads, r["head"], r["value"], r.window, r["keys"] - r.queries
    ).seen
    width = r["head"] + r["value"]
    peak = r.dtype.map({x: machine.peak(y) for x, y in PEAKS.items() if x in set(r.dtype)})
    keys = np.minimum(r["keys"], np.where(r.window > 0, r.window + r.queries, np.inf))
    read = np.where(r.latent & (kind == "decode"), r["head"], width)
    moved = r.b * (2 * r.queries * r.heads * width + keys * r.kv_heads * read * size)
    return np.asarray(np.maximum(2 * r.b * r.queries * r.heads * seen * width / peak, moved / memory))


def _roofline_of_experts(machine: Machine, r: "pd.Series[float]") -> float:
    load = load_of(r.rows_of(r.tokens, r.experts, r.top_k, r.ep, r.skew), r.tokens, r.top_k)
    form, elements = FORMATS[r.dtype], (3 if r.gated else 2) * r.hidden * -(-r.inter // r.tp)
    arithmetic = 2 * float(load.rows) * elements / machine.peak(form.dtype)
    return max(arithmetic, float(load.hit) * elements * form.weight / machine.memory_bandwidth)


def report(folder: Path) -> Iterator[str]:
    """Yield the table: geometric mean error, and the share of rows within 30 %."""
    ways = {"law": law, "table": table, "roofline": roofline}
    yield f"{'system, engine, kernels':50}{'rows':>6}" + "".join(f"{x:>16}" for x in ways)
    for game in games(folder):
        cells = []
        for way in ways.values():
            errors = np.abs(np.log(way(game) / game.rows.seconds.to_numpy()))
            errors = errors[np.isfinite(errors)]
            cells.append(
                f"{np.expm1(errors.mean()):.0%} / {np.mean(errors < np.log(1.3)):.0%}" if len(errors) else "–"
            )
        yield f"{game.name:50}{len(game.rows):>6}" + "".join(f"{x:>16}" for x in cells)
