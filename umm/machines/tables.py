"""Measured multiplies beside a machine file: near them their times count, elsewhere the law of the file.

A table has rows of some shapes, on a grid or not. Of a row, its difference from the law is kept. So between
rows, where tiles begin and end, the law decides, and a machine with other numbers still has the measured
differences.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.dtypes import BLOCK, FLOAT8, PRICED, has_blocks, rated
from umm.errors import MachineError
from umm.files import read_text
from umm.machines.kernels import Kernels
from umm.machines.parts import MAX_TABLE
from umm.numbers import parse_real
from umm.quoting.terminal import visible

BESIDE = ".kernels.csv"  # how the name of a table ends that is beside a machine file, in place of `.toml`
COLUMNS = ("dtype", "m", "n", "k", "seconds")
FAMILIES, ROWS_EACH = 24, 2
"""Nearest n and k of which rows count for a shape, and how many of each, those of the nearest m."""
COVARIANCE = ((0.3, (0.1, 4.0, 4.0)), (0.7, (1.0, 2.0, 2.0)))
"""Variance of two parts of the differences from a law, and doublings of m, n, k in which each falls to 1/e.
The first: kernels change at an m for many n and k alike. Both, and those below, were chosen by leaving out n
and k of eight of AIConfigurator's tables."""
TREND = (2.0, (2.0, 3.0, 3.0))
"""The same of a smooth part, whose covariance is Gaussian: far from all rows the law decides."""
NOISE = 0.2  # variance of what repeats of a measurement differ by, on the same scale
LAW_WEIGHT = 0.02  # weight of the law beside rows: with none within two doublings it decides
INSIDE_DOUBLINGS = 1.0  # doublings to the nearest row up to which a shape counts as inside the table
C_ITEMSIZE = 2  # bytes of an element of C, as engines have it; of wider types as many as of A's
NO_LAW = "the file of {} has no kernels; begin with --from 'h100-8 kernels=vllm' or another that has"
MAX_KNOWN = 2**17  # shapes whose factors are kept
MOST_DOUBLINGS = 64  # of m, which is below 2^31; more than any, so that keys of families do not meet
MOST_ROWS = 2_000_000  # rows of a table, about as many as `MAX_TABLE` bytes hold


def weighed(points: Floats, differences: Floats, point: Floats, width: float) -> tuple[float, float]:
    """Return the factor of a law's time at a point by rows near it, and doublings to the nearest row.

    Args:
        points: log2 of sizes, a row each.
        differences: Logarithm of measured seconds over the law's, of each.
        point: log2 of the sizes asked for.
        width: Doublings in which a row counts for 1/e^(1/2) of what it says.
    """
    squares, doublings, measured = _nearest(points, differences, point)
    if measured is not None:
        return measured, 0.0
    weights = np.exp(-squares / (2 * width**2))
    mean = float(weights @ differences) / (float(weights.sum()) + LAW_WEIGHT)
    return float(np.exp(mean)), doublings


def _nearest(points: Floats, differences: Floats, point: Floats) -> tuple[Floats, float, float | None]:
    """Return squared doublings to each row, doublings to the nearest, and its factor if it is the point."""
    squares: Floats = ((points - point) ** 2).sum(axis=1)
    nearest = int(squares.argmin())
    least = float(squares[nearest])
    return squares, least**0.5, float(np.exp(differences[nearest])) if least < 1e-12 else None


def _covariance(m: Floats, n: Floats, k: Floats) -> Floats:
    """Return the covariance of differences of shapes by the doublings between them."""
    # Arrays by dimension: a sum over a last axis of three takes most of the time that a shape does.
    variance, (of_m, of_n, of_k) = TREND
    total = variance * np.exp(((m / of_m) ** 2 + (n / of_n) ** 2 + (k / of_k) ** 2) / -2)
    for variance, (of_m, of_n, of_k) in COVARIANCE:
        total += variance * np.exp(m / -of_m - n / of_n - k / of_k)
    return np.asarray(total)


@dataclass(frozen=True, eq=False)
class Rows:
    """Measured multiplies of one type."""

    shapes: Floats  # log2 of m, n and k, a row each
    seconds: Floats  # of each
    law: Kernels  # the kernels of the machine's file, which the rows are compared with

    def factors(self, m: Floats, n: Floats, k: Floats) -> tuple[Floats, Bools]:
        """Return factors of the law's times, and which shapes are inside the table.

        Between two rows that take twice what the law says a shape does too; far away it is as the law:

        >>> law = Kernels(units=4, tiles=((64, 64),), splits=(1,), rate=2e12, itemsize=2, feed=1e12,
        ...     start_s=4e-6, ramp_s=0.0, store=1e12, memory=1e12)
        >>> shapes = np.array([[64.0, 64.0, 64.0], [128.0, 64.0, 64.0]])
        >>> rows = Rows(np.log2(shapes), 2 * law.seconds(*shapes.T, c_itemsize=2), law)
        >>> factors, inside = rows.factors(np.array([96.0, 2.0**14]), np.full(2, 64.0), np.full(2, 64.0))
        >>> factors.round(1).tolist(), inside.tolist()
        ([1.9, 1.0], [True, False])
        """
        keys = list(zip(m.tolist(), n.tolist(), k.tolist(), strict=True))
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
            new = list(dict.fromkeys(keys))
        self._known.update((key, self._factor(np.log2(key))) for key in new)
        known = np.array([self._known[key] for key in keys]).reshape(-1, 2)
        return known[:, 0], known[:, 1] <= INSIDE_DOUBLINGS

    @cached_property
    def _known(self) -> dict[tuple[float, ...], tuple[float, float]]:
        """Factors, and doublings to the nearest row, of shapes that were asked for before."""
        return {}

    @cached_property
    def differences(self) -> Floats:
        """Logarithm of measured seconds over the law's, a row each."""
        law = replace(self.law)  # a copy: that of the machine need not remember the shapes of all rows
        c_itemsize = max(C_ITEMSIZE, int(law.itemsize))
        took = law.seconds(*np.rint(np.exp2(self.shapes.T)), c_itemsize=c_itemsize)
        return np.asarray(np.log(self.seconds / took))

    @cached_property
    def _families(self) -> tuple[Floats, Ints, Floats, Floats, Floats]:
        """Families of rows by n and k, the first row of each, and rows with differences by family and m.

        The last are keys in the same order, so that one search of them finds an m in several families.
        """
        order = np.lexsort(self.shapes.T)
        shapes = self.shapes[order]
        new = np.any(np.diff(shapes[:, 1:], axis=0) != 0, axis=1)
        first = np.flatnonzero(np.concatenate([[True], new, [True]]))
        family = np.repeat(np.arange(len(first) - 1), np.diff(first))
        keys = family * MOST_DOUBLINGS + shapes[:, 0]
        return shapes[first[:-1], 1:], first, shapes, self.differences[order], keys

    def _factor(self, point: Floats) -> tuple[float, float]:
        """Return the factor of a shape, and doublings to the nearest row."""
        # Kriging (Rasmussen and Williams 2006, section 2.2) of the differences from the law, with mean 0.
        families, first, shapes, differences, _ = self._families
        away = np.abs(families - point[1:]).sum(axis=1)
        chosen = np.argpartition(away, FAMILIES)[:FAMILIES] if len(away) > FAMILIES else np.arange(len(away))
        several = self._first_rows(chosen, point[0])[:, None] + np.arange(ROWS_EACH)
        rows = several[several < first[chosen + 1][:, None]]
        near, known = shapes[rows], differences[rows]
        _, doublings, measured = _nearest(near, known, point)
        if measured is not None:
            return measured, 0.0
        sizes = near.T
        covariance = _covariance(*(np.abs(x[:, None] - x) for x in sizes))
        covariance[np.diag_indices(len(rows))] += NOISE
        asked = _covariance(*np.abs(sizes - point[:, None]))
        factor = np.linalg.solve(covariance, asked) @ known
        # No factor is beyond those of the rows and the law's 1: bounds of a search rest on the least.
        return float(np.exp(np.clip(factor, min(0.0, known.min()), max(0.0, known.max())))), doublings

    def least(self, shortest: Sequence[Floats], longest: Sequence[Floats]) -> Floats:
        """Return factors, at most 1, that those of no shape between two are below; see :meth:`factors`.

        Args:
            shortest: m, n and k of the one, at least 1.
            longest: Of the other, in each dimension no shorter.
        """
        edges, floors = self._floors
        cells = np.stack([
            np.searchsorted(some[1:-1], np.log2(x), side="right")
            for sizes in (shortest, longest)
            for some, x in zip(edges, sizes, strict=True)
        ])  # fmt: skip
        # Of thousands of ranks and layouts few are unlike by doublings.
        number = np.ravel_multi_index(tuple(cells), (*floors.shape, *floors.shape))
        unlike, each = np.unique(number, return_inverse=True)
        boxes = np.stack(np.unravel_index(unlike, (*floors.shape, *floors.shape)), axis=1).tolist()
        least = [floors[m : m1 + 1, n : n1 + 1, k : k1 + 1].min() for m, n, k, m1, n1, k1 in boxes]
        return np.array(least)[each.reshape(number.shape)]

    @cached_property
    def _floors(self) -> tuple[tuple[Floats, Floats, Floats], Floats]:
        """Return whole doublings of m, n and k that rows lie between, and the least factor of each cell."""
        # A cell's shapes take rows of families that are among the nearest of one of them: no farther from
        # all of the cell than as many families are from none of it. Outside of all rows the same families are
        # nearest, and the same rows of them, as at the edge.
        families, first, shapes, differences, _ = self._families
        low, high = np.floor(shapes.min(axis=0)), np.ceil(shapes.max(axis=0))
        m, n, k = (np.arange(a, max(a + 1, b) + 1) for a, b in zip(low, high, strict=True))
        begin = np.stack([self._first_rows(np.arange(len(families)), x) for x in m])
        ends = np.minimum(begin[1:] + ROWS_EACH, first[1:])
        pairs = np.stack([begin[:-1], ends], axis=-1).reshape(-1)
        by_family = np.minimum.reduceat(np.append(differences, np.inf), pairs)[::2].reshape(len(m) - 1, -1)
        floors = np.empty((len(m) - 1, len(n) - 1, len(k) - 1))
        some = min(FAMILIES, len(families)) - 1
        for i, j in np.ndindex(floors.shape[1:]):
            corner = np.array([n[i], k[j]])
            inside = np.maximum(np.maximum(corner - families, families - corner - 1), 0.0).sum(axis=1)
            farthest = np.maximum(families - corner, corner + 1 - families).sum(axis=1)
            near = inside <= np.partition(farthest, some)[some] + 1e-9
            floors[:, i, j] = by_family[:, near].min(axis=1)
        return (m, n, k), np.exp(np.minimum(floors, 0.0))

    def _first_rows(self, chosen: Ints, m: float) -> Ints:
        """Return the first of the rows of some families that count for an m, in doublings."""
        _, first, *_, keys = self._families
        split = np.searchsorted(keys, chosen * MOST_DOUBLINGS + m)
        return np.maximum(first[chosen], np.minimum(split - ROWS_EACH // 2, first[chosen + 1] - ROWS_EACH))


@dataclass(frozen=True, eq=False)
class Tables:
    """Measured multiplies of a machine."""

    rows: Mapping[str, Rows]  # by type
    source: str  # the file's name

    def of(self, dtype: str) -> Rows | None:
        """Return the rows of a type of matrices; None if there are none."""
        name = rated(dtype)
        name = "float8" if name in FLOAT8 else "float4" if name in PRICED else name
        return self.rows.get(f"{name}:{BLOCK}" if has_blocks(dtype) else name)


def rows_by(
    path: Path, columns: Sequence[str], keys: int, numbers: Callable[[Mapping[str, str]], list[float]]
) -> dict[tuple[str, ...], list[list[float]]]:
    """Return the numbers in the lines of a table beside a machine file, by their first columns.

    MachineError if it has other columns, or a line has no numbers, or one that is not more than 0.

    Args:
        keys: How many columns those are.
        numbers: Returns those of a line.
    """
    name = visible(path.name)
    rows: dict[tuple[str, ...], list[list[float]]] = {}
    try:
        lines = csv.DictReader(io.StringIO(read_text(path, MAX_TABLE), newline=""))
        if tuple(lines.fieldnames or ()) != columns:
            raise MachineError(f"{name} has not the columns {', '.join(columns)}")
        for number, line in enumerate(lines, 2):
            row = numbers(line)
            if min(row, default=0) <= 0 or number > MOST_ROWS:
                raise MachineError(f"{name}, line {number}: sizes and times are more than 0")
            rows.setdefault(tuple(line[x] for x in columns[:keys]), []).append(row)
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise MachineError(f"{name} cannot be read: {visible(str(error))}") from None
    return rows


def read_rows(path: Path, machine: Any) -> dict[str, Rows]:
    """Return the measured multiplies of a table that ``umm machine import --kernels`` wrote, by type.

    MachineError if it is not such a table, or of types of which the machine's file has no kernels.
    """
    by_type = rows_by(path, COLUMNS, 1, lambda line: [parse_real(line[x] or "", x) for x in COLUMNS[1:]])
    rows = {}
    for (dtype,), some in by_type.items():
        law = machine.law_of(dtype)
        if law is None:
            raise MachineError(
                f"{visible(path.name)} has {visible(dtype)}, of which {NO_LAW.format(machine.name)}"
            )
        array = np.array(some)
        rows[dtype] = Rows(np.log2(array[:, :3]), array[:, 3], law)
        # Computed now, once: later commands read the rows as this one keeps them.
        rows[dtype].differences, rows[dtype]._floors
    return rows
