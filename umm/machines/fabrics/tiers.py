"""Nodes joined by network cards; inside a node a switch, or an own link for every pair."""

from itertools import permutations
from typing import Literal

from umm.errors import MachineError
from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_links
from umm.machines.quantities import Bandwidth, Count, Number, noted


class Card(LinkNumbers):
    """The network card of a device, or the one its node shares."""

    owner: Literal["device", "node"]


class Inside(Number):
    """How devices of a node are joined: each by a port to a switch, or every two by a link of their own."""

    value: Literal["switch", "pairs"]


class TiersFabric(Kind, LinkNumbers):
    """Nodes joined by network cards; bandwidth and latency are those of a device's port, or a pair's link."""

    kind: Literal["tiers"]
    node_size: Count = noted("devices of one node")
    nic: Card = noted('network cards: owner = "device" if each has its own, "node" if a node shares one')
    inside: Inside | None = noted(
        '"switch": a port for each device; "pairs": a link between every two, NV4 in topo -m', None
    )
    core: Bandwidth | None = noted("that all transfers between nodes share", None)

    def fabric(self, ends: Ends) -> "Tiers":
        """Return the links inside nodes and the cards of these devices."""
        size, count = self.node_size.value, len(ends.names)
        if count % size:
            raise MachineError(f"{count} devices cannot fill nodes of {size}; use a multiple of {size}")
        return Tiers(self, ends)


class Tiers(Fabric):
    """Nodes joined by network cards: one per device, or one that a node shares."""

    def __init__(self, table: TiersFabric, ends: Ends) -> None:
        super().__init__()
        devices, size = ends.names, table.node_size.value
        self.near, self.nodes = size, True
        self._per_device = table.nic.owner == "device"
        self._ports = table.inside is None or table.inside.value == "switch"
        self._pairs: dict[tuple[int, int], int] = {}
        if self._ports:
            for name in devices:
                self._add_both(name, *table.numbers, ends.overhead)
        else:
            expect_links(len(devices) * (size - 1), f"{len(devices)} devices in pairs")
            bandwidth, latency = table.numbers
            for first in range(0, len(devices), size):
                for src, dst in permutations(range(first, first + size), 2):
                    name = f"{devices[src]}→{devices[dst]}"
                    self._pairs[src, dst] = self._add(name, bandwidth, latency, ends.overhead)
        self._first_card = len(self.names)
        is_first = self._per_device or not self._ports  # link of a route between nodes
        for name in devices if self._per_device else [f"n{i}" for i in range(len(devices) // size)]:
            overhead = ends.overhead if is_first else 0.0
            self.cards.append(self._add_both(f"{name} nic", *table.nic.numbers, overhead, ("out", "in")))
        self._core = (self._add("core", table.core.number, 0.0),) if table.core else ()

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the ports or the link inside a node, else the cards, and ports where they are shared."""
        if src // self.near == dst // self.near:
            return self._inside(src, dst)
        if self._per_device:
            route = (self._first_card + 2 * src, *self._core, self._first_card + 2 * dst + 1)
            return self._around(src, dst) if self._lost else route
        out = self._first_card + 2 * (src // self.near)
        into = self._first_card + 2 * (dst // self.near) + 1
        if not self._ports:
            return (out, *self._core, into)
        return (2 * src, out, *self._core, into, 2 * dst + 1)

    @property
    def _cards_of_node(self) -> int:
        return self.near if self._per_device else 1

    def _inside(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the ports or the link between two devices of a node."""
        return (2 * src, 2 * dst + 1) if self._ports else (self._pairs[src, dst],)

    def _around(self, src: int, dst: int) -> tuple[int, ...]:
        """Return a route between nodes by the cards that are up, those of neighbours in the node."""
        first, last = self._card_beside(src), self._card_beside(dst)
        out = (*(self._inside(src, first) if first != src else ()), self.cards[first][0])
        into = (self.cards[last][1], *(self._inside(last, dst) if last != dst else ()))
        return (*out, *self._core, *into)
