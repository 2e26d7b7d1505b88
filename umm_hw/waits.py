"""One rank's part of a schedule's order: the predecessors of each of its actions, here and on other ranks."""

from dataclasses import dataclass

import numpy as np

from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, GEMM, MAP


@dataclass(frozen=True)
class RankOrder:
    """The order in which a rank must act. Flags are numbered alike on all ranks.

    Flag a < actions says that action a has finished. Flag actions + number · ranks + r says that rank r has
    finished all that the barrier of this number waits for at it.
    """

    lanes: list[list[int]]  # for each lane of this rank its rows, in order
    computing: set[int]  # which of these lanes multiply or map
    # For each row and each barrier how many of this rank's own actions it waits for; a row behind a barrier
    # waits for this rank's arrival there before it looks at the flags of others.
    waits_for: dict[int, int]
    flags: dict[int, list[int]]  # for each row the flags it also waits for
    # For each row of this rank the rows and barriers of this rank that wait for it; for each barrier that
    # waits for this rank the rows of this rank behind it.
    releases: dict[int, list[int]]
    signals: dict[int, list[int]]  # for each row of this rank the other ranks that wait for it
    arrival: dict[int, int]  # for each barrier that waits for this rank the flag to raise on all ranks
    flag_count: int  # number of flags on each rank


def rank_order(schedule: Schedule, rank: int) -> RankOrder:
    """Return a rank's part of a schedule's order."""
    count, ranks = len(schedule), schedule.ranks
    is_barrier = schedule.kind == BARRIER
    number = np.cumsum(is_barrier) - 1
    waiting = schedule.waiting
    first = schedule.after
    of_first, of_waiting = schedule.rank[first], schedule.rank[waiting]

    barrier_flags: dict[int, list[int]] = {}  # a barrier that waits for a barrier also waits for its flags
    for barrier in is_barrier.nonzero()[0].tolist():
        after = schedule.after_of(barrier)
        arriving = np.unique(schedule.rank[after])
        flags = (count + number[barrier] * ranks + arriving[arriving >= 0]).tolist()
        for earlier in after[is_barrier[after]].tolist():
            flags += barrier_flags[earlier]
        barrier_flags[barrier] = sorted(set(flags))

    mine = of_first == rank
    here = mine & ((of_waiting == rank) | is_barrier[waiting])
    releases: dict[int, list[int]] = {}
    waits_for: dict[int, int] = {}
    for action, then in zip(first[here].tolist(), waiting[here].tolist(), strict=True):
        releases.setdefault(action, []).append(then)
        waits_for[then] = waits_for.get(then, 0) + 1
    behind = is_barrier[first] & np.isin(first, list(waits_for)) & (of_waiting == rank)
    for barrier, then in zip(first[behind].tolist(), waiting[behind].tolist(), strict=True):
        releases.setdefault(barrier, []).append(then)
        waits_for[then] = waits_for.get(then, 0) + 1
    flags_of: dict[int, list[int]] = {}
    from_others = (of_waiting == rank) & (of_first != rank)
    for action, then in zip(first[from_others].tolist(), waiting[from_others].tolist(), strict=True):
        flags_of.setdefault(then, []).extend(barrier_flags.get(action, [action]))
    signals: dict[int, list[int]] = {}
    to_others = mine & (of_waiting != rank) & ~is_barrier[waiting]
    pairs = np.unique(np.stack([first[to_others], of_waiting[to_others]], axis=1), axis=0)
    for action, other in pairs.tolist():
        signals.setdefault(action, []).append(other)
    lanes: dict[int, list[int]] = {}
    rows = (schedule.rank == rank).nonzero()[0]
    for row, lane in zip(rows.tolist(), schedule.lane[rows].tolist(), strict=True):
        lanes.setdefault(lane, []).append(row)
    arrival = {b: count + int(number[b]) * ranks + rank for b in waits_for if is_barrier[b]}
    flag_count = count + int(is_barrier.sum()) * ranks
    computes = np.isin(schedule.kind, (GEMM, MAP))
    computing = {place for place, rows_of_lane in enumerate(lanes.values()) if computes[rows_of_lane].any()}
    return RankOrder(
        list(lanes.values()), computing, waits_for, flags_of, releases, signals, arrival, flag_count
    )
