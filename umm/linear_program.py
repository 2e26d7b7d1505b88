"""Integer linear programs in HiGHS: rows of entries, and a solver with the same answer on every host."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from umm.arrays import Floats, Ints

if TYPE_CHECKING:
    from highspy._core import _Highs

TOLERANCE = 1e-6
"""Share by which an optimum may be off; HiGHS's feasibility and optimality tolerances are 1e-7."""


class Rows:
    """Constraints on columns, in any order of their entries.

    Args:
        count: Rows of at most 0 to begin with, to which entries are added by number.
    """

    def __init__(self, count: int = 0) -> None:
        self._row: list[Ints] = []
        self._column: list[Ints] = []
        self._value: list[Floats] = []
        self.lower, self.upper = [-np.inf] * count, [0.0] * count

    @property
    def entries(self) -> int:
        """Number of entries that are not zero."""
        return sum(map(len, self._value))

    def add(
        self, columns: object, values: object, lower: float, upper: float, row: int | None = None
    ) -> None:
        """Add entries to a row, a new one by default."""
        if row is None:
            row = len(self.lower)
            self.lower.append(lower)
            self.upper.append(upper)
        self._column.append(np.asarray(columns, dtype=np.int64))
        self._value.append(np.asarray(values, dtype=np.float64))
        self._row.append(np.full(len(self._value[-1]), row))

    def compressed(self) -> tuple[Ints, Ints, Floats]:
        """Return where each row starts, and the columns and values, row by row."""
        row, column = np.concatenate(self._row), np.concatenate(self._column)
        value = np.concatenate(self._value)
        order = np.lexsort((column, row))
        starts = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=len(self.lower)))))
        return starts, column[order], value[order]


def solver(
    cost: ArrayLike, upper: ArrayLike, integer: Sequence[bool], rows: Rows, max_nodes: int
) -> "_Highs":
    """Return a solver that minimises a cost: one thread and a fixed seed, so the same answer anywhere.

    Args:
        cost: Of each column.
        upper: Most of each column, whose least is 0.
        integer: Whether a column is an integer.
        max_nodes: Nodes of branch and bound; the dual bound at its end is valid, if not the optimum.

    Source: Huangfu and Hall (2018), Parallelizing the dual revised simplex method; https://highs.dev.
    """
    import highspy  # takes .2 s, which small programs do without
    from highspy._core import _Highs  # its own Highs prints a banner on standard output

    program, columns = highspy.HighsLp(), len(integer)
    program.num_col_, program.num_row_ = columns, len(rows.lower)
    program.col_cost_ = np.asarray(cost)
    program.col_lower_, program.col_upper_ = np.zeros(columns), np.asarray(upper)
    program.row_lower_, program.row_upper_ = np.array(rows.lower), np.array(rows.upper)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_, program.a_matrix_.index_, program.a_matrix_.value_ = rows.compressed()
    kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
    program.integrality_ = [kinds[x] for x in integer]
    result = _Highs()
    for name, value in (
        ("output_flag", False), ("threads", 1), ("random_seed", 0), ("mip_max_nodes", max_nodes),
        ("mip_rel_gap", TOLERANCE), ("mip_abs_gap", 0.0),
    ):  # fmt: skip
        result.setOptionValue(name, value)
    result.passModel(program)
    return result
