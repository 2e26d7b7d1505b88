"""Fabrics without hops: a single device, a link for every pair, or one switch."""

from itertools import permutations
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
        return Pairs(self, ends)


class Pairs(Fabric):
    """An own link for every ordered pair of devices; faster ones inside groups of neighbours."""

    def __init__(self, table: PairsFabric, ends: Ends) -> None:
        super().__init__()
        self._count = len(ends.names)
        self.near = table.group.size.value if table.group else 1
        expect_links(self._count * (self._count - 1), f"{self._count} devices in pairs")
        for (i, src), (j, dst) in permutations(enumerate(ends.names), 2):
            link = table.group if table.group and i // self.near == j // self.near else table
            self._add(f"{src}→{dst}", *link.numbers, ends.overhead)

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
        return Switch(self, ends)


class Switch(Fabric):
    """A port up and a port down per device; optionally one backplane that all transfers share."""

    def __init__(self, table: SwitchFabric, ends: Ends) -> None:
        super().__init__()
        for name in ends.names:
            self._add_both(name, *table.numbers, ends.overhead)
        self._ports = tuple(range(len(self.names)))  # numbers that all routes share: there may be a million
        self._middle = (self._add("backplane", table.backplane.number, 0.0),) if table.backplane else ()

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's port up, the backplane if there is one, the target's port down."""
        return (self._ports[2 * src], *self._middle, self._ports[2 * dst + 1])

    def routes(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """Return the same of many pairs at once."""
        middle = [np.full(len(src), link) for link in self._middle]
        links = np.stack((2 * src, *middle, 2 * dst + 1), axis=1)
        return np.full(len(src), links.shape[1]), links.reshape(-1)
