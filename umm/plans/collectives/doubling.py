"""Recursive doubling and halving: partners at distances 1, 2, 4, …; what they exchange doubles or halves."""

from collections.abc import Iterable, Sequence

import numpy as np

from umm.arrays import Bools, Ints
from umm.machines import Machine
from umm.plans.collectives.way import (
    PLAIN,
    Manner,
    Own,
    Piece,
    Pieces,
    Sums,
    Way,
    columns,
    each_copied,
    in_parts,
    one_collective,
    rooms,
)
from umm.schedules.table.buffers import Slice, Slices, united
from umm.schedules.table.details import PUT
from umm.schedules.writer.builder import Builder


@one_collective
def all_gather(
    build: Builder, ranks: Sequence[int], piece: Piece, into: Pieces, manner: Manner = PLAIN
) -> None:
    """Partners at distances 1, 2, 4, … give each other all they have."""
    each_copied(build, ranks, piece, Own(into))
    of, distance = np.array(ranks, dtype=np.int64), 1
    while distance < len(ranks):
        place, other = (x.reshape(-1) for x in np.indices((len(ranks), distance)))
        rank, origin, partner = of[place], of[place // distance * distance + other], of[place ^ distance]
        held, there = columns(into, rank, origin), columns(into, partner, origin)
        if distance == 1:
            held = columns(piece, rank)
        held, there = _in_one(place, held, there)
        kinds = np.full(len(held), PUT)
        build.transfers(kinds, held, there, [manner.how], np.zeros_like(kinds))
        distance *= 2


def _in_one(of: Ints, source: Slices, there: Slices) -> tuple[Slices, Slices]:
    """Return moves from slice to slice, those of one rank that follow each other at both ends as one.

    Args:
        of: Number of the rank of each.
        source: What each copies.
        there: Where to.
    """
    full = source.elements > 0
    of, source, there = of[full], source.taken(full), there.taken(full)
    # By rows or by columns: after some that follow by one, none follows all of them by the other.
    follows = [_follow(source, by) & _follow(there, by) & (of[1:] == of[:-1]) for by in (0, 1)]
    if (follows[0][1:] & follows[1][:-1]).any() or (follows[1][1:] & follows[0][:-1]).any():
        found = [
            both
            for x in np.split(np.arange(len(of)), np.diff(of).nonzero()[0] + 1)
            for both in _joined(zip(source.taken(x).all(), there.taken(x).all(), strict=True))
        ]
        return Slices.of([x for x, _ in found]), Slices.of([x for _, x in found])
    begins = np.append(True, ~(follows[0] | follows[1])).nonzero()[0] if len(of) else np.arange(0)
    ends = np.append(begins[1:], len(of)) - 1
    joined = source.taken(begins), there.taken(begins)
    for some, whole in zip(joined, (source, there), strict=True):
        some.spans[:, 1::2] = whole.spans[ends, 1::2]
    return joined


def _follow(slices: Slices, by: int) -> Bools:
    """Return which slices but the first follow the one before in its buffer, by rows (0) or columns (1)."""
    before, after = slices.spans[:-1], slices.spans[1:]
    side, same = 2 * by, slice(2 - 2 * by, 4 - 2 * by)
    found: Bools = (slices.buffer[1:] == slices.buffer[:-1]) & (before[:, side + 1] == after[:, side])
    found &= (before[:, same] == after[:, same]).all(axis=1)
    return found


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
    """Partners at distances …, 4, 2, 1 add to each other the sums so far for the other's half of owners."""
    sums, held = Sums(build, zeroed), room or rooms(build, given, into, None)

    def so_far(rank: int, owner: int) -> Slice:
        return sums.so_far(given(rank, owner), held(rank, owner))

    def begun(rank: int, owner: int) -> Slice:
        return sums.begun(given(rank, owner), held(rank, owner))

    distance = len(ranks) // 2
    while distance:
        for place, rank in enumerate(ranks):
            at = place ^ distance
            partner, first = ranks[at], at // distance * distance
            theirs = ranks[first : first + distance]
            # What is the partner's own stays beside the rest, which one message fills, up to the last step.
            last = [sums.begun(so_far(partner, partner), into(partner))] if distance == 1 else None
            there = last or [begun(partner, owner) for owner in theirs]
            for source, target in _joined(zip((so_far(rank, owner) for owner in theirs), there, strict=True)):
                build.accumulate(source, target, **manner.how)
        distance //= 2
    for rank in ranks:
        sums.begun(given(rank, rank), into(rank))


def _joined(moved: Iterable[tuple[Slice, Slice]]) -> list[tuple[Slice, Slice]]:
    """Return moves from slice to slice, those that follow each other at both ends as one."""
    found: list[tuple[Slice, Slice]] = []
    for source, there in moved:
        if not source.elements:
            continue
        if found:
            both = united(found[-1][0], source), united(found[-1][1], there)
            if both[0] is not None and both[1] is not None:
                found[-1] = both[0], both[1]
                continue
        found.append((source, there))
    return found


def refuses(machine: Machine, ranks: Sequence[int], total: int) -> str | None:
    """It takes a power of two of ranks."""
    p = len(ranks)
    if p & (p - 1) == 0:
        return None
    below = 1 << (p.bit_length() - 1)
    return f"{p} ranks are not a power of two; choose {below} or {2 * below}"


WAY = Way(
    "halving-doubling",
    "Partners at distances 1, 2, 4, …; a power of two of ranks.",
    "Thakur, Rabenseifner and Gropp (2005)",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": in_parts(reduce_scatter, all_gather),
    },
    refuses,
)
