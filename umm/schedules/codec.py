"""Schedules as JSON (schema 1, for exchange and tests) and as .npz (for large ones)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.dtypes import accumulated_in
from umm.errors import InputError, ScheduleError, UmmError
from umm.files import parse_json, whole_file
from umm.problem import MATRICES, Problem
from umm.schedules.invariants import check
from umm.schedules.kinds import BARRIER, GEMM, KINDS, LOCAL
from umm.schedules.resources import Lanes, Links, Routes
from umm.schedules.table import Details, Schedule

SCHEMA = 1
JSON_LIMIT = 10**6


def header(schedule: Schedule) -> dict[str, Any]:
    """Return everything of a schedule but its actions, as plain values."""
    problem: dict[str, Any] = schedule.problem.to_dict()
    if schedule.problem.c_dtype != accumulated_in(schedule.problem.dtype):
        problem["c_dtype"] = schedule.problem.c_dtype
    links, lanes = schedule.links, schedule.lanes
    return {
        "schema": SCHEMA,
        "ranks": schedule.ranks,
        "problem": problem | {"stationary": schedule.stationary, "machine": schedule.machine},
        "options": dict(schedule.options) | {"peak": schedule.peak},
        "interference": dict(schedule.interference),
        "pools": [{"rank": r, "slots": slots.tolist()} for r, slots in enumerate(schedule.pools)],
        "links": [
            {"name": name, "bandwidth": bandwidth, "latency": latency}
            for name, bandwidth, latency in zip(
                links.names, links.bandwidth.tolist(), links.latency.tolist(), strict=True
            )
        ],
        "routes": [[src, dst, list(schedule.routes[src, dst])] for src, dst in schedule.used_pairs()],
        "lanes": [
            {"rank": rank, "name": name, "engine": None if engine < 0 else engine}
            for rank, name, engine in zip(
                lanes.rank.tolist(), lanes.names, lanes.engine.tolist(), strict=True
            )
        ],
    }


def to_json(schedule: Schedule) -> str:
    """Return the schedule as JSON, one action a line.

    Raises:
        ScheduleError: above 10^6 actions, where .npz is the form to use.
    """
    if len(schedule) > JSON_LIMIT:
        raise ScheduleError(
            f"{len(schedule)} actions are too many for JSON (at most {JSON_LIMIT}); save as .npz"
        )
    head = json.dumps(header(schedule))
    actions = ",\n".join(json.dumps(row) for row in schedule.rows())
    return f'{head[:-1]}, "actions": [\n{actions}\n]}}\n'


def from_json(text: str) -> Schedule:
    """Return the schedule a JSON text holds, checked.

    Raises:
        ScheduleError: if the text is no schedule of schema 1, or the schedule breaks a rule.
    """
    try:
        data = parse_json(text, "schedule")
    except InputError as error:
        raise ScheduleError(str(error)) from None
    return from_dict(data)


def from_dict(data: Any) -> Schedule:
    """Return the schedule that parsed JSON holds, checked.

    Raises:
        ScheduleError: if it is no schedule of schema 1, or the schedule breaks a rule.
    """
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else None
        raise ScheduleError(f"not a schedule of schema {SCHEMA}: schema is {found!r}")
    with _one_line():
        schedule = _from_dict(data)
    check(schedule)
    return schedule


@contextmanager
def _one_line() -> Iterator[None]:
    """Turn what Python says of a missing or misshapen value into one line."""
    try:
        yield
    except KeyError as error:
        raise ScheduleError(f"the schedule lacks {error.args[0]!r}") from None
    except UmmError:
        raise
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ScheduleError(f"the schedule holds a value of the wrong form: {error}") from None


def _from_dict(data: Mapping[str, Any]) -> Schedule:
    actions = data["actions"]
    count = len(actions)
    details = Details.empty(count)
    number = {name: i for i, name in enumerate(KINDS)}
    kind = np.empty(count, dtype=np.int8)
    src, dst = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    nbytes, seconds = np.zeros(count, dtype=np.int64), np.zeros(count)
    for i, row in enumerate(actions):
        if row["id"] != i:
            raise ScheduleError(f"action {i} has id {row['id']}; ids must be row numbers 0, 1, 2, …")
        if row["kind"] not in number:
            raise ScheduleError(f"action {i} has kind {row['kind']!r}; choose from {', '.join(KINDS)}")
        kind[i] = code = number[row["kind"]]
        if code == BARRIER:
            continue
        if code in (GEMM, LOCAL):
            seconds[i] = row["seconds"]
        else:
            src[i], dst[i], nbytes[i] = row["src"], row["dst"], row["nbytes"]
            if row["src"] == row["dst"]:
                seconds[i] = row["seconds"]
            details.matrix[i] = MATRICES.index(row["matrix"])
            details.tile[i], details.rows[i], details.cols[i] = row["tile"], row["rows"], row["cols"]
            details.slot[i] = _slot(row["slot"])
        if code == GEMM:
            for name in ("m", "n", "k", "a_tile", "b_tile", "c_tile"):
                getattr(details, name)[i] = row[name]
            for name in ("a_slot", "b_slot", "c_slot"):
                getattr(details, name)[i] = _slot(row[name])
        if code != LOCAL:
            details.op[i] = _slot(row["op"])
    after = [row["after"] for row in actions]
    offsets = np.concatenate(([0], np.cumsum([len(a) for a in after]))).astype(np.int64)
    problem, stationary, machine, ranks = _problem(data)
    options, peak = _options(data.get("options", {}))
    pools = [np.zeros(0, dtype=np.int64) for _ in range(ranks)]
    for pool in data["pools"]:
        pools[pool["rank"]] = _pool(pool)
    return Schedule(
        problem,
        stationary,
        machine,
        ranks,
        _interference(data["interference"]),
        _links(data["links"]),
        Routes.listed(
            {(int(s), int(d)): _route(links, len(data["links"])) for s, d, links in data["routes"]}
        ),
        Lanes(
            np.array([lane["rank"] for lane in data["lanes"]], dtype=np.int64),
            tuple(str(lane["name"]) for lane in data["lanes"]),
            np.array([_slot(lane["engine"]) for lane in data["lanes"]], dtype=np.int64),
        ),
        kind,
        np.array([row["rank"] for row in actions], dtype=np.int64),
        np.array([row["lane"] for row in actions], dtype=np.int64),
        offsets,
        np.array([i for a in after for i in a], dtype=np.int64),
        src,
        dst,
        nbytes,
        seconds,
        lambda: (details, pools),
        options,
        peak,
    )


def _problem(data: Mapping[str, Any]) -> tuple[Problem, str, str, int]:
    given = dict(data["problem"])
    stationary, machine = given.pop("stationary"), given.pop("machine")
    for name in (stationary, machine):
        if not isinstance(name, str) or not name.isprintable():
            raise ScheduleError(f"{name!r} cannot name a stationary matrix or a machine")
    return Problem(**given, ranks=data["ranks"]), stationary, machine, data["ranks"]


def _interference(given: Mapping[str, Any]) -> dict[str, float]:
    shares = {str(kind): float(share) for kind, share in given.items()}
    for kind, share in shares.items():
        if kind not in KINDS or not 0 <= share < 1:
            raise ScheduleError(
                f"interference {kind} = {share} is not a share of a GEMM rate, from 0 to below 1"
            )
    return shares


def _options(given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    for name, value in given.items():
        if not isinstance(value, str | int | float | bool) or not str(value).isprintable():
            raise ScheduleError(f"option {name} = {value!r} is not a plain value")
    peak = float(given.get("peak", 0.0))
    if not 0 <= peak < inf:
        raise ScheduleError(f"a peak of {peak} flop/s is not possible")
    return {key: value for key, value in given.items() if key != "peak"}, peak


def _links(rows: list[dict[str, Any]]) -> Links:
    links = Links(
        tuple(row["name"] for row in rows),
        np.array([row["bandwidth"] for row in rows], dtype=np.float64),
        np.array([row["latency"] for row in rows], dtype=np.float64),
    )
    bad = ~(links.bandwidth > 0) | ~(links.latency >= 0) | ~np.isfinite(links.bandwidth + links.latency)
    if bad.any():
        raise ScheduleError(
            f"link {links.names[int(np.argmax(bad))]!r} needs a bandwidth > 0 and a latency ≥ 0"
        )
    return links


def _route(links: list[int], count: int) -> tuple[int, ...]:
    if not links or not all(0 <= link < count for link in links):
        raise ScheduleError(f"a route names links {links}, but the schedule has links 0 … {count - 1}")
    return tuple(links)


def _pool(pool: Mapping[str, Any]) -> Ints:
    slots = np.array(pool["slots"], dtype=np.int64)
    if slots.ndim != 1 or np.any(slots < 0):
        raise ScheduleError(f"the pool of rank {pool['rank']} must be a list of slot sizes in bytes")
    return slots


def _slot(value: int | None) -> int:
    return -1 if value is None else value


def to_arrays(schedule: Schedule) -> dict[str, Any]:
    """Return the schedule as the named arrays of its .npz form."""
    columns: dict[str, Any] = {name: getattr(schedule, name) for name in _COLUMNS}
    columns |= {f"detail_{f.name}": getattr(schedule.details, f.name) for f in fields(Details)}
    return {"header": np.array(json.dumps(header(schedule)))} | columns


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Schedule:
    """Return the schedule that arrays of :func:`to_arrays` hold, checked; other arrays are not looked at.

    Raises:
        ScheduleError: if one is missing, or the schedule breaks a rule.
    """
    with _one_line():
        without_actions = _from_dict(parse_json(str(arrays["header"]), "schedule") | {"actions": []})
        details = Details(**{f.name: arrays[f"detail_{f.name}"] for f in fields(Details)})
        columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
    schedule = replace(without_actions, make_details=lambda: (details, without_actions.pools), **columns)
    check(schedule)
    return schedule


def save(schedule: Schedule, path: str | Path) -> None:
    """Write a schedule to a file, as .npz if the name ends so, else as JSON; nothing is half-written."""
    with whole_file(path) as partial:
        if Path(path).suffix == ".npz":
            with partial.open("wb") as file:
                np.savez_compressed(file, **to_arrays(schedule))
        else:
            partial.write_text(to_json(schedule), encoding="utf-8")


_COLUMNS = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")


def load(path: str | Path) -> Schedule:
    """Read a schedule from a file that :func:`save` wrote.

    Raises:
        ScheduleError: if the file cannot be read or holds no schedule.
    """
    path = Path(path)
    try:
        if path.suffix != ".npz":
            return from_json(path.read_text(encoding="utf-8"))
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
