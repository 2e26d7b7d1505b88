"""Laws of all-reduces that engines bring along for small sizes: in one round, or by parts in two."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.kernels.least_squares import cost, least
from umm.arrays import Floats

BEGIN = {
    "one-shot": {"start": 4e-6, "step": 1e-7, "link": 0.7},
    "two-shot": {"start": 6e-6, "step": 1e-7, "link": 0.7},
}
LARGEST = tuple(2**x for x in range(19, 26))
"""Bytes up to which an engine may use its own kernels."""


@dataclass(frozen=True)
class OwnKernels:
    """An engine's all-reduces.

    Attributes:
        numbers: Of each, by its name.
        largest: Bytes above which the engine leaves it to the library.
        error: Geometric mean error on rows that were not fitted.
    """

    numbers: Mapping[str, Mapping[str, float]]
    largest: float
    error: float = 0.0

    def seconds(self, rows: pd.DataFrame) -> Floats:
        """Return what the faster one takes."""
        nbytes, ranks, width = (rows[x].to_numpy(np.float64) for x in ("nbytes", "ranks", "width"))
        took = []
        for name, x in self.numbers.items():
            moved = nbytes * ((ranks - 1) if name == "one-shot" else 2 * (ranks - 1) / ranks)
            took.append(x["start"] + x["step"] * (ranks - 1) + moved / (x["link"] * width))
        return np.asarray(np.min(took, axis=0))


def fitted(rows: pd.DataFrame, largest: float) -> OwnKernels:
    """Return the kernels that fit rows up to a size best, with their error on rows not fitted.

    Args:
        rows: ``nbytes``, ``ranks``, ``width`` and ``seconds``.
        largest: Bytes up to which the engine uses them.
    """
    rows = rows[rows.nbytes <= largest].reset_index(drop=True)
    third = np.arange(len(rows)) % 3
    misfits = np.empty(len(rows))
    for part in range(3):
        left = rows[third == part]
        misfits[third == part] = np.log(_fit(rows[third != part], largest).seconds(left) / left.seconds)
    return OwnKernels(_fit(rows, largest).numbers, largest, float(np.expm1(np.abs(misfits).mean())))


def largest(rows: pd.DataFrame, library: Floats) -> float:
    """Return the size from which rows take what the library takes: the one that parts them best."""

    def apart(most: float) -> float:
        above = (rows.nbytes > most).to_numpy()
        return float(np.abs(np.log(library / rows.seconds.to_numpy()))[above].sum())

    small = {most: _fit(rows[rows.nbytes <= most], most) for most in LARGEST}
    totals = {}
    for most, law in small.items():
        below = rows[rows.nbytes <= most]
        totals[most] = apart(most) + float(np.abs(np.log(law.seconds(below) / below.seconds)).sum())
    return float(min(totals, key=totals.__getitem__))


def _fit(rows: pd.DataFrame, largest: float) -> OwnKernels:
    measured = rows.seconds.to_numpy()
    best: tuple[float, OwnKernels] | None = None
    for share in (0.3, 0.7):
        begin = np.log(
            [share if key == "link" else value for x in BEGIN.values() for key, value in x.items()]
        )

        def law(at: Floats) -> OwnKernels:
            values = iter(np.exp(np.clip(at, -40, 1.3)).tolist())
            return OwnKernels({name: {key: next(values) for key in x} for name, x in BEGIN.items()}, largest)

        def misfits(at: Floats) -> Floats:
            return np.asarray(np.log(law(at).seconds(rows) / measured))

        at = least(misfits, begin, most=60)
        value = cost(misfits(at))
        if best is None or value < best[0]:
            best = value, law(at)
    assert best is not None
    return best[1]
