"""An own link for every ordered pair of devices."""

from collections.abc import Sequence
from typing import Literal

from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_links
from umm.machines.quantities import Count


class Group(LinkNumbers):
    """Neighbouring devices that are joined by faster links."""

    size: Count


class PairsFabric(Kind, LinkNumbers):
    """An own link for every ordered pair; `group` has those of neighbours."""

    kind: Literal["pairs"]
    group: Group | None = None

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
