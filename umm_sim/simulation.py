"""One schedule played on a clock: every action starts when the last thing it waits for has finished.

``_player.c`` plays it; ``player.py`` is the reference on SimPy, whose makespans are equal to the last bit.
"""

from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, in_c
from umm.errors import ScheduleError
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import KINDS
from umm_sim.fabric.routes import book_of, pair_codes

play = in_c("umm_sim._player", "play")

Times = tuple[Floats, Floats]  # when each action starts, and when it finishes, in seconds
_COLUMNS = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")
_TYPES: list[np.dtype[Any]] = [np.dtype(np.int8), *[np.dtype(np.int64)] * 7, np.dtype(np.float64)]
_NO_ROUTES = np.empty(0, dtype=np.int32)
_NO_MEANS = np.empty(0, dtype=np.int8), np.empty(0)


def simulate(schedule: Schedule) -> Times:
    """Return when each action starts and finishes, in seconds.

    ScheduleError if some actions never finish, because what they wait for waits for them.
    """
    return _simulated(schedule)[:2]


def makespan(schedule: Schedule) -> float:
    """Return when the last action finishes, in seconds; ScheduleError if some actions never finish."""
    return _simulated(schedule)[2]


def _simulated(schedule: Schedule) -> tuple[Floats, Floats, float]:
    book, lanes, count = book_of(schedule), schedule.lanes, len(schedule)
    started, finished = np.empty(count), np.empty(count)
    columns = [getattr(schedule, name) for name in _COLUMNS]
    described = (
        _losses(tuple(schedule.interference.items())),
        *(_means(schedule) if schedule.means else _NO_MEANS),
    )
    rest = (book.bandwidth, started, finished, schedule.ranks)
    numbers, routes = book.known
    last = None
    if [x.dtype for x in columns] == _TYPES and lanes.engine.dtype == np.int64:
        with suppress(ValueError):  # of columns that lie apart
            last = play(*columns, _NO_ROUTES, numbers, lanes.engine, *described, *routes, *rest)
    # As some files have them or their engines, or with pairs of ranks whose routes nobody has asked for.
    if last is None:
        columns = [np.ascontiguousarray(x, kind) for x, kind in zip(columns, _TYPES, strict=True)]
        route, routes = book.columns(pair_codes(schedule))
        last = play(*columns, route, _NO_ROUTES, lanes.engine_numbers, *described, *routes, *rest)
    if last < 0:
        raise _unfinished(finished)
    return started, finished, last


@lru_cache(maxsize=64)
def _losses(interference: tuple[tuple[str, float], ...]) -> Floats:
    """Return the share of its GEMM rate that each kind of action takes."""
    by_kind = dict(interference)
    return np.array([by_kind.get(kind, 0.0) for kind in KINDS])


def _means(schedule: Schedule) -> tuple[NDArray[np.int8], Floats]:
    """Return the means of each action, and the share of its GEMM rate that each of them takes."""
    means_of = np.empty(0) if schedule.means_of is None else schedule.means_of
    return np.ascontiguousarray(means_of, np.int8), np.array([x.interference for x in schedule.means])


def all_finished(started: Floats, finished: Floats) -> Times:
    """Return the times of a play that has ended; ScheduleError if some actions have not finished."""
    if finished.min(initial=0.0) < 0:
        raise _unfinished(finished)
    return started, finished


def _unfinished(finished: Floats) -> ScheduleError:
    return ScheduleError(f"action {finished.argmin()} never finishes")
