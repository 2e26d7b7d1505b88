"""From one layout of a matrix to another: as gets, as relays, and as the collective that fits."""

from umm.plans.redistribution.ways import redistribute

__all__ = ["redistribute"]
