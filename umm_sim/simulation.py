"""One schedule played on a clock: every action starts when the last thing it waits for has finished.

``_player.c`` plays it; ``player.py`` is the reference on SimPy, whose makespans are equal to the last bit.
"""

import numpy as np

from umm.arrays import Floats, in_c
from umm.errors import ScheduleError
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import KINDS
from umm_sim.fabric.routes import book_of, pair_codes

play = in_c("umm_sim._player", "play")

Times = tuple[Floats, Floats]  # when each action starts, and when it finishes, in seconds
_NO_MEANS = np.empty(0, dtype=np.int8)


def simulate(schedule: Schedule) -> Times:
    """Return when each action starts and finishes, in seconds.

    Raises:
        ScheduleError: if some actions never finish, because what they wait for waits for them.
    """
    book, lanes = book_of(schedule), schedule.lanes
    route, routes = book.columns(pair_codes(schedule))
    started, finished = np.empty(len(schedule)), np.empty(len(schedule))
    play(
        np.ascontiguousarray(schedule.kind, np.int8),
        *(
            np.ascontiguousarray(column, np.int64)
            for column in (
                schedule.rank,
                schedule.lane,
                schedule.after_offsets,
                schedule.after,
                schedule.src,
                schedule.dst,
                schedule.nbytes,
            )
        ),
        np.ascontiguousarray(schedule.seconds, np.float64),
        route,
        np.ascontiguousarray(lanes.engine_numbers, np.int64),
        np.array([schedule.interference.get(kind, 0.0) for kind in KINDS]),
        _NO_MEANS if schedule.means_of is None else np.ascontiguousarray(schedule.means_of, np.int8),
        np.array([means.interference for means in schedule.means]),
        *routes,
        book.bandwidth,
        started,
        finished,
        schedule.ranks,
        lanes.own_engines,
    )
    return all_finished(started, finished)


def all_finished(started: Floats, finished: Floats) -> Times:
    """Return the times of a play that has ended; ScheduleError if some actions have not finished."""
    if finished.min(initial=0.0) < 0:
        raise ScheduleError(f"action {finished.argmin()} never finishes")
    return started, finished
