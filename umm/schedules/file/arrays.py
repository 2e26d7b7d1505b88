"""Schedules as named arrays, those of their .npz form."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.errors import ScheduleError
from umm.files import parse_json
from umm.schedules.file.codec import T, as_schedule_error
from umm.schedules.file.header import header, read_header
from umm.schedules.rules.invariants import check
from umm.schedules.table.buffers import Buffers, joined
from umm.schedules.table.details import MOST_OPERANDS, OPERANDS, Details
from umm.schedules.table.table import Data, Table

_ACTION = {
    "kind": np.int8, "rank": np.int64, "lane": np.int64, "src": np.int64, "dst": np.int64,
    "nbytes": np.int64, "seconds": np.float64,
}  # fmt: skip
_AFTER = ("after_offsets", "after")


def to_arrays(schedule: Table) -> dict[str, Any]:
    """Return the schedule as the named arrays of its .npz form."""
    arrays: dict[str, Any] = {name: getattr(schedule, name) for name in (*_ACTION, *_AFTER)}
    if schedule.means_of is not None:
        arrays["means_of"] = schedule.means_of
    arrays |= {f"detail_{name}": column for name, column in _fields(schedule.details).items()}
    arrays |= {f"buffer_{name}": column for name, column in _fields(schedule.temporaries).items()}
    return {"header": np.array(json.dumps(header(schedule) | {"buffers": []}))} | arrays


def from_arrays(arrays: Mapping[str, NDArray[Any]], make: Callable[..., T]) -> T:
    """Return the schedule that arrays of :func:`to_arrays` hold, checked; other arrays are not looked at.

    ScheduleError if one is missing or of another form, or the schedule breaks a rule.
    """
    with as_schedule_error():
        header, pools = _header(arrays)
    columns = _columns(arrays, "", {name: np.zeros(0, dtype=dtype) for name, dtype in _ACTION.items()})
    count = len(columns["kind"])
    # Operands that an action of the file may have; the usual number if its array is of none.
    array = arrays["detail_buffer"] if "detail_buffer" in arrays else np.zeros(0)
    operands = min(max(array.shape[1], OPERANDS), MOST_OPERANDS) if array.ndim == 2 else OPERANDS
    details = Details(**_columns(arrays, "detail_", _fields(Details.empty(0, operands)), count))
    temporaries = Buffers(**_columns(arrays, "buffer_", _fields(joined([]))))
    if "means_of" in arrays:
        means = _columns(arrays, "", {"means_of": np.zeros(0, dtype=np.int8)}, count)
        columns |= means if (means["means_of"] != -1).any() else {}
    none = np.zeros(0, dtype=np.int64)
    after = _columns(arrays, "", {"after": none})["after"]
    offsets = _columns(arrays, "", {"after_offsets": none}, count + 1)["after_offsets"]
    if offsets[0] != 0 or offsets[-1] != len(after) or (np.diff(offsets) < 0).any():
        raise ScheduleError("array 'after_offsets' does not cut 'after' into a part for each action")
    schedule = make(
        **header,
        **columns,
        after=after,
        after_offsets=offsets,
        make_data=lambda: Data(details, temporaries),
        make_pools=lambda: pools,
    )
    check(schedule)
    return schedule


def _header(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], list[Ints]]:
    """Return the fields of a table that the header gives, and the pools."""
    if "header" not in arrays:
        raise ScheduleError("the file has no array 'header'")
    head = parse_json(str(arrays["header"]), "schedule")
    if isinstance(head, dict) and (head.get("buffers") != [] or "actions" in head):
        raise ScheduleError("the header of an .npz file has buffers or actions; they belong in its arrays")
    # The header is that of the JSON form, with buffers and actions in arrays; one reader checks both forms.
    columns, _, pools = read_header(head | {"actions": []} if isinstance(head, dict) else head)
    return columns, pools


def _fields(columns: Details | Buffers) -> dict[str, NDArray[Any]]:
    return {f.name: getattr(columns, f.name) for f in fields(columns)}


def _columns(
    arrays: Mapping[str, NDArray[Any]],
    prefix: str,
    like: Mapping[str, NDArray[Any]],
    count: int | None = None,
) -> dict[str, Any]:
    """Return columns of a file in the types that are meant; whole numbers must be whole numbers there too."""
    # prefix: start of the names in the file. like: A column of the right type and shape of a row, by name.
    # count: rows that each must have; as many as the first if it is not said.
    columns = {}
    for name, column in like.items():
        if prefix + name not in arrays:
            raise ScheduleError(f"the file has no array {prefix + name!r}")
        array = arrays[prefix + name]
        if count is None:
            count = len(array) if array.ndim else 0
        # Every column must be as long as the first: NumPy would broadcast some mismatches without a word.
        shape = (count, *column.shape[1:])
        if array.shape != shape:
            raise ScheduleError(f"array {prefix + name!r} has shape {array.shape}, not {shape}")
        # Safe casts alone: 2.5 must not become 2, nor True a 1. Booleans cast safely, so they are named.
        if not np.can_cast(array.dtype, column.dtype, "safe") or array.dtype == np.bool_:
            raise ScheduleError(f"array {prefix + name!r} has type {array.dtype}, not {column.dtype}")
        columns[name] = array.astype(column.dtype, copy=False)
    return columns
