"""Where ranks are on a machine: grids, nodes and rings, and passing pieces between neighbours."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.machines import Machine

Cell = tuple[int, ...]


def cell_of(shape: Sequence[int], device: int) -> Cell:
    """Return the indices of a device along the axes of a grid, the last axis fastest.

    >>> cell_of((2, 3), 4)
    (1, 1)
    """
    cell = []
    for side in reversed(shape):
        device, x = divmod(device, side)
        cell.append(x)
    return tuple(reversed(cell))


def box_of(machine: Machine, devices: Sequence[int]) -> list[list[int]] | None:
    """Return for each axis of a machine's grid the indices that devices fill together, each once.

    None if the machine's devices lie on no grid, or these are not all of a box.
    """
    shape = machine.fabric.shape
    if not shape or len(set(devices)) < len(devices):
        return None
    # Distinct cells whose per-axis extents multiply up to their number fill the box without a hole.
    cells = [cell_of(shape, device) for device in devices]
    box = [sorted({cell[axis] for cell in cells}) for axis in range(len(shape))]
    return box if prod(map(len, box)) == len(cells) else None


def lines_of(machine: Machine, ranks: Sequence[int], total: int) -> list[list[list[int]]]:
    """Return the lines of ranks along each axis of a grid that they extend along; [] if they fill no box."""
    devices = [machine.device_of(rank, total) for rank in ranks]
    box = box_of(machine, devices) or []
    shape = machine.fabric.shape
    rank_of = {cell_of(shape, device): rank for device, rank in zip(devices, ranks, strict=True)}
    lines = []
    for axis, side in enumerate(box):
        if len(side) > 1:
            starts = product(*box[:axis], side[:1], *box[axis + 1 :])
            lines.append([[rank_of[*cell[:axis], x, *cell[axis + 1 :]] for x in side] for cell in starts])
    return lines


def cycle(sides: Sequence[int]) -> list[Cell]:
    """Return the cells of a box so that each is beside the one before, and the last beside the first.

    Where there is no such cycle (all sides odd, or only one is longer than 1), only the last and the first
    are apart.

    >>> cycle([2, 3])
    [(0, 0), (0, 1), (0, 2), (1, 2), (1, 1), (1, 0)]
    """
    path: list[Cell] = [()]
    for side in reversed(sides[1:]):  # through the other axes, to and fro
        path = [(x, *cell) for x in range(side) for cell in (path if x % 2 == 0 else path[::-1])]
    rows, cols = sides[0], len(path)
    # A plane has a Hamiltonian cycle only if one side is even; that side has to be the rows of `_plane`.
    if rows % 2 and cols % 2 == 0:
        return [(x, *path[y]) for y, x in _plane(cols, rows)]
    return [(x, *path[y]) for x, y in _plane(rows, cols)]


def _plane(rows: int, cols: int) -> list[tuple[int, int]]:
    """Return the cells of a plane: to and fro along its rows, except the first column, which leads back."""
    # An even number of rows ends at the second column, and the first column is the way back to the start.
    back = rows % 2 == 0 and cols > 1
    cells = [(x, y) for x in range(rows) for y in range(int(back), cols)[:: 1 if x % 2 == 0 else -1]]
    return [(0, 0), *cells, *((x, 0) for x in range(rows - 1, 0, -1))] if back else cells


@lru_cache(maxsize=16)
def node_of_ranks(machine: Machine, total: int) -> Ints:
    """Return the number of each rank's group of nearer devices, such as its node."""
    return np.array([machine.device_of(rank, total) // machine.fabric.near for rank in range(total)])


def nodes_of(machine: Machine, ranks: Sequence[int], total: int) -> list[list[int]]:
    """Return ranks by the group of nearer devices they are in, such as a node, in the order of devices."""
    groups: dict[int, list[int]] = {}
    for rank in ranks:
        groups.setdefault(machine.device_of(rank, total) // machine.fabric.near, []).append(rank)
    return [groups[number] for number in sorted(groups)]


def tiers_of(machine: Machine, ranks: Sequence[int], total: int) -> list[list[int]]:
    """Return ranks by the group of nearer devices they are in, each in the order of its places.

    Those of one place are joined between groups: tiles of one plane on Aurora, of which a GPU has one each.

    >>> from umm.machines import machine
    >>> tiers_of(machine("aurora-12"), range(12), 12)[:3]
    [[0, 1], [3, 2], [4, 5]]
    """
    if not machine.fabric.tiers:
        return nodes_of(machine, ranks, total)
    by_device: dict[int, list[int]] = {}
    for rank in ranks:
        by_device.setdefault(machine.device_of(rank, total), []).append(rank)
    # The machine file lists a tier's devices in the order of their planes; sorting by device would pair wrong
    # tiles.
    groups = [[rank for x in tier for rank in by_device.get(x, ())] for tier in machine.fabric.tiers]
    return [group for group in groups if group]


class Hop(NamedTuple):
    """A rank passes on to its neighbour one of some equal parts of an origin's piece."""

    origin: int  # rank whose piece it is
    source: int  # rank that passes it on
    target: int  # rank that receives it
    way: int  # 0 forwards, 1 backwards
    part: int  # number of the part
    parts: int  # number of equal parts


class Journey(NamedTuple):
    """The ranks past which one of some equal parts of something goes, both ends included."""

    ranks: tuple[int, ...]
    way: int  # 0 forwards, 1 backwards
    part: int  # which part
    parts: int  # of how many


class Ring(NamedTuple):
    """Ranks in an order in which neighbours are near."""

    order: tuple[int, ...]  # the ranks
    closed: bool  # Whether the last is next to the first; False for a chain, between whose ends nothing goes.

    def steps(self, directions: int) -> Iterator[list[Hop]]:
        """Yield the hops by which each rank's piece reaches all others, those of a step together.

        In both directions each goes the shorter way round; where both are as long, half goes each way. One
        direction goes round a chain too, from its end to its start.

        >>> for hops in Ring((5, 6, 7, 8), closed=True).steps(2):
        ...     print([(hop.origin, hop.source, hop.target) for hop in hops if hop.origin == 5])
        [(5, 5, 6), (5, 5, 8)]
        [(5, 6, 7), (5, 8, 7)]
        """
        p = len(self.order)
        # With one direction a chain wraps around as well: nothing else reaches the ranks before the origin.
        circle = self.closed or directions == 1
        # Two directions halve the steps of a ring, since each piece needs to go halfway only.
        for distance in range(p // 2 if directions == 2 and circle else p - 1):
            # With even p the opposite rank is equally far both ways; half by each keeps both directions
            # equally busy.
            parts = 2 if directions == 2 and circle and 2 * (distance + 1) == p else 1
            hops = []
            for way, turn in enumerate((1, -1)[:directions]):
                for place in range(p):
                    source, target = place + turn * distance, place + turn * (distance + 1)
                    if circle or 0 <= target < p:
                        origin, at, to = (self.order[x % p] for x in (place, source, target))
                        hops.append(Hop(origin, at, to, way, way % parts, parts))
            yield hops

    def journeys(self, origin: int, to: int, directions: int) -> list[Journey]:
        """Return the journeys of a piece from one rank to another: the shorter way, or half each way."""
        p, start, stop = len(self.order), self.order.index(origin), self.order.index(to)
        lengths = [(stop - start) % p, (start - stop) % p][:directions]
        if directions == 2 and not self.closed:
            lengths = [max(0, stop - start), max(0, start - stop)]
        # Both directions remain only on a tie, and the piece is then split between them.
        shortest = min((hops for hops in lengths if hops), default=0)
        return self._both(start, [hops if hops == shortest else 0 for hops in lengths])

    def trails(self, root: int, directions: int) -> list[Journey]:
        """Return the ways from one rank past all others: of a ring each takes half of the piece."""
        p, start = len(self.order), self.order.index(root)
        if directions == 1 or self.closed:
            return self._both(start, [p - 1] * directions)
        # On an open chain each side of the root needs the whole piece, so neither trail is a half.
        ends = self._both(start, [p - 1 - start, start])
        return [trail._replace(part=0, parts=1) for trail in ends]

    def _both(self, start: int, lengths: Sequence[int]) -> list[Journey]:
        """Return the journeys forwards and backwards that have hops, each with as large a part."""
        parts = sum(hops > 0 for hops in lengths)
        walks = [
            tuple(self.order[(start + (1 - 2 * way) * x) % len(self.order)] for x in range(hops + 1))
            for way, hops in enumerate(lengths)
        ]
        return [Journey(walk, way, way % parts, parts) for way, walk in enumerate(walks) if lengths[way]]


@lru_cache(maxsize=4096)
def ring_of(machine: Machine, ranks: tuple[int, ...], total: int) -> Ring:
    """Return the ring, or the chain, of ranks whose busiest link is least busy.

    Tried are the order given, a cycle over a grid, and the order that goes on to the nearest rank each time.
    """
    devices = [machine.device_of(rank, total) for rank in ranks]
    given = tuple(range(len(ranks)))
    # The best order is a travelling-salesman tour; three cheap candidates stand in for a search.
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
        # A chain's link x carries the x + 1 pieces before it forwards and the rest backwards; on a ring every
        # link carries half of the p − 1 pieces each way.
        forwards, backwards = ((p - 1) / 2, (p - 1) / 2) if closed else (x + 1.0, p - 1.0 - x)
        for route, nbytes in ((machine.route(*ends), forwards), (machine.route(*ends[::-1]), backwards)):
            for link in route:
                busy[link] = busy.get(link, 0.0) + nbytes / float(machine.link_bandwidth[link])
    # Rounded, so that sums in another order of floats still tie and the first candidate wins.
    return round(max(busy.values(), default=0.0), 18), round(sum(busy.values()), 18)


def _nearest(machine: Machine, devices: Sequence[int]) -> tuple[int, ...]:
    """Return the places of devices, each followed by the nearest that is left: fewest links, then widest."""
    left, order = list(range(1, len(devices))), [0]

    def distance(place: int) -> tuple[int, float, int]:
        last, device = devices[order[-1]], devices[place]
        if last == device:
            return 0, 0.0, place
        route = machine.route(last, device)
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
