"""Recursive doubling and halving: partners at distances 1, 2, 4, …; what they exchange doubles or halves."""

from collections.abc import Iterable, Sequence

from umm.algorithms.collectives.way import (
    PLAIN,
    Manner,
    Piece,
    Pieces,
    Sums,
    Way,
    copied,
    in_parts,
    one_collective,
    rooms,
)
from umm.machines import Machine
from umm.schedules.table.buffers import Slice, united
from umm.schedules.writer.builder import Builder


@one_collective
def all_gather(
    build: Builder, ranks: Sequence[int], piece: Piece, into: Pieces, manner: Manner = PLAIN
) -> None:
    """Partners at distances 1, 2, 4, … give each other all they have."""
    for rank in ranks:
        copied(build, piece(rank), into(rank, rank))
    distance = 1
    while distance < len(ranks):
        for place, rank in enumerate(ranks):
            partner, first = ranks[place ^ distance], place // distance * distance
            held = [
                (
                    piece(rank) if origin == rank and distance == 1 else into(rank, origin),
                    into(partner, origin),
                )
                for origin in ranks[first : first + distance]
            ]
            for source, there in _joined(held):
                build.put(source, there, **manner.how)
        distance *= 2


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
