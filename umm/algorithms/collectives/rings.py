"""Rings and lines of ranks: the best order on a machine, and passing pieces between neighbours."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from umm.algorithms.collectives.grids import box_of, cell_of, cycle
from umm.machines import Machine


class Hop(NamedTuple):
    """A rank passes on to its neighbour one of some equal parts of what belongs to an origin.

    Attributes:
        origin: Whose it is.
        source: Who passes it on.
        target: To whom.
        way: 0 forwards, 1 backwards.
        part: Which part.
        parts: Of how many.
    """

    origin: int
    source: int
    target: int
    way: int
    part: int
    parts: int


class Journey(NamedTuple):
    """The ranks past which one of some equal parts of something goes, both ends included.

    Attributes:
        ranks: The ranks.
        way: 0 forwards, 1 backwards.
        part: Which part.
        parts: Of how many.
    """

    ranks: tuple[int, ...]
    way: int
    part: int
    parts: int


class Ring(NamedTuple):
    """Ranks in an order in which neighbours are near.

    Attributes:
        order: The ranks.
        closed: Whether the last is next to the first; False for a chain, between whose ends nothing goes.
    """

    order: tuple[int, ...]
    closed: bool

    def steps(self, directions: int) -> Iterator[list[Hop]]:
        """Yield the hops by which what each rank has comes to all others, those of a step together.

        In both directions each goes the shorter way round; where both are as long, half goes each way. One
        direction goes round a chain too, from its end to its start.

        >>> for hops in Ring((5, 6, 7, 8), closed=True).steps(2):
        ...     print([(hop.origin, hop.source, hop.target) for hop in hops if hop.origin == 5])
        [(5, 5, 6), (5, 5, 8)]
        [(5, 6, 7), (5, 8, 7)]
        """
        p = len(self.order)
        circle = self.closed or directions == 1
        for distance in range(p // 2 if directions == 2 and circle else p - 1):
            parts = 2 if directions == 2 and circle and 2 * (distance + 1) == p else 1
            hops = []
            for way, turn in enumerate((1, -1)[:directions]):
                for place in range(p):
                    source, target = place + turn * distance, place + turn * (distance + 1)
                    if circle or 0 <= target < p:
                        origin, here, there = (self.order[x % p] for x in (place, source, target))
                        hops.append(Hop(origin, here, there, way, way % parts, parts))
            yield hops

    def journeys(self, origin: int, to: int, directions: int) -> list[Journey]:
        """Return how what one rank has for another gets there: the shorter way, or half each way."""
        p, start, stop = len(self.order), self.order.index(origin), self.order.index(to)
        lengths = [(stop - start) % p, (start - stop) % p][:directions]
        if directions == 2 and not self.closed:
            lengths = [max(0, stop - start), max(0, start - stop)]
        shortest = min((hops for hops in lengths if hops), default=0)
        return self._both(start, [hops if hops == shortest else 0 for hops in lengths])

    def trails(self, root: int, directions: int) -> list[Journey]:
        """Return the ways from one rank past all others: of a ring each takes half of what passes."""
        p, start = len(self.order), self.order.index(root)
        if directions == 1 or self.closed:
            return self._both(start, [p - 1] * directions)
        ends = self._both(start, [p - 1 - start, start])
        return [trail._replace(part=0, parts=1) for trail in ends]

    def _both(self, start: int, lengths: Sequence[int]) -> list[Journey]:
        """Return the journeys forwards and backwards that have hops, each with as large a part."""
        parts = sum(hops > 0 for hops in lengths)
        return [
            Journey(self._walk(start, 1 - 2 * way, hops), way, way % parts, parts)
            for way, hops in enumerate(lengths)
            if hops
        ]

    def _walk(self, start: int, turn: int, hops: int) -> tuple[int, ...]:
        return tuple(self.order[(start + turn * x) % len(self.order)] for x in range(hops + 1))


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
