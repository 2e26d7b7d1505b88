"""The reference player: a schedule under way on SimPy's clock; ``_player.c`` has the same times."""

import numpy as np

from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER
from umm_sim.clock import Call, Clock
from umm_sim.engines import found_engines
from umm_sim.fabric.own_links import OwnLinks
from umm_sim.fabric.routes import routed
from umm_sim.fabric.shared_links import SharedLinks
from umm_sim.simulation import Times, all_finished
from umm_sim.successors import successors_of


class _Play:
    """A schedule under way.

    Attributes:
        started: When each action started, in seconds.
        finished: When each finished, −1 before it does.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._clock = clock = Clock()
        after = successors_of(schedule)
        self._first, self._waiting = after.first, after.waiting
        self._offsets, self._successors = after.offsets, after.successors
        self._seconds: list[float] = schedule.seconds.tolist()
        barriers: list[int] = (schedule.kind == BARRIER).nonzero()[0].tolist()
        self._barriers = set(barriers)
        self.started, self.finished = [0.0] * len(self._seconds), [-1.0] * len(self._seconds)
        self._finishing: Call = self._finish  # one object: alarms of one time share it
        self._engines = engines = found_engines(clock, schedule, self._finishing)
        self._disturbs = engines.disturbs if engines else []
        self._computes = engines.computes if engines else []
        transfers = routed(schedule)
        self._route = transfers.number
        # Both give max-min fair rates; the first spares what pairs that share no link need not.
        fabric = OwnLinks if transfers.disjoint else SharedLinks
        self._transfer: Call = fabric(clock, transfers, self._finishing).start

    def run(self) -> None:
        """Play it from beginning to end."""
        for action in self._first:
            self._begin(action)
        self._clock.run()

    def _begin(self, action: int) -> None:
        clock, engines = self._clock, self._engines
        self.started[action] = clock._now
        if self._route[action] >= 0:
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


def played(schedule: Schedule) -> Times:
    """Return when each action starts and finishes, in seconds; ScheduleError if some actions never finish."""
    play = _Play(schedule)
    play.run()
    return all_finished(np.array(play.started), np.array(play.finished))
