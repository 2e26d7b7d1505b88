"""The content of a new machine's file from what a tool says of one node, the rest from another machine."""

from collections.abc import Mapping
from typing import Any

from umm.errors import MachineError
from umm.machines.drafts import hwloc, nvidia_topo
from umm.machines.drafts.node import Node, fabric_of
from umm.machines.drafts.scaffold import marked
from umm.machines.machine import Machine
from umm.machines.settings import set_numbers
from umm.units import counted

LATENCY = {
    "value": "1 us",
    "source": "order of a peer-to-peer access over one link",
    "range": ["0.5 us", "3 us"],
    "assumed": True,
}


def read(text: str, nvlink: float) -> Node:
    """Return the node that a text describes, by whichever tool it is from.

    Raises:
        MachineError: It is neither tool's.
    """
    if hwloc.is_hwloc(text):
        return hwloc.read(text)
    if nvidia_topo.is_topo(text):
        return nvidia_topo.read(text, nvlink)
    raise MachineError(
        f"this is neither what {nvidia_topo.TOOL} prints, nor what {hwloc.TOOL} writes, nor a log of "
        "nccl-tests, rccl-tests, nvbandwidth, p2pBandwidthLatencyTest, OSU, XLA or a CSV of GEMMs; give one"
    )


def imported(
    node: Node,
    machine: Machine,
    card: Mapping[str, Any],
    *,
    nodes: int = 1,
    settings: Mapping[str, str] | None = None,
    source: str = "",
) -> dict[str, Any]:
    """Return the content of a new machine's file: a node's links, and all else from another machine.

    Args:
        node: The node.
        machine: Whose numbers are taken where the tool says nothing, marked as that machine's.
        card: The ``[fabric.nic]`` table where there are several nodes, marked the same way.
        nodes: How many equal nodes there are.
        settings: Numbers that are known, as ``umm machine new --set`` takes them.
        source: Where these are from.

    Raises:
        MachineError: Several nodes, of which each has links of several kinds.
    """
    content = marked(machine.document, machine.name)
    devices = content["devices"]
    count = len(node.names)
    devices.pop("default_ranks", None)
    devices["count"] = {"value": nodes * count, "source": f"{node.tool}, {counted(nodes, 'node')}"}
    devices.pop("names", None)
    if node.memory:
        devices["memory"] = {"value": f"{node.memory} B", "source": node.tool, "measured": True}
    what = node.model or "devices"
    of = counted(nodes, "node")
    content["description"] = f"{of} of {count} {what}, by {node.tool}: say what it is"
    fabric = fabric_of(node, LATENCY)
    content["fabric"] = fabric if nodes == 1 else _joined(fabric, node, card, nodes)
    known = source or "given when this file was made; say where it is from"
    return set_numbers(content, settings or {}, "the new machine", known, assumed=not source)


def _joined(fabric: dict[str, Any], node: Node, card: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """Return the fabric of several nodes: a card for each device that has its own, else one a node."""
    kind, count = fabric["kind"], len(node.names)
    if kind not in ("switch", "pairs"):
        raise MachineError(
            f"the devices of this node have links of several kinds, which --nodes {nodes} cannot join; take "
            "one node, and list its cards and the links between nodes in the file"
        )
    owner = "device" if len(node.cards) in (0, count) else "node"
    size = {"value": count, "source": node.tool}
    inside = {"value": kind, "source": node.tool}
    links = {name: fabric[name] for name in ("bandwidth", "latency")}
    return {"kind": "tiers", "node_size": size, "inside": inside} | links | {"nic": {**card, "owner": owner}}
