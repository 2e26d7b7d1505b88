"""Transfers as the closed-form bounds count them: bytes, messages, lanes, and the time of each link."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from umm.arrays import Floats, Ints
from umm.machines import Machine
from umm.machines.curves import MessageSizes
from umm.machines.fabric import narrowest
from umm.schedules.table.resources import platform


@dataclass(frozen=True, eq=False)
class LinkTimes:
    """How long bytes take between the ranks of a problem, and on which links.

    Attributes:
        inverse: Seconds a byte takes alone from rank to rank, shape (p, p); 0 from a rank to itself.
        latency: Seconds before bytes flow, shape (p, p); 0 from a rank to itself.
        used: Numbers of the used links, ascending.
        pair: For every link of every route its pair of ranks, src · p + dst; ordered by link.
        starts: Where the pairs of each used link start in ``pair``.
        link_inverse: Seconds a byte takes on each used link.
        disjoint: Whether no link belongs to two routes.
        device: Device of each rank.
    """

    inverse: Floats
    latency: Floats
    used: Ints
    pair: Ints
    starts: Ints
    link_inverse: Floats
    disjoint: bool
    device: Ints

    def busiest(self, nbytes: Floats) -> Floats:
        """Return the time the busiest link needs for the bytes between pairs of ranks.

        Args:
            nbytes: Bytes from rank to rank, shape (…, p, p); those from a rank to itself must be 0.
        """
        return np.asarray(self.busy(nbytes).max(axis=-1))

    def busy(self, nbytes: Floats) -> Floats:
        """Return the time each link, or each route where none share a link, needs for bytes between ranks.

        The times of several arrays of bytes add up.

        Args:
            nbytes: Bytes from rank to rank, shape (…, p, p); those from a rank to itself must be 0.
        """
        flat = nbytes.reshape(*nbytes.shape[:-2], -1)
        if self.disjoint or not len(self.pair):
            return np.asarray(flat * self.inverse.reshape(-1))
        loads = np.add.reduceat(flat[..., self.pair], self.starts, axis=-1)
        return np.asarray(loads * self.link_inverse)


@lru_cache(maxsize=64)
def link_times(machine: Machine, ranks: int) -> LinkTimes:
    """Return how long bytes take between the ranks of a problem on a machine."""
    shared = platform(machine, ranks, 1)
    inverse, latency = np.zeros((ranks, ranks)), np.zeros((ranks, ranks))
    pairs, links = [], []
    for src in range(ranks):
        for dst in range(ranks):
            if src == dst:
                continue
            route = list(shared.routes[src, dst])
            inverse[src, dst] = 1.0 / shared.links.bandwidth[narrowest(route, shared.links.bandwidth)]
            latency[src, dst] = shared.links.latency[route].sum()
            pairs += [src * ranks + dst] * len(route)
            links += route
    by_link = np.argsort(links, kind="stable")
    used, starts = np.unique(np.array(links, dtype=np.int64)[by_link], return_index=True)
    return LinkTimes(
        inverse,
        latency,
        used,
        np.array(pairs, dtype=np.int64)[by_link],
        starts,
        1.0 / shared.links.bandwidth[used],
        len(used) == len(links),
        np.array([machine.device_of(rank, ranks) for rank in range(ranks)]),
    )


@dataclass(frozen=True, eq=False)
class Transfers:
    """Transfers of one matrix; axes as in :class:`umm.space.bounds.combinations.Combinations`.

    Attributes:
        number: How many a rank makes.
        seconds: What they take one after another, each alone on its route.
        shortest: The shortest of them, infinite if there is none.
        at_least: How long every op of the rank waits for one of them; 0 if some op needs none.
        on_links: How long each link is busy with those of all ranks.
    """

    number: Floats
    seconds: Floats
    shortest: Floats
    at_least: Floats
    on_links: Floats


def busiest_lane(transfers: list[Transfers], lanes: int) -> Floats:
    """Return how long the busiest of a rank's lanes is busy at least, transfers dealt out in turn."""
    number: Floats = np.asarray(sum(t.number for t in transfers))
    seconds: Floats = np.asarray(sum(t.seconds for t in transfers))
    shortest = np.minimum.reduce(np.broadcast_arrays(*(t.shortest for t in transfers)))
    shortest = np.where(number > 0, shortest, 0.0)
    return np.asarray(np.maximum(seconds / lanes, np.ceil(number / lanes) * shortest))


def least_slowdown(sizes: MessageSizes | None, largest: int) -> float:
    """Return the least factor by which messages of up to some bytes are charged more for their size."""
    if sizes is None or largest < 1:
        return 1.0
    smaller = [size for size in np.exp2(sizes.log_sizes).tolist() if size < largest]
    return float(sizes.slowdown([*smaller, largest], True).min())  # anything may come from a cache
