"""Laws of all-reduces that engines bring along for small sizes: in one round, or by parts in two."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from experiments.kernels.least_squares import cost, least
from umm.arrays import Floats
from umm.machines.library import BLEND

PEER = {"peer": 0.5}
"""Of the links' rate, what a kernel reads from each other rank at most."""
Numbers = Mapping[str, Mapping[str, float]]
BEGIN: Numbers = {
    "one-shot": {"start": 4e-6, "step": 1e-7, "link": 0.7},
    "two-shot": {"start": 6e-6, "step": 1e-7, "link": 0.7},
}
FORMS: tuple[Numbers, ...] = (BEGIN, {name: {**x, **PEER} for name, x in BEGIN.items()})
LARGEST = tuple(2**x for x in range(19, 26))
"""Bytes up to which an engine may use its own kernels."""
SMALL = 2**18
"""Bytes up to which only the host's time shows without graphs."""


@dataclass(frozen=True)
class OwnKernels:
    """An engine's all-reduces.

    Attributes:
        numbers: Of each, by its name.
        largest: Bytes above which the engine leaves it to the library.
        issue: Seconds that the host takes to issue one without graphs; None if no row has it.
        error: Geometric mean error on rows that were not fitted.
    """

    numbers: Numbers
    largest: float
    issue: float | None = None
    error: float = 0.0

    def seconds(self, rows: pd.DataFrame) -> Floats:
        """Return the seconds of the faster one."""
        nbytes, ranks, width = (rows[x].to_numpy(np.float64) for x in ("nbytes", "ranks", "width"))
        took = []
        for name, x in self.numbers.items():
            moved = nbytes * ((ranks - 1) if name == "one-shot" else 2 * (ranks - 1) / ranks)
            peers = x.get("peer", np.inf) * width * (ranks - 1)
            rate = ((x["link"] * width) ** -BLEND + peers**-BLEND) ** (-1 / BLEND)
            took.append(x["start"] + x["step"] * (ranks - 1) + moved / rate)
        return np.asarray(np.min(took, axis=0))


def fitted(rows: pd.DataFrame, library: Floats) -> OwnKernels:
    """Return the kernels that fit rows best, with their error on rows not fitted; of two forms, the better.

    Args:
        rows: ``nbytes``, ``ranks``, ``width`` and ``seconds``.
        library: What the library takes for the same.
    """
    return min((_of_form(rows, library, begin) for begin in FORMS), key=lambda x: x.error)


def _of_form(rows: pd.DataFrame, library: Floats, begin: Numbers) -> OwnKernels:
    most = largest(rows, library, begin)
    rows = rows[rows.nbytes <= most].reset_index(drop=True)
    third = np.arange(len(rows)) % 3
    misfits = np.empty(len(rows))
    for part in range(3):
        left = rows[third == part]
        law = _fit(rows[third != part], most, begin)
        misfits[third == part] = np.log(law.seconds(left) / left.seconds)
    return replace(_fit(rows, most, begin), error=float(np.expm1(np.abs(misfits).mean())))


def issued(rows: pd.DataFrame) -> float | None:
    """Return the seconds that a host takes to issue a small one: the median of rows without graphs."""
    small = rows[rows.nbytes <= SMALL]
    return float(small.seconds.median()) if len(small) else None


def largest(rows: pd.DataFrame, library: Floats, begin: Numbers = BEGIN) -> float:
    """Return the size from which rows take the library's time: the one that parts them best."""

    def apart(most: float) -> float:
        above = (rows.nbytes > most).to_numpy()
        return float(np.abs(np.log(library / rows.seconds.to_numpy()))[above].sum())

    small = {most: _fit(rows[rows.nbytes <= most], most, begin) for most in LARGEST}
    totals = {}
    for most, law in small.items():
        below = rows[rows.nbytes <= most]
        totals[most] = apart(most) + float(np.abs(np.log(law.seconds(below) / below.seconds)).sum())
    return float(min(totals, key=totals.__getitem__))


def _fit(rows: pd.DataFrame, largest: float, begin: Numbers) -> OwnKernels:
    measured = rows.seconds.to_numpy()
    best: tuple[float, OwnKernels] | None = None
    for share in (0.3, 0.7):
        first = np.log(
            [share if key == "link" else value for x in begin.values() for key, value in x.items()]
        )

        def law(at: Floats) -> OwnKernels:
            values = iter(np.exp(np.clip(at, -40, 1.3)).tolist())
            numbers = {name: {key: next(values) for key in x} for name, x in begin.items()}
            return OwnKernels(numbers, largest)

        def misfits(at: Floats) -> Floats:
            return np.asarray(np.log(law(at).seconds(rows) / measured))

        at = least(misfits, first, most=60)
        value = cost(misfits(at))
        if best is None or value < best[0]:
            best = value, law(at)
    assert best is not None
    return best[1]
