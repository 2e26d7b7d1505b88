"""The problems on which scheduling is judged: random layouts, and the two multiplies of an MLP."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np

import umm
from umm.plans.multiply.oplist import OpList, op_list

SIZES = (1536, 3072, 6144, 12288)
MACHINES = {"pvc-12": 12, "pvc-12-planes": 12, "h100-8": 8}
OPS = range(3, 17)  # of the rank that has most
MLP = {"mlp1": (8192, 49152, 12288), "mlp2": (8192, 12288, 49152)}  # m, n, k


@dataclass(frozen=True)
class Case:
    """One problem on one machine with one stationary matrix; ``any`` for the fastest by direct execution."""

    group: str
    machine: str
    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    asked: str

    @property
    def problem(self) -> umm.Problem:
        """The multiply of a case."""
        return _problem(self.machine, *(getattr(self, x) for x in "mnkabc"))


def corpus(count: int, seed: int = 5, allowed: range = OPS) -> Iterator[Case]:
    """Random sizes, partitions, process grids and replication; sizes divide evenly by every grid."""
    random = Random(seed)
    result = 0
    while result < count:
        machine = random.choice(list(MACHINES))
        ranks = MACHINES[machine]
        sizes = [random.choice(SIZES) for _ in "mnk"]
        layouts = [_layout(random, ranks) for _ in "abc"]
        stationary = random.choice("ABC")
        ops = op_list(_problem(machine, *sizes, *layouts), stationary)
        if int(np.bincount(ops.rank).max()) in allowed:
            result += 1
            yield Case("corpus", machine, *sizes, *layouts, stationary)


def mlps() -> Iterator[Case]:
    """Every {row, col, 2d}³ without replication at m = 8192, on the two machines of the paper."""
    for machine, name in product(("pvc-12", "h100-8"), MLP):
        m, n, k = MLP[name]
        for a, b, c in product(("row", "col", "2d"), repeat=3):
            yield Case(name, machine, m, n, k, a, b, c, "any")


def _problem(machine: str, m: int, n: int, k: int, a: str, b: str, c: str) -> umm.Problem:
    return umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=MACHINES[machine])


def uneven(ops: OpList) -> bool:
    """Whether some rank's largest op has more than 1.5 times the flop of its smallest: misaligned tiles."""
    m, n, k = ops.sizes
    flop = (m * n * k).astype(float)
    largest, smallest = np.zeros(ops.problem.p), np.full(ops.problem.p, np.inf)
    np.maximum.at(largest, ops.rank, flop)
    np.minimum.at(smallest, ops.rank, flop)
    works = largest > 0
    return bool(np.any(largest[works] > 1.5 * smallest[works]))


def _layout(random: Random, ranks: int) -> str:
    factors = [c for c in (1, 2, 4) if ranks % c == 0]
    replicas = random.choice(factors) if random.random() < 0.3 else 1
    places = ranks // replicas
    rows = random.choice([d for d in range(1, places + 1) if places % d == 0])
    return f"2d:{rows}x{places // rows}" + (f"@{replicas}" if replicas > 1 else "")
