"""Measured attention and experts beside a machine file: near them their times count, elsewhere the law.

A row belongs to a format (types, columns of a head, experts of a model …), and only rows of the same format
count for a shape. Between them it is as with multiplies (:mod:`umm.machines.tables`): what is kept of a row
is by how much it differs from the law, in logarithms.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from umm.arrays import Floats
from umm.machines.tables import INSIDE_DOUBLINGS, rows_by, weighed
from umm.numbers import parse_real

BESIDE = ".serving.csv"  # how the name of such a table ends, in place of `.toml`
COLUMNS = ("kernel", "format", "sizes", "seconds")
SIZES = {
    "prefill": ("sequences", "queries", "keys", "heads", "kv_heads"),
    "decode": ("sequences", "keys", "heads", "kv_heads"),
    "experts": ("tokens",),
}
"""Sizes of a row of each kernel; all else is its format."""
ROW_WIDTH = 1.0
"""Doublings in which a row counts for 1/e^(1/2): tables have a row each doubling of five sizes. On a fifth of
AIConfigurator's sampled rows of H100 half of it and one and a half are worse."""
Law = Callable[[Floats], Floats | None]  # seconds by law of sizes, a row each


@dataclass(frozen=True, eq=False)
class ServingRows:
    """Measured kernels of one format."""

    sizes: Floats  # a row each, with the columns of SIZES
    seconds: Floats  # of each
    # Logarithms of measured seconds over the law's, once they are known.
    _differences: list[Floats] = field(default_factory=list)

    def factor(self, law: Law, sizes: Sequence[float]) -> tuple[float, bool]:
        """Return the factor of a law's seconds at some sizes, and whether these are inside the rows.

        >>> rows = ServingRows(np.array([[64.0], [256.0]]), np.array([2e-6, 2e-6]))
        >>> [round(rows.factor(lambda x: np.full(len(x), 1e-6), [size])[0], 1) for size in (64, 128, 2**20)]
        [2.0, 2.0, 1.0]
        """
        if not self._differences:
            took = law(self.sizes)
            self._differences.append(np.log(self.seconds / (self.seconds if took is None else took)))
        points = np.log2(self.sizes)
        factor, doublings = weighed(points, self._differences[0], np.log2(sizes), ROW_WIDTH)
        return factor, doublings <= INSIDE_DOUBLINGS


def format_text(*values: object) -> str:
    """Return a format's values, such as a type and the columns of a head, as a table has them.

    >>> format_text("bfloat16", 128, 0.0, 1.2)
    'bfloat16 128 0 1.2'
    """
    return " ".join(f"{x:.12g}" if isinstance(x, float) else str(x) for x in values)


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Measured rows of one kernel in all formats."""

    table: Floats  # sizes and seconds, a row each, with those of a format together
    formats: Mapping[str, tuple[int, int]]  # first row of each format, and the first of the next
    # Rows of formats that were asked for: of thousands few are, and each keeps how far the law is off.
    _asked: dict[str, ServingRows | None] = field(default_factory=dict)

    def of(self, form: str) -> ServingRows | None:
        """Return the rows of a format; None if there are none."""
        if form not in self._asked:
            start, end = self.formats.get(form, (0, 0))
            rows = self.table[start:end]
            self._asked[form] = ServingRows(rows[:, :-1], rows[:, -1]) if len(rows) else None
        return self._asked[form]


@dataclass(frozen=True, eq=False)
class ServingTables:
    """Measured attention and experts of a machine."""

    kernels: Mapping[str, KernelRows]  # by name
    base: Any  # the machine by its file alone, whose laws the rows are compared with

    def of(self, kernel: str, form: str) -> ServingRows | None:
        """Return the rows of a kernel in a format; None if there are none."""
        rows = self.kernels.get(kernel)
        return None if rows is None else rows.of(form)


def read_kernels(path: Path, machine: Any) -> dict[str, KernelRows]:
    """Return the measured attention and experts of a table of ``umm machine import --kernels``, by kernel.

    MachineError if it is no such table.
    """

    def numbers(line: Mapping[str, str]) -> list[float]:
        row = [parse_real(x, "a size") for x in [*line["sizes"].split(), line["seconds"] or ""]]
        return row if len(row) == 1 + len(SIZES.get(line["kernel"], row)) else []

    by_form = rows_by(path, COLUMNS, 2, numbers)
    kernels = {}
    for kernel in dict.fromkeys(name for name, _ in by_form):
        forms = {form: rows for (name, form), rows in by_form.items() if name == kernel}
        edges = [0, *accumulate(map(len, forms.values()))]
        table = np.array([row for rows in forms.values() for row in rows])
        kernels[kernel] = KernelRows(table, dict(zip(forms, pairwise(edges), strict=True)))
    return kernels
