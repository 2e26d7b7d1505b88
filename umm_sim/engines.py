"""GEMM engines whose rate changes: shared by ranks on one device, or disturbed by their own transfers."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from umm.schedules.kinds import BARRIER, GEMM, KINDS
from umm.schedules.table import Schedule
from umm_sim.clock import Clock
from umm_sim.work import Work

Floats = NDArray[np.float64]


class _Gemm(Work):
    """A running gemm: its work are the seconds it takes of an engine that is all its own."""

    __slots__ = ("engine", "rank")

    def __init__(self, action: int, rank: int, engine: int, seconds: float, now: float) -> None:
        super().__init__(action, seconds, now)
        self.rank = rank
        self.engine = engine


class GemmEngines:
    """Gemms of one engine share it equally; a rank's transfers take their interference off its own gemm."""

    def __init__(
        self, clock: Clock, schedule: Schedule, losses: Floats, finish: Callable[[int], None]
    ) -> None:
        self._clock = clock
        self._finish = finish
        self._rank = schedule.rank.tolist()
        self._engine = schedule.lanes.engine[schedule.lane].tolist()
        self._seconds = schedule.seconds.tolist()
        self.disturbs: list[float] = losses.tolist()
        """Share of its rank's GEMM rate each action takes while it runs."""
        self._losses: list[list[float]] = [[] for _ in range(schedule.ranks)]
        self._keeps = [1.0] * schedule.ranks  # share of its GEMM rate that each rank has left
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
        rank, loss = self._rank[action], self.disturbs[action]
        self._losses[rank].append(loss)
        if 1.0 - loss < self._keeps[rank]:
            self._keeps[rank] = 1.0 - loss
            self._touch_rank(rank)

    def restore(self, action: int) -> None:
        """Give the action's share back."""
        rank = self._rank[action]
        losses = self._losses[rank]
        losses.remove(self.disturbs[action])
        keeps = 1.0 - max(losses) if losses else 1.0
        if keeps != self._keeps[rank]:
            self._keeps[rank] = keeps
            self._touch_rank(rank)

    def _touch_rank(self, rank: int) -> None:
        for gemm in self._of_rank[rank]:
            self._share(gemm.engine)

    def _share(self, engine: int) -> None:
        """Give the engine's gemms their rates; within one instant this may happen more than once."""
        running, keeps = self._running[engine], self._keeps
        for gemm in running:
            rate = keeps[gemm.rank] / len(running)
            if rate != gemm.rate:
                gemm.go_on(rate, self._clock, self._ending)

    def _end(self, gemm: _Gemm) -> None:
        if not gemm.has_ended(self._clock, self._ending):
            return
        running = self._running[gemm.engine]
        running.remove(gemm)
        self._of_rank[gemm.rank].remove(gemm)
        if running:
            self._share(gemm.engine)
        self._finish(gemm.action)


def gemm_engines(clock: Clock, schedule: Schedule, finish: Callable[[int], None]) -> GemmEngines | None:
    """Return the engines of a schedule; None if nothing changes their rate: a gemm takes its seconds."""
    losses = _losses(schedule)
    return None if _constant(schedule, losses) else GemmEngines(clock, schedule, losses, finish)


def _losses(schedule: Schedule) -> Floats:
    """Return the share of its rank's GEMM rate that each action takes while it runs."""
    by_kind = np.array([schedule.interference.get(kind, 0.0) for kind in KINDS])
    losses: Floats = by_kind[schedule.kind] * (schedule.src != schedule.dst)
    return losses


def _constant(schedule: Schedule, losses: Floats) -> bool:
    """Whether every gemm has an engine to itself and nothing disturbs it."""
    gemms = (schedule.kind == GEMM).nonzero()[0]
    disturbing = losses.nonzero()[0]
    if len(gemms) and len(disturbing):
        barriers = (schedule.kind == BARRIER).nonzero()[0]
        if not ((barriers > gemms[-1]) & (barriers < disturbing[0])).any():
            return False
    engines = schedule.lanes.engine[list({*schedule.lane[gemms].tolist()})].tolist()
    return len(engines) == len(set(engines))
