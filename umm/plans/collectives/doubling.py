"""Recursive doubling and halving: partners at distances 1, 2, 4, …, whose messages double or halve."""

from collections.abc import Iterable, Sequence

import numpy as np

from umm.arrays import Bools, Ints
from umm.machines import Machine
from umm.plans.collectives import way
from umm.schedules.table.buffers import Slice, Slices, united
from umm.schedules.table.details import PUT


@way.one_collective
def all_gather(x: way.Gather) -> None:
    """Partners at distances 1, 2, 4, … give each other all they have."""
    ranks, into = x.ranks, x.into
    way.each_copied(x, x.given, way.Own(into))
    rank_at, distance = np.array(ranks, dtype=np.int64), 1
    while distance < len(ranks):
        place, other = (index.reshape(-1) for index in np.indices((len(ranks), distance)))
        # Before the round at distance d a rank holds the d pieces of its aligned block; its partner differs
        # from it in bit d alone.
        rank, origin, partner = (
            rank_at[place],
            rank_at[place // distance * distance + other],
            rank_at[place ^ distance],
        )
        sources, targets = way.columns(into, rank, origin), way.columns(into, partner, origin)
        # The first round reads the piece where it is given and does not wait for the local copy.
        if distance == 1:
            sources = way.columns(x.given, rank)
        # Without joining, a round would have d messages where the algorithm has one, and pay d latencies.
        sources, targets = _in_one(place, sources, targets)
        kinds = np.full(len(sources), PUT)
        x.build.transfers(kinds, sources, targets, [x.manner.how], np.zeros_like(kinds))
        distance *= 2


def _in_one(number: Ints, source: Slices, target: Slices) -> tuple[Slices, Slices]:
    """Return moves from slice to slice, those of one rank that follow each other at both ends as one."""
    # number: number of the rank of each. source: what each copies.
    full = source.elements > 0
    number, source, target = number[full], source.taken(full), target.taken(full)
    if not len(number):
        return source, target
    # By rows or by columns: after some that follow by one, none follows all of them by the other.
    follows = [_follow(source, by) & _follow(target, by) & (number[1:] == number[:-1]) for by in (0, 1)]
    # A run that turns from rows to columns is no rectangle as a whole; only the slow path handles it.
    if (follows[0][1:] & follows[1][:-1]).any() or (follows[1][1:] & follows[0][:-1]).any():
        moves = [
            both
            for x in np.split(np.arange(len(number)), np.diff(number).nonzero()[0] + 1)
            for both in _joined(zip(source.taken(x).all(), target.taken(x).all(), strict=True))
        ]
        return Slices.of([x for x, _ in moves]), Slices.of([x for _, x in moves])
    begins = np.append(True, ~(follows[0] | follows[1])).nonzero()[0]
    ends = np.append(begins[1:], len(number)) - 1
    joined = source.taken(begins), target.taken(begins)
    # A joined slice keeps its first member's start and takes the last member's stop in both dimensions.
    for some, all_slices in zip(joined, (source, target), strict=True):
        some.spans[:, 1::2] = all_slices.spans[ends, 1::2]
    return joined


def _follow(slices: Slices, by: int) -> Bools:
    """Return which slices but the first follow the one before in its buffer, by rows (0) or columns (1)."""
    before, after = slices.spans[:-1], slices.spans[1:]
    # Spans are (row start, row stop, col start, col stop): one pair has to meet, the other to be equal.
    side, same = 2 * by, slice(2 - 2 * by, 4 - 2 * by)
    follows: Bools = (slices.buffer[1:] == slices.buffer[:-1]) & (before[:, side + 1] == after[:, side])
    follows &= (before[:, same] == after[:, same]).all(axis=1)
    return follows


@way.one_collective
def reduce_scatter(x: way.Scatter) -> None:
    """Partners at distances …, 4, 2, 1 add to each other the sums so far for the other's half of owners."""
    ranks, given, into = x.ranks, x.given, x.into
    sums, room_of = way.Sums(x), x.room or way.Rooms(x)

    def so_far(rank: int, owner: int) -> Slice:
        return sums.so_far(given(rank, owner), room_of(rank, owner))

    def begun(rank: int, owner: int) -> Slice:
        return sums.begun(given(rank, owner), room_of(rank, owner))

    distance = len(ranks) // 2
    while distance:
        for place, rank in enumerate(ranks):
            at = place ^ distance
            # Send the half of owners around the partner; the other half stays here for the rounds to come.
            partner, first = ranks[at], at // distance * distance
            theirs = ranks[first : first + distance]
            # The partner's own sum stays beside the rest, which one message fills, up to the last step.
            last = [sums.begun(so_far(partner, partner), into(partner))] if distance == 1 else None
            targets = last or [begun(partner, owner) for owner in theirs]
            for source, target in _joined(
                zip((so_far(rank, owner) for owner in theirs), targets, strict=True)
            ):
                x.build.accumulate(source, target, **x.manner.how)
        distance //= 2
    for rank in ranks:
        sums.begun(given(rank, rank), into(rank))


def _joined(moved: Iterable[tuple[Slice, Slice]]) -> list[tuple[Slice, Slice]]:
    """Return moves from slice to slice, those that follow each other at both ends as one."""
    moves: list[tuple[Slice, Slice]] = []
    for source, target in moved:
        if not source.elements:
            continue
        if moves:
            both = united(moves[-1][0], source), united(moves[-1][1], target)
            if both[0] is not None and both[1] is not None:
                moves[-1] = both[0], both[1]
                continue
        moves.append((source, target))
    return moves


def refuses(machine: Machine, ranks: Sequence[int], total: int) -> str | None:
    """It takes a power of two of ranks."""
    p = len(ranks)
    if p & (p - 1) == 0:
        return None
    # XOR partners pair up only within a power of two; name the nearest sizes that work.
    below = 1 << (p.bit_length() - 1)
    return f"{p} ranks are not a power of two; choose {below} or {2 * below}"


WAY = way.Way(
    "halving-doubling",
    "Partners at distances 1, 2, 4, …; a power of two of ranks.",
    "Thakur, Rabenseifner and Gropp (2005)",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": way.in_parts(reduce_scatter, all_gather),
    },
    refuses,
)
