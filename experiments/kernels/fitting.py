"""Laws with named numbers: fitted in logarithms, judged on a fifth of the shapes, chosen among forms."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from experiments.kernels.least_squares import cost, least
from umm.arrays import Bools, Floats

SHARES = ("tail",)
LEAST = {"chunk": 1.0, "keys": 1.0}
CAPS = {"value": 1.0, "norm": 60.0, "cached": 1e15, "again": 1e15, "feed": 1e15, "first": 1e15, "link": 1.0,
        "skipped": 1.0, "unaligned": 1.0}  # fmt: skip
OF_MEMORY = ("memory", "passes", "write")
"""Rates that are not above the memory's by the data sheet."""
FIFTH = 5
BETTER = 0.9
"""Of the cost, which a table for some shapes alone must reach to be kept."""
GOOD = 0.075
"""Mean misfit below which one table is enough, unless a column is of other kernels by an engine's source."""
KERNELS = ("unshared", "short")
"""Such columns."""
FEW = 24
"""Rows from which a table is fitted."""
SAMPLE = 160
"""Rows on which forms are compared."""
FIRST_STEPS, STEPS = 10, 25
"""Of least squares, on these and on all rows."""
SHORTLIST = 4
"""Forms that are fitted on all rows."""
KIN = 0.3
"""Pull of a chip's numbers to those of its family, chosen on a quarter of the four fifths; 0.03 to 1 differ
by 0.1 %."""
SIMPLER = 0.98
"""Of the cost, which a form that was worse on fewer rows must reach to be kept."""

Numbers = dict[str, Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})
Law = Callable[[pd.DataFrame], Callable[[Mapping[str, Any]], Floats]]
"""Of rows: seconds of all of them from numbers."""


@dataclass(frozen=True, eq=False)
class Fit:
    """One table of an engine's kernels.

    Attributes:
        numbers: By their keys in a machine file.
        rows: Four fifths of whose shapes it is fitted on.
        seconds: Of all rows by these numbers.
        cost: Of the rows that it is fitted on.
        form: Those of its numbers that were not fitted.
        about: Which shapes it is of, if not all.
    """

    numbers: Mapping[str, Any]
    rows: pd.DataFrame
    seconds: Floats
    cost: float
    form: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def errors(self) -> Floats:
        """Logarithms of predicted over measured of the shapes that were left out."""
        judging = left_out(self.rows)
        return np.asarray(np.log(self.seconds / self.rows.seconds.to_numpy())[judging])


def left_out(rows: pd.DataFrame) -> Bools:
    """Return which rows judge: a fifth of the shapes, by a hash of their key."""
    return np.asarray(pd.util.hash_pandas_object(rows["key"], index=False) % FIFTH == 0)


def in_words(errors: Floats) -> str:
    """Return errors as a source has them.

    >>> in_words(np.array([0.1, -0.1, 0.4]))
    'shapes not fitted are off by 22% in the geometric mean, 67% within 30 %, bias +14%'
    """
    inside = np.mean(np.abs(errors) < np.log(1.3)) if len(errors) else 1.0
    mean, bias = (np.expm1(x.mean()) if len(x) else 0.0 for x in (np.abs(errors), errors))
    return (
        f"shapes not fitted are off by {mean:.0%} in the geometric mean, {inside:.0%} within 30 %, "
        f"bias {bias:+.0%}"
    )


def fitted(law: Law, forms: Iterable[Numbers], begin: Numbers, rows: pd.DataFrame, memory: float) -> Fit:
    """Return the form of a law that fits rows best, with its numbers.

    Args:
        law: Of rows.
        forms: Numbers that are not fitted; each is tried, a later one is kept only if it is clearly better.
        begin: Numbers to begin with; ``name:0`` is the first of a list.
        rows: With ``seconds`` and ``key``.
        memory: Bytes/s of the device's memory.
    """
    caps = CAPS | dict.fromkeys(OF_MEMORY, memory)
    known = rows[~left_out(rows)]
    few = known.iloc[:: max(1, len(known) // SAMPLE)]
    of_few, of_known = law(few), law(known)
    tried: list[tuple[float, Numbers, Floats]] = []
    for form in forms:
        misfits = _misfits(of_few, begin, caps, form, few)
        at = least(misfits, _encoded(begin), most=FIRST_STEPS)
        tried.append((cost(misfits(at)), form, at))
    # The sort is stable: of forms that are alike, the simpler one comes first.
    best: tuple[float, Numbers, Floats] | None = None
    for _, form, at in sorted(tried, key=lambda x: x[0])[:SHORTLIST]:
        misfits = _misfits(of_known, begin, caps, form, known)
        at = least(misfits, at, most=STEPS)
        value = cost(misfits(at))
        if best is None or value < SIMPLER * best[0]:
            best = value, form, at
    assert best is not None
    value, form, at = best
    numbers = _decoded(begin, at, caps) | form
    return Fit(numbers, rows, law(rows)(numbers), value, form)


def refined(law: Law, family: Fit, rows: pd.DataFrame, memory: float) -> Fit:
    """Return a family's table with the numbers that one of its chips has, near those of the family.

    Args:
        law: Of rows.
        family: Fitted to rows of all its chips.
        rows: Of the chip.
        memory: Bytes/s of the device's memory.
    """
    known = rows[~left_out(rows)]
    begin: Numbers = {}
    for name, value in family.numbers.items():
        if name not in family.form:
            many = value if isinstance(value, list) else [value]
            begin |= {f"{name}:{i}" if isinstance(value, list) else name: x for i, x in enumerate(many)}
    begin |= {name: min(max(begin[name], 1e-3), 1 - 1e-3) for name in SHARES if name in begin}
    begin["norm"] = max(begin["norm"], 1.001)
    caps = CAPS | dict.fromkeys(OF_MEMORY, memory)
    misfits = _misfits(law(known), begin, caps, family.form, known)
    at = least(misfits, _encoded(begin), most=STEPS, pull=KIN)
    numbers = _decoded(begin, at, caps) | dict(family.form)
    return replace(family, numbers=numbers, rows=rows, seconds=law(rows)(numbers), cost=cost(misfits(at)))


def _misfits(
    law: Callable[[Mapping[str, Any]], Floats], begin: Numbers, caps: Mapping[str, float], form: Numbers,
    rows: pd.DataFrame,
) -> Callable[[Floats], Floats]:  # fmt: skip
    measured = rows.seconds.to_numpy()
    return lambda at: np.asarray(np.log(law(_decoded(begin, at, caps) | form) / measured))


def _encoded(begin: Numbers) -> Floats:
    return np.array([
        math.log(x / (1 - x)) if name in SHARES else math.log(x - 1 if name == "norm" else x)
        for name, x in begin.items()
    ])  # fmt: skip


def _decoded(begin: Numbers, at: Floats, caps: Mapping[str, float]) -> Numbers:
    numbers: Numbers = {}
    for name, value in zip(begin, at.tolist(), strict=True):
        raised = math.exp(min(max(value, -60.0), 60.0))
        if name in SHARES:
            number = raised / (1 + raised)
        else:
            number = min(
                max(raised, LEAST.get(name, 0.0)) + (name == "norm"),
                caps.get(name.partition(":")[0], math.inf),
            )
        base, colon, _ = name.partition(":")
        if colon:
            numbers.setdefault(base, []).append(number)
        else:
            numbers[name] = number
    return numbers


def parted(
    fit: Callable[[pd.DataFrame, Numbers | None], Fit],
    rows: pd.DataFrame,
    columns: Sequence[str],
    about: Mapping[str, Any] = NOTHING,
    form: Numbers | None = None,
) -> list[Fit]:
    """Return tables of rows, parted by columns of shapes where that is clearly better; see :data:`BETTER`.

    Args:
        fit: Returns one table, of any form or of one.
        rows: Rows.
        columns: Of true and false that may part them.
        about: What the rows are of already.
        form: The form of all tables; that of the first one if None.
    """
    one = replace(fit(rows, form), about=dict(about))
    best = [one]
    good = np.abs(np.log(one.seconds / rows.seconds)).mean() < GOOD
    for i, column in enumerate(columns):
        if good and column not in KERNELS:
            continue
        parts = {bool(x): part.reset_index(drop=True) for x, part in rows.groupby(column)}
        if len(parts) < 2 or min(map(len, parts.values())) < FEW:
            continue
        tables = [
            table
            for value, part in parts.items()
            for table in parted(fit, part, columns[i + 1 :], {**about, column: value}, dict(one.form))
        ]
        if sum(x.cost for x in tables) < BETTER * sum(x.cost for x in best):
            best = tables
    return best
