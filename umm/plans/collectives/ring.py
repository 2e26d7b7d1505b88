"""Collectives round rings: every rank passes on to its neighbours the pieces that it receives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, zip_longest
from math import sqrt
from typing import Any

import numpy as np

from umm.machines import Machine
from umm.plans.collectives import way
from umm.plans.collectives.rings import Hop, Journey, Ring, nodes_of, ring_of
from umm.schedules.table.buffers import Slice
from umm.schedules.table.details import PUT
from umm.schedules.writer.builder import Builder, How

RingsOf = Callable[[Machine, Sequence[int], int], list[Ring]]
MOST_CHUNKS = 64
MOST_OF_SEVERAL = 64  # ranks among which several rings are written: each has ranks squared hops


def several_rings(machine: Machine, ranks: Sequence[int], total: int) -> list[Ring]:
    """Return as many rings through all nodes as the smallest has ranks; each crosses by ranks of its own.

    >>> from umm.machines import machine
    >>> [ring.order for ring in several_rings(machine("h100-8", nodes=2), [6, 7, 8, 9, 10], 16)]
    [(6, 7, 8, 9, 10), (7, 6, 9, 10, 8)]
    """
    # Each ring rotates every node's order by one, so that it enters and leaves a node by other ranks' cards.
    nodes = nodes_of(machine, ranks, total)
    orders = (
        [rank for x in nodes for rank in (*x[turn:], *x[:turn])] for turn in range(min(map(len, nodes)))
    )
    return [Ring(tuple(order), closed=True) for order in orders]


def _hops(rings: Sequence[Ring], directions: int, back: bool = False) -> Iterator[tuple[int, Hop]]:
    """Yield the hops of rings side by side, step by step, each with the number of its ring."""
    steps = [list(ring.steps(directions)) for ring in rings]
    for of_rings in zip_longest(*(reversed(x) if back else x for x in steps), fillvalue=()):
        for number, hops in enumerate(of_rings):
            yield from ((number, hop) for hop in hops)


def one_ring(machine: Machine, ranks: Sequence[int], total: int) -> list[Ring]:
    """Return the one ring of some ranks whose busiest link is least busy."""
    return [ring_of(machine, tuple(ranks), total)]


@way.one_collective
def all_gather(x: way.Gather, rings_of: RingsOf = one_ring) -> None:
    """Every rank gets every piece; each goes the shorter way round, half of it each way to the opposite.

    Of several rings each has a part of every piece.
    """
    into, manner = x.into, x.manner
    rings = rings_of(x.build.machine, x.ranks, x.build.ranks)
    way.each_copied(x, x.given, way.Own(into))
    hops = [(number, *hop) for number, hop in _hops(rings, manner.directions)]
    if not hops:
        return
    ring, origin, source, target, side, part, parts = np.array(hops, dtype=np.int64).T
    # The first hop reads the piece where it is given; later hops read the copy that has arrived.
    first = source == origin
    sources = way.columns(into, source, origin).replaced(first, way.columns(x.given, origin[first]))
    targets, halves = way.columns(into, target, origin), parts == 2
    # Each ring carries one part of every piece, and the halves of the opposite rank are cut from that part.
    if len(rings) > 1:
        sources, targets = (each.parts(ring, ring, len(rings)) for each in (sources, targets))
    sources, targets = (
        each.replaced(halves, each.taken(halves).parts(part[halves], part[halves], 2))
        for each in (sources, targets)
    )
    ways = [(number, side) for number in range(len(rings)) for side in range(manner.directions)]
    hows = [
        lane_of(x.build, "copy_out", side, _of_ring(manner, number, side, rings)) for number, side in ways
    ]
    x.build.transfers(np.full(len(hops), PUT), sources, targets, hows, ring * manner.directions + side)


@way.one_collective
def reduce_scatter(x: way.Scatter, rings_of: RingsOf = one_ring) -> None:
    """Every owner gets its sum: the way of an all-gather back, each rank adding its own part."""
    rings = rings_of(x.build.machine, x.ranks, x.build.ranks)
    # A sum retraces the gather from the farthest rank to its owner; each rank adds its part as it passes.
    sums, room_of, given, manner = way.Sums(x), way.Rooms(x), x.given, x.manner
    for number, (owner, target, source, side, part, parts) in _hops(rings, manner.directions, back=True):
        so_far = sums.so_far(given(source, owner), room_of(source, owner))
        next_sum = sums.begun(given(target, owner), room_of(target, owner))
        ends = (way.parted(way.parted(each, number, len(rings)), part, parts) for each in (so_far, next_sum))
        how = lane_of(x.build, "accumulate", side, _of_ring(manner, number, side, rings))
        x.build.accumulate(*ends, **how)
    for rank in x.ranks:
        sums.begun(given(rank, rank), x.into(rank))


@way.one_collective
def all_to_all(x: way.AllToAll) -> None:
    """Every piece goes the shorter way round, those that go farthest first, so that no link stands idle."""
    ring, given, into = ring_of(x.build.machine, tuple(x.ranks), x.build.ranks), x.given, x.into
    for rank in x.ranks:
        way.copied(x.build, given(rank, rank), into(rank, rank))
    journeys = [
        journey
        for origin in ring.order
        for to in ring.order
        if to != origin
        for journey in ring.journeys(origin, to, x.manner.directions)
    ]
    # Longest first is list scheduling by remaining path: short journeys fill the gaps that long ones leave.
    journeys.sort(key=lambda journey: -len(journey.ranks))
    at = [given(journey.ranks[0], journey.ranks[-1]) for journey in journeys]
    at = [way.parted(piece, y.part, y.parts) for piece, y in zip(at, journeys, strict=True)]
    for hop in range(1, len(ring.order)):
        for number, (passed, side, part, parts) in enumerate(journeys):
            if hop >= len(passed):
                continue
            if hop == len(passed) - 1:
                next_piece = way.parted(into(passed[-1], passed[0]), part, parts)
            else:
                # Two slots alternate, so that a rank can receive the next relay while it still sends the last
                # one.
                slot = ("relayed", side, len(passed), hop % 2)
                next_piece = way.room_for(x.build, at[number], passed[hop], slot)
            x.build.put(at[number], next_piece, **x.manner.how)
            at[number] = next_piece


@way.one_collective
def broadcast(x: way.Broadcast) -> None:
    """In chunks from rank to rank, half of it each way round."""
    root = x.given.rank
    way.copied(x.build, x.given, x.into(root))
    journeys = trails(x, x.ranks, root)
    chunks = chunk_count(x, x.given, journeys)
    pieces_of = [
        [_chunks(x.given if rank == root else x.into(rank), trail, chunks) for rank in trail.ranks]
        for trail in journeys
    ]
    for chunk in range(chunks):
        for hop in range(1, len(x.ranks)):
            for trail, pieces in zip(journeys, pieces_of, strict=True):
                if hop < len(pieces):
                    ends = pieces[hop - 1][chunk], pieces[hop][chunk]
                    x.build.put(*ends, **lane_of(x.build, "copy_out", trail.way, x.manner))


@way.one_collective
def reduce(x: way.Reduce) -> None:
    """The way of a broadcast back, each rank adding its own part."""
    root, sums, sum_at = x.into.rank, way.Sums(x), way.sum_places(x)
    journeys = trails(x, x.ranks, root)
    chunks = chunk_count(x, x.into, journeys)
    pieces = [
        [
            list(
                zip(_chunks(x.given(rank), trail, chunks), _chunks(sum_at(rank), trail, chunks), strict=True)
            )
            for rank in trail.ranks
        ]
        for trail in journeys
    ]
    for chunk in range(chunks):
        for hop in range(len(x.ranks) - 1, 0, -1):
            for trail, of_rank in zip(journeys, pieces, strict=True):
                if hop < len(of_rank):
                    so_far, next_sum = sums.so_far(*of_rank[hop][chunk]), sums.begun(*of_rank[hop - 1][chunk])
                    x.build.accumulate(
                        so_far, next_sum, **lane_of(x.build, "accumulate", trail.way, x.manner)
                    )
    if not journeys:
        sums.begun(x.given(root), x.into)


def _chunks(piece: Slice, trail: Journey, chunks: int) -> list[Slice]:
    """Return in chunks the part of a slice that goes along a trail."""
    part = way.parted(piece, trail.part, trail.parts)
    return [way.parted(part, chunk, chunks) for chunk in range(chunks)]


def trails(x: way.Exchange[Any, Any], ranks: Sequence[int], root: int) -> list[Journey]:
    """Return the ways from one of some ranks past all others of these."""
    return ring_of(x.build.machine, tuple(ranks), x.build.ranks).trails(root, x.manner.directions)


def chunk_count(x: way.Exchange[Any, Any], piece: Slice, trails: Sequence[Journey], inside: int = 0) -> int:
    """Return in how many parts something follows itself along a chain.

    With c parts the last arrives after one turn of latency + bytes / (c · bandwidth) at every hop, and c − 1
    more at the slowest; that is least at c = √(seconds of all hops but the slowest / its latency), where
    seconds are bytes / bandwidth.

    Args:
        inside: Hops before and after, on links that are faster.
    """
    if x.manner.chunks is not None:
        return x.manner.chunks
    longest = max((trail.ranks for trail in trails), key=len, default=())
    # One hop has nothing to overlap with; chunks would only add latencies.
    if len(longest) + inside < 3:
        return 1
    machine = x.build.machine
    nbytes = piece.elements * x.build.tensors[piece.tensor].itemsize / trails[0].parts
    devices = (machine.device_of(rank, x.build.ranks) for rank in longest)
    routes = [list(machine.route(*hop)) for hop in pairwise(devices)]
    seconds = [nbytes / float(machine.link_bandwidth[route].min()) for route in routes]
    latencies = [float(machine.link_latency[route].sum()) for route in routes]
    slowest, latency = max(zip(seconds, latencies, strict=True))
    # Without latency the formula diverges: more chunks are always better, so take the cap.
    if latency <= 0:
        return MOST_CHUNKS
    others = sum(seconds) - slowest + inside * slowest
    return max(1, min(MOST_CHUNKS, round(sqrt(others / latency))))


def lane_of(build: Builder, group: str, side: int, manner: way.Manner) -> How:
    """Return how a transfer goes, on the lane of its own direction, so that none waits for the other's."""
    how = manner.how
    how.setdefault("lane", f"{group}.{(manner.port + side) % build.lanes[group]}")
    return how


def _of_ring(manner: way.Manner, number: int, side: int, rings: Sequence[Ring]) -> way.Manner:
    """Return how the bytes of one of several rings go: on lanes of its own, for none waits for another."""
    return manner if len(rings) == 1 else replace(manner, lane=f"{manner.lane or 'ring'}.{number}.{side}")


def refuses_several(machine: Machine, ranks: Sequence[int], total: int) -> str | None:
    """They are of nodes with unlike numbers of ranks, where collectives by level cannot be."""
    if not machine.fabric.nodes or machine.fabric.near < 2:
        return f"{machine.name} has no nodes whose devices are nearer to each other"
    sizes = [len(node) for node in nodes_of(machine, ranks, total)]
    # Between equal nodes a collective by level works, in fewer steps than a ring.
    if len(set(sizes)) < 2:
        return "ranks are in one node, or nodes hold as many of them each; choose hierarchical or ring"
    if len(ranks) > MOST_OF_SEVERAL:
        return f"{len(ranks)} ranks are too many for several rings; at most {MOST_OF_SEVERAL}, or choose ring"
    return None


WAY = way.Way(
    "ring",
    "From neighbour to neighbour, both ways round at once.",
    "Thakur, Rabenseifner and Gropp (2005); How to Scale Your Model, part 3",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": way.in_parts(reduce_scatter, all_gather),
        "all-to-all": all_to_all,
        "broadcast": broadcast,
        "reduce": reduce,
    },
)


_BY_SEVERAL = [partial(write, rings_of=several_rings) for write in (reduce_scatter, all_gather)]
WAYS = (
    way.Way(
        "rings",
        "Between nodes of unlike sizes: as many rings as the smallest has ranks, each by cards of its own.",
        "NVIDIA NCCL, whose channels are rings through different cards",
        {
            "all-gather": _BY_SEVERAL[1],
            "reduce-scatter": _BY_SEVERAL[0],
            "all-reduce": way.in_parts(*_BY_SEVERAL),
        },
        refuses_several,
    ),
)
