"""The rows judged, as the tables of README.md and as rows.csv."""

from functools import cache
from typing import NamedTuple

import numpy as np

from experiments.common.machines import shipped
from experiments.truth.collectives import collectives
from experiments.truth.rows import Row, rows
from umm.machines import Machine
from umm.machines.corners import corners

START, END = "<!-- rows -->\n", "<!-- end of rows -->\n"
BRIEF = (
    "XLA's table, bfloat16", "XLA, ", "nccl-tests 309", "Vultr", "Google", "CoreWeave", "Oracle",
)  # fmt: skip
"""Groups begin so whose many rows are in rows.csv alone."""


class Judged(NamedTuple):
    """A row and what was predicted, also with the ranges of the machine's file at their ends.

    Attributes:
        row: The row.
        predicted: Seconds.
        least: Seconds at the faster ends.
        most: Seconds at the slower ends.
    """

    row: Row
    predicted: float
    least: float
    most: float

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured; below zero if too fast."""
        return self.predicted / self.row.measured - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the predicted range."""
        return self.least <= self.row.measured <= self.most


@cache
def _ends(name: str) -> list[Machine]:
    found = [shipped(name.removesuffix(":tf32")), *corners(shipped(name.removesuffix(":tf32")))]
    return [machine.with_tf32() for machine in found] if name.endswith(":tf32") else found


def judged() -> list[Judged]:
    """Return all rows, predicted."""
    found = []
    for row in [*rows(), *collectives()]:
        seconds = [row.predict(machine) for machine in _ends(row.machine)]
        found.append(Judged(row, seconds[0], min(seconds), max(seconds)))
    return found


def table(found: list[Judged]) -> str:
    """Return the rows as Markdown, one table."""
    lines = ["| group | row | predicted | range | measured | off | |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {x.row.group} | {x.row.name} | {1e3 * x.predicted:.4g} ms "
        f"| {1e3 * x.least:.4g} to {1e3 * x.most:.4g} | {1e3 * x.row.measured:.4g} ms "
        f"| {100 * x.error:+.1f} % | {'fitted' if x.row.fitted else ''} |"
        for x in found
        if not x.row.group.startswith(BRIEF)
    ]
    return "\n".join(lines) + "\n"


def summary(found: list[Judged]) -> str:
    """Return each group's mean and worst error, and how many of its rows lie in the predicted range."""
    lines = ["| group | rows | mean | worst | in range | |", "|---|---|---|---|---|---|"]
    for group in dict.fromkeys(x.row.group for x in found):
        own = [x for x in found if x.row.group == group]
        errors = [abs(x.error) for x in own]
        used = "fitted" if all(x.row.fitted for x in own) else ""
        lines.append(
            f"| {group} | {len(own)} | {100 * np.mean(errors):.1f} % | {100 * max(errors):.1f} % "
            f"| {sum(x.inside for x in own)} | {used} |"
        )
    return "\n".join(lines) + "\n"


def csv_rows(found: list[Judged]) -> list[dict[str, object]]:
    """Return the rows of rows.csv."""
    return [
        {
            "group": x.row.group,
            "row": x.row.name,
            "machine": x.row.machine,
            "predicted_s": x.predicted,
            "least_s": x.least,
            "most_s": x.most,
            "measured_s": x.row.measured,
            "error": f"{x.error:.4f}",
            "fitted": int(x.row.fitted),
            "source": x.row.source,
        }
        for x in found
    ]


def with_tables(text: str, found: list[Judged], fitted: str) -> str:
    """Return the README with these tables in place of those it has."""
    before, rest = text.split(START)
    return (
        before
        + START
        + "\n"
        + fitted
        + "\n"
        + summary(found)
        + "\n"
        + table(found)
        + END
        + rest.split(END)[1]
    )


def fitted_in(text: str) -> str:
    """Return the lines on what was fitted that a README has."""
    return "".join(x + "\n" for x in text.split(START)[1].splitlines() if x.startswith("- "))
