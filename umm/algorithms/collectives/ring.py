"""Collectives round a ring: every rank passes on to its neighbours what it has got from the others."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from umm.algorithms.collectives.rings import Journey, Ring, ring_of
from umm.algorithms.collectives.way import (
    PLAIN,
    Manner,
    Own,
    Piece,
    Pieces,
    Sums,
    Way,
    columns,
    copied,
    each_copied,
    in_parts,
    one_collective,
    parted,
    room_for,
    rooms,
    sum_places,
)
from umm.schedules.table.buffers import Slice
from umm.schedules.table.details import PUT
from umm.schedules.writer.builder import Builder, How

MOST_CHUNKS = 64


@one_collective
def all_gather(
    build: Builder, ranks: Sequence[int], piece: Piece, into: Pieces, manner: Manner = PLAIN
) -> None:
    """Every rank gets every piece; each goes the shorter way round, half of it each way to the opposite."""
    each_copied(build, ranks, piece, Own(into))
    hops = [x for step in _ring(build, ranks).steps(manner.directions) for x in step]
    if not hops:
        return
    origin, source, target, way, part, parts = np.array(hops, dtype=np.int64).T
    first = source == origin
    held = columns(into, source, origin).replaced(first, columns(piece, origin[first]))
    there, halves = columns(into, target, origin), parts == 2
    held, there = (
        x.replaced(halves, x.taken(halves).parts(part[halves], part[halves], 2)) for x in (held, there)
    )
    hows = [lane_of(build, "copy_out", x, manner) for x in range(manner.directions)]
    build.transfers(np.full(len(hops), PUT), held, there, hows, way)


@one_collective
def reduce_scatter(
    build: Builder,
    ranks: Sequence[int],
    given: Pieces,
    into: Piece,
    room: Pieces | None = None,
    zeroed: bool = False,
    manner: Manner = PLAIN,
) -> None:
    """Every owner gets its sum: the way of an all-gather back, each rank adding its own part."""
    sums, held = Sums(build, zeroed), rooms(build, given, into, room)
    for hops in reversed(list(_ring(build, ranks).steps(manner.directions))):
        for owner, target, source, way, part, parts in hops:
            so_far = sums.so_far(given(source, owner), held(source, owner))
            there = sums.begun(given(target, owner), held(target, owner))
            how = lane_of(build, "accumulate", way, manner)
            build.accumulate(parted(so_far, part, parts), parted(there, part, parts), **how)
    for rank in ranks:
        sums.begun(given(rank, rank), into(rank))


@one_collective
def all_to_all(
    build: Builder, ranks: Sequence[int], given: Pieces, into: Pieces, manner: Manner = PLAIN
) -> None:
    """Every piece goes the shorter way round, those that go farthest first, so that no link stands idle."""
    ring = _ring(build, ranks)
    for rank in ranks:
        copied(build, given(rank, rank), into(rank, rank))
    journeys = [
        journey
        for origin in ring.order
        for to in ring.order
        if to != origin
        for journey in ring.journeys(origin, to, manner.directions)
    ]
    journeys.sort(key=lambda journey: -len(journey.ranks))
    at = [given(journey.ranks[0], journey.ranks[-1]) for journey in journeys]
    at = [parted(piece, x.part, x.parts) for piece, x in zip(at, journeys, strict=True)]
    for hop in range(1, len(ring.order)):
        for number, (passed, way, part, parts) in enumerate(journeys):
            if hop >= len(passed):
                continue
            if hop == len(passed) - 1:
                there = parted(into(passed[-1], passed[0]), part, parts)
            else:
                slot = ("relayed", way, len(passed), hop % 2)
                there = room_for(build, at[number], passed[hop], slot)
            build.put(at[number], there, **manner.how)
            at[number] = there


@one_collective
def broadcast(
    build: Builder, ranks: Sequence[int], source: Slice, into: Piece, manner: Manner = PLAIN
) -> None:
    """In chunks from rank to rank, half of it each way round."""
    root = source.rank
    copied(build, source, into(root))
    trails = _ring(build, ranks).trails(root, manner.directions)
    chunks = chunk_count(build, source, trails, manner)
    held = [
        [_chunks(source if rank == root else into(rank), trail, chunks) for rank in trail.ranks]
        for trail in trails
    ]
    for chunk in range(chunks):
        for hop in range(1, len(ranks)):
            for trail, pieces in zip(trails, held, strict=True):
                if hop < len(pieces):
                    ends = pieces[hop - 1][chunk], pieces[hop][chunk]
                    build.put(*ends, **lane_of(build, "copy_out", trail.way, manner))


@one_collective
def reduce(
    build: Builder,
    ranks: Sequence[int],
    given: Piece,
    into: Slice,
    room: Piece | None = None,
    zeroed: bool = False,
    manner: Manner = PLAIN,
) -> None:
    """The way of a broadcast back, each rank adding its own part."""
    root, sums = into.rank, Sums(build, zeroed)
    held = sum_places(build, given, into, room)
    trails = _ring(build, ranks).trails(root, manner.directions)
    chunks = chunk_count(build, into, trails, manner)
    pieces = [
        [
            list(zip(_chunks(given(rank), trail, chunks), _chunks(held(rank), trail, chunks), strict=True))
            for rank in trail.ranks
        ]
        for trail in trails
    ]
    for chunk in range(chunks):
        for hop in range(len(ranks) - 1, 0, -1):
            for trail, of_rank in zip(trails, pieces, strict=True):
                if hop < len(of_rank):
                    so_far, there = sums.so_far(*of_rank[hop][chunk]), sums.begun(*of_rank[hop - 1][chunk])
                    build.accumulate(so_far, there, **lane_of(build, "accumulate", trail.way, manner))
    if not trails:
        sums.begun(given(root), into)


def _chunks(whole: Slice, trail: Journey, chunks: int) -> list[Slice]:
    """Return in chunks the part of a slice that goes along a trail."""
    part = parted(whole, trail.part, trail.parts)
    return [parted(part, chunk, chunks) for chunk in range(chunks)]


def chunk_count(build: Builder, piece: Slice, trails: Sequence[Journey], manner: Manner) -> int:
    """Return in how many parts something follows itself along a chain.

    With c parts the last arrives after c + h − 1 turns of latency + bytes / (c · bandwidth), where h are the
    hops; that is least at c = √((h − 1) · bytes / (bandwidth · latency)).
    """
    if manner.chunks is not None:
        return manner.chunks
    longest = max((len(trail.ranks) for trail in trails), default=0)
    if longest < 3:
        return 1
    machine, itemsize = build.machine, build.tensors[piece.tensor].itemsize
    ends = (machine.device_of(rank, build.ranks) for rank in trails[0].ranks[:2])
    route = list(machine.route(*ends))
    seconds = piece.elements * itemsize / trails[0].parts / float(machine.link_bandwidth[route].min())
    latency = float(machine.link_latency[route].sum())
    if latency <= 0:
        return MOST_CHUNKS
    return max(1, min(MOST_CHUNKS, round(sqrt((longest - 2) * seconds / latency))))


def lane_of(build: Builder, group: str, way: int, manner: Manner) -> How:
    """Return how a transfer goes, on the lane of its own direction, so that none waits for the other's."""
    how = manner.how
    how.setdefault("lane", f"{group}.{(manner.port + way) % build.lanes[group]}")
    return how


def _ring(build: Builder, ranks: Sequence[int]) -> Ring:
    return ring_of(build.machine, tuple(ranks), build.ranks)


WAY = Way(
    "ring",
    "From neighbour to neighbour, both ways round at once.",
    "Thakur, Rabenseifner and Gropp (2005); How to Scale Your Model, part 3",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": in_parts(reduce_scatter, all_gather),
        "all-to-all": all_to_all,
        "broadcast": broadcast,
        "reduce": reduce,
    },
)
