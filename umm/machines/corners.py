"""A machine at the ends of its numbers' ranges: as fast, or as slow, as its file says it may be."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from umm.machines.build import rebuilt
from umm.machines.engines import SERVING
from umm.machines.kernels import Kernels
from umm.machines.machine import Machine, content_sha
from umm.machines.numbers import DeviceNumbers
from umm.machines.quantities import BytesPerSecond, Share, Time, declared
from umm.numbers import parse_real

COMPUTE = ("peak", "efficiency", "attention", "grouped", "kernels", "launch", *SERVING)
"""Keys of numbers that make GEMMs fast or slow; all others make transfers so."""

NESTED = ("kernels", "wide", "unlike")
"""Tables of GEMM kernels, which one of an efficiency or of kernels may hold."""

RATES = [x.key for x in declared(Kernels) if x.quantity is BytesPerSecond]
RATES += ["write", "again", "passes", "block", "first"]
TIMES = [x.key for x in declared(Kernels) if x.quantity is Time and x.key != "boost"]
TIMES += ["token", "sequence", "expert", "column", "merge", "swap"]
"""Bytes/s and seconds of GEMM kernels, attention and experts, as uncertain as their table."""

SHARES = {"efficiency", "interference"} | {x.key for x in declared(DeviceNumbers) if x.quantity is Share}
"""Keys of shares, which a file may write as a whole number: 0 or 1."""

_TIME = re.compile(r"[\d.eE+-]+\s*(s|ms|us|µs|ns)")  # of a time less is faster, as of interference


@lru_cache(maxsize=16)
def corners(machine: Machine) -> tuple[Machine, ...]:
    """Return the machine with its numbers at the ends of their ranges.

    Numbers move together: all of them fast, all slow, and GEMMs fast while transfers are slow and the other
    way round; where that is the same machine, it is there once. () if no number has a range or an
    uncertainty, or if the machine is not as its file has it.
    """
    if not _in_file(machine):
        return ()
    by_sha = {content_sha(machine.document): machine}
    for compute, transfers in ((True, True), (False, False), (True, False), (False, True)):
        content = _moved(machine.document, (), compute, transfers)
        sha = content_sha(content)
        if sha not in by_sha:
            by_sha[sha] = rebuilt(machine, content)
    return tuple(by_sha.values())[1:]


@lru_cache(maxsize=8)
def moved_alone(
    machine: Machine, unused: frozenset[str] = frozenset()
) -> Mapping[str, tuple[Machine, Machine]]:
    """Return by key the machine with one number or table at either end of its range, all else as it is.

    Only those that have a range; none if the machine is not as its file has it.

    Args:
        unused: Keys of tables and numbers that need not be moved.
    """
    if not _in_file(machine):
        return {}
    result = {}
    content = dict(machine.document)
    sha = content_sha(content)
    tables = {x: node for x, node in content.items() if isinstance(node, Mapping) and x not in unused}
    for table, node in tables.items():
        is_number = "source" in node
        for key in (table,) if is_number else [x for x in node if x not in unused]:
            ends = []
            for fast in (True, False):
                keys = (table,) if is_number else (table, key)
                moved = _moved(node if is_number else node[key], keys, fast, fast)
                ends.append(content | {table: moved if is_number else {**node, key: moved}})
            if any(content_sha(x) != sha for x in ends):
                fast_end, slow_end = (rebuilt(machine, x) for x in ends)
                result[table if is_number else f"{table}.{key}"] = fast_end, slow_end
    return result


def _in_file(machine: Machine) -> bool:
    """Return whether all numbers of a machine are those of its file."""
    if machine.in_tf32:
        return machine == rebuilt(machine, machine.document)
    return machine.sha == content_sha(machine.document)


def _moved(node: Any, keys: tuple[str, ...], compute: bool, transfers: bool) -> Any:
    if isinstance(node, list):
        return [_moved(item, keys, compute, transfers) for item in node]
    if not isinstance(node, Mapping):
        return node
    if "source" not in node:
        return {key: _moved(item, (*keys, key), compute, transfers) for key, item in node.items()}
    moved = _moved_number(node, keys, compute, transfers)
    # Kernels of a type that say how sure they are move by that, whatever the table around them does.
    tables = {x: node[x] for x in NESTED if isinstance(node.get(x), Mapping)}
    nested = {x: table for x, table in tables.items() if "uncertainty" in table}
    return {**moved, **{x: _moved(y, (*keys, x), compute, transfers) for x, y in nested.items()}}


def _moved_number(
    node: Mapping[str, Any], keys: tuple[str, ...], compute: bool, transfers: bool
) -> Mapping[str, Any]:
    """Return a number or a table with a source at an end of its range."""
    value = node.get("value", node.get("bandwidth"))
    if (_counts(value) and SHARES.isdisjoint(keys)) or "memory" in keys or keys[0] == "load":
        return node  # how many and how much are not fast or slow; umm step varies the load itself
    of_gemms = "means" not in keys and any(key in COMPUTE for key in keys)
    less = "interference" in keys or (isinstance(value, str) and _TIME.fullmatch(value.strip()))
    higher = (compute if of_gemms else transfers) != bool(less)
    sure = {key: item for key, item in node.items() if key not in ("range", "uncertainty")}
    if "range" in node:
        return sure | {"value": node["range"][1 if higher else 0]}
    if node.get("uncertainty"):
        share = float(node["uncertainty"])
        factor = 1.0 + share if higher else 1.0 / (1.0 + share)
        if keys[-1] in (*NESTED, *SERVING):
            of_peak = {"value": _times(value, factor, 1.0)} if "value" in node else {}
            return sure | _kernels(node, factor) | of_peak
        if "value" in node:
            moved = sure | {"value": _times(value, factor, 0.95 if less else 1.0)}
            fitted = node.get("kernels", {})  # with the value, so as uncertain as that
            if fitted and not {"uncertainty", "range"} & fitted.keys():
                moved["kernels"] = dict(fitted) | _kernels(fitted, factor)
            return moved
        if not higher:  # of messages, whose link stays the link it is
            by_size = {x: _times(node[x], factor, 1.0) for x in ("bandwidth", "cached_by_size") if x in node}
            again = {"cached": _moved(node["cached"], keys, compute, transfers)} if "cached" in node else {}
            return {**node, **by_size, **again}
    return node


def _kernels(table: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return the rates of a table of kernels so many times as high, and its times as much shorter."""
    rates = {x: _times(table[x], factor, 1.0) for x in RATES if x in table}
    return rates | {x: _times(table[x], 1.0 / factor, 1.0) for x in TIMES if x in table}


def _counts(value: Any) -> bool:
    """Return whether a value is a whole number, or several."""
    return isinstance(value, int) or (isinstance(value, list) and all(map(_counts, value)))


def _times(value: Any, factor: float, most: float) -> Any:
    """Return a number, a number with its unit, or lists of them, times a factor; a bare number is a share."""
    if isinstance(value, list):
        return [_times(item, factor, most) for item in value]
    if isinstance(value, str):
        number, unit = re.fullmatch(r"\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*(\S*)\s*", value).groups()  # type: ignore[union-attr]
        return f"{parse_real(number) * factor:.12g} {unit}"
    return min(max(most, value), value * factor)  # a share may be above that limit itself
