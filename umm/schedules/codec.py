"""Schedules as JSON of schema 2: for exchange and tests; large ones are kept as arrays instead."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints, offsets_of
from umm.errors import InputError, ScheduleError, UmmError
from umm.files import fields_of, parse_json, real_number, whole_number
from umm.schedules.buffers import Buffers, first_tiles, tile_at
from umm.schedules.details import OPERANDS, Details
from umm.schedules.header import header, read_header, span
from umm.schedules.invariants import check
from umm.schedules.kinds import BARRIER, GEMM, KINDS, LOCAL, MAP, TRANSFERS, operand_ranks
from umm.schedules.table import Data, Table
from umm.tensors import Tensor

JSON_LIMIT = 10**6
T = TypeVar("T", bound=Table)
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


def rows(schedule: Table) -> Iterator[dict[str, Any]]:
    """Yield each action as a readable dict, in the order and with the keys of the JSON form."""
    d, buffers, first = schedule.details, schedule.buffers, schedule.first_temporary
    offsets, after = schedule.after_offsets.tolist(), schedule.after.tolist()
    names = [tensor.name for tensor in schedule.tensors]
    of_buffer = buffers.tensor.tolist()
    buffer, row_span, col_span = d.buffer.tolist(), d.rows.tolist(), d.cols.tolist()
    means = None if schedule.means_of is None else schedule.means_of.tolist()
    gemm_columns = {
        name: (getattr(d, name).tolist(), default)
        for name, default in (
            ("trans", 0), ("alpha", 1.0), ("beta", 0.0), ("batch", 1),
            ("batch_axes", [0, 0, 0]), ("groups", [1, 1, 1]),
        )
    }  # fmt: skip

    def piece(i: int, operand: int) -> list[Any]:
        held = buffer[i][operand]
        where = names[of_buffer[held]] if held < first else held - first
        return [where, row_span[i][operand], col_span[i][operand]]

    columns = (schedule.kind, schedule.rank, schedule.lane, schedule.src, schedule.dst, schedule.nbytes)
    for i, (kind, rank, lane, src, dst, nbytes, seconds, op, fn) in enumerate(
        zip(*(x.tolist() for x in (*columns, schedule.seconds, d.op, d.fn)), strict=True)
    ):
        row: dict[str, Any] = {"id": i, "rank": rank, "kind": KINDS[kind], "lane": lane}
        row["after"] = after[offsets[i] : offsets[i + 1]]
        if op >= 0:
            row["op"] = op
        if kind in TRANSFERS:
            row |= {"src": src, "dst": dst, "nbytes": nbytes}
        if kind in (GEMM, MAP, LOCAL) or (kind in TRANSFERS and (src == dst or seconds)):
            row["seconds"] = seconds
        if kind not in (LOCAL, BARRIER):
            row["writes"] = piece(i, 0)
            row["reads"] = [piece(i, x) for x in range(1, OPERANDS) if buffer[i][x] >= 0]
        if kind == GEMM:
            row |= {name: of[i] for name, (of, default) in gemm_columns.items() if of[i] != default}
        if kind == MAP:
            row["fn"] = fn
        if means is not None and means[i] >= 0:
            row["means"] = means[i]
        yield row


def to_json(schedule: Table) -> str:
    """Return the schedule as JSON, one action a line.

    Raises:
        ScheduleError: above 10^6 actions, where .npz is the form to use.
    """
    if len(schedule) > JSON_LIMIT:
        raise ScheduleError(
            f"{len(schedule)} actions are too many for JSON (at most {JSON_LIMIT}); save as .npz"
        )
    head = json.dumps(header(schedule))
    actions = ",\n".join(json.dumps(row) for row in rows(schedule))
    return f'{head[:-1]}, "actions": [\n{actions}\n]}}\n'


def from_json(text: str, make: Callable[..., T]) -> T:
    """Return the schedule a JSON text holds, checked.

    Args:
        text: The text.
        make: The class of the schedule.

    Raises:
        ScheduleError: if the text is not a schedule of schema 2, or the schedule breaks a rule.
    """
    try:
        data = parse_json(text, "schedule")
    except InputError as error:
        raise ScheduleError(str(error)) from None
    return from_dict(data, make)


def from_dict(data: Any, make: Callable[..., T]) -> T:
    """Return the schedule that parsed JSON holds, checked; every value is taken as it is said, none coerced.

    Raises:
        ScheduleError: if it is not a schedule of schema 2, or the schedule breaks a rule.
    """
    with as_schedule_error():
        fields, temporaries, pools = read_header(data)
        if not isinstance(data["actions"], list):
            raise ScheduleError("actions of the schedule are not a list")
        actions = _Actions(data["actions"])
        tensors = (*fields["program"].tensors, *fields["work"])
        details = actions.details(tensors, temporaries)
        schedule = make(
            **fields,
            **actions.columns(),
            make_data=lambda: Data(details, temporaries),
            make_pools=lambda: pools,
        )
    check(schedule)
    return schedule


@contextmanager
def as_schedule_error() -> Iterator[None]:
    """Turn what is wrong with a value of a file into one line about the schedule."""
    try:
        yield
    except ScheduleError:
        raise
    except UmmError as error:
        raise ScheduleError(str(error)) from None


class _Actions:
    """The actions of a JSON form, read one by one and then turned into columns."""

    def __init__(self, actions: Sequence[Any]) -> None:
        self.kind = [_kind_of(i, row) for i, row in enumerate(actions)]
        self.rows: Sequence[Mapping[str, Any]] = actions
        for i, (kind, row) in enumerate(zip(self.kind, actions, strict=True)):
            what = f"action {i} ({KINDS[kind]})"
            fields_of(row, what, (*_ALWAYS, *_REQUIRED[kind]), _OPTIONAL[kind])
            if not isinstance(row["after"], list):
                raise ScheduleError(f"{what}: after is {row['after']!r}, not a list of ids")
            if type(row["id"]) is not int or row["id"] != i:
                raise ScheduleError(f"{what} has id {row['id']!r}; ids must be row numbers 0, 1, 2, …")

    def columns(self) -> dict[str, Any]:
        """Return the columns of the table."""
        waits = [row["after"] for row in self.rows]
        for i, row in enumerate(waits):
            if not all(type(x) is int and 0 <= x < i for x in row):
                raise ScheduleError(
                    f"{self._what(i)} waits for {row!r}; after holds ids, each smaller than the action's own"
                )
        means = self._whole("means", -1, 0, 127)
        return {
            "kind": np.array(self.kind, dtype=np.int8),
            "rank": self._whole("rank", -1, -1),
            "lane": self._whole("lane", -1, -1),
            "after_offsets": offsets_of([len(of_row) for of_row in waits]),
            "after": np.array([x for of_row in waits for x in of_row], dtype=np.int64),
            "src": self._whole("src", -1),
            "dst": self._whole("dst", -1),
            "nbytes": self._whole("nbytes", 0),
            "seconds": self._real("seconds", 0.0),
            "means_of": means.astype(np.int8) if (means >= 0).any() else None,
        }

    def details(self, tensors: Sequence[Tensor], temporaries: Buffers) -> Details:
        """Return what the actions touch."""
        details = Details.empty(len(self.rows))
        details.op[:] = self._whole("op", -1)
        details.trans[:] = self._whole("trans", 0, 0, 7)
        details.alpha[:], details.beta[:] = self._real("alpha", 1.0), self._real("beta", 0.0)
        details.batch[:] = self._whole("batch", 1, 1, 2**31)
        details.fn[:] = self._whole("fn", -1, 0, 2**15)
        for name, least, below in (("batch_axes", 0, 2), ("groups", 1, 2**31)):
            for i, row in enumerate(self.rows):
                if name in row:
                    getattr(details, name)[i] = self._three(i, row[name], name, least, below)
        self._slices(details, tensors, temporaries)
        return details

    def _slices(self, details: Details, tensors: Sequence[Tensor], temporaries: Buffers) -> None:
        numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
        first = first_tiles(tuple(tensors))[-1]
        named: list[list[tuple[int, int]]] = [[] for _ in tensors]  # actions and operands by tensor
        for i, row in enumerate(self.rows):
            if "writes" not in row:
                continue
            if not isinstance(row["reads"], list) or not 0 <= len(row["reads"]) < OPERANDS:
                raise ScheduleError(f"{self._what(i)}: reads are not a list of up to three slices")
            for operand, piece in enumerate([row["writes"], *row["reads"]]):
                if not isinstance(piece, list) or len(piece) != 3:
                    raise ScheduleError(
                        f"{self._what(i)}: {piece!r} is not a slice [tensor or buffer, rows, columns]"
                    )
                where = piece[0]
                details.rows[i, operand] = span(piece[1], f"{self._what(i)}: rows of a slice")
                details.cols[i, operand] = span(piece[2], f"{self._what(i)}: columns of a slice")
                if isinstance(where, str):
                    if where not in numbers:
                        raise ScheduleError(
                            f"{self._what(i)}: there is no tensor {where!r}; choose from {', '.join(numbers)}"
                        )
                    named[numbers[where]].append((i, operand))
                else:
                    number = whole_number(where, f"{self._what(i)}: a buffer", 0, len(temporaries))
                    details.buffer[i, operand] = first + number
        kind = np.array(self.kind, dtype=np.int8)
        places = operand_ranks(
            kind, self._whole("rank", -1, -1), self._whole("src", -1), self._whole("dst", -1)
        )
        for number, found in enumerate(named):
            if found:
                action, operand = np.array(found).T
                rank = places[action, operand]
                self._own_tiles(details, action, operand, rank, tensors, number)

    def _own_tiles(
        self,
        details: Details,
        action: Ints,
        operand: Ints,
        rank: Ints,
        tensors: Sequence[Tensor],
        number: int,
    ) -> None:
        """Find the tiles that slices of a tensor lie in, each held by the rank where the operand is."""
        tensor = tensors[number]
        layout = tensor.layout
        tile = tile_at(layout, details.rows[action, operand, 0], details.cols[action, operand, 0])
        known = (rank >= 0) & (rank < layout.ranks) & (tile >= 0)
        replica = np.where(known, layout.replica_of_rank[np.where(known, rank, 0)], 0)
        owner = layout.replica_owners[replica, np.maximum(tile, 0)]
        wrong = ~known | (owner != rank)
        if wrong.any():
            bad = int(np.argmax(wrong))
            i, x = int(action[bad]), int(operand[bad])
            if not 0 <= rank[bad] < layout.ranks:
                raise ScheduleError(f"{self._what(i)}: there is no rank {int(rank[bad])}")
            (r0, r1), (c0, c1) = details.rows[i, x].tolist(), details.cols[i, x].tolist()
            raise ScheduleError(
                f"{self._what(i)}: rank {int(rank[bad])} does not hold {tensor.name}[{r0}:{r1},{c0}:{c1}] "
                f"in layout {layout}"
            )
        first = first_tiles(tuple(tensors))[number]
        details.buffer[action, operand] = first + replica * layout.tile_elements.size + tile

    def _what(self, i: int) -> str:
        return f"action {i} ({KINDS[self.kind[i]]})"

    def _whole(self, key: str, nothing: int, least: int = 0, below: int = 2**63) -> Ints:
        values = [row.get(key, nothing) for row in self.rows]
        for i, value in enumerate(values):
            if (type(value) is not int or not least <= value < below) and key in self.rows[i]:
                whole_number(value, f"{self._what(i)}: {key}", least, below)
        return np.array(values, dtype=np.int64)

    def _real(self, key: str, nothing: float) -> NDArray[np.float64]:
        values = [row.get(key, nothing) for row in self.rows]
        for i, value in enumerate(values):
            if type(value) is not float:
                real_number(value, f"{self._what(i)}: {key}")
        return np.array(values, dtype=np.float64)

    def _three(self, i: int, given: Any, key: str, least: int, below: int) -> list[int]:
        if not isinstance(given, list) or len(given) != 3:
            raise ScheduleError(f"{self._what(i)}: {key} = {given!r} is not a list of three whole numbers")
        return [whole_number(x, f"{self._what(i)}: {key}", least, below) for x in given]


def _kind_of(i: int, row: Any) -> int:
    if not isinstance(row, dict):
        raise ScheduleError(f"action {i} is {row!r}, not an object")
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in _NUMBER:
        raise ScheduleError(f"action {i} has kind {kind!r}; choose from {', '.join(KINDS)}")
    return _NUMBER[kind]
