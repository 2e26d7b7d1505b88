"""The layouts and shapes that are compared, and the times that come of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import nan
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

import umm
from umm.arrays import Floats
from umm.executor import Operands
from umm.machines import Machine
from umm.machines.corners import corners
from umm.schedules.schedule import Schedule
from umm_hw.cores.pace import Paced, at_best, fastest, undisturbed, usual
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.performance import operands_of

# MLP-1 and MLP-2 at one sixteenth of the paper's n and k, a square, and a long sum; m, n, k. The model was
# made looking at these four; the last two were not looked at before the figures that are printed.
SHAPES = {
    "mlp1": (1024, 3072, 768),
    "mlp2": (1024, 768, 3072),
    "square": (1536, 1536, 1536),
    "long": (640, 640, 6144),
    "unseen1": (2048, 896, 1280),
    "unseen2": (1152, 2304, 1024),
}
PARTITIONS = ("row", "col", "cyclic:256x256:1x{ranks}", "row@{ranks}")
STATIONARY = ("A", "B", "C")
LEAST = 2  # undisturbed runs of a layout that is compared


@dataclass
class Point:
    """One layout of one shape.

    Attributes:
        shape: Name of the shape.
        schedule: What is simulated and executed.
        runs: Each run, with the pace of the cores and the share that it had.
        best: The reading of the cores at their best, in seconds, from the runs of all points.
        usual: The median reading of all undisturbed runs: within a layout a run takes the longer, the longer
            the reading about it, by the same share.
        predicted: Seconds the simulator says.
        range: The least and the most it says, where the numbers of the machine are as good or as bad as they
            may be.
    """

    shape: str
    schedule: Schedule
    runs: list[Paced] = field(default_factory=list)
    best: float = nan
    usual: float = nan
    predicted: float = nan
    range: tuple[float, float] = (nan, nan)

    @property
    def undisturbed(self) -> list[Paced]:
        """The runs that had the cores to themselves, at their best pace."""
        return [run for run in self.runs if at_best(run, self.best)]

    @property
    def times(self) -> Floats:
        """The seconds of each of these at the usual pace; of too few, those disturbed least."""
        runs = self.undisturbed if len(self.undisturbed) >= LEAST else undisturbed(self.runs, self.best)
        return np.array([run.at(self.usual).seconds for run in runs])

    @property
    def time(self) -> float:
        """The median of them, in seconds."""
        return float(np.median(self.times))

    @property
    def spread(self) -> float:
        """The standard error of that median, in seconds, from the median distance to it."""
        off = float(np.median(np.abs(self.times - self.time)))
        return 1.86 * off / len(self.times) ** 0.5

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.time - 1

    @property
    def name(self) -> str:
        """The layouts in words."""
        problem = self.schedule.problem
        return f"{problem.a} {problem.b} {problem.c} stationary {self.schedule.name}"


def points(
    machine: Machine,
    ranks: int,
    dtype: str,
    names: Sequence[str],
    every: int = 1,
    shapes: Mapping[str, tuple[int, int, int]] = SHAPES,
) -> Iterator[Point]:
    """Yield the points: each choice of partitions, the stationary matrices taking turns.

    Args:
        machine: What predicts.
        ranks: Number of ranks.
        dtype: Type of the operands.
        names: Names of shapes.
        every: 1 for all 64 layouts of a shape, else one in so many.
        shapes: The m, n and k of each.
    """
    texts = [text.format(ranks=ranks) for text in PARTITIONS]
    for name in names:
        m, n, k = shapes[name]
        for number, (a, b, c) in enumerate(product(texts, texts, texts)):
            if number % every == 0:
                problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype=dtype)
                stationary = STATIONARY[number % 3]
                yield Point(name, umm.schedule(problem, machine, stationary=stationary, final="reduce"))


def add(result: Sequence[Point], rows: Sequence[dict[str, Any]]) -> None:
    """Give points the runs that an earlier call saved."""
    by_name = {(point.shape, point.name): point for point in result}
    for row in rows:
        point = by_name.get((row["shape"], row["layouts"]))
        if point:
            point.runs += [Paced(*run) for run in row["measured_s"]]


def again(point: Point, machine: Machine) -> Schedule:
    """Return the schedule of the same layout for another machine."""
    schedule = point.schedule
    return umm.schedule(schedule.problem, machine, stationary=schedule.name, final="reduce")


def keep(folder: Path, name: str, rows: Sequence[Mapping[str, Any]], text: str) -> None:
    """Write rows as JSON, a line each, and their summary as text; print that."""
    (folder / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    (folder / f"{name}.txt").write_text(text + "\n")
    click.echo(text)


def predict(result: Sequence[Point], machine: Machine) -> None:
    """Simulate every point, also with the machine's numbers at the ends of their ranges."""
    for point in result:
        times = [umm.run(again(point, end), "sim").makespan_s for end in (machine, *corners(machine))]
        point.predicted, point.range = times[0], (min(times), max(times))


def judge(result: Sequence[Point]) -> None:
    """Tell every point the best reading of all runs, by which it knows its undisturbed ones, and theirs."""
    runs = [run for point in result for run in point.runs]
    best = fastest(runs) if runs else nan
    pace = usual(runs, best) if runs else nan
    for point in result:
        point.best, point.usual = best, pace


def measure(result: Sequence[Point], executor: MpiExecutor, duration: float, repeat: int) -> None:
    """Execute points, those with the fewest runs that count first, a few times each, until the time is up.

    So all take turns, what disturbs the host for a while meets many of them a little, and those that it met
    come again.
    """
    until = perf_counter() + duration
    operands: dict[str, Operands] = {}
    turns: list[Point] = []
    while perf_counter() < until:
        if not turns:
            judge(result)
            least = min(len(point.undisturbed) for point in result)
            turns = [point for point in result if len(point.undisturbed) == least]
        point = turns.pop(0)
        if point.shape not in operands:
            operands = {point.shape: operands_of(point.schedule)}
        runs = executor.paced(point.schedule, operands[point.shape], repeat + 1)
        point.runs += runs[1:]  # the first one warms up
