"""Schedules as JSON of schema 2: for exchange and tests; large ones are kept as arrays instead."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from umm.errors import InputError, ScheduleError, UmmError
from umm.files import parse_json
from umm.schedules.file.header import header, read_header
from umm.schedules.file.rows import Actions
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import BARRIER, GEMM, KINDS, LOCAL, MAP, TRANSFERS
from umm.schedules.table.table import Data, Table

JSON_LIMIT = 10**6
T = TypeVar("T", bound=Table)


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
            row["reads"] = [piece(i, x) for x in range(1, d.operands) if buffer[i][x] >= 0]
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
        actions = Actions(data["actions"])
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
