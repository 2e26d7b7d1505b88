"""Links to neighbours along the axes of a grid: ring, mesh and torus."""

import math
from itertools import product
from typing import Literal

from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_devices
from umm.machines.quantities import Shape, noted


class RingFabric(Kind, LinkNumbers):
    """A link to the next and to the previous device."""

    kind: Literal["ring"]

    def fabric(self, ends: Ends) -> "Grid":
        """Return a ring of these devices."""
        return Grid(self, ends, (len(ends.names),))


class GridFabric(Kind, LinkNumbers):
    """A link to each neighbour along each axis; a torus wraps around."""

    kind: Literal["mesh", "torus"]
    shape: Shape = noted("lengths of the grid's axes")

    def fabric(self, ends: Ends) -> "Grid":
        """Return a grid of these devices, counted row-major."""
        shape = tuple(self.shape.value)
        expect_devices(len(ends.names), math.prod(shape), f"a {self.kind} of {'x'.join(map(str, shape))}")
        return Grid(self, ends, shape)


class Grid(Fabric):
    """A mesh of any dimension; a torus where it wraps around; a ring is a torus of one dimension.

    Routes go along the last axis first, then the one before it, the shorter way round; of two equally
    short ways the one of increasing index.
    """

    searches = True

    def __init__(self, table: RingFabric | GridFabric, ends: Ends, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self._wraps = table.kind != "mesh"
        self._strides = tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        self._links: dict[tuple[int, int], int] = {}
        # A read port that holds nothing up and takes no time is left out.
        self._reads = ends.overhead > 0 or ends.memory_bandwidth < 2 * len(shape) * table.bandwidth.number
        for name in ends.names if self._reads else ():
            self._add(f"{name} read", ends.memory_bandwidth, 0.0, ends.overhead)
        for src, name in enumerate(ends.names):
            for axis, step in product(range(len(shape)), (1, -1)):
                dst = self._neighbour(src, axis, step)
                if dst is not None and (src, dst) not in self._links:
                    self._links[src, dst] = self._add(f"{name}→{ends.names[dst]}", *table.numbers)

    def _neighbour(self, device: int, axis: int, step: int) -> int | None:
        length, stride = self.shape[axis], self._strides[axis]
        at = device // stride % length
        to = (at + step) % length
        if to == at or (not self._wraps and to != at + step):
            return None
        return device + (to - at) * stride

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's read port, if it has one, and then one link per hop."""
        route, at = [src] if self._reads else [], src
        for axis in reversed(range(len(self.shape))):
            length, stride = self.shape[axis], self._strides[axis]
            distance = dst // stride % length - at // stride % length
            if self._wraps:
                distance %= length
                if 2 * distance > length:
                    distance -= length
            step = 1 if distance > 0 else -1
            for _ in range(abs(distance)):
                to = self._neighbour(at, axis, step)
                assert to is not None
                route.append(self._links[at, to])
                at = to
        return tuple(route)
