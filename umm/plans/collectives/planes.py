"""A broadcast and a reduce over groups of near devices, such as the tiles of GPUs, by planes.

The devices of one place in every group are a plane, joined by links of their own. Each device of the root's
group deals with the share of its place in its plane, so that all those links are busy; shares meet inside
groups.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

from umm.plans.collectives import direct, hierarchical, way
from umm.plans.collectives.hierarchical import Nodes
from umm.schedules.table.buffers import Slice


class _Planes:
    """Groups, the root's own one, and how shares go inside groups and over planes.

    Args:
        x: Its machine says which devices are near each other.
        root: The rank that all comes from or goes to.
        straight: Whether the root's group deals with every rank of its planes itself, without relays.
    """

    def __init__(self, x: way.Exchange[Any, Any], root: int, straight: bool) -> None:
        self.groups = Nodes(x.build, x.ranks)
        self.home = self.groups.nodes[self.groups.node[root]]
        self.planes = [*zip(self.home, self.groups.across, strict=True)]
        self.manner = replace(x.manner.across, chunks=1)
        # One rank of a plane beside the root's group has nobody to relay for.
        self.straight = straight or len(self.groups.nodes) == 2
        self.near = partial(self.groups.how, x.manner)  # how bytes go inside a group

    def share(self, chunk: int, chunks: int) -> Callable[[Slice, int], Slice]:
        """Return a function from a slice and a rank to the chunk of its share there."""
        return lambda piece, rank: way.parted(self.groups.part(piece, rank), chunk, chunks)


@way.one_collective
def broadcast(x: way.Broadcast, chunks: int, straight: bool) -> None:
    """Give each rank of the root's group its share; planes pass it on; groups exchange theirs."""
    build, source, root = x.build, x.given, x.given.rank
    over = _Planes(x, root, straight)
    way.copied(build, source, x.into(root))
    slices = way.Held({rank: source if rank == root else x.into(rank) for rank in x.ranks})
    for chunk in range(chunks):
        share = over.share(chunk, chunks)
        for rank in over.home:
            if rank != root:
                build.put(share(source, rank), share(slices(rank), rank), **over.near(root, rank))
        for head, plane in over.planes:
            shares = way.Held({rank: share(slices(rank), rank) for rank in plane})
            passed: way.Broadcast = way.Exchange(build, plane, shares(head), shares, manner=over.manner)
            if over.straight:
                direct.broadcast(passed)
            else:
                hierarchical.broadcast(passed, at_once=True)
        for group in over.groups.nodes:
            for rank, holder in permutations(group, 2):
                ends = share(slices(holder), holder), share(slices(rank), holder)
                if holder == root:  # on the lane of the root's other puts, so that its own share follows
                    build.put(*ends, **over.near(root, rank))
                elif rank != root:
                    build.get(*ends, **over.near(rank, holder))


@way.one_collective
def reduce(x: way.Reduce, chunks: int, straight: bool) -> None:
    """Sum each place's share inside groups, then over its plane; the root's group hands it to the root."""
    build, into, kept = x.build, x.into, way.sum_places(x)
    over = _Planes(x, into.rank, straight)
    for chunk in range(chunks):
        share = over.share(chunk, chunks)
        sums = way.Held({rank: share(kept(rank), rank) for rank in x.ranks})

        def theirs(rank: int, owner: int, share: Callable[[Slice, int], Slice] = share) -> Slice:
            return share(x.given(rank), owner)

        for group in over.groups.nodes:
            direct.reduce_scatter(way.Exchange(build, group, theirs, sums, None, x.zeroed, x.manner))
        for head, plane in over.planes:
            passed: way.Reduce = way.Exchange(build, plane, sums, sums(head), sums, manner=over.manner)
            if over.straight:
                direct.reduce(passed)
            else:
                hierarchical.reduce(passed, at_once=True)
        for rank in over.home:
            if rank != into.rank:
                build.put(sums(rank), share(into, rank), **over.near(rank, into.rank))
