"""A schedule's file without its actions: the program, the machine's links and lanes, the buffers."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from typing import Any

import numpy as np

from umm.arrays import Ints
from umm.dtypes import accumulated_in, canonical, itemsize
from umm.errors import ScheduleError
from umm.files import fields_of, real_number, shown, whole_number
from umm.program import Chain
from umm.program.problem import Problem
from umm.program.tensors import Program, Tensor
from umm.schedules.file.rows import range_column, whole_column
from umm.schedules.table.buffers import Buffers
from umm.schedules.table.details import KINDS
from umm.schedules.table.resources import Lanes, Links, Routes
from umm.schedules.table.table import Function, Means, Table

SCHEMA = 2
_KEYS = (
    "schema", "name", "machine", "ranks", "tensors", "options", "interference", "functions", "means",
    "buffers", "pools", "links", "routes", "lanes", "actions",
)  # fmt: skip
_PROGRAMS = ("problem", "chain")
_BUFFER = ("rank", "slot", "tensor", "rows", "cols")
_PROBLEM = ("m", "n", "k", "dtype", "a", "b", "c")


def header(schedule: Table) -> dict[str, Any]:
    """Return everything of a schedule but its actions, as plain values."""
    program, links, lanes, buffers = schedule.program, schedule.links, schedule.lanes, schedule.temporaries
    return {
        "schema": SCHEMA,
        "name": schedule.name,
        "machine": schedule.machine,
        "ranks": schedule.ranks,
        program.kind: program.to_dict(),
        "tensors": [tensor.to_dict() for tensor in schedule.tensors],
        "options": dict(schedule.options) | {"peak": schedule.peak},
        "interference": dict(schedule.interference),
        "functions": [{"name": f.name, "parameters": dict(f.parameters)} for f in schedule.functions],
        "means": [means._asdict() for means in schedule.means],
        "buffers": [
            {"rank": rank, "slot": slot, "tensor": schedule.tensors[tensor].name, "rows": rows, "cols": cols}
            for rank, slot, tensor, rows, cols in zip(
                *(getattr(buffers, column.name).tolist() for column in fields(Buffers)), strict=True
            )
        ],
        "pools": [{"rank": r, "slots": slots.tolist()} for r, slots in enumerate(schedule.pools)],
        "links": [
            {"name": name, "bandwidth": bandwidth, "latency": latency}
            for name, bandwidth, latency in zip(
                links.names, links.bandwidth.tolist(), links.latency.tolist(), strict=True
            )
        ],
        # Only routes in use: all pairs of 1,024 ranks would outweigh the actions.
        "routes": [[src, dst, list(schedule.routes[src, dst])] for src, dst in schedule.used_pairs()],
        "lanes": [
            {"rank": rank, "name": name, "engine": None if engine < 0 else engine}
            for rank, name, engine in zip(
                lanes.rank.tolist(), lanes.names, lanes.engine.tolist(), strict=True
            )
        ],
    }  # fmt: skip


def read_header(data: Any) -> tuple[dict[str, Any], Buffers, list[Ints]]:
    """Return the fields of a table that a header gives, its temporaries and its pools.

    UmmError in one line, for the first value that is not as it must be.

    Args:
        data: Parsed JSON with the keys of :func:`header` and ``actions``, which are not looked at.
    """
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or type(data["schema"]) is not int:
        # type() and not ==, for True == 1 and 2.0 == 2 in Python.
        schema = data.get("schema") if isinstance(data, dict) else None
        raise ScheduleError(
            f"not a schedule of schema {SCHEMA}: schema is {shown(schema)}; "
            "make it anew with --save-schedule, or with umm.schedule(…).to_json()"
        )
    fields_of(data, "the schedule", _KEYS, _PROGRAMS)
    ranks = whole_number(data["ranks"], "ranks", 1, 2**20 + 1)
    program, work = _program(data, ranks)
    tensors = [*program.tensors, *work]
    options, peak = _options(data["options"])
    columns = {
        "program": program,
        "name": _name(data["name"], "a stationary matrix or an algorithm"),
        "machine": _name(data["machine"], "a machine"),
        "ranks": ranks,
        "interference": _interference(data["interference"]),
        "links": _links(_list(data, "links")),
        "routes": _routes(_list(data, "routes"), len(data["links"]), ranks),
        "lanes": _lanes(_list(data, "lanes"), ranks),
        "options": options,
        "peak": peak,
        "work": tuple(work),
        "functions": tuple(_function(given) for given in _list(data, "functions")),
        "means": tuple(_means(given) for given in _list(data, "means")),
    }
    numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
    return columns, _buffers(_list(data, "buffers"), numbers), _pools(_list(data, "pools"), ranks)


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    value = data[key]
    if not isinstance(value, list):
        raise ScheduleError(f"{key} of the schedule is not a list but {type(value).__name__}")
    return value


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ScheduleError(f"{shown(value)} cannot name {what}")
    return value


def _program(data: Mapping[str, Any], ranks: int) -> tuple[Program, list[Tensor]]:
    """Return the program, and the tensors beyond it."""
    given = [key for key in _PROGRAMS if key in data]
    if len(given) != 1:
        raise ScheduleError("a schedule has either the key 'problem' or the key 'chain'")
    program: Program
    if given == ["problem"]:
        fields = fields_of(data["problem"], "the problem", _PROBLEM, ("c_dtype", "given"))
        for key in ("dtype", "a", "b", "c", "c_dtype", "given"):
            if not isinstance(fields.get(key, ""), str):
                raise ScheduleError(f"{key} of the problem is {shown(fields[key])}, not a text")
        itemsize(fields.get("c_dtype", fields["dtype"]), owner="C")
        for key in "mnk":
            whole_number(fields[key], key, 1)
        c_dtype = fields.get("c_dtype") or accumulated_in(canonical(fields["dtype"]))
        program = Problem(**fields | {"c_dtype": c_dtype}, ranks=ranks)
    else:
        program = Chain.from_dict(data["chain"])
        if program.p != ranks:
            raise ScheduleError(f"the chain is for {program.p} ranks, but the schedule has {ranks}")
    tensors = [Tensor.from_dict(given, ranks) for given in _list(data, "tensors")]
    count = len(program.tensors)
    if [tensor.to_dict() for tensor in tensors[:count]] != [tensor.to_dict() for tensor in program.tensors]:
        raise ScheduleError(
            f"the first tensors must be the program's own: {', '.join(x.name for x in program.tensors)}, "
            "with its layouts, types and roles"
        )
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        raise ScheduleError("two tensors have the same name")
    return program, tensors[count:]


def _interference(given: Any) -> dict[str, float]:
    if not isinstance(given, dict):
        raise ScheduleError(f"interference is {shown(given)}, not an object with a share for each kind")
    for kind in given:
        if kind not in KINDS:
            raise ScheduleError(f"interference of {shown(kind)}: there is no such kind of action")
    return {kind: _share(share, f"interference of {kind}") for kind, share in given.items()}


def _share(given: Any, what: str) -> float:
    share = real_number(given, what)
    if not 0 <= share < 1:
        raise ScheduleError(f"{what} = {share} is not a share of a GEMM rate, from 0 to below 1")
    return share


def _options(given: Any) -> tuple[dict[str, Any], float]:
    if not isinstance(given, dict):
        raise ScheduleError(f"options are {shown(given)}, not an object")
    for name, value in given.items():
        plain = isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
        if not plain or not f"{name}{value}".isprintable():
            raise ScheduleError(f"option {shown(name)} = {shown(value)} is not a plain value")
    peak = real_number(given.get("peak", 0.0), "peak")
    if peak < 0:
        raise ScheduleError(f"a peak of {peak} flop/s is not possible")
    return {key: value for key, value in given.items() if key != "peak"}, peak


def _links(rows: list[Any]) -> Links:
    for row in rows:
        fields_of(row, "a link", ("name", "bandwidth", "latency"))
    names = tuple(_name(row["name"], "a link") for row in rows)
    bandwidth, latency = (
        np.array([real_number(row[key], f"{key} of link {row['name']}") for row in rows], dtype=np.float64)
        for key in ("bandwidth", "latency")
    )
    bad = (bandwidth <= 0) | (latency < 0)
    if bad.any():
        raise ScheduleError(f"link {names[int(np.argmax(bad))]!r} needs a bandwidth > 0 and a latency ≥ 0")
    return Links(names, bandwidth, latency)


def _routes(rows: list[Any], links: int, ranks: int) -> Routes:
    routes = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list):
            raise ScheduleError(f"{shown(row)} is not a route [source, destination, [links]]")
        pair = (whole_number(row[0], "source", 0, ranks), whole_number(row[1], "destination", 0, ranks))
        route = tuple(whole_number(link, f"a link of route {pair}", 0, links) for link in row[2])
        if not route or len(set(route)) < len(route):
            much = "a link twice" if route else "no link"
            raise ScheduleError(f"the route from rank {pair[0]} to rank {pair[1]} names {much}")
        if pair in routes:
            raise ScheduleError(f"the route from rank {pair[0]} to rank {pair[1]} is there twice")
        routes[pair] = route
    return Routes.listed(routes)


def _lanes(rows: list[Any], ranks: int) -> Lanes:
    for row in rows:
        fields_of(row, "a lane", ("rank", "name", "engine"))
    engines = [-1 if row["engine"] is None else whole_number(row["engine"], "engine") for row in rows]
    return Lanes(
        np.array([whole_number(row["rank"], "rank of a lane", 0, ranks) for row in rows], dtype=np.int64),
        tuple(_name(row["name"], "a lane") for row in rows),
        np.array(engines, dtype=np.int64),
    )


def _function(given: Any) -> Function:
    fields_of(given, "a function", ("name", "parameters"))
    if not isinstance(given["parameters"], dict):
        raise ScheduleError(f"parameters of {shown(given['name'])} are not an object")
    return Function(_name(given["name"], "a function"), given["parameters"])


def _means(given: Any) -> Means:
    fields_of(given, "a means", ("name", "interference"))
    name = _name(given["name"], "a means")
    return Means(name, _share(given["interference"], f"interference of means {name!r}"))


def _buffers(rows: list[Any], tensors: Mapping[str, int]) -> Buffers:
    for number, row in enumerate(rows):
        fields_of(row, f"buffer {number}", _BUFFER)
        if type(row["tensor"]) is not str or row["tensor"] not in tensors:
            raise ScheduleError(
                f"buffer {number} is a piece of {shown(row['tensor'])}; choose from {', '.join(tensors)}"
            )

    def named(key: str) -> Callable[[int], str]:
        return lambda number: f"{key} of buffer {number}"

    rank, slot = (whole_column([row[key] for row in rows], named(key)) for key in ("rank", "slot"))
    spans = (range_column([row[key] for row in rows], named(key)) for key in ("rows", "cols"))
    tensor = np.array([tensors[row["tensor"]] for row in rows], dtype=np.int64)
    return Buffers(rank, slot, tensor, *spans)


def _pools(rows: list[Any], ranks: int) -> list[Ints]:
    pools = [np.zeros(0, dtype=np.int64) for _ in range(ranks)]
    seen = set()
    for row in rows:
        fields_of(row, "a pool", ("rank", "slots"))
        rank = whole_number(row["rank"], "rank of a pool", 0, ranks)
        if rank in seen or not isinstance(row["slots"], list):
            raise ScheduleError(f"the pool of rank {rank} must be one list of slot sizes in bytes")
        seen.add(rank)
        slots = [whole_number(size, f"a slot of rank {rank}") for size in row["slots"]]
        # Python's whole numbers have no limit; the columns they go into have one.
        if sum(slots) >= 2**63:
            raise ScheduleError(
                f"the pool of rank {rank} takes {sum(slots)} bytes; 64 bits count to 2^63 - 1"
            )
        pools[rank] = np.array(slots, dtype=np.int64)
    return pools
