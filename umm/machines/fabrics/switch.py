"""A switch with a port up and a port down for every device."""

from collections.abc import Sequence
from typing import Literal

from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, LinkNumbers
from umm.machines.quantities import Bandwidth


class SwitchFabric(Kind, LinkNumbers):
    """A port up and down per device; `backplane` is shared by all transfers."""

    kind: Literal["switch"]
    backplane: Bandwidth | None = None

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
