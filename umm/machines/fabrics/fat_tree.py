"""A tree of switches."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from umm.machines.declaring import Field
from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_devices
from umm.machines.quantities import Count, noted


class Level(LinkNumbers):
    """A level of switches: how many children each has, and the trunk to a child."""

    size: Count


class FatTreeFabric(Kind):
    """A tree of switches, levels from the devices upwards."""

    kind: Literal["fat_tree"]
    levels: Annotated[list[Level], Field(min_length=1, max_length=16)] = noted(
        "of switches, from the devices up: how many each joins, and the link of one"
    )

    def fabric(self, ends: Ends) -> "FatTree":
        """Return the tree over these devices."""
        levels = [(level.size.value, *level.numbers) for level in self.levels]
        expect_devices(
            len(ends.names), math.prod(size for size, _, _ in levels), "a fat tree of these levels"
        )
        return FatTree(ends.names, levels, ends.overhead)


class FatTree(Fabric):
    """A tree of switches: each level joins groups of the level below by a trunk up and a trunk down.

    A trunk stands for all the cables in parallel between two switches, perfectly balanced.
    """

    def __init__(
        self, devices: Sequence[str], levels: Sequence[tuple[int, float, float]], overhead: float
    ) -> None:
        """Take (children per switch, bandwidth, latency of a child's trunk) from the devices upwards."""
        super().__init__()
        self.near, self.nodes = levels[0][0], True
        self._levels: list[tuple[int, int]] = []  # devices per child, the level's first link
        below = 1
        for level, (size, bandwidth, latency) in enumerate(levels):
            self._levels.append((below, len(self.names)))
            for child in range(len(devices) // below):
                name = devices[child] if level == 0 else f"s{level}.{child}"
                self._add(f"{name} up", bandwidth, latency + (overhead if level == 0 else 0.0))
                self._add(f"{name} down", bandwidth, latency)
            below *= size

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the trunks up to the lowest switch above both devices, then those down."""
        up, down = [], []
        for below, first in self._levels:
            if src // below == dst // below:
                break
            up.append(first + 2 * (src // below))
            down.append(first + 2 * (dst // below) + 1)
        return (*up, *reversed(down))
