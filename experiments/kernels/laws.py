"""All laws of one device: fitted to the measured tables, and as the part of a machine file that has them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from experiments.common.wheel import wheel
from experiments.kernels import allreduces, collectives, multiplies, write
from experiments.kernels.chips import (
    BLACKWELLS,
    BORROWED,
    BY_CALL,
    ENGINES,
    HOSTED,
    OWN_ALL_REDUCES,
    PACKED,
    RANKS,
    device,
)
from experiments.kernels.forms import forms
from experiments.kernels.multiplies import TYPES, Law
from umm.machines import Machine
from umm.machines.kernels import Issue

OWN = "the numbers above, which are fitted on XLA's tables where they were measured"
EDGES = Issue(time="0 s", unless=[64, 128])
HOPPER = (Issue(time="0 s"), Issue(time="0 s", rows=31), EDGES)
BLACKWELL = (Issue(time="0 s"), Issue(time="0 s", unless_rows=4), EDGES)
"""Shapes for which vLLM has other kernels of blocks of 8 bits: few rows, rows that it pads, and edges."""

WHEEL = "AIConfigurator's wheel (aiconfigurator-core 0.12.0)"
OF_WHEEL = f"{WHEEL}, of the shapes of its tables of August 2026"
PACKED_HEAD = f'''[engines."{PACKED}"]
name = "SGLang 0.5.14 with packed scales"
source = "{WHEEL}: scales of B are packed once, as SGLang does when it loads weights; the tables of August pack them on each call"
'''  # fmt: skip  # noqa: E501


@dataclass(frozen=True)
class Laws:
    """The laws fitted for one device.

    Attributes:
        versions: Of engines, and of NCCL.
        multiplies: By engine and type as the tables call them.
        issues: What vLLM's host takes to issue multiplies with scales of blocks.
        ways: Of the library's collectives.
        own: All-reduces of engines.
        by_wheel: Engines and types whose times are the wheel's.
    """

    versions: Mapping[str, str]
    multiplies: Mapping[tuple[str, str], Law]
    issues: Sequence[Issue]
    ways: Sequence[collectives.Ways]
    own: Mapping[str, allreduces.OwnKernels]
    by_wheel: Collection[tuple[str, str]] = ()


def tables(folder: Path, system: str) -> dict[str, pd.DataFrame]:
    """Return the rows of one device: of multiplies, of the library and of engines' all-reduces."""
    result = {}
    for name in ("gemm", "nccl", "custom_allreduce"):
        rows = pd.read_parquet(folder / f"{name}.parquet")
        result[name] = rows[rows.system == system].reset_index(drop=True)
    return result


def fitted(rows: Mapping[str, pd.DataFrame], machine: Machine) -> Laws:
    """Return the laws of a device from its rows."""
    gemm, nccl, custom = rows["gemm"], rows["nccl"], rows["custom_allreduce"]
    versions = {"nccl": nccl.library.iloc[0].removeprefix("nccl ")}
    laws: dict[tuple[str, str], Law] = {}
    by_wheel = list[tuple[str, str]]()
    for engine in ENGINES:
        mine = gemm[gemm.library.str.startswith(engine)]
        if len(mine):
            versions[engine] = mine.library.iloc[0].partition(" ")[2]
        for dtype in TYPES:
            some = mine[mine.gemm_dtype == dtype].reset_index(drop=True)
            if len(some) and (engine, dtype) != HOSTED:
                if (some.system.iloc[0], engine) == BORROWED and (engine, dtype) != BY_CALL:
                    some = of_wheel(some)
                    by_wheel.append((engine, dtype))
                kind = device(machine, dtype), TYPES[dtype], forms(engine, some.system.iloc[0], dtype)
                laws[engine, dtype] = multiplies.fitted(some, *kind)
                if (engine, dtype) == BY_CALL and some.system.iloc[0] in BLACKWELLS:
                    laws[PACKED, dtype] = multiplies.fitted(of_wheel(some), *kind)
    of_library = [
        collectives.fitted(timed(some, machine), collectives.OPS[op])
        for op, some in nccl[nccl.nccl_dtype == "half"].groupby("op_name", sort=False)
        if op in collectives.OPS
    ]
    all_reduce = next(x for x in of_library if x.what == "all-reduce")
    kernels = {}
    for engine, source in OWN_ALL_REDUCES.items():
        some = timed(custom[custom.kernel_source == source], machine)
        eager = timed(custom[custom.kernel_source == source.replace("graph", "eager")], machine)
        issue = allreduces.issued(eager) if source.endswith("graph") else None
        kernels[engine] = replace(allreduces.fitted(some, all_reduce.seconds(some)), issue=issue)
    return Laws(versions, laws, hosted(gemm), of_library, kernels, by_wheel)


def of_wheel(rows: pd.DataFrame) -> pd.DataFrame:
    """Return multiplies of one device with the times that the wheel has of them."""
    system, (engine, _, version) = rows.system.iloc[0], rows.library.iloc[0].partition(" ")
    table = wheel() / system / "gemm" / engine / version / "gemm_perf.parquet"
    keys = ["gemm_dtype", "m", "n", "k"]
    return rows.drop(columns="latency").merge(pd.read_parquet(table, columns=[*keys, "latency"]), on=keys)


def timed(rows: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """Return rows of collectives of 2 bytes an element with bytes, ranks, the links' bytes/s, and seconds."""
    widths = {ranks: machine.hears(range(ranks))[0] for ranks in RANKS}
    return pd.DataFrame({
        "nbytes": rows.message_size * 2.0, "ranks": rows.num_gpus * 1.0,
        "width": rows.num_gpus.map(widths), "seconds": rows.latency * 1e-3,
    }).reset_index(drop=True)  # fmt: skip


def hosted(gemm: pd.DataFrame) -> tuple[Issue, ...]:
    """Return the time of vLLM's host to issue multiplies with scales of blocks; () where it has none."""
    engine, dtype = HOSTED
    rows = gemm[gemm.library.str.startswith(engine) & (gemm.gemm_dtype == dtype)].reset_index(drop=True)
    if not len(rows):
        return ()
    few = rows.kernel_source.str.startswith("FlashInfer").any()
    return multiplies.edges(rows, HOPPER if few else BLACKWELL)


def text(laws: Laws, machine: Machine) -> str:
    """Return the part of the machine file that has the laws."""
    width = machine.hears(range(max(RANKS)))[0]
    parts = []
    for engine in ENGINES:
        mine = {dtype: law for (whose, dtype), law in laws.multiplies.items() if whose == engine}
        if not mine:
            continue
        version = laws.versions[engine]
        name = f"{ENGINES[engine]} {version}"
        issue = laws.own[engine].issue if engine in laws.own else None
        parts.append(write.head(engine, version, mine["bfloat16"].numbers["start"], issue=issue))
        for dtype, law in mine.items():
            table = OF_WHEEL if (engine, dtype) in laws.by_wheel else write.TABLE
            parts.append(_multiply(engine, name, dtype, law, machine, table=table))
        if engine == HOSTED[0] and laws.issues:
            law = replace(laws.multiplies["trtllm", HOSTED[1]], error=0.2)
            parts.append(_multiply(engine, name, HOSTED[1], law, machine, laws.issues))
        if engine in laws.own:
            source = f"fitted on {name}'s all-reduces among 2 to 8 ranks in {write.TABLE}"
            parts.append(write.own(engine, laws.own[engine], width, source))
        if engine == BY_CALL[0] and (PACKED, BY_CALL[1]) in laws.multiplies:
            law = laws.multiplies[PACKED, BY_CALL[1]]
            parts += [PACKED_HEAD, _multiply(f'"{PACKED}"', name, BY_CALL[1], law, machine, table=OF_WHEEL)]
    parts.append(write.head("pytorch", "", laws.multiplies["vllm", "bfloat16"].numbers["start"]))
    name = f"torch.nn.functional.linear of {ENGINES['vllm']} {laws.versions['vllm']}"
    parts.append(_multiply("pytorch", name, "bfloat16", laws.multiplies["vllm", "bfloat16"], machine))
    parts.append(write.head("xla", "", collectives=None, source=OWN))
    source = f"fitted on nccl-tests among 2 to 8 ranks in {write.TABLE}"
    parts.append(write.library(laws.versions["nccl"], laws.ways, width, source))
    return "\n".join(parts)


def _multiply(
    engine: str,
    name: str,
    dtype: str,
    law: Law,
    machine: Machine,
    issues: Sequence[Issue] = (),
    table: str = write.TABLE,
) -> str:
    source = f"{name} in {table}, m, n and k from 1 to 65536: "
    if issues:
        source += "kernels of TensorRT-LLM, and times in which its host issues them, for no graph held these"
    else:
        source += f"shapes of an n and k not fitted are off by {law.error:.1%} in the geometric mean"
        source += f", bias {law.bias:+.1%}"
    if "cast" in law.numbers and not issues:
        source += "; with the kernel that rounds A"
    return write.efficiency(engine, dtype, law, source, device(machine, dtype).units, issues)
