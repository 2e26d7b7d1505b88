"""What was found by fitting, found again: each number, and how far off the rows are with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from experiments.common.machines import shipped
from experiments.truth.rows import Row, rows
from umm.machines import Machine
from umm.machines.curves import EfficiencyTable, Tiles

Change = Callable[[Machine, float], Machine]


def fits() -> Iterator[str]:
    """Yield a line for each fitted number: the best by least squares, and what the file has."""
    machine = shipped("h100-8")
    found = rows()

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
        judged = [row for row in found if row.group == group]
        best = _best(machine, judged, tried.tolist(), change)
        yield f"{name}: {best:.4g} fits {group} best; the file has {now:.4g}."
    table = [row for row in found if row.group == "XLA's table, bfloat16"]
    yield _tiles(machine, table)


def _best(machine: Machine, judged: Sequence[Row], tried: Sequence[float], change: Change) -> float:
    def misfit(value: float) -> float:
        changed = change(machine, value)
        return sum((row.predict(changed) / row.measured - 1.0) ** 2 for row in judged)

    return min(tried, key=misfit)


def _tiles(machine: Machine, table: Sequence[Row]) -> str:
    """Fit tile, ramp, splits and the rate of endless multiplies; compare with one number for all shapes."""
    units = machine.efficiency["bfloat16"].tiles
    assert units is not None
    measured = np.array([row.measured for row in table])

    def off(value: float, tiles: Tiles | None) -> float:
        rates = EfficiencyTable.measured([1], [1], [1], [[[value]]], tiles)
        changed = replace(machine, efficiency={**machine.efficiency, "bfloat16": rates})
        predicted = np.array([row.predict(changed) for row in table])
        return float(np.sqrt((np.log(predicted / measured) ** 2).mean()))

    shapes = ((128, 256), (128, 128), (64, 256), (64, 128))
    tried = [
        (off(value, tiles), value, tiles)
        for rows_, cols in shapes
        for splits in (1, 4, 8, 16)
        for ramp in range(0, 700, 100)
        for value in (0.74, 0.78, 0.82, 0.86, 0.9)
        for tiles in [Tiles(rows_, cols, units.units, ramp, splits)]
    ]
    best, value, tiles = min(tried, key=lambda found: found[0])
    plain = min(off(value, None) for value in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7))
    return (
        f"tiles of bfloat16: {tiles.rows} x {tiles.cols}, ramp {tiles.ramp}, {tiles.most_splits} splits and "
        f"{value:.2g} fit XLA's table best, root mean square {100 * best:.0f} % "
        f"({100 * plain:.0f} % with the best one number); the file has {units.rows} x {units.cols}, "
        f"{units.ramp}, {units.most_splits} and {float(machine.efficiency['bfloat16'].values.max()):.2g}."
    )
