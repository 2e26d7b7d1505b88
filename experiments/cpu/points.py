"""The layouts and shapes that are compared, and the times that come of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np

import umm
from umm.machines import Machine
from umm.schedules.schedule import Schedule
from umm_hw.mpi.executor import MpiExecutor

# MLP-1 and MLP-2 at one sixteenth of the paper's n and k, a square, and a long sum; m, n, k.
SHAPES = {
    "mlp1": (1024, 3072, 768),
    "mlp2": (1024, 768, 3072),
    "square": (1536, 1536, 1536),
    "long": (640, 640, 6144),
}
PARTITIONS = ("row", "col", "cyclic:256x256:1x{ranks}", "row@{ranks}")
STATIONARY = ("A", "B", "C")


@dataclass
class Point:
    """One layout of one shape.

    Attributes:
        shape: Name of the shape.
        schedule: What is simulated and executed.
        predicted: Seconds the simulator says.
        measured: Seconds of each run.
    """

    shape: str
    schedule: Schedule
    predicted: float
    measured: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """The best of the runs, as the paper reports, in seconds."""
        return min(self.measured)

    @property
    def spread(self) -> float:
        """How far the lower quartile of the runs is from the best, in seconds."""
        return float(np.quantile(self.measured, 0.25)) - self.time

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.time - 1

    @property
    def name(self) -> str:
        """The layouts in words."""
        problem = self.schedule.problem
        return f"{problem.a} {problem.b} {problem.c} stationary {self.schedule.stationary}"


def points(machine: Machine, ranks: int, dtype: str) -> Iterator[Point]:
    """Yield all points: each choice of partitions, the stationary matrices taking turns."""
    texts = [text.format(ranks=ranks) for text in PARTITIONS]
    for name, (m, n, k) in SHAPES.items():
        for number, (a, b, c) in enumerate(product(texts, texts, texts)):
            problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype=dtype)
            schedule = umm.schedule(problem, machine, stationary=STATIONARY[number % 3])
            yield Point(name, schedule, umm.run(schedule, "sim").makespan_s)


def measure(found: list[Point], ranks: int, rounds: int, note: Callable[[str], None]) -> None:
    """Execute every point once a round, so that what disturbs the host disturbs all points alike."""
    executor = MpiExecutor(ranks)
    for number in range(-1, rounds):  # the first round warms up
        note(f"round {number + 1} of {rounds}")
        for point in found:
            seconds = executor.makespan(point.schedule)
            if number >= 0:
                point.measured.append(seconds)
    executor.close()
