"""Schedules as JSON of schema 2, and as text that a person can read."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from umm.errors import InputError, ScheduleError, UmmError, expect
from umm.files import parse_json
from umm.schedules.file.header import header, read_header
from umm.schedules.file.rows import Actions
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import BARRIER, GEMM, KINDS, LOCAL, MAP, TRANSFERS
from umm.schedules.table.table import Data, Table
from umm.units import format_bytes, format_seconds

MOST_LINES = 200


def text(schedule: Table) -> str:
    """Return the schedule as text: each action's rank, lane, duration and predecessors.

    A slice is a tensor and its rows and columns; ``s2:A[0:4,0:8]`` is a piece of A in the rank's pool slot 2.
    A gemm that starts with ``+=`` adds to what is there.
    """
    program = schedule.program
    sizes = program.title.removeprefix("C = AB, ").replace("×", "x")
    lines = [
        f"{schedule.name} of {sizes} on {schedule.machine}: "
        f"{schedule.ranks} ranks, {len(schedule.lanes)} lanes, {len(schedule)} actions"
    ]
    lines += [_line(schedule, i) for i in range(min(len(schedule), MOST_LINES))]
    if len(schedule) > MOST_LINES:
        lines.append(f"  … {len(schedule) - MOST_LINES} more")
    return "\n".join(lines)


def slice_text(schedule: Table, action: int, operand: int) -> str:
    """Return one operand of an action: its tensor, rows and columns, and its pool slot if it is in one."""
    slot = _slot(schedule, action, operand)
    return f"{slot}:{_piece(schedule, action, operand)}" if slot else _piece(schedule, action, operand)


def _slot(schedule: Table, action: int, operand: int) -> str:
    slot = int(schedule.buffers.slot[schedule.details.buffer[action, operand]])
    return "" if slot < 0 else f"s{slot}"


def _piece(schedule: Table, action: int, operand: int) -> str:
    details = schedule.details
    tensor = schedule.tensors[schedule.buffers.tensor[details.buffer[action, operand]]]
    (r0, r1), (c0, c1) = details.rows[action, operand].tolist(), details.cols[action, operand].tolist()
    transposed = "ᵀ" if operand and int(details.trans[action]) >> operand & 1 else ""
    return f"{tensor.name}[{r0}:{r1},{c0}:{c1}]{transposed}"


def _line(schedule: Table, i: int) -> str:
    kind, rank, lane = int(schedule.kind[i]), int(schedule.rank[i]), int(schedule.lane[i])
    src, dst, seconds = int(schedule.src[i]), int(schedule.dst[i]), float(schedule.seconds[i])
    what = []
    if kind == GEMM:
        what.append(_gemm(schedule, i))
    elif kind == MAP:
        name = schedule.functions[schedule.details.fn[i]].name
        reads = [slice_text(schedule, i, x) for x in (1, 2, 3) if schedule.details.buffer[i, x] >= 0]
        what.append(f"{slice_text(schedule, i, 0)} = {name}({', '.join(reads)})")
    elif kind not in (LOCAL, BARRIER):
        what += [_moved(schedule, i), format_bytes(int(schedule.nbytes[i]))]
    if kind in (GEMM, MAP, LOCAL) or (src >= 0 and (src == dst or seconds)):
        what.append(format_seconds(seconds))
    waits = schedule.after_of(i).tolist()
    if waits:
        what.append(" after " + (" ".join(map(str, waits)) if len(waits) <= 6 else f"{len(waits)} actions"))
    who = "all" if rank < 0 else f"r{rank}"
    name = "" if lane < 0 else schedule.lanes.names[lane]
    return f"{i:>6} {who:<5} {name:<13} {KINDS[kind]:<10} {' '.join(what)}".rstrip()


def _moved(schedule: Table, i: int) -> str:
    """Return a transfer in words: the slice, its source and its target; the same piece is named once."""
    same = _piece(schedule, i, 0) == _piece(schedule, i, 1)
    target = _slot(schedule, i, 0) if same else slice_text(schedule, i, 0)
    return f"r{int(schedule.src[i])} {slice_text(schedule, i, 1)} → r{int(schedule.dst[i])} {target}".rstrip()


def _gemm(schedule: Table, i: int) -> str:
    c, a, b = (slice_text(schedule, i, x) for x in range(3))
    details = schedule.details
    alpha, beta, batch = float(details.alpha[i]), float(details.beta[i]), int(details.batch[i])
    gains = "=" if beta == 0 else "+=" if beta == 1 else f"= {beta:g} {c} +"
    factor = "" if alpha == 1 else f"{alpha:g} "
    members = "" if batch == 1 else f" in {batch} members"
    return f"{c} {gains} {factor}{a} {b}{members}"


JSON_LIMIT = 200_000
"""Actions of a schedule as JSON: with up to ten operands each they stay within ``umm.files.MAX_ROOM``."""
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
        number = buffer[i][operand]
        where = names[of_buffer[number]] if number < first else number - first
        return [where, row_span[i][operand], col_span[i][operand]]

    columns = (schedule.kind, schedule.rank, schedule.lane, schedule.src, schedule.dst, schedule.nbytes)
    for i, (kind, rank, lane, src, dst, nbytes, seconds, op, fn) in enumerate(
        zip(*(x.tolist() for x in (*columns, schedule.seconds, d.op, d.fn)), strict=True)
    ):
        # Keys with their default values are left out, so that files of large schedules stay small.
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
            row |= {
                name: values[i] for name, (values, default) in gemm_columns.items() if values[i] != default
            }
        if kind == MAP:
            row["fn"] = fn
        if means is not None and means[i] >= 0:
            row["means"] = means[i]
        yield row


def to_json(schedule: Table) -> str:
    """Return the schedule as JSON, one action a line.

    ScheduleError above ``JSON_LIMIT`` actions, where .npz is the form to use.
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

    ScheduleError if the text is not a schedule of schema 2, or the schedule breaks a rule.
    """
    expect(text, str, "from_json", "a text")
    try:
        data = parse_json(text, "schedule")
    except InputError as error:
        raise ScheduleError(str(error)) from None
    return from_dict(data, make)


def from_dict(data: Any, make: Callable[..., T]) -> T:
    """Return the schedule that parsed JSON holds, checked; every value is taken as it is said, none coerced.

    ScheduleError if it is not a schedule of schema 2, or the schedule breaks a rule.
    """
    with as_schedule_error():
        fields, temporaries, pools = read_header(data)
        if not isinstance(data["actions"], list):
            raise ScheduleError("actions of the schedule are not a list")
        actions = Actions(data["actions"])
        tensors = (*fields["program"].tensors, *fields["work"])
        details = actions.details(tensors, temporaries)
        # Values are checked one by one up to here; check() then looks at what they mean together.
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
    """Turn an error in a value of a file into one line about the schedule."""
    try:
        yield
    except ScheduleError:
        raise
    except UmmError as error:
        raise ScheduleError(str(error)) from None
