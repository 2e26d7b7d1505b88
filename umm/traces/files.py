"""Traces as files: JSON for exchange, .npz for large ones; the schedule is inside, C is not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from umm.arrays import Archive, Floats
from umm.errors import InputError
from umm.files import parse_json, read_text, shown, whole_file
from umm.schedules.file.arrays import from_arrays, to_arrays
from umm.schedules.file.codec import from_dict, to_json
from umm.schedules.file.rows import real_column
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import TIMES

SCHEMA = 1


def save_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace to a file, as .npz if the name ends so, else as JSON; nothing is half-written.

    InputError if the file cannot be written, or has too many actions for JSON.
    """
    path = Path(path)
    with whole_file(path) as partial:
        if path.suffix == ".npz":
            arrays = to_arrays(trace.schedule) | {"start": trace.start, "end": trace.end}
            about: dict[str, Any] = {name: np.array(value) for name, value in _about(trace).items()}
            with partial.open("wb") as file:
                np.savez_compressed(file, **arrays, **about)
        else:
            head = json.dumps(_about(trace) | {"start": trace.start.tolist(), "end": trace.end.tolist()})
            text = f'{head[:-1]},\n"schedule": {to_json(trace.schedule)}}}\n'
            partial.write_text(text, encoding="utf-8")


def _about(trace: Trace) -> dict[str, Any]:
    return {"trace_schema": SCHEMA, "source": trace.source, "times": trace.times}


def load_trace(path: str | Path) -> Trace:
    """Read a trace that :func:`save_trace` wrote; it has no C.

    InputError if the file cannot be read or holds no trace.
    """
    path = Path(path)
    text = "" if path.suffix == ".npz" else read_text(path)
    try:
        data: Any = Archive(path) if path.suffix == ".npz" else parse_json(text, "trace")
        schema = data.get("trace_schema") if isinstance(data, Mapping) else None
        if isinstance(schema, np.ndarray) and not schema.shape:
            schema = schema.item()
        if schema is None and isinstance(data, Mapping) and ("header" in data or "interference" in data):
            raise InputError("a schedule, not a trace; write one with umm run --schedule and --save-trace")
        if type(schema) is not int or schema != SCHEMA:
            raise InputError(f"not a trace of schema {SCHEMA}: trace_schema is {shown(schema)}")
        schedule = (
            from_arrays(data, Schedule) if path.suffix == ".npz" else from_dict(data["schedule"], Schedule)
        )
        return _trace(schedule, data)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'not a file of this form'}") from None
    except KeyError as error:
        raise InputError(f"{path}: the trace lacks {error.args[0]!r}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _trace(schedule: Schedule, data: Mapping[str, Any]) -> Trace:
    start, end = (_seconds(data[name], name) for name in ("start", "end"))
    if start.shape != (len(schedule),) or end.shape != start.shape:
        raise InputError(
            f"{start.size} starts and {end.size} ends do not belong to a schedule of {len(schedule)} actions"
        )
    bad = ~(np.isfinite(start) & np.isfinite(end) & (start >= 0) & (end >= start))
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(f"action {i} cannot run from {start[i]} s to {end[i]} s")
    source, times = _text(data["source"], "source"), _text(data.get("times", "measured"), "times")
    if not source.isalnum():
        raise InputError(f"source {shown(source)} is not the name of an executor")
    if times not in TIMES:
        raise InputError(f"times cannot be {shown(times)}; choose from {', '.join(TIMES)}")
    return Trace(schedule, source, start, end, times=times)


def _seconds(values: Any, name: str) -> Floats:
    """Return seconds as a file has them: floats of an .npz file, a list of numbers of JSON."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return values.astype(np.float64, copy=False)
    if not isinstance(values, list):
        raise InputError("start and end must be lists of seconds")
    return real_column(values, lambda action: f"{name} of action {action}")


def _text(value: Any, name: str) -> str:
    """Return a text of JSON, or of an .npz file, where it is an array without axes."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "U" and not value.shape:
        value = value.item()
    if not isinstance(value, str):
        raise InputError(f"{name} of the trace is not a text but {shown(value)}")
    return value
