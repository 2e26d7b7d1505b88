"""The paper's statements again, with every assumed number that matters in float32 halved and doubled."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.universal.claims import Claim
from experiments.universal.curves import Curves
from experiments.universal.layers import BATCHES, TRADITIONAL, on, performed, runs
from umm.errors import MachineError
from umm.machines import Fact

HERE = Path(__file__).parent
ENDS = BATCHES[:: len(BATCHES) - 1]


def settings(machine: str) -> Iterator[str]:
    """Yield each assumed number halved, and doubled, as far as the machine can be so."""
    for fact in shipped(machine).facts:
        if fact.basis != "assumed" or not _meets_float32(fact):
            continue
        for factor in ("x0.5", "x2"):
            setting = f"{fact.key}={factor}"
            try:
                on(machine, setting)
            except MachineError:  # half of three copy engines; twice of what leaves nothing
                if not (fact.value.isdigit() and factor == "x0.5"):
                    continue
                setting = f"{fact.key}={int(fact.value) // 2}"
            yield setting


def _meets_float32(fact: Fact) -> bool:
    other = ("float64]", "float16]", "bfloat16]", "tf32]", ".tiles", "local_work", "means.", "step_fence")
    return not any(part in fact.key for part in other)


def table() -> Table:
    """Return the table of all points of figures 2 and 3 at the smallest and the largest batch."""
    points = [
        replace(run, setting=setting)
        for run in runs()
        if run.m in ENDS and run.family not in (TRADITIONAL, "COSMA")
        for setting in settings(run.machine)
    ]
    return Table(HERE / "assumed.csv", points, performed, one_in=331)


def falls(claims: list[Claim], rows: list[Row]) -> dict[str, list[str]]:
    """Return by claim with which settings it does not hold."""
    found: dict[str, list[str]] = {claim.name: [] for claim in claims}
    for machine in dict.fromkeys(row["machine"] for row in rows):
        for setting in settings(machine):
            here = [row for row in rows if (row["machine"], row["setting"]) == (machine, setting)]
            curves = Curves(here, on(machine, setting))
            for claim in claims:
                if claim.machine == machine and claim.check and not claim.check(curves).holds:
                    found[claim.name].append(setting.replace("=", " "))
    return found
