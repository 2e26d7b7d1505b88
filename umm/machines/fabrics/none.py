"""A single device: no links."""

from typing import Literal

from umm.machines.fabric import Ends, Fabric
from umm.machines.kind import Kind, expect_devices


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
