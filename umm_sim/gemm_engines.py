"""GEMM engines whose speed changes: shared by ranks on one device, or disturbed by their own transfers."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from umm.schedules.table import BARRIER, GEMM, KINDS, Schedule
from umm_sim.clock import Clock
from umm_sim.work import Work


class _Gemm(Work):
    """A running gemm: its work are the seconds it takes of an engine that is all its own."""

    __slots__ = ("engine", "rank")

    def __init__(self, action: int, rank: int, engine: int, seconds: float, now: float) -> None:
        super().__init__(action, seconds, now)
        self.rank = rank
        self.engine = engine


class GemmEngines:
    """Gemms of one engine share it equally; a rank's transfers take their interference off its own gemm."""

    def __init__(self, clock: Clock, schedule: Schedule, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._rank = schedule.rank.tolist()
        self._engine = schedule.lanes.engine[schedule.lane].tolist()
        self._seconds = schedule.seconds.tolist()
        self.disturbs: list[float] = _losses(schedule).tolist()
        """Share of its rank's GEMM rate each action takes while it runs."""
        self._losses: list[list[float]] = [[] for _ in range(schedule.ranks)]
        self._running: dict[int, list[_Gemm]] = {}
        self._of_rank: list[list[_Gemm]] = [[] for _ in range(schedule.ranks)]
        self._ending = self._end

    def start(self, action: int) -> None:
        """Let a gemm begin."""
        rank, engine = self._rank[action], self._engine[action]
        gemm = _Gemm(action, rank, engine, self._seconds[action], self._clock._now)
        self._running.setdefault(engine, []).append(gemm)
        self._of_rank[rank].append(gemm)
        self._share(engine)

    def disturb(self, action: int) -> None:
        """Take the action's share off its rank's gemm."""
        losses, loss = self._losses[self._rank[action]], self.disturbs[action]
        more = loss > max(losses, default=0.0)
        losses.append(loss)
        if more:
            self._touch_rank(self._rank[action])

    def restore(self, action: int) -> None:
        """Give the action's share back."""
        losses, loss = self._losses[self._rank[action]], self.disturbs[action]
        losses.remove(loss)
        if loss > max(losses, default=0.0):
            self._touch_rank(self._rank[action])

    def _touch_rank(self, rank: int) -> None:
        for gemm in self._of_rank[rank]:
            self._share(gemm.engine)

    def _share(self, engine: int) -> None:
        """Give the engine's gemms their rates; within one instant this may happen more than once."""
        running = self._running[engine]
        for gemm in running:
            rate = (1.0 - max(self._losses[gemm.rank], default=0.0)) / len(running)
            if rate != gemm.rate:
                gemm.go_on(rate, self._clock, self._ending)

    def _end(self, gemm: _Gemm) -> None:
        if not gemm.has_ended(self._clock, self._ending):
            return
        running = self._running[gemm.engine]
        running.remove(gemm)
        self._of_rank[gemm.rank].remove(gemm)
        self._share(gemm.engine)
        self._finish(gemm.action)


def _losses(schedule: Schedule) -> NDArray[np.float64]:
    """Return the share of its rank's GEMM rate that each action takes while it runs."""
    by_kind = np.array([schedule.interference.get(kind, 0.0) for kind in KINDS])
    losses: NDArray[np.float64] = by_kind[schedule.kind] * (schedule.src != schedule.dst)
    return losses


def constant(schedule: Schedule) -> bool:
    """Whether every gemm has an engine to itself and nothing disturbs it, so that it takes its seconds."""
    gemms = (schedule.kind == GEMM).nonzero()[0]
    disturbing = _losses(schedule).nonzero()[0]
    if len(gemms) and len(disturbing):
        barriers = (schedule.kind == BARRIER).nonzero()[0]
        if not np.any((barriers > gemms[-1]) & (barriers < disturbing[0])):
            return False
    lanes = np.bincount(schedule.lane[gemms], minlength=1).nonzero()[0]
    engines = schedule.lanes.engine[lanes].tolist()
    return len(engines) == len(set(engines))
