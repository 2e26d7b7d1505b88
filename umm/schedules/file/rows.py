"""Values of files as checked columns, and the actions of a schedule's JSON form."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from umm.arrays import Floats, Ints, offsets_of
from umm.errors import ScheduleError
from umm.files import fields_of, real_number, shown, whole_number
from umm.layouts.layout import Layout
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Buffers, first_tiles, tile_at
from umm.schedules.table.details import (
    BARRIER,
    GEMM,
    KINDS,
    LOCAL,
    MAP,
    MOST_OPERANDS,
    OPERANDS,
    TRANSFERS,
    Details,
    operand_ranks,
)

What = Callable[[int], str]  # what a value is, by its place in the list, for the message


def whole_column(values: Sequence[Any], what: What, least: int = 0, below: int = 2**63) -> Ints:
    """Return whole numbers as an array.

    InputError for the first that is not one, or lies outside least … below − 1.
    """
    if (
        # One pass in C decides the usual case; the slow loop runs only to name the first bad value.
        not set(map(type, values)) <= {int}
        or min(values, default=least) < least
        or max(values, default=0) >= below
    ):
        for place, value in enumerate(values):
            whole_number(value, what(place), least, below)
    return np.array(values, dtype=np.int64)


def real_column(values: Sequence[Any], what: What) -> Floats:
    """Return finite numbers, whole or not, as an array; InputError for the first that is not one."""
    if set(map(type, values)) <= {float} and np.isfinite(np.array(values)).all():
        return np.array(values, dtype=np.float64)
    return np.array([real_number(value, what(place)) for place, value in enumerate(values)], dtype=np.float64)


def range_column(values: Sequence[Any], what: What) -> Ints:
    """Return half-open ranges [start, stop] of whole numbers as an array of shape (ranges, 2).

    InputError for the first that is not one.
    """
    for place, value in enumerate(values):
        if type(value) is not list or len(value) != 2:
            raise ScheduleError(f"{what(place)} = {shown(value)} is not a range [start, stop]")
    flat = [number for span in values for number in span]
    return whole_column(flat, lambda place: what(place // 2)).reshape(-1, 2)


_NUMBER = {name: kind for kind, name in enumerate(KINDS)}
_ALWAYS = ("id", "rank", "kind", "lane", "after")
_REQUIRED = {
    GEMM: ("seconds", "writes", "reads"),
    MAP: ("seconds", "writes", "reads", "fn"),
    LOCAL: ("seconds",),
    BARRIER: (),
} | dict.fromkeys(TRANSFERS, ("src", "dst", "nbytes", "writes", "reads"))
_OPTIONAL = {
    GEMM: ("op", "trans", "alpha", "beta", "batch", "batch_axes", "groups"),
    MAP: ("op",),
    LOCAL: (),
    BARRIER: (),
} | dict.fromkeys(TRANSFERS, ("op", "seconds", "means"))


class Actions:
    """The actions of a file; an error in one is reported when its column is read.

    InputError if one is not an action.
    """

    def __init__(self, actions: Sequence[Any]) -> None:
        self.rows: Sequence[dict[str, Any]] = actions
        self._kind: list[int] = []
        known = set()  # kinds with keys that they may have
        for i, row in enumerate(actions):
            if type(row) is not dict:
                raise ScheduleError(f"action {i} is {shown(row)}, not an object")
            name = row.get("kind")
            if type(name) is not str or name not in _NUMBER:
                raise ScheduleError(f"action {i} has kind {shown(name)}; choose from {', '.join(KINDS)}")
            kind = _NUMBER[name]
            self._kind.append(kind)
            # Actions of one kind mostly have the same keys in the same order, so each such list is checked
            # once.
            if (keys := (kind, *row)) not in known:
                fields_of(row, self._what(i), (*_ALWAYS, *_REQUIRED[kind]), _OPTIONAL[kind])
                known.add(keys)
            if type(row["id"]) is not int or row["id"] != i:
                raise ScheduleError(
                    f"{self._what(i)} has id {shown(row['id'])}; ids must be row numbers 0, 1, 2, …"
                )
        self.kind = np.array(self._kind, dtype=np.int8)
        self._rank = self._whole("rank", least=-1)
        self._src, self._dst = self._whole("src"), self._whole("dst")

    def columns(self) -> dict[str, Any]:
        """Return the columns of the table."""
        waits = [row["after"] for row in self.rows]
        for i, after in enumerate(waits):
            if type(after) is not list:
                raise ScheduleError(f"{self._what(i)}: after is {shown(after)}, not a list of ids")
            if not all(type(x) is int and 0 <= x < i for x in after):
                raise ScheduleError(
                    f"{self._what(i)} waits for {shown(after)}; "
                    "after holds ids, each smaller than the action's own"
                )
        # Across links the time follows from bytes and routes; within a rank nothing in the file gives it.
        for i in ((self._src == self._dst) & (self._src >= 0)).nonzero()[0].tolist():
            if "seconds" not in self.rows[i]:
                raise ScheduleError(
                    f"{self._what(i)} lacks 'seconds': it crosses no link, so it must say how long it takes"
                )
        means = self._whole("means", below=128)
        return {
            "kind": self.kind,
            "rank": self._rank,
            "lane": self._whole("lane", least=-1),
            "after_offsets": offsets_of([len(after) for after in waits]),
            "after": np.array([x for after in waits for x in after], dtype=np.int64),
            "src": self._src,
            "dst": self._dst,
            "nbytes": self._whole("nbytes", 0),
            "seconds": self._real("seconds", 0.0),
            "means_of": means.astype(np.int8) if (means >= 0).any() else None,
        }

    def details(self, tensors: Sequence[Tensor], temporaries: Buffers) -> Details:
        """Return the operands of the actions."""
        reads = [row.get("reads") for row in self.rows]
        widest = max([len(x) for x in reads if type(x) is list], default=0)
        details = Details.empty(len(self.rows), min(max(OPERANDS, 1 + widest), MOST_OPERANDS))
        details.op[:] = self._whole("op")
        details.trans[:] = self._whole("trans", 0, below=8)
        details.alpha[:], details.beta[:] = self._real("alpha", 1.0), self._real("beta", 0.0)
        details.batch[:] = self._whole("batch", 1, 1, 2**31)
        details.fn[:] = self._whole("fn", below=2**31)
        for name, least, below in (("batch_axes", 0, 2), ("groups", 1, 2**31)):
            for i, row in enumerate(self.rows):
                if name not in row:
                    continue
                given = row[name]
                if type(given) is not list or len(given) != 3:
                    raise ScheduleError(
                        f"{self._what(i)}: {name} = {shown(given)} is not a list of three whole numbers"
                    )
                getattr(details, name)[i] = [
                    whole_number(x, f"{self._what(i)}: {name}", least, below) for x in given
                ]
        self._slices(details, tensors, temporaries)
        return details

    def _slices(self, details: Details, tensors: Sequence[Tensor], temporaries: Buffers) -> None:
        """Write the slices: of the tile that the rank of the operand owns, or of a temporary."""
        pieces: list[Any] = []
        operands_of: list[tuple[int, int]] = []  # action and operand of each
        for i, row in enumerate(self.rows):
            if "writes" in row:
                reads = row["reads"]
                if type(reads) is not list or len(reads) >= MOST_OPERANDS:
                    raise ScheduleError(
                        f"{self._what(i)}: reads are not a list of up to {MOST_OPERANDS - 1} slices"
                    )
                pieces.append(row["writes"])
                pieces += reads
                operands_of += [(i, operand) for operand in range(len(reads) + 1)]

        def what(place: int, prefix: str = "") -> str:
            i, operand = operands_of[place]
            return f"{self._what(i)}: {prefix}{f'reads[{operand - 1}]' if operand else 'writes'}"

        for place, piece in enumerate(pieces):
            if type(piece) is not list or len(piece) != 3:
                raise ScheduleError(
                    f"{what(place)} = {shown(piece)} is not a slice [tensor or buffer, rows, columns]"
                )
        where, rows, cols = ([piece[x] for piece in pieces] for x in range(3))
        action, operand = np.array(operands_of, dtype=np.int64).reshape(-1, 2).T
        details.rows[action, operand] = range_column(rows, lambda place: what(place, "rows of "))
        details.cols[action, operand] = range_column(cols, lambda place: what(place, "columns of "))

        numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
        tensor = np.array([numbers.get(x, -1) if type(x) is str else -2 for x in where], dtype=np.int64)
        for place in (tensor == -1).nonzero()[0].tolist():
            raise ScheduleError(
                f"{what(place)} names a tensor {shown(where[place])}, which is not there; "
                f"choose from {', '.join(numbers)}"
            )
        firsts = first_tiles(tuple(tensors))
        # A slice names a tensor, where the owner's tile at the operand's rank is meant, or a temporary by
        # number.
        in_buffers = (tensor == -2).nonzero()[0].tolist()
        named = [where[place] for place in in_buffers]
        buffer = whole_column(named, lambda place: what(in_buffers[place], "buffer of "), 0, len(temporaries))
        details.buffer[action[in_buffers], operand[in_buffers]] = firsts[-1] + buffer
        ranks = operand_ranks(self.kind, self._rank, self._src, self._dst)[action, operand]
        for number in np.unique(tensor[tensor >= 0]).tolist():
            places = (tensor == number).nonzero()[0]
            at = action[places], operand[places]
            name, layout = tensors[number].name, tensors[number].layout
            tile = _own_tiles(layout, ranks[places], details.rows[at][:, 0], details.cols[at][:, 0])
            for place in places[tile < 0].tolist():
                rank, (top, bottom), (left, right) = int(ranks[place]), rows[place], cols[place]
                if not 0 <= rank < layout.ranks:
                    raise ScheduleError(f"{what(place)} lies at rank {rank}, which does not exist")
                raise ScheduleError(
                    f"{what(place)}: rank {rank} does not hold {name}[{top}:{bottom},{left}:{right}]; "
                    f"{name} is {layout.shape[0]}x{layout.shape[1]} in layout {layout}"
                )
            details.buffer[at] = firsts[number] + tile

    def _what(self, i: int) -> str:
        return f"action {i} ({KINDS[self._kind[i]]})"

    def _given(self, key: str) -> tuple[list[int], list[Any], What]:
        """Return the actions that have a key, their values, and a name of each for messages."""
        present = [i for i, row in enumerate(self.rows) if key in row]
        values = [self.rows[i][key] for i in present]
        return present, values, lambda place: f"{self._what(present[place])}: {key}"

    def _whole(self, key: str, nothing: int = -1, least: int = 0, below: int = 2**63) -> Ints:
        column, (present, values, what) = np.full(len(self.rows), nothing, dtype=np.int64), self._given(key)
        column[present] = whole_column(values, what, least, below)
        return column

    def _real(self, key: str, nothing: float) -> Floats:
        column, (present, values, what) = np.full(len(self.rows), nothing), self._given(key)
        column[present] = real_column(values, what)
        return column


def _own_tiles(layout: Layout, rank: Ints, row: Ints, col: Ints) -> Ints:
    """Return the tiles that hold some elements at some ranks, of all replicas; −1 where a rank has none."""
    tile = tile_at(layout, row, col)
    known = (rank >= 0) & (rank < layout.ranks) & (tile >= 0)
    replica = layout.replica_of_rank[np.where(known, rank, 0)]
    owner = layout.replica_owners[replica, np.maximum(tile, 0)]
    return np.where(known & (owner == rank), replica * layout.tile_elements.size + tile, -1)
