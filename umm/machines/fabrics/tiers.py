"""Nodes joined by network cards; inside a node a switch, or an own link for every pair."""

from collections.abc import Sequence
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
        core = self.core.number if self.core else None
        by_device = self.nic.owner == "device"
        pairs = self.inside is not None and self.inside.value == "pairs"
        return Tiers(ends.names, size, pairs, self.numbers, self.nic.numbers, by_device, core, ends.overhead)


class Tiers(Fabric):
    """Nodes joined by network cards: one per device, or one that a node shares."""

    def __init__(
        self,
        devices: Sequence[str],
        node_size: int,
        pairs: bool,
        near: tuple[float, float],
        card: tuple[float, float],
        card_per_device: bool,
        core: float | None,
        overhead: float,
    ) -> None:
        """Take (bandwidth, latency) of a port, or of a pair's link, and of a card; all share `core`."""
        super().__init__()
        self.near, self.nodes = node_size, True
        self._per_device = card_per_device
        self._pairs: dict[tuple[int, int], int] = {}
        if pairs:
            expect_links(len(devices) * (node_size - 1), f"{len(devices)} devices in pairs")
            for first in range(0, len(devices), node_size):
                for src, dst in permutations(range(first, first + node_size), 2):
                    name = f"{devices[src]}→{devices[dst]}"
                    self._pairs[src, dst] = self._add(name, near[0], near[1] + overhead)
        else:
            for name in devices:
                self._add(f"{name} up", near[0], near[1] + overhead)
                self._add(f"{name} down", *near)
        self._ports = not pairs
        self._first_card = len(self.names)
        owners = devices if card_per_device else [f"n{i}" for i in range(len(devices) // node_size)]
        for name in owners:
            is_first = card_per_device or pairs  # link of a route between nodes
            out = self._add(f"{name} nic out", card[0], card[1] + (overhead if is_first else 0.0))
            self.cards.append((out, self._add(f"{name} nic in", *card)))
        self._core = () if core is None else (self._add("core", core, 0.0),)

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
