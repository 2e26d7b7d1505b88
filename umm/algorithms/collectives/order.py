"""Which order of ranks makes the best ring on a machine."""

from collections.abc import Sequence
from functools import lru_cache

from umm.algorithms.collectives.grids import box_of, cell_of, cycle
from umm.algorithms.collectives.rings import Ring
from umm.machines import Machine


@lru_cache(maxsize=4096)
def ring_of(machine: Machine, ranks: tuple[int, ...], total: int) -> Ring:
    """Return the ring, or the chain, of ranks whose busiest link is least busy.

    Tried are the order given, a cycle over a grid, and the order that goes on to the nearest rank each time.

    Args:
        machine: Whose links are meant.
        ranks: Which ranks.
        total: Ranks of the whole schedule, which decides the device of each.
    """
    devices = [machine.device_of(rank, total) for rank in ranks]
    given = tuple(range(len(ranks)))
    orders = dict.fromkeys((given, _around(machine, devices) or given, _nearest(machine, devices)))
    # Of equal ones the first is taken, so a chain, which passes fewer messages.
    rings = [Ring(order, closed) for order in orders for closed in (False, True)]
    best = min(rings, key=lambda ring: _load(machine, [devices[x] for x in ring.order], ring.closed))
    return Ring(tuple(ranks[x] for x in best.order), best.closed)


def _load(machine: Machine, devices: Sequence[int], closed: bool) -> tuple[float, float]:
    """Return how long an all-gather of one byte a rank keeps the busiest link busy, and all together."""
    p, busy = len(devices), dict[int, float]()
    for x in range(p if closed else p - 1):
        ends = devices[x], devices[(x + 1) % p]
        forwards, backwards = ((p - 1) / 2, (p - 1) / 2) if closed else (x + 1.0, p - 1.0 - x)
        for route, nbytes in ((machine.route(*ends), forwards), (machine.route(*ends[::-1]), backwards)):
            for link in route:
                busy[link] = busy.get(link, 0.0) + nbytes / float(machine.link_bandwidth[link])
    return round(max(busy.values(), default=0.0), 18), round(sum(busy.values()), 18)


def _nearest(machine: Machine, devices: Sequence[int]) -> tuple[int, ...]:
    """Return the places of devices, each followed by the nearest that is left: fewest links, then widest."""
    left, order = list(range(1, len(devices))), [0]

    def distance(place: int) -> tuple[int, float, int]:
        here, there = devices[order[-1]], devices[place]
        if here == there:
            return 0, 0.0, place
        route = machine.route(here, there)
        return len(route), -min(float(machine.link_bandwidth[link]) for link in route), place

    while left:
        order.append(min(left, key=distance))
        left.remove(order[-1])
    return tuple(order)


def _around(machine: Machine, devices: Sequence[int]) -> tuple[int, ...] | None:
    """Return the places of devices that fill a box of a grid along a cycle of neighbours; else None."""
    box = box_of(machine, devices)
    if box is None:
        return None
    place = {cell_of(machine.fabric.shape, device): x for x, device in enumerate(devices)}
    cells = cycle([len(side) for side in box])
    return tuple(place[tuple(side[x] for side, x in zip(box, cell, strict=True))] for cell in cells)
