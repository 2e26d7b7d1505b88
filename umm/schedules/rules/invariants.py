"""The rules a schedule must keep, so that every executor can rely on them."""

from collections.abc import Callable

import numpy as np

from umm.arrays import Bools
from umm.errors import ScheduleError
from umm.schedules.rules.temporaries import check_written
from umm.schedules.rules.touches import check_buffers, check_memory, check_pieces
from umm.schedules.table.kinds import BARRIER, GEMM, GET, KINDS, LOCAL, TRANSFERS
from umm.schedules.table.table import Table

AGES = 1e12
"""Seconds, some 30,000 years: no action takes longer."""
Refuse = Callable[[Bools, str], None]
"""Raises an error about the first action of those that break a rule."""


def check(schedule: Table) -> None:
    """Refuse a schedule whose actions break the rules of docs/reference/schedule.md.

    Raises:
        ScheduleError: naming the first action that breaks one.
    """

    def refuse(bad: Bools, why: str) -> None:
        if bad.any():
            i = int(np.argmax(bad))
            raise ScheduleError(f"action {i} ({KINDS[schedule.kind[i]]} of rank {schedule.rank[i]}) {why}")

    _check_order(schedule, refuse)
    _check_places(schedule, refuse)
    check_buffers(schedule)
    check_memory(schedule)
    check_pieces(schedule, refuse)
    check_written(schedule, refuse)


def _check_order(schedule: Table, refuse: Refuse) -> None:
    """Refuse kinds, dependencies, lanes and times that cannot be."""
    count = len(schedule)
    bad_kind = (schedule.kind < 0) | (schedule.kind >= len(KINDS))
    if bad_kind.any():
        i = int(np.argmax(bad_kind))
        raise ScheduleError(f"action {i} has kind {schedule.kind[i]}; there are kinds 0 … {len(KINDS) - 1}")
    bad_after = np.zeros(count, dtype=bool)
    bad_after[schedule.waiting[(schedule.after >= schedule.waiting) | (schedule.after < 0)]] = True
    refuse(bad_after, "waits for an action that does not come before it; every id in after must be smaller")
    barrier = schedule.kind == BARRIER
    refuse(
        ~barrier & ((schedule.rank < 0) | (schedule.rank >= schedule.ranks)), "has a rank that does not exist"
    )
    refuse(barrier & (schedule.rank != -1), "must have rank -1")
    refuse(barrier != (schedule.lane == -1), "must have lane -1 if it is a barrier, and a lane otherwise")
    refuse((schedule.lane < -1) | (schedule.lane >= len(schedule.lanes)), "has a lane that does not exist")
    if len(schedule.lanes):
        refuse(
            ~barrier & (schedule.lanes.rank[schedule.lane] != schedule.rank),
            "is on a lane that belongs to another rank",
        )
        refuse(
            (schedule.kind == GEMM) & (schedule.lanes.engine[schedule.lane] < 0),
            "is on a lane without an engine",
        )
    refuse(~(schedule.seconds >= 0) | (schedule.seconds > AGES), "has a duration that is not a time")
    refuse(barrier & (schedule.seconds != 0), "cannot take time")
    op, idle = schedule.details.op, np.isin(schedule.kind, (LOCAL, BARRIER))
    refuse((op < -1) | (idle & (op != -1)), "has an op that is not a number of one")
    if schedule.means_of is not None:
        refuse(
            (schedule.means_of < -1) | (schedule.means_of >= len(schedule.means)),
            "has a means that is not there",
        )
        refuse(
            (schedule.means_of >= 0) & ~np.isin(schedule.kind, TRANSFERS),
            "moves no bytes, so it has no means",
        )


def _check_places(schedule: Table, refuse: Refuse) -> None:
    """Refuse transfers between ranks that do not exist or that nothing joins."""
    transfer = np.isin(schedule.kind, TRANSFERS)
    low, high = np.minimum(schedule.src, schedule.dst), np.maximum(schedule.src, schedule.dst)
    refuse(
        transfer & ((low < 0) | (high >= schedule.ranks)), "moves bytes from or to a rank that does not exist"
    )
    refuse(~transfer & ((low != -1) | (high != -1)), "has a source or destination, but moves no bytes")
    refuse(schedule.nbytes < 0, "cannot move fewer than 0 bytes")
    refuse(~transfer & (schedule.nbytes != 0), "has bytes, but is not a transfer")
    refuse(schedule.nbytes.cumsum(dtype=np.float64) >= 2.0**63, "moves more bytes than 64 bits count, in all")
    get = schedule.kind == GET
    refuse(transfer & get & (schedule.rank != schedule.dst), "belongs to the rank where its bytes arrive")
    refuse(transfer & ~get & (schedule.rank != schedule.src), "belongs to the rank whose bytes travel")
    refuse(transfer & (schedule.src != schedule.dst) & (schedule.nbytes <= 0), "moves no bytes; leave it out")
    missing = {pair for pair in schedule.used_pairs() if not schedule.routes[pair]}
    if missing:
        src, dst = min(missing)
        raise ScheduleError(f"bytes travel from rank {src} to rank {dst}, but no route joins them")
    idle = np.isin(schedule.kind, (LOCAL, BARRIER))
    refuse(idle & (schedule.details.buffer >= 0).any(axis=1), "touches no data, so it has no slices")
