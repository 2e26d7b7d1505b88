"""Laws of a library's collectives: the numbers of ``Pace`` that fit nccl-tests' rows best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd

from experiments.kernels.least_squares import cost, least
from umm.arrays import Floats
from umm.machines.library import BLEND

OPS = {
    "all_gather": "all-gather", "reduce_scatter": "reduce-scatter", "all_reduce": "all-reduce",
    "alltoall": "all-to-all",
}  # fmt: skip
MESSAGES = (None, *(2.0**x for x in range(17, 25)))
"""Bytes for each peer from which a way of its own is tried."""
SMALLEST = 2**12
"""Bytes from which rows count: below nothing but the start shows."""


@dataclass(frozen=True)
class Form:
    """One way of a collective: which numbers it has.

    Attributes:
        name: Of the way.
        begin: Its numbers to begin with: seconds, and rates over that of the links.
        path: What crosses a port.
        hides: Whether what crosses hides in the latency of a step.
        large: Whether it is used above a size of messages, and no other.
    """

    name: str
    begin: Mapping[str, float]
    path: str = "ring"
    hides: bool = False
    large: bool = False

    def seconds(
        self, x: Mapping[str, float], what: str, nbytes: Floats, ranks: Floats, width: Floats
    ) -> Floats:
        """Return the seconds of the way; see ``Pace.seconds``."""
        rounds = 2 if what == "all-reduce" else 1
        moved = nbytes * ((ranks + 1) / ranks if self.path == "switch" else rounds * (ranks - 1) / ranks)
        rate = x["link"] * width
        if "peer" in x:
            peers = x["peer"] * width * (ranks - 1)
            rate = (rate**-BLEND + peers**-BLEND) ** (-1 / BLEND)
        if "blocks" in x:
            blocks = x["blocks"] * width * (ranks - 1) / ranks
            rate = (rate**-BLEND + blocks**-BLEND) ** (-1 / BLEND)
        if self.path == "ring":
            rate = np.minimum(rate, width)  # what a ring moves crosses its links
        start = x["start"] + x["step"] * (ranks - 1)
        if not self.hides:
            return start + moved / rate
        message, step = nbytes / ranks, x["step"]
        longer = step * ((1 + (message / rate / step) ** BLEND) ** (1 / BLEND) - 1)
        return start + moved / message * longer


LL = Form("ll", {"start": 6e-6, "step": 1e-6, "link": 0.2})
LL128 = Form("ll128", {"start": 1e-5, "step": 1.5e-6, "link": 0.6, "blocks": 1.0})
RING = Form("ring", {"start": 1.5e-5, "step": 2e-6, "link": 0.9, "blocks": 2.0})
HIDDEN = Form("ring", {"start": 1.5e-5, "step": 4e-6, "link": 0.9, "blocks": 2.0}, hides=True)
NVLS = Form("nvls", {"start": 2.5e-5, "step": 1e-6, "link": 0.8}, path="switch")
PAIRS = Form("pairs", {"start": 8e-6, "step": 3e-7, "link": 0.3, "peer": 0.02})
"""Small messages to each peer go over channels of that peer alone, beside those to others."""


@dataclass(frozen=True)
class Ways:
    """The ways of one collective with their numbers.

    Attributes:
        what: The collective.
        forms: The ways.
        message: Bytes for each peer above which the large ones are used; None if all compete.
        numbers: Of each way, by name.
        errors: Geometric mean errors on rows that were not fitted: from 1 MiB on, and below.
    """

    what: str
    forms: Sequence[Form]
    message: float | None
    numbers: Sequence[Mapping[str, float]] = field(default_factory=list)
    errors: tuple[float, float] = (0.0, 0.0)

    def seconds(self, rows: pd.DataFrame) -> Floats:
        """Return the seconds of the fastest way that a library considers."""
        nbytes, ranks, width = (rows[x].to_numpy(np.float64) for x in ("nbytes", "ranks", "width"))
        above = nbytes / ranks > (np.inf if self.message is None else self.message)
        took = []
        for form, x in zip(self.forms, self.numbers, strict=True):
            allowed = above == form.large if self.message is not None else np.ones(len(rows), dtype=bool)
            took.append(np.where(allowed, form.seconds(x, self.what, nbytes, ranks, width), np.inf))
        return np.asarray(np.min(took, axis=0))


def fitted(rows: pd.DataFrame, what: str) -> Ways:
    """Return the ways that fit rows of one collective best, with their error on rows not fitted.

    Args:
        rows: ``nbytes``, ``ranks``, ``width`` (bytes/s of links by which a rank hears) and ``seconds``.
        what: The collective.
    """
    rows = rows[rows.nbytes >= SMALLEST].reset_index(drop=True)
    best = min(
        (_fit(rows, what, forms, message) for forms, message in _forms(what)), key=lambda result: result[1]
    )[0]
    third = np.arange(len(rows)) % 3
    large = (rows.nbytes >= 2**20).to_numpy()
    misfits = np.empty(len(rows))
    for part in range(3):
        other, _ = _fit(rows[third != part], what, best.forms, best.message)
        left = rows[third == part]
        misfits[third == part] = np.log(other.seconds(left) / left.seconds.to_numpy())
    errors = tuple(float(np.expm1(np.abs(misfits[x]).mean())) for x in (large, ~large))
    return Ways(what, best.forms, best.message, best.numbers, (errors[0], errors[1]))


def _forms(what: str) -> list[tuple[Sequence[Form], float | None]]:
    """Return the sets of ways that are tried, with the size from which the large ones are used."""
    small = (LL, LL128) if what != "all-to-all" else (PAIRS, LL128)
    large: list[tuple[Form, ...]] = [(RING,), (HIDDEN,)]
    if what == "all-reduce":
        large = [(RING,), (RING, NVLS), (HIDDEN, NVLS)]
    return [
        ((*small, *(Form(x.name, x.begin, x.path, x.hides, message is not None) for x in more)), message)
        for more, message in product(large, MESSAGES)
    ]


def _fit(rows: pd.DataFrame, what: str, forms: Sequence[Form], message: float | None) -> tuple[Ways, float]:
    begin = np.log([value for form in forms for value in form.begin.values()])
    measured = rows.seconds.to_numpy()
    weights = np.where(rows.nbytes >= 2**20, 1.2, np.where(rows.nbytes >= 2**14, 1.0, 0.4))

    def ways(at: Floats) -> Ways:
        values = iter(np.exp(np.clip(at, -40, 40)).tolist())
        return Ways(what, forms, message, [{name: next(values) for name in form.begin} for form in forms])

    def misfits(at: Floats) -> Floats:
        return np.asarray(weights * np.log(ways(at).seconds(rows) / measured))

    at = least(misfits, begin, most=60)
    return ways(at), cost(misfits(at))
