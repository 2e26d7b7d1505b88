"""One schedule played on a clock: every action starts when the last thing it waits for has finished.

There are two players: :class:`_Play`, the reference, and ``_player.c``, the same in C, where the package was
compiled. Their makespans are equal to the last bit (docs/decisions/0026).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from umm.arrays import Floats, Ints
from umm.errors import ScheduleError
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, KINDS
from umm.schedules.writer.assembly import without_collector
from umm_sim.clock import Call, Clock, nothing
from umm_sim.engines import found_engines, sharers
from umm_sim.fabric.choice import fabric_model
from umm_sim.fabric.routes import Routed, book_of, pair_codes, routed
from umm_sim.successors import Successors, successors_of

play: Callable[..., int] | None
try:
    from umm_sim._player import play
except ImportError:  # not compiled: see make wheel
    play = None

Times = tuple[Floats, Floats]
"""When each action starts, and when it finishes, in seconds."""
_NO_MEANS = np.empty(0, dtype=np.int8)


class _Play:
    """A schedule under way.

    Attributes:
        started: When each action started, in seconds.
        finished: When each finished, −1 before it does.
    """

    def __init__(
        self, schedule: Schedule, after: Successors | None = None, transfers: Routed | None = None
    ) -> None:
        self._clock = clock = Clock()
        after = after or successors_of(schedule)
        self._first, self._waiting = after.first, after.waiting.copy()
        self._offsets, self._successors = after.offsets, after.successors
        self._seconds: list[float] = schedule.seconds.tolist()
        barriers: list[int] = (schedule.kind == BARRIER).nonzero()[0].tolist()
        self._barriers = set(barriers)
        self.started, self.finished = [0.0] * len(self._seconds), [-1.0] * len(self._seconds)
        self._finishing: Call = self._finish  # one object: alarms of one time share it
        self._engines = engines = found_engines(clock, schedule, self._finishing)
        self._disturbs = engines.disturbs if engines else []
        self._computes = engines.computes if engines else []
        transfers = transfers or routed(schedule)
        self._codes = transfers.codes
        self._fabric = fabric_model(clock, transfers, self._finishing)
        self._transfer: Call = self._fabric.start

    def run(self) -> None:
        """Play it from beginning to end."""
        for action in self._first:
            self._begin(action)
        self._clock.run()

    def close(self) -> None:
        """Let go of what calls this, so that its memory is free at once, without the garbage collector."""
        self._finishing = self._transfer = nothing
        self._fabric.close()
        if self._engines:
            self._engines.close()

    def _begin(self, action: int) -> None:
        clock, engines = self._clock, self._engines
        self.started[action] = clock._now
        if self._codes[action] >= 0:
            if engines and self._disturbs[action]:
                engines.disturb(action)
            seconds = self._seconds[action]
            if seconds:
                clock.at(clock._now + seconds, self._transfer, action)
            else:
                self._transfer(action)
        elif engines and self._computes[action]:
            engines.start(action)
        elif action in self._barriers:
            self._finish(action)
        else:
            clock.at(clock._now + self._seconds[action], self._finishing, action)

    def _finish(self, action: int) -> None:
        self.finished[action] = self._clock._now
        engines = self._engines
        if engines and self._disturbs[action]:
            engines.restore(action)
        waiting, successors = self._waiting, self._successors
        for place in range(self._offsets[action], self._offsets[action + 1]):
            successor = successors[place]
            left = waiting[successor] - 1
            if left:
                waiting[successor] = left
            else:
                self._begin(successor)


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


@without_collector()
def interpreted(
    schedule: Schedule, after: Successors | None = None, transfers: Routed | None = None
) -> Times:
    """Return when each action starts and finishes, by the reference."""
    play = _Play(schedule, after, transfers)
    try:
        play.run()
    finally:
        play.close()
    return _all_finished(np.array(play.started), np.array(play.finished))


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
                sharers(schedule),
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
