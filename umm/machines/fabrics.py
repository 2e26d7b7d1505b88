"""Fabrics whose routes follow from their shape: pairs, switch, ring, mesh, torus, fat tree, tiers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from umm.errors import MachineError

MOST_LINKS = 4_000_000


class Fabric(ABC):
    """The links between devices and the route from one to another.

    Every route crosses exactly one link that carries the per-transfer overhead in its latency: the
    link out of the source device, or, where links are crossed both first and later (ring, mesh, torus,
    explicit links), a read port at the source's memory.

    Attributes:
        names: Link names.
        bandwidth: Bytes/s, one per link.
        latency: Seconds, one per link.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bandwidth: list[float] = []
        self.latency: list[float] = []

    def _add(self, name: str, bandwidth: float, latency: float) -> int:
        self.names.append(name)
        self.bandwidth.append(bandwidth)
        self.latency.append(latency)
        return len(self.names) - 1

    @abstractmethod
    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the links from a device to another one, src ≠ dst."""


class NoFabric(Fabric):
    """A single device: nothing to cross."""

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Never asked for: there is one device."""
        raise IndexError(f"a single device has no route from {src} to {dst}")


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
        links = self._count * (self._count - 1)
        if links > MOST_LINKS:
            raise MachineError(
                f"{self._count} devices in pairs have {links} links, and at most {MOST_LINKS} can be held; "
                "use kind = switch, tiers or fat_tree"
            )
        for i, src in enumerate(devices):
            for j, dst in enumerate(devices):
                if i != j:
                    bandwidth, latency = near if i // group == j // group else far
                    self._add(f"{src}→{dst}", bandwidth, latency + overhead)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the pair's own link."""
        return (src * (self._count - 1) + dst - (dst > src),)


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
        self._middle = () if backplane is None else (self._add("backplane", backplane, 0.0),)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's port up, the backplane if there is one, the target's port down."""
        return (2 * src, *self._middle, 2 * dst + 1)


class Grid(Fabric):
    """A mesh of any dimension; a torus where it wraps around; a ring is a torus of one dimension.

    Routes go along the last axis first, then the one before it, the shorter way round; of two equally
    short ways the one of increasing index.
    """

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
        self._shape = tuple(shape)
        self._wraps = wraps
        self._strides = tuple(math.prod(self._shape[axis + 1 :]) for axis in range(len(self._shape)))
        self._links: dict[tuple[int, int], int] = {}
        for name in devices:
            self._add(f"{name} read", memory_bandwidth, overhead)
        for src, name in enumerate(devices):
            for axis in range(len(self._shape)):
                for step in (1, -1):
                    dst = self._neighbour(src, axis, step)
                    if dst is not None and (src, dst) not in self._links:
                        self._links[src, dst] = self._add(f"{name}→{devices[dst]}", bandwidth, latency)

    def _neighbour(self, device: int, axis: int, step: int) -> int | None:
        length, stride = self._shape[axis], self._strides[axis]
        at = device // stride % length
        to = (at + step) % length
        if to == at or (not self._wraps and to != at + step):
            return None
        return device + (to - at) * stride

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """Return the source's read port and then one link per hop."""
        route, at = [src], src
        for axis in reversed(range(len(self._shape))):
            length, stride = self._shape[axis], self._strides[axis]
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


class FatTree(Fabric):
    """A tree of switches: each level joins groups of the level below by a trunk up and a trunk down.

    A trunk stands for all the cables in parallel between two switches, perfectly balanced.
    """

    def __init__(
        self, devices: Sequence[str], levels: Sequence[tuple[int, float, float]], overhead: float
    ) -> None:
        """Take (children per switch, bandwidth, latency of a child's trunk) from the devices upwards."""
        super().__init__()
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
        self._node_size = node_size
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
        if src // self._node_size == dst // self._node_size:
            return (2 * src, 2 * dst + 1)
        if self._per_device:
            return (self._cards + 2 * src, *self._core, self._cards + 2 * dst + 1)
        out = self._cards + 2 * (src // self._node_size)
        into = self._cards + 2 * (dst // self._node_size) + 1
        return (2 * src, out, *self._core, into, 2 * dst + 1)
