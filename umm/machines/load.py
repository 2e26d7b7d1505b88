"""A device under the load of a training step: its clock and power, its host, the memory that programs see."""

from dataclasses import dataclass, replace
from typing import Any

from umm.machines.quantities import Bandwidth, Factor, Power, Share, Size, Table, numbers_of, stated, table_of

CLOCK, SPREAD = 0.7, 0.15
"""Share of the first multiplies' clock that a chip without a number keeps: between those that have one."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """A device under the load of a step; the numbers of a machine file's table ``load``."""

    clock: float = stated(Share, "clock after seconds of multiplies, over that of the first ones", CLOCK)
    power: float = stated(Power, "power limit of a device as it is delivered", 0.0)
    attention: float = stated(Factor, "rate of attention in a step over that of its kernels alone", 1.0)
    # Multiprocessors and memory that collectives take; H100's where a file does not state it.
    contention: float = stated(Share, "of a collective's time, by which kernels beside it are longer", 0.7)
    host: float = stated(Factor, "seconds of its host to issue a kernel, over those of an x86 server", 1.0)
    host_link: float = stated(Bandwidth, "between a device and its host, one direction", 55e9)
    host_memory: float = stated(Bandwidth, "of the host's memory, a device's share", 60e9)
    host_capacity: int = stated(Size, "of the host's memory, a device's share", 0)
    visible_memory: int = stated(Size, "memory that programs see: nvidia-smi's memory.total", 0)
    spread: float = SPREAD  # by how much the clock is uncertain, a share
    source: str = "assumed, between the chips whose files state it"  # source of the clock

    def scaled(self, factor: float) -> "Load":
        """Return the same with a clock that much higher, at most that of the first multiplies."""
        return replace(self, clock=min(1.0, self.clock * factor))

    def limited(self, watts: float) -> "Load":
        """Return the same under a lower power limit; 0 for the device's own."""
        # Near its limit a device's power grows with the cube of the clock, for its voltage follows the clock.
        if not watts or not self.power or watts >= self.power:
            return self
        return self.scaled((watts / self.power) ** (1 / 3))


LoadTable: Any = table_of("LoadTable", Table, Load)


def load_of(table: Any) -> Load:
    """Return the load that a machine file's table states, the usual one for None."""
    if table is None:
        return Load()
    clock = table.clock
    known = {} if clock is None else {"source": clock.source, "spread": clock.uncertainty or SPREAD}
    return Load(**numbers_of(table, Load), **known)
