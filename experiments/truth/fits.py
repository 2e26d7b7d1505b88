"""Fitted numbers, fitted again: each number, and how far off the rows are with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from experiments.common.machines import shipped
from experiments.truth.rows import Row, rows
from umm.machines import Machine
from umm.machines.curves import EfficiencyTable

Change = Callable[[Machine, float], Machine]


def fits() -> Iterator[str]:
    """Yield a line for each fitted number: the best by least squares, and the file's."""
    machine = shipped("h100-8")
    result = rows()

    def one(machine: Machine, value: float) -> Machine:
        table = EfficiencyTable.measured([1], [1], [1], [[[value]]])
        return replace(machine, efficiency={**machine.efficiency, "float32": table})

    for name, group, tried, change, now in (
        ("efficiency of float32", "DTensor MLP-1, float32", np.arange(0.68, 0.78, 0.01), one,
         float(machine.efficiency["float32"].values.max())),
        ("collective_start, us", "Pallas reference", np.arange(15.0, 30.0),
         lambda m, us: replace(m, collective_start_s=us * 1e-6), machine.collective_start_s * 1e6),
        ("step_fence, us", "Pallas kernel", np.arange(0.0, 8.0, 0.5),
         lambda m, us: replace(m, step_fence_s=us * 1e-6), machine.step_fence_s * 1e6),
    ):  # fmt: skip
        judged = [row for row in result if row.group == group]
        best = _best(machine, judged, tried.tolist(), change)
        yield f"{name}: {best:.4g} fits {group} best; the file has {now:.4g}."


def _best(machine: Machine, judged: Sequence[Row], tried: Sequence[float], change: Change) -> float:
    def misfit(value: float) -> float:
        changed = change(machine, value)
        return sum((row.predict(changed) / row.measured - 1.0) ** 2 for row in judged)

    return min(tried, key=misfit)
