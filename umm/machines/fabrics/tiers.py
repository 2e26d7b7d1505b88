"""Nodes with a switch inside, joined by network cards."""

from collections.abc import Sequence
from typing import Literal

from umm.errors import MachineError
from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers
from umm.machines.quantities import Bandwidth, Count


class Card(LinkNumbers):
    """The network card of a device, or the one its node shares."""

    owner: Literal["device", "node"]


class TiersFabric(Kind, LinkNumbers):
    """Nodes with a switch inside (bandwidth, latency: a device's port), joined by network cards."""

    kind: Literal["tiers"]
    node_size: Count
    nic: Card
    core: Bandwidth | None = None

    def fabric(self, ends: Ends) -> "Tiers":
        """Return the ports and cards of these devices."""
        size, count = self.node_size.value, len(ends.names)
        if count % size:
            raise MachineError(f"{count} devices cannot fill nodes of {size}; use a multiple of {size}")
        core = self.core.number if self.core else None
        own = self.nic.owner == "device"
        return Tiers(ends.names, size, self.numbers, self.nic.numbers, own, core, ends.overhead)


class Tiers(Fabric):
    """Nodes with a switch inside, joined by network cards: one per device, or one that a node shares."""

    def __init__(
        self,
        devices: Sequence[str],
        node_size: int,
        port: tuple[float, float],
        card: tuple[float, float],
        card_per_device: bool,
        core: float | None,
        overhead: float,
    ) -> None:
        """Take (bandwidth, latency) of a device's port and of a card; `core` is one link shared by all."""
        super().__init__()
        self.near = node_size
        self._per_device = card_per_device
        for name in devices:
            self._add(f"{name} up", port[0], port[1] + overhead)
            self._add(f"{name} down", *port)
        self._cards = len(self.names)
        owners = devices if card_per_device else [f"n{i}" for i in range(len(devices) // node_size)]
        for name in owners:
            self._add(f"{name} nic out", card[0], card[1] + (overhead if card_per_device else 0.0))
            self._add(f"{name} nic in", *card)
        self._core = () if core is None else (self._add("core", core, 0.0),)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the two ports inside a node, else the two cards, and the ports if cards are shared."""
        if src // self.near == dst // self.near:
            return (2 * src, 2 * dst + 1)
        if self._per_device:
            return (self._cards + 2 * src, *self._core, self._cards + 2 * dst + 1)
        out = self._cards + 2 * (src // self.near)
        into = self._cards + 2 * (dst // self.near) + 1
        return (2 * src, out, *self._core, into, 2 * dst + 1)
