"""Links to neighbours along the axes of a grid: ring, mesh and torus."""

import math
from collections.abc import Sequence
from typing import Literal

from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers, expect_devices
from umm.machines.quantities import Shape, noted


class RingFabric(Kind, LinkNumbers):
    """A link to the next and to the previous device."""

    kind: Literal["ring"]

    def fabric(self, ends: Ends) -> "Grid":
        """Return a ring of these devices."""
        shape = [len(ends.names)]
        return Grid(ends.names, shape, True, *self.numbers, ends.overhead, ends.memory_bandwidth)


class GridFabric(Kind, LinkNumbers):
    """A link to each neighbour along each axis; a torus wraps around."""

    kind: Literal["mesh", "torus"]
    shape: Shape = noted("lengths of the grid's axes")

    def fabric(self, ends: Ends) -> "Grid":
        """Return a grid of these devices, counted row-major."""
        shape, wraps = self.shape.value, self.kind == "torus"
        expect_devices(len(ends.names), math.prod(shape), f"a {self.kind} of {'x'.join(map(str, shape))}")
        return Grid(ends.names, shape, wraps, *self.numbers, ends.overhead, ends.memory_bandwidth)


class Grid(Fabric):
    """A mesh of any dimension; a torus where it wraps around; a ring is a torus of one dimension.

    Routes go along the last axis first, then the one before it, the shorter way round; of two equally
    short ways the one of increasing index.
    """

    searches = True

    def __init__(
        self,
        devices: Sequence[str],
        shape: Sequence[int],
        wraps: bool,
        bandwidth: float,
        latency: float,
        overhead: float,
        memory_bandwidth: float,
    ) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self._wraps = wraps
        self._strides = tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        self._links: dict[tuple[int, int], int] = {}
        # A read port that holds nothing up and takes no time is left out.
        self._reads = overhead > 0 or memory_bandwidth < 2 * len(self.shape) * bandwidth
        for name in devices if self._reads else ():
            self._add(f"{name} read", memory_bandwidth, overhead)
        for src, name in enumerate(devices):
            for axis in range(len(self.shape)):
                for step in (1, -1):
                    dst = self._neighbour(src, axis, step)
                    if dst is not None and (src, dst) not in self._links:
                        self._links[src, dst] = self._add(f"{name}→{devices[dst]}", bandwidth, latency)

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
