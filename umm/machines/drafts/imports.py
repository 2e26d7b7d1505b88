"""The content of a new machine's file from a tool's view of one node, the rest from another machine."""

from collections.abc import Mapping
from typing import Any

from umm.errors import MachineError
from umm.machines.cluster import joined
from umm.machines.drafts import hwloc, nvidia_topo
from umm.machines.drafts.node import Node, fabric_of
from umm.machines.drafts.scaffold import ASKED, marked
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

    MachineError if it is neither tool's.
    """
    if hwloc.is_hwloc(text):
        return hwloc.read(text)
    if nvidia_topo.is_topo(text):
        return nvidia_topo.read(text, nvlink)
    raise MachineError(
        f"this is neither what {nvidia_topo.TOOL} prints, nor what {hwloc.TOOL} writes, nor a log of "
        "nccl-tests, rccl-tests, nvbandwidth, p2pBandwidthLatencyTest, OSU, XLA or a CSV of GEMMs; give one"
    )


def card_notes(node: Node, machine: Machine) -> list[str]:
    """Return a sentence on each network card of a node that a machine's file will not have.

    Args:
        machine: The one whose file the new one begins with.
    """
    notes = []
    if node.far_cards:
        far = ", ".join(node.far_cards)
        notes.append(f"{node.tool}: {far} left out: behind the PCIe switch of no GPU")
    if node.own_cards and not {"nic", "network"} & {*machine.document, *machine.document["fabric"]}:
        near = ", ".join(name for name, devices in node.cards.items() if devices)
        notes.append(
            f"{node.tool}: {near} left out: the file of {machine.name} has no [network] with what cards "
            "reach; choose --from one that has, such as h100-8"
        )
    return notes


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

    MachineError if several nodes of links of several kinds, and the machine says nothing of a network.

    Args:
        machine: Source of the numbers that the tool does not give, marked as that machine's.
        card: The ``[fabric.nic]`` table of several nodes where the machine says nothing of cards, marked the
            same way.
        nodes: Number of equal nodes.
        settings: Numbers that are known, as ``umm machine new --set`` takes them.
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
    node_words = counted(nodes, "node")
    content["description"] = f"{node_words} of {count} {what}, by {node.tool}: say what it is"
    fabric = fabric_of(node, LATENCY)
    if node.own_cards and "network" in content:
        counted_cards = {"value": node.own_cards, "source": f"{node.tool}: cards behind a GPU's PCIe switch"}
        content["network"] = {**content["network"], "cards": counted_cards}
    network = content.pop("network", None) if nodes > 1 else None
    if network is not None:
        count_of_nodes = {"value": nodes, "source": ASKED}
        content["fabric"] = joined(fabric, network, count_of_nodes, node.names)
    else:
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
    alone = {near[0] for near in node.cards.values() if len(near) == 1}
    owner = "device" if len(alone) in (0, count) else "node"
    size = {"value": count, "source": node.tool}
    inside = {"value": kind, "source": node.tool}
    links = {name: fabric[name] for name in ("bandwidth", "latency")}
    return {"kind": "tiers", "node_size": size, "inside": inside} | links | {"nic": {**card, "owner": owner}}
