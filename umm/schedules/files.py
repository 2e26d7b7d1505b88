"""Schedules in files: JSON for exchange, .npz for large ones."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError, ScheduleError
from umm.files import parse_json, whole_file
from umm.schedules.buffers import Buffers
from umm.schedules.codec import as_schedule_error, to_json
from umm.schedules.details import Details
from umm.schedules.header import header, read_header
from umm.schedules.invariants import check
from umm.schedules.schedule import Schedule
from umm.schedules.table import Data

_COLUMNS = {
    "kind": np.int8, "rank": np.int64, "lane": np.int64, "after_offsets": np.int64, "after": np.int64,
    "src": np.int64, "dst": np.int64, "nbytes": np.int64, "seconds": np.float64,
}  # fmt: skip


def to_arrays(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as the named arrays of its .npz form."""
    arrays: dict[str, Any] = {name: getattr(schedule, name) for name in _COLUMNS}
    if schedule.means_of is not None:
        arrays["means_of"] = schedule.means_of
    arrays |= {f"detail_{f.name}": getattr(schedule.details, f.name) for f in fields(Details)}
    arrays |= {f"buffer_{f.name}": getattr(schedule.temporaries, f.name) for f in fields(Buffers)}
    return {"header": np.array(json.dumps(header(schedule) | {"buffers": []}))} | arrays


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Schedule:
    """Return the schedule that arrays of :func:`to_arrays` hold, checked; other arrays are not looked at.

    Raises:
        ScheduleError: if one is missing or of another form, or the schedule breaks a rule.
    """
    with as_schedule_error():
        if "header" not in arrays:
            raise ScheduleError("the file has no array 'header'")
        head = parse_json(str(arrays["header"]), "schedule")
        if not isinstance(head, dict):
            raise ScheduleError("the header is not an object")
        found, _, pools = read_header(head | {"actions": []})
    columns = {name: _column(arrays, name, dtype) for name, dtype in _COLUMNS.items()}
    count = len(columns["kind"])
    for name in _COLUMNS:
        if name not in ("after", "after_offsets") and len(columns[name]) != count:
            raise ScheduleError(
                f"array {name!r} has {len(columns[name])} rows, but there are {count} actions"
            )
    offsets = columns["after_offsets"]
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] != len(columns["after"]):
        raise ScheduleError("array 'after_offsets' does not cut 'after' into a part for each action")
    if (np.diff(offsets) < 0).any():
        raise ScheduleError("array 'after_offsets' falls")
    none = Details.empty(0)
    details = Details(
        **{f.name: _column(arrays, f"detail_{f.name}", getattr(none, f.name), count) for f in fields(Details)}
    )
    temporaries = Buffers(*(_column(arrays, f"buffer_{f.name}", np.int64) for f in fields(Buffers)))
    columns["means_of"] = _column(arrays, "means_of", np.int8, count) if "means_of" in arrays else None
    schedule = Schedule(
        **found, **columns, make_data=lambda: Data(details, temporaries), make_pools=lambda: pools
    )
    check(schedule)
    return schedule


def _column(arrays: Mapping[str, NDArray[Any]], name: str, like: Any, count: int | None = None) -> Any:
    """Return an array of a file in the type that is meant; whole numbers must be whole numbers there too."""
    if name not in arrays:
        raise ScheduleError(f"the file has no array {name!r}")
    array = arrays[name]
    dtype, shape = (like.dtype, like.shape[1:]) if isinstance(like, np.ndarray) else (np.dtype(like), None)
    if shape is None:
        shape = (2,) if name in ("buffer_rows", "buffer_cols") else ()
    if array.shape[1:] != shape or array.ndim != 1 + len(shape) or count not in (None, len(array)):
        raise ScheduleError(f"array {name!r} has shape {array.shape}")
    if not np.can_cast(array.dtype, dtype, "safe") or array.dtype == np.bool_:
        raise ScheduleError(f"array {name!r} has type {array.dtype}, not {dtype}")
    return array.astype(dtype, copy=False)


def save(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule to a file, as .npz if the name ends so, else as JSON; nothing is half-written."""
    with whole_file(path) as partial:
        if Path(path).suffix == ".npz":
            with partial.open("wb") as file:
                np.savez_compressed(file, **to_arrays(schedule))
        else:
            partial.write_text(to_json(schedule), encoding="utf-8")


def load(path: str | Path) -> Schedule:
    """Read a schedule from a file that :func:`save` wrote.

    Raises:
        ScheduleError: if the file cannot be read or does not hold a schedule.
    """
    path = Path(path)
    try:
        if path.suffix != ".npz":
            return Schedule.from_json(path.read_text(encoding="utf-8"))
        return from_arrays(_read_arrays(path))
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {error.strerror or 'not a file of this form'}") from None
    except UnicodeDecodeError:
        raise ScheduleError(f"{path} is not a text file; a schedule is .json or .npz") from None
    except InputError as error:
        raise ScheduleError(f"{path}: {error}") from None


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError:
        raise
    except Exception as error:  # numpy answers a damaged archive with many types
        raise ScheduleError(f"not a whole .npz file: {error}") from None
