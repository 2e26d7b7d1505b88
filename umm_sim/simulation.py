"""One schedule played on a clock: every action starts when the last thing it waits for has finished.

There are two players: ``player.py``, the reference, and ``_player.c``, the same in C, where the package was
compiled. Their makespans are equal to the last bit (docs/decisions/0026). SimPy is imported where the
reference plays.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from umm.arrays import Floats, Ints, in_c
from umm.errors import ScheduleError
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import KINDS
from umm_sim.fabric.routes import book_of, pair_codes, routed
from umm_sim.successors import successors_of

play: Callable[..., int] | None = in_c("umm_sim._player", "play")

Times = tuple[Floats, Floats]
"""When each action starts, and when it finishes, in seconds."""
_NO_MEANS = np.empty(0, dtype=np.int8)


def simulate(schedule: Schedule) -> Times:
    """Return when each action starts and finishes, in seconds.

    Raises:
        ScheduleError: if some actions never finish, because what they wait for waits for them.
    """
    return interpreted(schedule) if play is None else compiled(schedule, play)


def redrawn(schedule: Schedule, draws: Iterable[tuple[Floats, Ints]]) -> Iterator[float]:
    """Yield the makespan for each draw of the columns ``seconds`` and ``nbytes``.

    Interpreted, what waits for what and the routes are looked up once, which saves up to a tenth of the time.
    """
    known = (successors_of(schedule), routed(schedule)) if play is None else None
    for seconds, nbytes in draws:
        drawn = replace(schedule, seconds=seconds, nbytes=nbytes)
        if known is None:
            finished = simulate(drawn)[1]
        else:
            finished = interpreted(drawn, known[0], replace(known[1], nbytes=nbytes.tolist()))[1]
        yield float(finished.max(initial=0.0))


def interpreted(schedule: Schedule, *looked_up: Any) -> Times:
    """Return when each action starts and finishes, by the reference.

    Args:
        schedule: The schedule.
        looked_up: What waits for what, and the transfers' routes, where these are known already.
    """
    from umm_sim.player import played

    return _all_finished(*played(schedule, *looked_up))


def compiled(schedule: Schedule, play: Callable[..., Any]) -> Times:
    """Return when each action starts and finishes, by a compiled player."""
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
        np.ascontiguousarray(lanes.engine, np.int64),
        np.array([schedule.interference.get(kind, 0.0) for kind in KINDS]),
        _NO_MEANS if schedule.means_of is None else np.ascontiguousarray(schedule.means_of, np.int8),
        np.array([means.interference for means in schedule.means]),
        *routes,
        book.bandwidth,
        started,
        finished,
        schedule.ranks,
        book.disjoint,
        lanes.own_engines,
    )
    return _all_finished(started, finished)


def _all_finished(started: Floats, finished: Floats) -> Times:
    if finished.min(initial=0.0) < 0:
        raise ScheduleError(f"action {finished.argmin()} never finishes")
    return started, finished
