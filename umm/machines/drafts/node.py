"""One node as a tool has described it, and the ``[fabric]`` table that follows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, NamedTuple

from umm.errors import MachineError
from umm.units import format_bandwidth

REACHED = 0.8
"""Share of a link's bandwidth that copies reach: 0.83 of NVLink on h100-8, 0.79 on a100-8, 0.75 of xGMI."""


class Wire(NamedTuple):
    """A kind of link."""

    name: str  # of the kind, such as `nv4` or `pcie`
    bandwidth: float  # Bytes/s of one direction on paper
    source: str  # what says so

    def number(self, per: str) -> dict[str, Any]:
        """Return the bandwidth that copies reach as a file has it."""
        ends = [format_bandwidth(share * self.bandwidth) for share in (0.7, 1.0)]
        source = f"{self.source}; {format_bandwidth(self.bandwidth)}, of which copies reach about 80 %"
        value = format_bandwidth(REACHED * self.bandwidth)
        return {"value": value, "source": source, "per": per, "range": ends, "assumed": True}


SOCKETS = Wire("sockets", 40e9, "what two sockets exchange is not known; the order of UPI or xGMI is taken")


@dataclass(frozen=True)
class Node:
    """A tool's report on the devices of one node."""

    model: str  # a device's model name; "" if the tool does not give it
    names: tuple[str, ...]  # a short name for each device
    links: Mapping[tuple[int, int], Wire]  # wires between two devices, by both their numbers, the lower first
    port: Wire | None  # the wire from each device to a switch, if they are joined by one
    # Where the way through the host leads from a device or a PCIe switch: the next vertex and the wire to it;
    # the last ones are joined among each other by `between`.
    parents: Mapping[str, tuple[str, Wire]]
    between: Wire  # the wire between sockets
    # The devices that share a PCIe switch with each network card, by the card's name.
    cards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    memory: int | None = None  # bytes of a device, if the tool says
    tool: str = ""  # name of the tool, for sources

    @property
    def own_cards(self) -> int:
        """Network cards that share a PCIe switch with a device."""
        return sum(1 for near in self.cards.values() if near)

    @property
    def far_cards(self) -> list[str]:
        """Names of the network cards that share a PCIe switch with no device."""
        return [name for name, near in self.cards.items() if not near]


def fabric_of(node: Node, latency: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``[fabric]`` table of a node.

    MachineError if two devices are joined neither by a wire nor through the host.

    Args:
        latency: Of every link, as a file has it.
    """
    count = len(node.names)
    if count == 1:
        return {"kind": "none"}
    if node.port is not None:
        return {"kind": "switch", "bandwidth": node.port.number("device, one direction"), "latency": latency}
    wires = set(node.links.values())
    if len(node.links) == count * (count - 1) // 2 and len(wires) == 1:
        wire = wires.pop()
        bandwidth = wire.number("pair of devices, one direction")
        return {"kind": "pairs", "bandwidth": bandwidth, "latency": latency}
    return _explicit(node, latency)


def _explicit(node: Node, latency: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fabric of listed links: the wires, and the ways through the host where there is none."""
    used = {(node.names[i], node.names[j]): wire for (i, j), wire in node.links.items()}
    routes = []
    for i, j in combinations(range(len(node.names)), 2):
        if (i, j) in node.links:
            continue
        way = list(_way(node, node.names[i], node.names[j]))
        if node.links:  # over these there may be shorter ways, which nothing takes
            routes += [{"from": ends[0], "to": ends[-1], "via": ends[1:-1]} for ends in (way, way[::-1])]
        for one, next_ in pairwise(way):
            if (next_, one) not in used:
                used[one, next_] = _wire(node, one, next_)
    vertices = [x for pair in used for x in pair if x not in node.names]
    types = {wire.name: wire for wire in used.values()}
    return {
        "kind": "links",
        "switches": list(dict.fromkeys(vertices)),
        **({"routes": routes} if routes else {}),
        "types": {
            x.name: {"bandwidth": x.number("one direction"), "latency": latency} for x in types.values()
        },
        "links": [{"type": wire.name, "between": list(ends)} for ends, wire in used.items()],
    }


def _way(node: Node, src: str, dst: str) -> Iterator[str]:
    """Return the vertices on the way through the host."""
    up, down = _up(node, src), _up(node, dst)
    shared = next((x for x in up if x in down), None)
    if shared is None and up[-1] in node.names:
        raise MachineError(f"{node.tool} shows no link and no path through the host from {src} to {dst}")
    yield from up[: up.index(shared) + 1] if shared else up
    yield from reversed(down[: down.index(shared)] if shared else down)


def _up(node: Node, vertex: str) -> list[str]:
    path = [vertex]
    while path[-1] in node.parents:
        path.append(node.parents[path[-1]][0])
    return path


def _wire(node: Node, one: str, other: str) -> Wire:
    for low, high in ((one, other), (other, one)):
        if low in node.parents and node.parents[low][0] == high:
            return node.parents[low][1]
    return node.between
