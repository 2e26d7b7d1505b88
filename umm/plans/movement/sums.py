"""Products summed by a collective: reduce-scattered to the owners of C, or all-reduced over its replicas."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.plans.collectives import direct
from umm.plans.collectives.hierarchical import IN_WAVES, OF_MANY, all_reduce_in_waves
from umm.plans.collectives.library import BY_LIBRARY
from umm.plans.collectives.way import PLAIN, Exchange, Held, Manner, Own, Parts, Shares, Way, Writer, parted
from umm.plans.movement.blocks import Needed, groups_of, held, size_of
from umm.plans.movement.gathers import (
    SHORT,
    across_nodes,
    apart_across,
    by_level,
    manner_of,
    many_nodes,
    way_among,
)
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

FLYING = Manner(flights=OF_MANY.flights)
"""How products go that are summed over copies: ranks that do not keep step would share cards one by one."""
FLYING_BACK = replace(FLYING, card="copies")  # how such sums come back by level
ADDING = replace(OF_MANY.across, lane="sums")
"""How products of one rank in each node go: what multiplies gather there need not wait."""
COPYING = replace(OF_MANY.across, lane="copies")
"""How such sums go to their copies in other nodes: later sums need not wait, whose products take room."""


class Summed(NamedTuple):
    """Ranks whose products of the same rows and columns of C are added up, and are kept among them."""

    ranks: list[int]  # the ranks, ascending
    own: Ints  # rows and columns of what each of them owns of the sum, shape (ranks, 4)
    copies: int  # how many of them own the same: replicas of C
    number: Ints  # which of those each rank is

    @property
    def same(self) -> list[list[int]]:
        """The ranks that own each piece, one for each replica of C."""
        ranks_of: dict[tuple[int, ...], list[int]] = {}
        for rank, piece in zip(self.ranks, map(tuple, self.own.tolist()), strict=True):
            ranks_of.setdefault(piece, []).append(rank)
        return list(ranks_of.values())


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums of a multiply."""

    groups: tuple[Summed, ...]  # those who add up
    in_place: bool  # whether each product is the tile of C that its rank owns

    @property
    def adds(self) -> bool:
        """Whether several ranks add to one sum."""
        return any(len(group.ranks) > 1 for group in self.groups)


NO_SUMS = Sums((), True)  # of products that are all of their ranks' tiles of C


@lru_cache(maxsize=2048)
def sums_to(products: Needed) -> Sums | None:
    """Sums of the products of ranks; None if others own a sum than those who add to it."""
    made, in_place, works = products.rects, products.in_place, products.works
    tiles, replica = held(products.layout), products.layout.replica_of_rank
    assert tiles is not None
    groups = []
    # One group per rectangle of C that ranks make: its makers have to be its owners, since a collective sums
    # among its members alone.
    for rect, _ in groups_of(made, works):
        start, stop = np.array(rect)[::2], np.array(rect)[1::2]
        # Intersections of the rectangle with every rank's tile; who has one owns part of this sum.
        low, high = np.maximum(tiles[:, ::2], start), np.minimum(tiles[:, 1::2], stop)
        owners = (low < high).all(axis=1)
        adds = works & (made == rect).all(axis=1)
        if in_place:
            owners &= (tiles == rect).all(axis=1)
        elif (owners != adds).any():
            return None
        ranks = np.flatnonzero(owners)
        piece = np.stack((low[:, 0], high[:, 0], low[:, 1], high[:, 1]), axis=1)[ranks]
        # Equal pieces are replicas of C. Collectives take equally many copies of each piece.
        _, where, counts = np.unique(piece, axis=0, return_inverse=True, return_counts=True)
        if len(set(counts.tolist())) > 1:
            return None
        # Within each piece copies are numbered in replica order; after sorting, that is the position modulo
        # copies.
        by_piece = np.lexsort((replica[ranks], where.reshape(-1)))
        number = np.empty(len(ranks), dtype=np.int64)
        number[by_piece] = np.arange(len(ranks)) % counts[0]
        groups.append(Summed(ranks.tolist(), piece, int(counts[0]), number))
    return Sums(tuple(groups), in_place)


def add_up(
    build: Builder,
    group: Summed,
    product: Mapping[int, Slice],
    targets: Mapping[int, Slice],
    adds: bool,
    library: bool = False,
    apart: bool = False,
) -> None:
    """Write the sum of a group's products, or of some columns or rows of them.

    Args:
        product: What each has to add; it is spoilt where it is not what the rank owns.
        targets: The slice of the sum that each rank owns.
        adds: Whether that holds something to which the sum is added.
        library: Whether the machine's library of collectives sums.
        apart: Whether each partner has its lanes: ranks have sums in no common order.
    """
    ranks, targets = group.ranks, {rank: targets[rank] for rank in group.ranks}
    across = apart_across(build.machine, ranks, build.ranks)
    # Every product is its rank's own tile of C: an all-reduce in place needs no room and no final copy.
    if all(product[rank] == targets[rank] for rank in ranks):
        summed = [*product.values()]
        alone = across or many_nodes(build.machine, ranks, build.ranks)
        write = partial(_sum_in_place, build, ranks, product, library)
    else:
        summed = [*product.values(), *targets.values()]
        # A message has one share of the sum: the copies of a piece divide it among themselves.
        nbytes = float(size_of(group.own).max()) * (build.tensors[summed[0].tensor].itemsize / group.copies)
        manner = manner_of(build.machine, ranks, build.ranks, nbytes)
        if across:
            manner = ADDING
        elif group.copies > 1 and manner is PLAIN:
            manner = FLYING
        if apart:
            manner = OF_MANY
        alone = manner.apart
        write = partial(_sum_to_owners, build, group, product, targets, adds, manner, nbytes, library)
    # One collective: another start, for the gather, would hold up that of the next sum.
    with nullcontext() if library else build.collective():
        if not library and not alone:
            build.together(ranks, summed)
        write()


class Part(NamedTuple):
    """One tensor's share of a bucket."""

    group: Summed  # who adds up
    product: Mapping[int, Slice]  # what each rank has to add
    targets: Mapping[int, Slice]  # the slice of the sum that each rank owns
    adds: bool  # whether that holds something to which the sum is added


def add_up_together(build: Builder, parts: Sequence[Part]) -> None:
    """Write the sums of several tensors as one reduce-scatter by the machine's library."""
    exchanges = []
    for x in parts:
        ranks = x.group.ranks
        part = Held({rank: x.targets[rank] for rank in ranks})
        given = Shares({rank: x.product[rank] for rank in ranks}, part)
        exchanges.append(Exchange(build, ranks, given, part, given, x.adds))
    BY_LIBRARY.write_all("reduce-scatter", exchanges)


def _sum_in_place(build: Builder, ranks: list[int], product: Mapping[int, Slice], library: bool) -> None:
    """Write a sum that each rank has where its product is."""
    full = Held({rank: product[rank] for rank in ranks})
    if many_nodes(build.machine, ranks, build.ranks):
        all_reduce_in_waves(Exchange(build, ranks, full, full, manner=IN_WAVES))
    elif apart_across(build.machine, ranks, build.ranks):
        _out_and_back(build, None, ranks, full, ADDING, COPYING)
    else:
        _writer(way_among(build, ranks, library), "all-reduce")(Exchange(build, ranks, full, full))


def _sum_to_owners(
    build: Builder,
    group: Summed,
    product: Mapping[int, Slice],
    targets: Mapping[int, Slice],
    adds: bool,
    manner: Manner,
    nbytes: float,
    library: bool,
) -> None:
    """Write a sum of which each rank gets its own part."""
    ranks, copies = group.ranks, group.copies
    number = dict(zip(ranks, group.number.tolist(), strict=True))
    # With copies, a reduce-scatter leaves each copy one share of the piece, and an all-gather completes it.
    part = Held({rank: parted(targets[rank], number[rank], copies) for rank in ranks})
    given = Shares({rank: product[rank] for rank in ranks}, part)
    into, way = Parts(Held(targets), number, copies), way_among(build, ranks, library)
    _writer(way, "reduce-scatter")(Exchange(build, ranks, given, part, given, adds, manner))
    for same in group.same if copies > 1 else ():
        manner = manner_of(build.machine, same, build.ranks, nbytes)
        if across_nodes(build.machine, same, build.ranks):
            manner = COPYING
        write = _writer(way_among(build, same, library), "all-gather")
        write(Exchange(build, same, part, into, manner=manner))


def add_up_at(
    build: Builder, product: Mapping[int, Slice], wanted: Mapping[int, Slice], apart: bool = False
) -> None:
    """Write the sum of slices of the same elements, each part of it where one of the ranks wants it.

    Args:
        product: What each rank has to add; it is spoilt where it is not what the rank wants.
        wanted: What each of these ranks wants of the sum; perhaps nothing.
        apart: As of :func:`add_up`.
    """
    ranks = sorted(product)
    rects = np.array([(*wanted[rank].rows, *wanted[rank].cols) for rank in ranks])
    group = Summed(ranks, rects, 1, np.zeros(len(ranks), dtype=np.int64))
    add_up(build, group, product, wanted, adds=False, apart=apart)


def add_up_in_place(build: Builder, full: Mapping[int, Slice]) -> None:
    """Write that slices of one size, one at each of some ranks, all become their sum.

    Later sums need not wait until this one is back: what comes back has a lane of its own on cards.
    """
    ranks = sorted(full)
    way, parts = by_level(build.machine, ranks, build.ranks), Held(full)
    first = full[ranks[0]]
    nbytes = first.elements * build.tensors[first.tensor].itemsize / len(ranks)
    # Small messages are bound by their starts, of which waves have fewer.
    if nbytes <= SHORT and many_nodes(build.machine, ranks, build.ranks):
        all_reduce_in_waves(Exchange(build, ranks, parts, parts, manner=IN_WAVES))
        return
    out, back = (FLYING, FLYING_BACK) if way else (PLAIN, PLAIN)
    if across_nodes(build.machine, ranks, build.ranks):
        out, back = OF_MANY.across, COPYING
    _out_and_back(build, way, ranks, parts, out, back)


def _out_and_back(
    build: Builder, way: Way | None, ranks: Sequence[int], full: Held, out: Manner, back: Manner
) -> None:
    """Write an all-reduce in place whose products and sums go by lanes of their own."""
    shares = Parts(full, {rank: i for i, rank in enumerate(ranks)}, len(ranks))
    mine = Own(shares)
    with build.collective():
        _writer(way, "reduce-scatter")(Exchange(build, ranks, shares, mine, shares, manner=out))
        _writer(way, "all-gather")(Exchange(build, ranks, mine, shares, manner=back))


def _writer(way: Way | None, what: str) -> Writer:
    return (way or direct.WAY).writers[what]


def owned(group: Summed, rank: int) -> Sequence[int]:
    """Return the rows and columns that a rank of a group owns of its sum."""
    rect: list[int] = group.own[group.ranks.index(rank)].tolist()
    return rect
