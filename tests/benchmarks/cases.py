"""The cases measured: points of the paper's space on two machines, and single problems on many ranks."""

import random
from dataclasses import dataclass, replace

import numpy as np

import umm
from umm.machines.files import resized
from umm.schedules.table.details import NO_INTERFERENCE

MACHINES = ("pvc-12", "h100-8")
POINTS = 400
MLP = ((49152, 12288), (12288, 49152))  # n, k of MLP-1 and MLP-2
TOKENS = (1024, 2048, 4096, 8192)  # m


def random_points(machine, count, seed=1):
    """Return distinct random points of the paper's space: problems and stationary matrices.

    Partition and replication of each matrix, MLP-1 or MLP-2, number of tokens, stationary matrix.
    """
    draw = random.Random(seed)
    ranks = machine.default_ranks
    replications = [c for c in range(1, ranks + 1) if ranks % c == 0]
    points = {}
    while len(points) < count:
        a, b, c = (f"{draw.choice(('row', 'col', '2d'))}@{draw.choice(replications)}" for _ in "abc")
        n, k = draw.choice(MLP)
        point = (draw.choice(TOKENS), n, k, a, b, c, draw.choice("ABC"))
        points[point] = None
    return [
        (umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks), stationary)
        for m, n, k, a, b, c, stationary in points
    ]


@dataclass(frozen=True)
class Large:
    """MLP-1 with 8192 tokens on many ranks of a machine."""

    machine: str
    ranks: int
    a: str
    b: str
    c: str
    stationary: str
    lockstep: bool = False  # all ranks do the same at the same time

    def __str__(self):
        return f"{self.machine} p={self.ranks} {self.a}, {self.b} → {self.c}, stationary {self.stationary}"

    def schedule(self):
        machine = resized(umm.machine(self.machine), self.ranks)
        problem = umm.Problem(m=8192, n=49152, k=12288, a=self.a, b=self.b, c=self.c, ranks=self.ranks)
        return umm.schedule(problem, machine, stationary=self.stationary)


LARGE = [
    Large(machine, ranks, *layouts)
    for ranks in (64, 256)
    for machine in ("h100-8", "dgx-h100x4")
    for layouts in (
        ("col", "col", "col", "C", True),
        ("row", "row", "row", "C", True),
        ("2d", "2d", "2d", "C", True),
        ("row", "col", "2d", "B"),
        ("2d@4", "2d@4", "2d@2", "C"),
        ("row@2", "2d@2", "col@4", "A"),
    )
]


def column_layout(ranks):
    """Return the problem whose cost is followed as p grows: p ops a rank, 2 p² actions in all."""
    return Large("h100-8", ranks, "col", "col", "col", "C", True)


SQUARES = Large("h100-8", 16384, "2d", "2d", "2d", "C", True)


def undisturbed(schedule):
    """Return the schedule as the race's replay has it: no interference, local work beside the engines."""
    lanes = schedule.lanes
    engine = np.where([name == "compute" for name in lanes.names], lanes.engine, -1)
    return replace(schedule, interference=NO_INTERFERENCE, lanes=replace(lanes, engine=engine))
