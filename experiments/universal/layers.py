"""The points of figures 2 and 3: layouts, replication factors and stationary matrices of two layers."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import isqrt, lcm
from pathlib import Path
from typing import Any

import numpy as np

import umm
from experiments.common.machines import shipped
from experiments.common.points import Table
from experiments.common.published import published
from umm.algorithms.scheduling import algorithms
from umm.executor import executor
from umm.machines import Machine
from umm.machines.settings import with_settings
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import TRANSFERS

HERE = Path(__file__).parent
SAID = published("universal")
BATCHES = tuple(SAID["sizes"]["m"])
SIZES = {"MLP-1": tuple(SAID["sizes"]["mlp1"]), "MLP-2": tuple(SAID["sizes"]["mlp2"])}  # n, k
FAMILIES = {name: tuple(texts) for name, texts in SAID["families"].items() if name != "where"}
TRADITIONAL = "Traditional"
OURS = (*FAMILIES, TRADITIONAL)
PEERS = {"DTensor-Row": "row", "DTensor-Column": "col", "COSMA": ""}
MACHINES = {"pvc-12-planes": 12, "h100-8": 8}
PVC, H100 = MACHINES
makespan = executor("sim").makespan


@dataclass(frozen=True)
class Run:
    """One multiply of a layer.

    Attributes:
        machine: Name of a machine.
        layer: MLP-1 or MLP-2.
        m: The batch.
        family: Name of a family, or of another's algorithm.
        ab: Replication factor of A and B.
        c: That of C.
        stationary: The matrix that stays; none of another's algorithm.
        setting: What is set of the machine: a key and what it is multiplied by, if anything.
    """

    machine: str
    layer: str
    m: int
    family: str
    ab: int = 1
    c: int = 1
    stationary: str = "-"
    setting: str = ""

    def schedule(self) -> Schedule:
        """Return its schedule."""
        n, k = SIZES[self.layer]
        machine, ranks = on(self.machine, self.setting), MACHINES[self.machine]
        if self.family in PEERS:
            name, layout = self.family.split("-")[0].lower(), PEERS[self.family]
            layouts: tuple[Any, Any, Any] = (layout, layout, layout)
            if not layout:
                native = algorithms()[name]
                layouts = native.native(umm.Problem(m=self.m, n=n, k=k, ranks=ranks), **native.chosen({}))
            a, b, c = layouts
            problem = umm.Problem(m=self.m, n=n, k=k, a=a, b=b, c=c, ranks=ranks)
            return umm.schedule(problem, machine, algorithm=name)
        a, b, c = self.layouts()
        problem = umm.Problem(m=self.m, n=n, k=k, a=a, b=b, c=c, ranks=ranks)
        return umm.schedule(problem, machine, stationary=self.stationary, final="reduce")

    def layouts(self) -> tuple[str, str, str]:
        """Return the texts of A, B and C."""
        if self.family != TRADITIONAL:
            a, b, c = FAMILIES[self.family]
            return f"{a}@{self.ab}", f"{b}@{self.ab}", f"{c}@{self.c}"
        n, k = SIZES[self.layer]
        of_ab, of_c = (_square(MACHINES[self.machine] // copies) for copies in (self.ab, self.c))
        # Tiles that all three share: so many that every process grid has whole rows and columns of them.
        m_tile = -(-self.m // lcm(of_ab[0], of_c[0]))
        n_tile = -(-n // lcm(of_ab[1], of_c[1]))
        k_tile = -(-k // lcm(*of_ab))
        return (
            f"cyclic:{m_tile}x{k_tile}:{of_ab[0]}x{of_ab[1]}@{self.ab}",
            f"cyclic:{k_tile}x{n_tile}:{of_ab[0]}x{of_ab[1]}@{self.ab}",
            f"cyclic:{m_tile}x{n_tile}:{of_c[0]}x{of_c[1]}@{self.c}",
        )


def _square(ranks: int) -> tuple[int, int]:
    """Return the most square process grid of so many ranks, as 2d takes it."""
    rows = max(x for x in range(1, isqrt(ranks) + 1) if ranks % x == 0)
    return rows, ranks // rows


@cache
def on(machine: str, setting: str) -> Machine:
    """Return a machine with a number set to another: ``devices.launch=x2``."""
    key, _, factor = setting.partition("=")
    return with_settings(shipped(machine), {key: factor}) if setting else shipped(machine)


def performed(run: Run) -> dict[str, float | int]:
    """Return the simulated seconds, and the bytes that go from one rank to another."""
    schedule = run.schedule()
    away = np.isin(schedule.kind, TRANSFERS) & (schedule.src != schedule.dst)
    return {"seconds": makespan(schedule), "moved": int(schedule.nbytes[away].sum())}


def runs() -> Iterator[Run]:
    """Yield the paper's protocol: one factor for all in MLP-1, one of A and B and one of C in MLP-2."""
    for machine, ranks in MACHINES.items():
        factors = [c for c in range(1, ranks + 1) if ranks % c == 0]
        for layer in SIZES:
            for m in BATCHES:
                for family in OURS:
                    for ab in factors:
                        for c in factors if layer == "MLP-2" else [ab]:
                            for stationary in "BC":
                                yield Run(machine, layer, m, family, ab, c, stationary)
                for family in PEERS:
                    if family != "COSMA" or machine == H100:
                        yield Run(machine, layer, m, family)


def table() -> Table:
    """Return the table of all points."""
    return Table(HERE / "figures.csv", list(runs()), performed, one_in=97)
