"""The problems and layouts that are measured, and one measured point."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import umm

# n and k of the paper's two layers (Brock & Golin 2025, section 5.2).
PROBLEMS = {"mlp1": (49152, 12288), "mlp2": (12288, 49152)}
BATCHES = (1024, 2048, 4096, 8192)
DTYPES = ("float32", "bfloat16")
PARTITIONS = ("row", "col", "2d")
# With replication, and with what the paper's named layouts keep in place.
MORE = (
    ("col", "col", "col@2", "C"),
    ("col@2", "col", "col", "C"),
    ("row@2", "col", "col", "C"),
    ("col", "row", "row", "B"),
    ("col", "row", "row", "A"),
    ("col", "row", "row@2", "C"),
    ("row", "col", "col", "A"),
    ("2d", "2d", "2d", "B"),
    ("2d@2", "2d@2", "2d@2", "C"),
)


@dataclass(frozen=True)
class Point:
    """One layout of one problem.

    Attributes:
        problem: mlp1 or mlp2.
        m: Rows of A and C.
        dtype: Type of A and B.
        ranks: Virtual ranks.
        layouts: Of A, B and C, and the stationary matrix, as text.
        predicted_s: Makespan by the simulator on the calibrated machine.
        measured_s: Best makespan of the counted runs.
        spread_s: Worst less best.
    """

    problem: str
    m: int
    dtype: str
    ranks: int
    layouts: str
    predicted_s: float
    measured_s: float
    spread_s: float

    def schedule(self, machine: umm.Machine) -> umm.Schedule:
        """Return the schedule of a point of full size for a machine."""
        a, b, c, stationary = self.layouts.split()
        n, k = PROBLEMS[self.problem]
        problem = umm.Problem(m=self.m, n=n, k=k, a=a, b=b, c=c, ranks=self.ranks, dtype=self.dtype)
        return umm.schedule(problem, machine, stationary=stationary, final="reduce")

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


def layouts() -> list[tuple[str, str, str, str]]:
    """Return 36 triples of layouts with a stationary matrix: every partition without replicas, and more.

    In none of them is an operand fully replicated.
    """
    return [*((a, b, c, "C") for a, b, c in product(PARTITIONS, repeat=3)), *MORE]


def problems(
    names: list[str], batches: list[int], dtypes: list[str], ranks: int, scale: int
) -> Iterator[tuple[str, umm.Problem, str]]:
    """Yield the name, the problem and the stationary matrix of every point."""
    for name, m, dtype in product(names, batches, dtypes):
        n, k = (size // scale for size in PROBLEMS[name])
        for a, b, c, stationary in layouts():
            yield name, umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype=dtype), stationary
