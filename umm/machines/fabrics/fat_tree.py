"""A tree of switches."""

import math
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
        count = math.prod(level.size.value for level in self.levels)
        expect_devices(len(ends.names), count, "a fat tree of these levels")
        return FatTree(self, ends)


class FatTree(Fabric):
    """A tree of switches: each level joins groups of the level below by a trunk up and a trunk down.

    A trunk stands for all the cables in parallel between two switches, perfectly balanced.
    """

    def __init__(self, table: FatTreeFabric, ends: Ends) -> None:
        super().__init__()
        self.near, self.nodes = table.levels[0].size.value, True
        self._levels: list[tuple[int, int]] = []  # devices per child, the level's first link
        below = 1
        for level, trunk in enumerate(table.levels):
            self._levels.append((below, len(self.names)))
            for child in range(len(ends.names) // below):
                name = ends.names[child] if level == 0 else f"s{level}.{child}"
                self._add_both(name, *trunk.numbers, ends.overhead if level == 0 else 0.0)
            below *= trunk.size.value

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the trunks up to the lowest switch above both devices, then those down."""
        up, down = [], []
        for below, first in self._levels:
            if src // below == dst // below:
                break
            up.append(first + 2 * (src // below))
            down.append(first + 2 * (dst // below) + 1)
        return (*up, *reversed(down))
