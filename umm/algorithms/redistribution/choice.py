"""Which way to redistribute takes least on a machine, by the bounds of their schedules."""

from functools import lru_cache

from umm.algorithms.redistribution.program import lowered, program, ways_of
from umm.algorithms.redistribution.ways import GETS
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.schedules.bound import schedule_bound


def quickest(x: Layout, y: Layout, dtype: str, machine: Machine) -> str:
    """Return the name of the way from one layout to another that takes least by itself.

    Ways are compared by the longest path and the busiest link of their schedules; ``umm.redistribute``
    simulates them.

    >>> from umm.machines import machine
    >>> x, y = (Layout.parse(text, (4096, 4096), ranks=32) for text in ("row", "row@32"))
    >>> quickest(x, y, "float32", machine("dgx-h100x4"))
    'hierarchical'
    """
    return _quickest(x, y, (x.cuts, y.cuts), dtype, machine)


@lru_cache(maxsize=1024)
def _quickest(x: Layout, y: Layout, key: object, dtype: str, machine: Machine) -> str:
    # The key is there for the cache: equal layouts may number their tiles otherwise, where some are empty.
    if x == y:
        return GETS
    chain = program(x, y, dtype)
    return min(ways_of(chain, machine), key=lambda way: schedule_bound(lowered(chain, machine, way)))
