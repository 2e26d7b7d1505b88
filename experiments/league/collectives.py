"""The league of collectives: umm by law, autoparallel's model and the wire, on nccl-tests' measured rows."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import umm
from experiments.common.machines import shipped
from experiments.kernels.collectives import OPS
from experiments.league.autoparallel import seconds as autoparallel
from umm.machines import Machine
from umm.machines.drafts.measured import SYSTEMS
from umm.machines.settings import with_settings

SIZES = (2.0**14, 2.0**30)
LARGE = 2.0**20
"""Bytes from which a collective is large."""
Way = Callable[[str, Machine, str, float, int], float | None]


def law(system: str, machine: Machine, operation: str, nbytes: float, ranks: int) -> float | None:
    """Return the seconds of the machine file's library."""
    plan = umm.collective(
        operation, nbytes=int(nbytes), machine=machine, ranks=ranks, dtype="float16", algorithm="library"
    )
    return umm.run(plan).makespan_s


def wire(system: str, machine: Machine, operation: str, nbytes: float, ranks: int) -> float | None:
    """Return each rank's bytes over the rate of its port."""
    rounds = 2 if operation == "all-reduce" else 1
    return rounds * nbytes * (ranks - 1) / ranks / machine.bandwidth_matrix([0, 1])[0, 1]


WAYS: dict[str, Way] = {
    "law": law,
    "autoparallel": lambda system, _, *asked: autoparallel(system, *asked),
    "wire": wire,
}


def report(folder: Path) -> Iterator[str]:
    """Yield the table: geometric mean errors below and from 1 MiB."""
    every = pd.read_parquet(folder / "nccl.parquet")
    every = every[every.library.str.startswith("nccl") & (every.nccl_dtype == "half")]
    every = every.assign(nbytes=2.0 * every.message_size)
    every = every[every.op_name.isin(OPS) & every.nbytes.between(*SIZES)]
    yield f"{'system, operation, ranks':34}{'rows':>6}" + "".join(f"{x:>18}" for x in WAYS)
    for (system, name, ranks), rows in every.groupby(["system", "op_name", "num_gpus"]):
        machine = with_settings(shipped(SYSTEMS[system]), {"kernels": "vllm"})
        measured, large = rows.latency.to_numpy() * 1e-3, rows.nbytes.to_numpy() >= LARGE
        cells = []
        for way in WAYS.values():
            took = [way(system, machine, OPS[name], x, int(ranks)) for x in rows.nbytes]
            if None in took:
                cells.append("–")
                continue
            errors = np.abs(np.log(np.array(took, float) / measured))
            halves = (f"{np.expm1(errors[x].mean()):.0%}" if x.any() else "–" for x in (~large, large))
            cells.append(" / ".join(halves))
        label = f"{system} {OPS[name]} {ranks}"
        yield f"{label:34}{len(rows):>6}" + "".join(f"{x:>18}" for x in cells)
