"""The paper's statements again, with every assumed number that matters in float32 halved and doubled."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from experiments.common.kept import FULL, keep, stale
from experiments.common.machines import shipped
from experiments.common.points import Row, Table, alike, csv_text, plain, read_csv
from experiments.universal.claims import Claim
from experiments.universal.curves import Curves
from experiments.universal.layers import BATCHES, MACHINES, TRADITIONAL, Run, on, performed, runs
from umm.errors import MachineError
from umm.machines import Fact

FILE = Path(__file__).parent / "assumed.csv"
LAYER = "MLP-1"  # of a smoke run
ENDS = BATCHES[:: len(BATCHES) - 1]


@cache
def settings(machine: str) -> tuple[str, ...]:
    """Return each assumed number halved, and doubled, as far as the machine can be so."""
    result = []
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
            result.append(setting)
    return tuple(result)


def _meets_float32(fact: Fact) -> bool:
    other = (
        "float64]", "float16]", "bfloat16]", "tf32]", "float8]", ".tiles", ".kernels", "local_work", "means.",
        "step_fence", "network.", "library.", "float4", "direct_start",
    )  # fmt: skip
    return not any(part in fact.key for part in other)


def points() -> Iterator[Run]:
    """Yield the points of figures 2 and 3 at the smallest and the largest batch, with each setting."""
    for run in runs():
        if run.m in ENDS and run.family not in (TRADITIONAL, "COSMA"):
            yield from (replace(run, setting=setting) for setting in settings(run.machine))


def rows(claims: Sequence[Claim], size: str, jobs: int | None = None) -> list[Row]:
    """Return whether each statement holds with each setting, and by which margin.

    A full run simulates all points and writes the file. A smoke run simulates MLP-1 with one setting of each
    machine and reads the rest.

    Args:
        claims: The statements.
        size: ``full`` or ``smoke``.
        jobs: Processes of a full run; None for one a core.

    Raises:
        StaleError: if a smoke run finds other statements or settings than the file has, or another result.
    """
    every = [(machine, setting) for machine in MACHINES for setting in settings(machine)]
    if size == FULL:
        result = Table(FILE, list(points()), performed).performed(jobs)
        rows = [row for each in every for row in checked(claims, *each, result)]
        keep(FILE, csv_text(rows), size)
        return rows
    stored = {(row["claim"], row["setting"]): row for row in read_csv(FILE)}
    asked = [
        (x.name, setting) for machine, setting in every for x in claims if x.machine == machine and x.check
    ]
    if list(stored) != asked:
        raise stale(FILE, "it has other statements or settings")
    some = [claim for claim in claims if f" {LAYER} " in claim.name]
    for machine in MACHINES:
        setting = settings(machine)[0]
        here = [x for x in points() if (x.machine, x.setting, x.layer) == (machine, setting, LAYER)]
        result = [plain({**asdict(x), **performed(x)}) for x in here]
        for row in checked(some, machine, setting, result):
            if not alike(row, committed := stored[row["claim"], setting]):
                raise stale(FILE, f"{committed} is {row}")
    return list(stored.values())


def checked(claims: Iterable[Claim], machine: str, setting: str, result: Iterable[Row]) -> list[Row]:
    """Return how the statements on a machine fare with a setting, by simulated points."""
    here = (row for row in result if (row["machine"], row["setting"]) == (machine, setting))
    curves, rows = Curves(here, on(machine, setting)), []
    for claim in claims:
        if claim.machine == machine and claim.check:
            now = claim.check(curves)
            margin = "" if now.margin is None else round(now.margin, 4)
            rows.append(
                plain({"claim": claim.name, "setting": setting, "holds": now.holds, "margin": margin})
            )
    return rows


def falls(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Return by statement with which settings it does not hold."""
    result: dict[str, list[str]] = {}
    for row in rows:
        if not row["holds"]:
            result.setdefault(row["claim"], []).append(row["setting"].replace("=", " "))
    return result
