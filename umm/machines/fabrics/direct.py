"""Fabrics without hops: a single device, a link for every pair, or one switch."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from umm.arrays import Ints
from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_devices, expect_links
from umm.machines.quantities import Bandwidth, Count, noted


class Single(Kind):
    """One device: no links."""

    kind: Literal["none"]

    def fabric(self, ends: Ends) -> "NoFabric":
        """Return the fabric of a single device."""
        expect_devices(len(ends.names), 1, "a fabric of kind none")
        return NoFabric()


class NoFabric(Fabric):
    """A single device: nothing to cross."""

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Never asked for: there is one device."""
        raise IndexError(f"a single device has no route from {src} to {dst}")


class Group(LinkNumbers):
    """Neighbouring devices that are joined by faster links."""

    size: Count


class PairsFabric(Kind, LinkNumbers):
    """An own link for every ordered pair; `group` has those of neighbours."""

    kind: Literal["pairs"]
    group: Group | None = noted("neighbours that are joined by faster links", None)

    def fabric(self, ends: Ends) -> "Pairs":
        """Return a link for each pair of these devices."""
        near, size = (self.group, self.group.size.value) if self.group else (self, 1)
        return Pairs(ends.names, self.numbers, near.numbers, size, ends.overhead)


class Pairs(Fabric):
    """An own link for every ordered pair of devices; faster ones inside groups of neighbours."""

    def __init__(
        self,
        devices: Sequence[str],
        far: tuple[float, float],
        near: tuple[float, float],
        group: int,
        overhead: float,
    ) -> None:
        """Take (bandwidth, latency) of links between groups (far) and inside a group (near)."""
        super().__init__()
        self._count = len(devices)
        self.near = group
        expect_links(self._count * (self._count - 1), f"{self._count} devices in pairs")
        for i, src in enumerate(devices):
            for j, dst in enumerate(devices):
                if i != j:
                    bandwidth, latency = near if i // group == j // group else far
                    self._add(f"{src}→{dst}", bandwidth, latency + overhead)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the pair's own link."""
        return (src * (self._count - 1) + dst - (dst > src),)

    def routes(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the same of many pairs at once."""
        return np.ones(len(src), dtype=np.int64), src * (self._count - 1) + dst - (dst > src)


class SwitchFabric(Kind, LinkNumbers):
    """A port up and down per device; `backplane` is shared by all transfers."""

    kind: Literal["switch"]
    backplane: Bandwidth | None = noted("that all transfers share", None)

    def fabric(self, ends: Ends) -> "Switch":
        """Return the ports of these devices, and the backplane."""
        backplane = self.backplane.number if self.backplane else None
        return Switch(ends.names, *self.numbers, ends.overhead, backplane)


class Switch(Fabric):
    """A port up and a port down per device; optionally one backplane that all transfers share."""

    def __init__(
        self,
        devices: Sequence[str],
        bandwidth: float,
        latency: float,
        overhead: float,
        backplane: float | None,
    ) -> None:
        super().__init__()
        for name in devices:
            self._add(f"{name} up", bandwidth, latency + overhead)
            self._add(f"{name} down", bandwidth, latency)
        self._ports = tuple(range(len(self.names)))  # numbers that all routes share: there may be a million
        self._middle = () if backplane is None else (self._add("backplane", backplane, 0.0),)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's port up, the backplane if there is one, the target's port down."""
        return (self._ports[2 * src], *self._middle, self._ports[2 * dst + 1])

    def routes(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the same of many pairs at once."""
        middle = [np.full(len(src), link) for link in self._middle]
        links = np.stack((2 * src, *middle, 2 * dst + 1), axis=1)
        return np.full(len(src), links.shape[1]), links.reshape(-1)
