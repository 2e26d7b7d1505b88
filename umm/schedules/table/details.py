"""The kinds of actions, and the slices of buffers that each action touches."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Bools, Floats, Ints

KINDS = ("get", "put", "gemm", "accumulate", "reduce", "broadcast", "local", "barrier", "map")
GET, PUT, GEMM, ACCUMULATE, REDUCE, BROADCAST, LOCAL, BARRIER, MAP = range(len(KINDS))
TRANSFERS = (GET, PUT, ACCUMULATE, REDUCE, BROADCAST)
OPERANDS = 4
"""Operand 0 is written, the others are read; a table has room for more only where an action needs more."""
MOST_OPERANDS = 10  # of an action
NO_INTERFERENCE: Mapping[str, float] = {"get": 0.0, "accumulate": 0.0, "reduce": 0.0}


def is_one_of(kind: NDArray[Any], kinds: Collection[int]) -> Bools:
    """Return which actions have one of some kinds, as ``np.isin`` does in twenty times as long.

    >>> is_one_of(np.array([GEMM, MAP, GET], dtype=np.int8), (GET, PUT)).tolist()
    [False, False, True]
    """
    marked = np.zeros(len(KINDS), dtype=bool)
    marked[list(kinds)] = True
    result: Bools = marked[kind]
    return result


def operand_ranks(kind: NDArray[np.int8], rank: Ints, src: Ints, dst: Ints) -> Ints:
    """Return the rank where each operand of each action lies, shape (actions, 8); −1 for local and barrier.

    A transfer writes at its destination and reads at its source; everything else stays at its rank.
    """
    places = np.repeat(rank[:, None], MOST_OPERANDS, axis=1)
    transfer = np.isin(kind, TRANSFERS)
    places[transfer] = src[transfer, None]
    places[transfer, 0] = dst[transfer]
    places[np.isin(kind, (LOCAL, BARRIER))] = -1
    return places


_COLUMNS: dict[str, tuple[tuple[int, ...], Any, Any]] = {  # shape of a row, type, what stands for nothing
    "op": ((), np.int64, -1),
    "buffer": ((0,), np.int32, -1),  # 0 stands for the number of operands
    "rows": ((0, 2), np.int64, 0),
    "cols": ((0, 2), np.int64, 0),
    "trans": ((), np.int8, 0),
    "alpha": ((), np.float64, 1),
    "beta": ((), np.float64, 0),
    "batch": ((), np.int32, 1),
    "batch_axes": ((3,), np.int8, 0),
    "groups": ((3,), np.int32, 1),
    "fn": ((), np.int32, -1),
}


class Multiplied(NamedTuple):
    """How a gemm multiplies; see :class:`Details`."""

    trans: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    batch: int = 1
    batch_axes: tuple[int, int, int] = (0, 0, 0)
    groups: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, eq=False)
class Details:
    """The operands of each action, a row for each."""

    op: Ints  # the rank's own number of the multiply an action belongs to, −1 if none
    buffer: NDArray[np.int32]  # buffer of each operand, −1 for none, shape (actions, operands)
    rows: Ints  # rows of each operand's slice, in global indices, half-open, shape (actions, operands, 2)
    cols: Ints  # columns in the same form
    # Of a gemm: bit 1 is set if operand 1 is read transposed, bit 2 (value 4) for operand 2.
    trans: NDArray[np.int8]
    alpha: Floats  # of a gemm: o0 = α · op(o1) · op(o2) + β · o0
    beta: Floats  # of a gemm; 0 never reads o0
    batch: NDArray[np.int32]  # of a gemm: its members
    # Of a batch: the axis along which the slices of operands 0 to 2 are cut into equal members, 0 for rows, 1
    # for columns, shape (actions, 3).
    batch_axes: NDArray[np.int8]
    # Of a batch: how many consecutive members share one of operands 0 to 2, shape (actions, 3). A shared
    # operand 0 gets the sum.
    groups: NDArray[np.int32]
    fn: NDArray[np.int32]  # of a map: which of the schedule's functions, else −1

    @classmethod
    def empty(cls, actions: int, operands: int = OPERANDS) -> "Details":
        """Return columns that say nothing, to be filled in, for actions with at most so many operands."""
        columns = {}
        for name, (row, dtype, nothing) in _COLUMNS.items():
            shape = (actions, *(size or operands for size in row))
            # Builders ask for thousands of short ones, which np.zeros makes sooner than np.full.
            columns[name] = np.full(shape, nothing, dtype=dtype) if nothing else np.zeros(shape, dtype=dtype)
        return cls(**columns)

    @classmethod
    def joined(cls, parts: Sequence["Details"]) -> "Details":
        """Return the details of several, one below the other, with room for the most operands of any."""
        ends = np.cumsum([0, *(len(x.op) for x in parts)]).tolist()
        operands, columns = max(x.operands for x in parts), {}
        for name, (shape, dtype, nothing) in _COLUMNS.items():
            several = [getattr(x, name) for x in parts]
            if 0 not in shape or all(x.operands == operands for x in parts):
                columns[name] = np.concatenate(several)
                continue
            sizes = (size or operands for size in shape)
            columns[name] = np.full((ends[-1], *sizes), nothing, dtype=dtype)
            for first, last, column in zip(ends, ends[1:], several, strict=False):
                columns[name][first:last, : column.shape[1]] = column
        return cls(**columns)

    @staticmethod
    def names() -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(_COLUMNS)

    @property
    def operands(self) -> int:
        """Operands that an action may have here."""
        return int(self.buffer.shape[1])

    def taken(self, which: slice | Ints) -> "Details":
        """Return some rows; of a slice views."""
        return Details(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    def put(self, row: Ints, operand: int | Ints, buffer: NDArray[Any], rows: Ints, cols: Ints) -> None:
        """Write an operand of some actions; of each its own if numbers are given."""
        self.buffer[row, operand], self.rows[row, operand], self.cols[row, operand] = buffer, rows, cols

    @property
    def shape(self) -> Ints:
        """Rows and columns of each operand's slice, shape (actions, operands, 2); 0 where there is none."""
        return np.stack(
            [self.rows[..., 1] - self.rows[..., 0], self.cols[..., 1] - self.cols[..., 0]], axis=2
        )

    @property
    def multiplied(self) -> Ints:
        """m, n and k of each member of each gemm, shape (actions, 3); meaningless for other kinds."""
        shape = self.shape[:, :3].copy()
        # A slice of a batch is that of all its members side by side; divide to get one member's.
        members = self.batch[:, None] // self.groups
        action, operand = np.indices(members.shape)
        shape[action, operand, self.batch_axes] //= np.maximum(members, 1)
        m, n = shape[:, 0].T
        return np.stack([m, n, np.where(self.trans & 2, shape[:, 1, 0], shape[:, 1, 1])], axis=1)
