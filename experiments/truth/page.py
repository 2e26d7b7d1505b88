"""The rows judged, as the figures of README.md and as rows.csv.

Sources that measured the same quantity may differ by more than a prediction may be off. Then no prediction
can be right for all of them: their rows are marked as contradicted, and from three sources on judged by the
median. Two sources have no median that anybody measured; then each judges alone.
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from experiments.common.machines import shipped
from experiments.truth.collectives import collectives
from experiments.truth.rows import Row, rows
from umm.machines import Machine
from umm.machines.corners import corners

START, END = "<!-- rows -->\n", "<!-- end of rows -->\n"
DECIDED = 3
"""Sources from which on their median judges."""


class Judged(NamedTuple):
    """A row and its prediction, also with the ranges of the machine's file at their ends.

    Attributes:
        row: The row.
        predicted: Seconds.
        least: Seconds at the faster ends.
        most: Seconds at the slower ends.
        sources: Seconds by every source of the same quantity, one of several of a source.
    """

    row: Row
    predicted: float
    least: float
    most: float
    sources: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of the measured time; below zero if too fast."""
        return self.predicted / self.row.measured - 1.0

    @property
    def contradicted(self) -> bool:
        """Whether sources of the same quantity differ by more than a prediction may be off."""
        return bool(self.sources) and max(self.sources) > (1.0 + self.row.tolerance) * min(self.sources)

    @property
    def by_median(self) -> float:
        """How far the prediction is off, of a row that three sources contradict from their median."""
        decided = self.contradicted and len(self.sources) >= DECIDED
        return self.predicted / float(np.median(self.sources)) - 1.0 if decided else self.error

    @property
    def inside(self) -> bool:
        """Whether the measured time lies in the predicted range."""
        return self.least <= self.row.measured <= self.most


@cache
def _ends(name: str) -> list[Machine]:
    result = [shipped(name.removesuffix(":tf32")), *corners(shipped(name.removesuffix(":tf32")))]
    return [machine.with_tf32() for machine in result] if name.endswith(":tf32") else result


def judged() -> list[Judged]:
    """Return all rows, predicted."""
    result, every = [], [*rows(), *collectives()]
    sources = _sources(every)
    for row in every:
        seconds = [row.predict(machine) for machine in _ends(row.machine)]
        others = sources.get(row.quantity, ())
        result.append(Judged(row, seconds[0], min(seconds), max(seconds), others))
    return result


def _sources(result: Iterable[Row]) -> dict[tuple[str | int, ...], tuple[float, ...]]:
    """Return each source's measurement of shared quantities; the mean of a source's own rows."""
    each: dict[tuple[str | int, ...], dict[str, list[float]]] = {}
    for row in result:
        if row.quantity:
            who = row.group + row.source
            each.setdefault(row.quantity, {}).setdefault(who, []).append(row.measured)
    means = {source: tuple(float(np.mean(x)) for x in errors.values()) for source, errors in each.items()}
    return {source: errors for source, errors in means.items() if len(errors) > 1}


def totals(result: list[Judged]) -> str:
    """Return how far collectives are off: all rows, by the median of sources, without contradicted rows."""
    rows = [x for x in result if x.row.quantity and not x.row.fitted]
    agreed = [x for x in rows if not x.contradicted]
    return (
        f"{len(rows)} rows of collectives were not fitted; they are off {_mean(x.error for x in rows)} in "
        f"the mean. {len(rows) - len(agreed)} of them are contradicted by another source: by the median, "
        f"where three measured, it is {_mean(x.by_median for x in rows)}, and without contradicted rows "
        f"{_mean(x.error for x in agreed)}.\n"
    )


def _mean(errors: Iterable[float]) -> str:
    return f"{100 * np.mean([abs(x) for x in errors]):.1f} %"


def csv_rows(result: list[Judged]) -> list[dict[str, object]]:
    """Return the rows of rows.csv; six digits, for the last bits of a power hang on the processor."""
    return [
        {
            "group": x.row.group,
            "row": x.row.name,
            "machine": x.row.machine,
            "predicted_s": float(f"{x.predicted:.6g}"),
            "least_s": float(f"{x.least:.6g}"),
            "most_s": float(f"{x.most:.6g}"),
            "measured_s": x.row.measured,
            "error": f"{x.error:.4f}",
            "fitted": int(x.row.fitted),
            "source": x.row.source,
            "contradicted": _why(x) if x.contradicted else "",
        }
        for x in result
    ]


def _why(result: Judged) -> str:
    """Return a quantity's times by source, which differ by more than a prediction may be off."""
    output = ", ".join(f"{1e6 * x:.4g}" for x in sorted(result.sources))
    return f"sources say {output} us, {100 * result.row.tolerance:g} % is asked"


def with_figures(text: str, result: list[Judged], fitted: str) -> str:
    """Return the README with the fitted numbers and the errors in all, in place of those it has."""
    before, rest = text.split(START)
    return f"{before}{START}\n{fitted}\n{totals(result)}{END}{rest.split(END)[1]}"


def fitted_in(text: str) -> str:
    """Return the lines on fitted numbers that a README has."""
    return "".join(x + "\n" for x in text.split(START)[1].splitlines() if x.startswith("- "))
