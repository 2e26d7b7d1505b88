"""The rules a schedule table must keep, so that every executor can rely on them."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.errors import ScheduleError
from umm.problem import MATRICES
from umm.schedules.kinds import BARRIER, GEMM, KINDS, TRANSFERS
from umm.schedules.table import Schedule

AGES = 1e12
"""Seconds, some 30,000 years: no action takes longer."""


def check(schedule: Schedule) -> None:
    """Refuse a schedule whose actions break the rules of the table.

    Raises:
        ScheduleError: naming the first action that breaks one.
    """
    count = len(schedule)

    def refuse(bad: NDArray[np.bool_], why: str) -> None:
        if bad.any():
            i = int(np.argmax(bad))
            raise ScheduleError(f"action {i} ({KINDS[schedule.kind[i]]} of rank {schedule.rank[i]}) {why}")

    owner = np.repeat(np.arange(count), np.diff(schedule.after_offsets))
    bad_after = np.zeros(count, dtype=bool)
    bad_after[owner[(schedule.after >= owner) | (schedule.after < 0)]] = True
    refuse(bad_after, "waits for an action that does not come before it; every id in after must be smaller")
    barrier = schedule.kind == BARRIER
    refuse(
        ~barrier & ((schedule.rank < 0) | (schedule.rank >= schedule.ranks)), "has a rank that does not exist"
    )
    refuse(barrier != (schedule.lane < 0), "must have lane -1 if it is a barrier, and a lane otherwise")
    refuse(schedule.lane >= len(schedule.lanes), "has a lane that does not exist")
    refuse(
        ~barrier & (schedule.lanes.rank[schedule.lane] != schedule.rank),
        "is on a lane that belongs to another rank",
    )
    refuse(
        (schedule.kind == GEMM) & (schedule.lanes.engine[schedule.lane] < 0), "is on a lane without an engine"
    )
    refuse(~(schedule.seconds >= 0) | (schedule.seconds > AGES), "has a duration that is not a time")
    transfer = np.isin(schedule.kind, TRANSFERS)
    outside = (np.minimum(schedule.src, schedule.dst) < 0) | (
        np.maximum(schedule.src, schedule.dst) >= schedule.ranks
    )
    refuse(transfer & outside, "moves bytes from or to a rank that does not exist")
    refuse(transfer & (schedule.src != schedule.dst) & (schedule.nbytes <= 0), "moves no bytes; leave it out")
    missing = {pair for pair in schedule.used_pairs() if not schedule.routes[pair]}
    if missing:
        src, dst = min(missing)
        raise ScheduleError(f"bytes travel from rank {src} to rank {dst}, but no route joins them")
    _check_slices(schedule, refuse)


def _check_slices(schedule: Schedule, refuse: Callable[[NDArray[np.bool_], str], None]) -> None:
    """Refuse actions whose slices leave their tiles, or whose slots do not exist."""
    d = schedule.details
    problem = schedule.problem
    gemm = schedule.kind == GEMM

    def outside(
        where: NDArray[np.bool_], matrix: str, tile: Ints, rows: Ints, cols: Ints
    ) -> NDArray[np.bool_]:
        layout = problem.layout(matrix)
        grid = layout.grid_shape()
        bad: NDArray[np.bool_] = where & ((tile < 0) | (tile >= np.array(grid))).any(axis=1)
        for axis, (edges, span) in enumerate(((layout.row_edges, rows), (layout.col_edges, cols))):
            part = np.clip(tile[:, axis], 0, grid[axis] - 1)
            bad |= where & (
                (span[:, 0] < edges[part]) | (span[:, 1] > edges[part + 1]) | (span[:, 0] >= span[:, 1])
            )
        return bad

    sizes = f"of the {problem.m}x{problem.n}x{problem.k} problem"
    for matrix, tile, rows, cols in (
        ("A", d.a_tile, d.m, d.k),
        ("B", d.b_tile, d.k, d.n),
        ("C", d.c_tile, d.m, d.n),
    ):
        text = str(problem.layout(matrix))
        refuse(outside(gemm, matrix, tile, rows, cols), f"leaves its tile of {matrix} ({text}) {sizes}")
    for number, matrix in enumerate(MATRICES):
        text = str(problem.layout(matrix))
        moved = d.matrix == number
        refuse(
            outside(moved, matrix, d.tile, d.rows, d.cols), f"leaves its tile of {matrix} ({text}) {sizes}"
        )
    slots = np.array([len(pool) for pool in schedule.pools])
    for slot in (d.slot, d.a_slot, d.b_slot, d.c_slot):
        refuse(slot >= slots[schedule.rank], "uses a pool slot that does not exist")
