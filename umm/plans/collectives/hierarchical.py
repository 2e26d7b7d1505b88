"""Collectives over two tiers: inside each node, and between the ranks of one place in every node.

Between nodes every rank moves a share of its own, so that all network cards are busy and each byte crosses
to a node once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from umm.arrays import Bools, Ints
from umm.machines import Machine
from umm.plans.collectives import direct, ring, way
from umm.plans.collectives.rings import Journey, tiers_of
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import ACCUMULATE, GET
from umm.schedules.writer.builder import Builder, How

CARD = way.PLAIN.card
TO_ROOT = "to root"  # lane of sums of the root's own share, for which those of other shares need not wait
WAVES = 8  # groups of nodes whose shares go into one message each inside a node, see `all_reduce_in_waves`
MANY = 5  # nodes from which on messages are so small that what their start takes has to be hidden
OF_MANY = way.Manner(lane="near", apart=True, flights=3, rounds=2)
"""How bytes go over more than :data:`WAVES`: two lanes for each partner in the node, three for the card."""
IN_WAVES = replace(OF_MANY, rounds=0)
"""The same where messages are fewer: one lane for each partner, so that one wave is there before the next."""


class Nodes:
    """Ranks by node and by place in it; as many in each node.

    Args:
        at_once: Whether all count as one node.
    """

    def __init__(self, build: Builder, ranks: Sequence[int], at_once: bool = False) -> None:
        # The ranks of each node.
        self.nodes = [list(ranks)] if at_once else tiers_of(build.machine, ranks, build.ranks)
        # The ranks of one place, one in each node, for every place.
        self.across = [list(group) for group in zip(*self.nodes, strict=True)]
        # Number of each rank's node.
        self.node = {rank: i for i, node in enumerate(self.nodes) for rank in node}
        self.place = {rank: j for node in self.nodes for j, rank in enumerate(node)}  # its place there

    def inside(self, own_last: bool) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Return the moves inside nodes, where a rank of each deals with one of every node, as columns.

        Args:
            own_last: Whether a node begins with the next node, else with itself.

        Returns:
            Three columns: how many nodes further, how many places further, a rank. Then two of its partners:
            the rank so many places further in its node (itself first, see :attr:`apart`), and the rank in
            that place so many nodes further.
        """
        rank_at = np.array(self.nodes, dtype=np.int64)
        count, places = rank_at.shape
        # The raveled order is the order of writing: rows of one step are adjacent, so that at each step the
        # ranks of a node deal with different partners. `apart` relies on this order.
        node, other, step, place = (x.reshape(-1) for x in np.indices((count, count, places, places)))
        other, further = other + own_last, (place + step) % places
        return (
            other,
            step,
            rank_at[node, place],
            rank_at[node, further],
            rank_at[(node + other) % count, further],
        )

    @property
    def apart(self) -> Bools:
        """Which moves inside nodes are between different ranks."""
        count, places = len(self.nodes), len(self.across)
        # Step 0 pairs a rank with itself; the pattern is that of the raveled indices in `inside`.
        return np.tile(np.repeat(np.arange(places) > 0, places), count * count)

    def hows(self, manner: way.Manner, other: Ints, step: Ints) -> tuple[list[How], Ints]:
        """Return how messages inside nodes go, and which of these each does, by nodes and places further."""
        rounds = [manner.of_round(x) for x in range(max(manner.rounds, 1))]
        hows = [each.to(x) for each in rounds for x in range(len(self.across))]
        return hows, other % len(rounds) * len(self.across) + step

    def how(self, manner: way.Manner, rank: int, partner: int) -> How:
        """Return how bytes go between two ranks of a node: the first may have a lane for each partner."""
        return manner.to((self.place[partner] - self.place[rank]) % len(self.across))

    def part(self, piece: Slice, rank: int) -> Slice:
        """Return the share of a slice that belongs to a rank's place."""
        return way.parted(piece, self.place[rank], len(self.across))


@way.one_collective
def all_gather(x: way.Gather) -> None:
    """Between nodes among ranks of one place; each shares its pieces inside its node."""
    nodes, piece, into = Nodes(x.build, x.ranks), x.given, x.into
    way.each_copied(x, piece, way.Own(into))
    # Cards first: they are the slow tier, and what arrives by them is what the links inside pass on.
    direct.exchange(x.build, nodes.across, direct.OfFirst(piece), into, x.manner.across)
    others, steps, takers, holders, origins = (each[nodes.apart] for each in nodes.inside(own_last=False))
    # A rank's own piece is read where it is given, so that the pass inside need not wait for the local copy.
    first = holders == origins
    given = way.columns(into, holders, origins).replaced(first, way.columns(piece, holders[first]))
    hows, how = nodes.hows(x.manner, others, steps)
    x.build.transfers(np.full(len(how), GET), given, way.columns(into, takers, origins), hows, how)


@way.one_collective
def reduce_scatter(x: way.Scatter) -> None:
    """Inside each node a rank sums for all owners of its place; then between nodes."""
    nodes, kept = Nodes(x.build, x.ranks), way.Rooms(x)
    others, steps, givers, holders, owners = nodes.inside(own_last=True)
    # The mirror image of the all-gather: the fast tier shrinks the sums before they cross the cards.
    begins = ~nodes.apart  # a rank's own part is there before others add to it
    hows, how = nodes.hows(x.manner, others, steps)
    kinds = np.where(begins & (not x.zeroed), GET, ACCUMULATE)
    source, sums = way.columns(x.given, givers, owners), way.columns(kept, holders, owners)
    # In place, a rank's own part is the sum already; a copy onto itself would be a wasted action.
    needed = ~(begins & source.same(sums))
    how[begins] = len(hows)
    x.build.transfers(
        kinds[needed], source.taken(needed), sums.taken(needed), [*hows, How(lane=way.OWN)], how[needed]
    )
    direct.add_all(x.build, nodes.across, kept, x.into, x.manner.across)


class _Rooted:
    """How chunks go between one rank, the root, and all others: over home's cards, then through chains.

    Every rank of home, the root's node, deals with the share of its place. What the root moves inside home is
    the whole once: of its own share each other rank deals with an equal part there.

    Args:
        at_once: Whether all count as one node.
    """

    def __init__(self, x: way.Exchange[Any, Any], at_root: Slice, at_once: bool) -> None:
        self.nodes, self.root = Nodes(x.build, x.ranks, at_once), at_root.rank
        home = self.nodes.nodes[self.nodes.node[self.root]]
        self.others = [rank for rank in home if rank != self.root]
        self.away = [node for node in self.nodes.nodes if node is not home]
        # One chain through the nodes per place of home, so that every card of the node carries its own share.
        self._trails = {
            start: ring.trails(x, group, start) for start, group in zip(home, self.nodes.across, strict=True)
        }
        # Two more hops are inside nodes: at home before, or after, and in the others.
        share = self.nodes.part(at_root, self.root)
        self.chunks = ring.chunk_count(x, share, self._trails[self.root], inside=2)
        self._across = x.manner.across
        self.how = partial(self.nodes.how, x.manner)  # how bytes go inside home

    def share(self, piece: Slice, owner: int, chunk: int) -> Slice:
        """Return a chunk of the share of a rank's place."""
        return way.parted(self.nodes.part(piece, owner), chunk, self.chunks)

    def shares(self, piece: way.Piece, chunk: int) -> way.Pieces:
        """Return that of another rank's place, at each rank."""
        return lambda rank, owner: self.share(piece(rank), owner, chunk)

    def split(self, piece: Slice, rank: int, chunk: int) -> Slice:
        """Return the part of a chunk of the root's share that another rank of home deals with."""
        # The other ranks already receive shares of their own; the root's share goes out in equal splits, so
        # that the root sends each byte once inside its node.
        return way.parted(self.share(piece, self.root, chunk), self.others.index(rank), len(self.others))

    def hops(self, chunk: int) -> Iterator[tuple[int, int, Callable[[Slice], Slice], How]]:
        """Yield the hops of a chunk between nodes, from home on: both ends, the part of a slice, and how."""
        # Each direction has two lanes, so that one chunk is under way while the next begins.
        for start, trails in self._trails.items():
            for hop in range(len(self.nodes.nodes) - 1):
                for trail in trails:
                    if hop + 1 < len(trail.ranks):
                        lane = f"{self._across.lane}.{trail.way}.{chunk % 2}"

                        def part(piece: Slice, start: int = start, trail: Journey = trail) -> Slice:
                            return way.parted(self.share(piece, start, chunk), trail.part, trail.parts)

                        ends = trail.ranks[hop : hop + 2]
                        yield ends[0], ends[1], part, replace(self._across, lane=lane, apart=False).how


@way.one_collective
def broadcast(x: way.Broadcast, at_once: bool = False) -> None:
    """In chunks: a share to every rank of home, from there from node to node, and all shares inside nodes.

    All ranks are one node if ``at_once``.
    """
    build, source, root, goes = x.build, x.given, x.given.rank, _Rooted(x, x.given, at_once)
    way.copied(build, source, x.into(root))
    piece_of = way.Held({rank: source if rank == root else x.into(rank) for rank in x.ranks})
    for chunk in range(goes.chunks):
        for rank in goes.others:
            for part in (goes.share(source, rank, chunk), goes.split(source, rank, chunk)):
                build.put(part, piece_of(rank).cut(part.rows, part.cols), **goes.how(root, rank))
        for giver, taker, part_of, how in goes.hops(chunk):
            build.put(part_of(piece_of(giver)), part_of(piece_of(taker)), **how)
        if goes.away:
            shares = goes.shares(piece_of, chunk)
            direct.exchange(build, goes.away, direct.OfFirst(way.Own(shares)), shares, x.manner)
        for rank, holder in permutations(goes.others, 2):
            for cut in (goes.share, goes.split):
                source_part, target = (cut(piece_of(each), holder, chunk) for each in (holder, rank))
                build.get(source_part, target, **goes.how(rank, holder))


@way.one_collective
def reduce(x: way.Reduce, at_once: bool = False) -> None:
    """The way of a broadcast back: ranks of a node sum a share each, nodes add theirs, all go to the root."""
    build, given, into, kept, sums = x.build, x.given, x.into, way.sum_places(x), way.Sums(x)
    goes, root = _Rooted(x, into, at_once), into.rank
    to_root = replace(x.manner, lane=TO_ROOT).how
    for chunk in range(goes.chunks):
        for node in goes.away:
            theirs, sum_at = goes.shares(given, chunk), way.Own(goes.shares(kept, chunk))
            direct.reduce_scatter(way.Exchange(build, node, theirs, sum_at, None, x.zeroed, x.manner))
        at_root = sums.begun(goes.share(given(root), root, chunk), goes.share(into, root, chunk))
        for owner in goes.others:
            ends = given(owner), kept(owner)
            share = sums.begun(*(goes.share(each, owner, chunk) for each in ends))
            split = sums.begun(*(goes.split(each, owner, chunk) for each in ends))
            build.accumulate(goes.share(given(root), owner, chunk), share, **goes.how(root, owner))
            for rank in goes.others:
                if rank != owner:
                    how = goes.how(rank, owner)
                    build.accumulate(goes.share(given(rank), owner, chunk), share, **how)
                    build.accumulate(goes.split(given(rank), owner, chunk), split, **how)
        for taker, giver, part_of, how in reversed([*goes.hops(chunk)]):
            build.accumulate(part_of(kept(giver)), part_of(kept(taker)), **how)
        for rank in goes.others:
            split = goes.split(kept(rank), rank, chunk)
            build.accumulate(split, at_root.cut(split.rows, split.cols), **to_root)
            piece = goes.share(kept(rank), rank, chunk)
            build.put(piece, goes.share(into, rank, chunk), **goes.how(rank, root))


class _Waves:
    """A sum that is cut by place and then by node, and nodes in :data:`WAVES`."""

    def __init__(self, x: way.AllReduce) -> None:
        self.nodes, self._build = Nodes(x.build, x.ranks), x.build
        self.count, self.places = len(self.nodes.nodes), len(self.nodes.across)
        ends = pairwise(self.count * i // WAVES for i in range(WAVES + 1))
        self.waves = [range(*both) for both in ends if both[0] < both[1]]
        self._whole = way.Held({rank: x.given(rank) for rank in x.ranks})
        self._wave_of = [number for number, wave in enumerate(self.waves) for _ in wave]

    def shares(self, rank: Ints, place: Ints, first: Ints, last: Ints) -> Slices:
        """Return the parts of the sum owned by the ranks of a place in some consecutive nodes, at a rank."""
        # Place-major numbering makes the shares of one place in consecutive nodes one contiguous slice.
        parts = self.places * self.count
        return self._whole.columns(rank).parts(place * self.count + first, place * self.count + last, parts)

    def move(self, kind: int, pairs: Iterator[tuple[int, ...]], manner: way.Manner) -> None:
        """Write the moves between pairs of ranks, as :meth:`inside` and :meth:`between` yield them."""
        rank, owner, place, first, last, step = np.array(list(pairs), dtype=np.int64).reshape(-1, 6).T
        ends = [self.shares(x, place, first, last) for x in (rank, owner)]
        # A sum flows from the rank to the owner, a gather back from the owner to the rank.
        source, into = reversed(ends) if kind == GET else ends
        way.by_steps(self._build, kind, source, into, manner, step)

    def turns(self, number: int, own_first: bool) -> list[range]:
        """Return the waves in the order in which a node deals with them."""
        # Sums begin with other waves, whose shares still have to cross the cards; gathers begin with the own
        # wave, which `between` gets first.
        first = self._wave_of[number] + (not own_first)
        return [*self.waves[first:], *self.waves[:first]]

    def others(self, number: int, own_first: bool) -> list[int]:
        """Return the other nodes in that order, each node of a wave with another one first."""
        # Rotated by the node's index in its wave, so that nodes do not all address the same one first.
        at = number - self.waves[self._wave_of[number]].start
        order = [
            wave[(at + i) % len(wave)] for wave in self.turns(number, own_first) for i in range(len(wave))
        ]
        return [node for node in order if node != number]

    def inside(self, own_first: bool) -> Iterator[tuple[int, ...]]:
        """Yield each rank and another one of its node, its place, first and last node of a wave, the step."""
        for number, node in enumerate(self.nodes.nodes):
            for wave in self.turns(number, own_first):
                for step in range(1, self.places):
                    for place, rank in enumerate(node):
                        at = (place + step) % self.places
                        yield rank, node[at], at, wave[0], wave[-1], step

    def between(self, own_first: bool) -> Iterator[tuple[int, ...]]:
        """Yield each rank and one of its place in another node, that place, that node twice, the step."""
        order = [self.others(number, own_first) for number in range(self.count)]
        for step in range(self.count - 1):
            for number, node in enumerate(self.nodes.nodes):
                other = order[number][step]
                for place, rank in enumerate(node):
                    yield rank, self.nodes.nodes[other][place], place, other, other, step


@way.one_collective
def all_reduce_in_waves(x: way.AllReduce) -> None:
    """Every rank gets the sum in place; a message in a node is for many other nodes."""
    # The shares of the ranks of one place follow each other, node by node, so that what a rank adds up for
    # some nodes is one slice. With n nodes of s ranks a rank has w · (s - 1) + n - 1 messages each way, with
    # w = `WAVES`, in place of n · (s - 1) + n - 1, which become so small that they take their latencies. One
    # wave goes between nodes while the next is added up.
    sums, manner = _Waves(x), x.manner
    # Reduce-scatter inside, then between; the all-gather retraces both in reverse order.
    sums.move(ACCUMULATE, sums.inside(own_first=False), manner)
    sums.move(ACCUMULATE, sums.between(own_first=False), manner.across)
    sums.move(GET, sums.between(own_first=True), manner.across)
    sums.move(GET, sums.inside(own_first=True), manner)


def refuses(machine: Machine, ranks: Sequence[int], total: int) -> str | None:
    """It takes several nodes with equally many ranks, more than one each."""
    if machine.fabric.near < 2 and not machine.fabric.tiers:
        return f"{machine.name} has no nodes whose devices are nearer to each other"
    sizes = [len(node) for node in tiers_of(machine, ranks, total)]
    if len(sizes) < 2:
        return f"{len(ranks)} ranks are all in one node of {machine.name}"
    if len(set(sizes)) > 1 or sizes[0] < 2:
        return (
            f"its nodes hold {', '.join(map(str, sizes[:8]))} of the {len(ranks)} ranks; "
            "choose ranks so that each holds as many, and more than one"
        )
    return None


# No all-to-all here: between nodes every pair has bytes of its own, so relays save no bytes on the cards.
WAY = way.Way(
    "hierarchical",
    "Inside each node, and between the ranks of one place in every node.",
    "NVIDIA NCCL; How to Scale Your Model, part 3",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": way.in_parts(reduce_scatter, all_gather),
        "broadcast": broadcast,
        "reduce": reduce,
    },
    refuses,
)
