"""Transfers as the closed-form bounds count them: bytes, messages, lanes, and the time of each link.

A bound over ranks is the largest of theirs, so some of them make one too. Ranks of a machine with nodes are
alike in kinds, so one of them shows nearly what all do, at a fraction of the p² pairs of ranks.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from umm.arrays import Floats, Ints, distinct
from umm.machines import Machine
from umm.machines.curves import MessageSizes
from umm.schedules.table.resources import Platform, platform

ALL = 16  # ranks up to which bounds look at all of them
FANS_IN = 2  # pairs of ranks for each of the ranks looked at that a link carries at least to be looked at too
LOOKED_AT = 8  # ranks that bounds look at where there are more; half of them where each has a card of its own
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, eq=False)
class Loads:
    """The links that transfers of one direction cross, between any rank and each of those looked at."""

    # For every link of every route its pair, other rank · number of ranks looked at + which of them; ordered
    # by link, then by the rank looked at.
    cell: Ints
    starts: Ints  # where in `cell` what one of the ranks looked at has on one link starts
    rank: Ints  # which of the ranks looked at that is
    links: Ints  # where in `starts` each link starts
    link: Ints  # which of the links looked at in all each is
    inverse: Floats  # seconds a byte takes on each


@dataclass(frozen=True, eq=False)
class LinkTimes:
    """How long bytes take between the ranks of a problem, and on which links."""

    ranks: Ints  # the ranks looked at, S of p
    inverse: Floats  # seconds a byte takes alone from any rank to each of them, shape (p, S); 0 to itself
    latency: Floats  # seconds before bytes flow, shape (p, S); 0 from a rank to itself
    out_inverse: Floats  # the same from each of them to any rank, shape (p, S)
    out_latency: Floats  # the same
    inward: Loads  # the links from any rank to those looked at
    outward: Loads  # the links from them to any rank
    used: Ints  # numbers of the links looked at, ascending
    disjoint: bool  # whether all ranks are looked at, and no link belongs to two routes
    device: Ints  # device of each rank looked at

    @property
    def every(self) -> bool:
        """Whether all ranks are looked at."""
        return len(self.ranks) == len(self.inverse)

    def carried(self, nbytes: Floats) -> Floats:
        """Return the time each of :attr:`used` needs for the bytes between pairs of ranks, all looked at.

        Args:
            nbytes: Bytes from rank to rank, shape (p, p); those from a rank to itself must be 0.
        """
        if not len(self.used):
            return np.zeros(0)
        loads = self.inward
        return np.asarray(
            np.add.reduceat(nbytes.reshape(-1)[loads.cell], loads.starts[loads.links]) * loads.inverse
        )

    def by_rank(self, nbytes: Floats, outward: bool = False) -> Floats:
        """Return bytes between pairs as :meth:`busy` takes them: summed where they have one link and rank.

        Args:
            nbytes: Bytes between any rank and each looked at, shape (p, S, …), 0 from a rank to itself.
            outward: Whether they leave the ranks looked at.
        """
        if self.disjoint and outward:
            nbytes = nbytes.swapaxes(0, 1)
        flat = nbytes.reshape(-1, *nbytes.shape[2:])
        if self.disjoint:
            return flat
        loads = self.outward if outward else self.inward
        if not len(loads.cell):
            return np.zeros((0, *flat.shape[1:]))
        return np.asarray(np.add.reduceat(flat[loads.cell], loads.starts, axis=0))

    def busy(self, nbytes: Floats, outward: bool = False, times: Floats | None = None) -> Floats:
        """Return the time each link, or each route where none share a link, needs for bytes between ranks.

        The times of several arrays of bytes add up.

        Args:
            nbytes: As :meth:`by_rank` returns them.
            outward: Whether they leave the ranks looked at.
            times: How often each of these does that, shape (S, …); once if None.
        """
        loads = self.outward if outward else self.inward
        if self.disjoint:
            p = len(self.ranks)
            rank = np.arange(p).repeat(p) if outward else np.tile(np.arange(p), p)
            took = (nbytes if times is None else nbytes * times[rank]).T * self.inverse.reshape(-1)
            return np.asarray(took.T)
        if times is not None:
            nbytes = nbytes * times[loads.rank]
        busy = np.zeros((len(self.used), *nbytes.shape[1:]))
        if len(loads.links):
            busy[loads.link] = (np.add.reduceat(nbytes, loads.links, axis=0).T * loads.inverse).T
        return busy


@dataclass(frozen=True, eq=False)
class Transfers:
    """Transfers of one matrix; axes as in :class:`umm.space.bounds.combinations.Combinations`."""

    number: Floats  # how many a rank makes
    seconds: Floats  # what they take one after another, each alone on its route
    shortest: Floats  # the shortest of them, infinite if there is none
    at_least: Floats  # how long every op of the rank waits for one of them; 0 if some op needs none
    on_links: Floats  # how long each link is busy with those of all ranks


def busiest_lane(transfers: list[Transfers], lanes: int) -> Floats:
    """Return how long the busiest of a rank's lanes is busy at least, transfers dealt out in turn."""
    number: Floats = np.asarray(sum(t.number for t in transfers))
    seconds: Floats = np.asarray(sum(t.seconds for t in transfers))
    shortest = np.minimum.reduce(np.broadcast_arrays(*(t.shortest for t in transfers)))
    shortest = np.where(number > 0, shortest, 0.0)
    # The mean over lanes, or the number of transfers on the fullest lane times the shortest of them.
    return np.asarray(np.maximum(seconds / lanes, np.ceil(number / lanes) * shortest))


def least_slowdown(sizes: MessageSizes | None, largest: int) -> float:
    """Return the least factor by which messages of up to some bytes are charged more for their size."""
    if sizes is None or largest < 1:
        return 1.0
    smaller = [size for size in np.exp2(sizes.log_sizes).tolist() if size < largest]
    return float(sizes.slowdown([*smaller, largest], True).min())  # anything may come from a cache


def looked_at(machine: Machine, ranks: int) -> tuple[int, ...]:
    """Return the ranks that bounds of many ranks look at: a node, or some spread over all of them."""
    # Of a node all ranks where they share its cards. Neither first nor last: these have more at home. Those
    # on a device that is set apart too, up to eight.
    if ranks <= ALL:
        return tuple(range(ranks))
    near = machine.fabric.near if ranks <= machine.device_count else 1
    first = int(ranks // near * GOLDEN) * near
    card_each = len(machine.fabric.cards) == machine.device_count
    # Multiples of the golden ratio spread evenly and meet no period of a process grid.
    some = {int(ranks * (i * GOLDEN % 1)) for i in range(1, 1 + LOOKED_AT // (2 if card_each else 1))}
    some = set(range(first, first + near)) if 1 < near <= LOOKED_AT and not card_each else some
    slow = set(machine.paces.devices) if machine.paces else set()
    apart = [rank for rank in range(ranks) if machine.device_of(rank, ranks) in slow]
    return tuple(sorted(some.union(apart[:LOOKED_AT])))


@lru_cache(maxsize=64)
def link_times(machine: Machine, ranks: int, only: tuple[int, ...] | None = None) -> LinkTimes:
    """Return how long bytes take between the ranks of a problem on a machine.

    Args:
        only: Those looked at; all if None.
    """
    shared, chosen = platform(machine, ranks, 1), np.arange(ranks) if only is None else np.array(only)
    every = len(chosen) == ranks
    inverse, latency, inward = _crossed(shared, ranks, chosen, outward=False)
    out_inverse, out_latency, outward = _crossed(shared, ranks, chosen, outward=True)
    used = distinct(np.concatenate((inward[0], outward[0])))
    return LinkTimes(
        chosen,
        inverse,
        latency,
        out_inverse,
        out_latency,
        _loads(shared, inward, used, len(chosen)),
        _loads(shared, outward, used, len(chosen)),
        used,
        every and len(used) == len(inward[0]),
        np.array([machine.device_of(rank, ranks) for rank in chosen.tolist()]),
    )


_Crossed = tuple[Ints, Ints]
"""Links, and the pair of ranks that crosses each: other · number of ranks looked at + which of them."""


def _crossed(shared: Platform, total: int, chosen: Ints, *, outward: bool) -> tuple[Floats, Floats, _Crossed]:
    """Return seconds a byte between any rank and those looked at, the latency, and the links crossed."""
    looked = len(chosen)
    other, place = (x.reshape(-1) for x in np.indices((total, looked)))
    moves = np.flatnonzero(other != chosen[place])
    ends = chosen[place[moves]], other[moves]
    counts, crossed = shared.routes.of_many(*(ends if outward else ends[::-1]))
    # Routes have different lengths: they lie end to end, and reduceat works on each one's slice.
    starts = np.cumsum(counts) - counts
    inverse, latency = np.zeros((2, total * looked))
    inverse[moves] = 1.0 / np.minimum.reduceat(shared.links.bandwidth[crossed], starts)
    latency[moves] = np.add.reduceat(shared.links.latency[crossed], starts)
    by_link = np.argsort(crossed, kind="stable")
    link, cell = np.asarray(crossed, dtype=np.int64)[by_link], np.repeat(moves, counts)[by_link]
    if looked < total and len(link):
        # A link that a rank uses with a single peer shows a sliver of its load here: to leave it out is safe.
        used = distinct(link * looked + cell % looked) // looked
        count = link.max() + 1
        many = np.bincount(link, minlength=count) >= FANS_IN * np.bincount(used, minlength=count)
        link, cell = link[many[link]], cell[many[link]]
    return inverse.reshape(total, looked), latency.reshape(total, looked), (link, cell)


def _loads(shared: Platform, crossed: _Crossed, used: Ints, looked: int) -> Loads:
    """Return crossed links as loads are summed over them: first by rank looked at, then by link."""
    link, cell = crossed
    order = np.lexsort((cell % looked, link))
    link, cell = link[order], cell[order]
    rank = cell % looked
    new = np.ones(len(link), dtype=bool)
    new[1:] = (link[1:] != link[:-1]) | (rank[1:] != rank[:-1])
    starts = np.nonzero(new)[0]
    of_start = link[starts]
    here, links = np.unique(of_start, return_index=True)
    # Two levels of sums: by rank within a link, so that repetitions can scale them, then by link.
    where = np.searchsorted(used, here)
    return Loads(cell, starts, rank[starts], links, where, 1.0 / shared.links.bandwidth[here])
