"""A new machine's file from another machine's, and which of its numbers are still the other's."""

import copy
import re
from collections.abc import Mapping
from typing import Any

from umm.errors import MachineError
from umm.machines.facts import Fact
from umm.machines.machine import Machine
from umm.machines.settings import set_numbers

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

    Args:
        machine: The other machine.
        card: The ``[fabric.nic]`` table of nodes where the other machine has no cards, marked as another's.
        nodes: How many; those of the other machine if None.
        devices: How many a node has; likewise.
        settings: Numbers of the new machine, as ``umm machine new --set`` takes them.
        source: Where these are from.

    Raises:
        MachineError: its fabric cannot have so many nodes or devices, or there is no such number.
    """
    content: dict[str, Any] = marked(machine.document, machine.name)
    there, each = _sizes(machine)
    nodes, devices = nodes or there, devices or each
    content["devices"].pop("default_ranks", None)
    if (nodes, devices) != (there, each):
        content["fabric"] = _resized(content["fabric"], machine, card, nodes, devices)
        content["devices"].pop("names", None)
    said = f"{nodes} nodes of {devices}" if nodes > 1 else f"{devices} in one node"
    content["devices"]["count"] = {"value": nodes * devices, "source": said}
    content["description"] = f"{said}, with numbers of {machine.name} until they are known: say what it is"
    known = source or "given when this file was made; say where it is from"
    return set_numbers(content, settings or {}, "the new machine", known, assumed=not source)


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
    found: dict[str, list[str]] = {}
    for fact in facts:
        other = COPIED.match(fact.source)
        if other:
            found.setdefault(other[1], []).append(fact.key.removeprefix("devices."))
    return found


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


def _sizes(machine: Machine) -> tuple[int, int]:
    """Return how many nodes a machine has, and how many devices each."""
    fabric = machine.document["fabric"]
    each = fabric["node_size"]["value"] if fabric["kind"] == "tiers" else machine.device_count
    return machine.device_count // each, each


def _resized(
    fabric: Mapping[str, Any], machine: Machine, card: Mapping[str, Any], nodes: int, devices: int
) -> dict[str, Any]:
    """Return the fabric of other nodes: cards where there are several, the same links inside each."""
    kind = fabric["kind"]
    pairs = kind == "pairs" and "group" not in fabric
    if kind not in ("switch", "tiers") and not pairs:
        raise MachineError(
            f"the {kind} of {machine.name} joins just its {machine.device_count} devices; leave --nodes and "
            "--devices out, or start from a machine with a switch or equal pairs, such as h100-8 or a100-2x4"
        )
    if kind == "tiers":
        pairs = fabric.get("inside", {}).get("value") == "pairs"
    link = {name: fabric[name] for name in ("bandwidth", "latency")}
    if nodes == 1:
        return {"kind": "pairs" if pairs else "switch"} | link
    taken = {"source": f"that of {machine.name}: how its devices are joined", "assumed": True}
    inside = fabric.get("inside", {"value": "pairs" if pairs else "switch"} | taken)
    size = {"value": devices, "source": f"{nodes} nodes of {devices}"}
    nic = fabric.get("nic", card)
    return {"kind": "tiers", "node_size": size, "inside": inside} | link | {"nic": dict(nic)}
