"""A new machine's file from another machine's, with comments on the numbers to fill in."""

import copy
import re
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.items import AoT, InlineTable, Table

from umm.errors import MachineError
from umm.machines.cluster import joined, nodes_of
from umm.machines.content import Devices, MachineFile, kinds
from umm.machines.curves import Efficiency
from umm.machines.declaring import Table as FileTable
from umm.machines.declaring import fields_of
from umm.machines.engines import SERVING
from umm.machines.load import LoadTable
from umm.machines.machine import Machine
from umm.machines.numbers import Fact
from umm.machines.settings import set_numbers, with_memory

_TABLES: tuple[tuple[str, type[FileTable]], ...] = (
    ("", MachineFile),
    ("devices.", Devices),
    ("devices.efficiency.", Efficiency),
    ("load.", LoadTable),
    *(("fabric.", kind) for kind in kinds()),
)
NOTES = {
    f"{where}{info.alias or key}": info.description
    for where, table in _TABLES
    for key, info in fields_of(table).items()
    if info.description
}
"""Comments above keys; parts of a list or a table share their table's."""

_ORDER = ("value", "source", "per", "range", "uncertainty", "measured", "assumed")


def text(content: Mapping[str, Any]) -> str:
    """Return a machine file from its content, with comments above keys whose names do not explain them.

    >>> print(text({"devices": {"launch": {"value": "3 us", "source": "a guess", "assumed": True}}}))
    [devices]
    # time before a GEMM computes: a kernel launch
    launch = {value = "3 us", source = "a guess", assumed = true}
    <BLANKLINE>
    """
    document = tomlkit.document()
    _fill(document, content, "")
    return tomlkit.dumps(document)


def _fill(into: Any, content: Mapping[str, Any], key: str) -> None:
    """Write a table's keys, those with a value of their own before its tables."""
    plain = {name: item for name, item in content.items() if not _is_table(item)}
    for name, item in (plain | dict(content)).items():
        where = f"{key}.{name}" if key else name
        note = NOTES.get(where)
        if not _is_table(item):
            if note:
                into.add(tomlkit.comment(note))
            into.add(name, _value(item))
            continue
        if isinstance(item, Mapping):
            table: Table | AoT = _table(item, where, note)
        else:
            table = tomlkit.aot()
            for i, part in enumerate(item):
                table.append(_table(part, where, note if i == 0 else None))
        into.add(name, table)


def _table(content: Mapping[str, Any], key: str, note: str | None) -> Table:
    table = tomlkit.table()
    if note:
        table.add(tomlkit.comment(note))
    _fill(table, content, key)
    return table


def _is_table(item: Any) -> bool:
    """Return whether an item has a section of its own: no number, and no list of routes."""
    if isinstance(item, list):
        return bool(item) and isinstance(item[0], Mapping) and "via" not in item[0]
    return isinstance(item, Mapping) and not ("source" in item and "value" in item)


def _value(item: Any) -> Any:
    if isinstance(item, Mapping):
        table: InlineTable = tomlkit.inline_table()
        table.update({name: item[name] for name in (*_ORDER, *item) if name in item})
        return table
    if isinstance(item, list) and item and isinstance(item[0], Mapping):
        lines = tomlkit.array()
        for part in item:
            lines.append(_value(part))
        return lines.multiline(True)
    return tomlkit.item(item)


ASKED = "asked for when this file was made"
"""The source of counts, which says none, so that it stays right when they are edited."""
MOVED = 0.2
"""Uncertainty at least of an engine's kernels that are another chip's of the same family: with the memory's
bandwidth and the peaks replaced, laws of H100 and H200, B200 and B300 are off on each other by 4 to 22 %."""
COPIED = re.compile(r"that of (\S+): ")
"""How the source of a number begins that another machine's file has given."""


def scaffold(
    machine: Machine,
    card: Mapping[str, Any],
    *,
    nodes: int | None = None,
    devices: int | None = None,
    settings: Mapping[str, str] | None = None,
    source: str = "",
) -> dict[str, Any]:
    """Return the content of a new machine's file: another's, with each number marked as the other's.

    MachineError if its fabric cannot have so many nodes or devices, or there is no such number.

    Args:
        card: The ``[fabric.nic]`` table of nodes where the other machine says nothing of cards, marked as
            another's.
        nodes: Number of nodes; those of the other machine if None.
        devices: Devices of a node; those of the other machine if None.
        settings: Numbers of the new machine, as ``umm machine new --set`` takes them.
    """
    content: dict[str, Any] = marked(machine.document, machine.name)
    node_count = nodes_of(machine.document)
    each = machine.device_count // node_count
    nodes, devices = nodes or node_count, devices or each
    content["devices"].pop("default_ranks", None)
    if (nodes, devices) != (node_count, each):
        network = content.pop("network", None) if nodes > 1 else None
        content["fabric"] = _resized(content, machine, network, card, nodes, devices)
        content["devices"].pop("names", None)
    content["devices"]["count"] = {"value": nodes * devices, "source": ASKED}
    content["description"] = f"numbers of {machine.name} until its own are known: say what it is"
    known = source or "given when this file was made; say where it is from"
    result = set_numbers(content, settings or {}, "the new machine", known, assumed=not source)
    device = dict(with_memory(content["devices"], result["devices"]))
    for name in (*SERVING, "efficiency") if "engine" in content else ():
        device[name] = [
            x if "range" in x else {**x, "uncertainty": max(MOVED, x.get("uncertainty", 0.0))}
            for x in device.get(name, [])
        ]
    return result | {"devices": device}


def marked(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a file's content with every number assumed: that of the machine it is taken from."""
    content: dict[str, Any] = copy.deepcopy(dict(document))
    _mark(content, name)
    return content


def copied(facts: list[Fact]) -> dict[str, list[str]]:
    """Return which numbers of a file are still another machine's, by that machine.

    >>> fact = Fact("devices.launch", "3 us", "that of h100-8: typical", "", True)
    >>> copied([fact])
    {'h100-8': ['launch']}
    """
    keys_of: dict[str, list[str]] = {}
    for fact in facts:
        other = COPIED.match(fact.source)
        if other:
            keys_of.setdefault(other[1], []).append(fact.key.removeprefix("devices."))
    return keys_of


def _mark(node: Any, name: str) -> None:
    if isinstance(node, list):
        for item in node:
            _mark(item, name)
    elif isinstance(node, dict):
        for item in node.values():
            _mark(item, name)
        if "source" in node and not COPIED.match(node["source"]):
            node["source"] = f"that of {name}: {node['source']}"
            node.pop("measured", None)
            node["assumed"] = True


def _resized(
    content: Mapping[str, Any],
    machine: Machine,
    network: Mapping[str, Any] | None,
    card: Mapping[str, Any],
    nodes: int,
    devices: int,
) -> dict[str, Any]:
    """Return the fabric of other nodes: the machine's network, or the card, between several."""
    fabric, kind = content["fabric"], content["fabric"]["kind"]
    count = {"value": nodes, "source": ASKED}
    if network is not None and devices == machine.device_count:
        return joined(fabric, network, count, content["devices"].get("names"))
    if kind == "cluster" and fabric["inside"]["kind"] == "switch":
        return {**fabric, "nodes": count}
    pairs = kind == "pairs" and "group" not in fabric
    if kind not in ("switch", "tiers") and not pairs:
        raise MachineError(
            f"the fabric of {machine.name} ({kind}) joins just its {machine.device_count} devices; leave "
            "--devices out, and --nodes too without network cards, or start from a machine with a switch or "
            "equal pairs, such as h100-8 or a100-2x4"
        )
    if kind == "tiers":
        pairs = fabric.get("inside", {}).get("value") == "pairs"
    link = {name: fabric[name] for name in ("bandwidth", "latency")}
    one = {"kind": "pairs" if pairs else "switch"} | link
    if nodes == 1:
        return one
    if network is not None:
        return joined(one, network, count, None)
    taken = {"source": f"that of {machine.name}: how its devices are joined", "assumed": True}
    inside = fabric.get("inside", {"value": "pairs" if pairs else "switch"} | taken)
    size = {"value": devices, "source": ASKED}
    nic = fabric.get("nic", card)
    return {"kind": "tiers", "node_size": size, "inside": inside} | link | {"nic": dict(nic)}
