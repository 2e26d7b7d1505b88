"""Engines whose rate changes: shared by ranks on one device, or disturbed by their own transfers."""

from collections.abc import Callable

import numpy as np

from umm.arrays import Bools, Floats
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import BARRIER, KINDS, LOCAL
from umm_sim.clock import Call, Clock
from umm_sim.work import Work


class _Running(Work):
    """Work of an engine under way, such as a gemm, in seconds it takes of an engine that is all its own."""

    __slots__ = ("engine", "rank")

    def __init__(self, action: int, rank: int, engine: int, seconds: float, now: float) -> None:
        super().__init__(action, seconds, now)
        self.rank = rank
        self.engine = engine


class Engines:
    """Actions of one engine share it equally; transfers take their interference off their own rank's work."""

    def __init__(
        self,
        clock: Clock,
        schedule: Schedule,
        losses: Floats,
        computes: Bools,
        finish: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._finish = finish
        self._rank = schedule.rank.tolist()
        self._engine = schedule.lanes.engine[schedule.lane].tolist()
        self._seconds = schedule.seconds.tolist()
        self.disturbs: list[float] = losses.tolist()
        """Share of its rank's GEMM rate each action takes while it runs."""
        self.computes: list[bool] = computes.tolist()
        """Whether each action is work of an engine."""
        self._losses: list[list[float]] = [[] for _ in range(schedule.ranks)]
        self._keeps = [1.0] * schedule.ranks  # share of its GEMM rate that each rank has left
        self._running: dict[int, list[_Running]] = {}
        self._of_rank: list[list[_Running]] = [[] for _ in range(schedule.ranks)]
        self._ending: Call = self._end

    def start(self, action: int) -> None:
        """Let an action begin."""
        rank, engine = self._rank[action], self._engine[action]
        gemm = _Running(action, rank, engine, self._seconds[action], self._clock._now)
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

    def _end(self, gemm: _Running) -> None:
        if not gemm.has_ended(self._clock, self._ending):
            return
        running = self._running[gemm.engine]
        running.remove(gemm)
        self._of_rank[gemm.rank].remove(gemm)
        if running:
            self._share(gemm.engine)
        self._finish(gemm.action)


def found_engines(clock: Clock, schedule: Schedule, finish: Callable[[int], None]) -> Engines | None:
    """Return the engines of a schedule; None if nothing changes their rate: all work takes its seconds."""
    taken = (*schedule.interference.values(), *(means.interference for means in schedule.means))
    if schedule.lanes.own_engines and not any(taken):
        return None
    losses, computes = _losses(schedule), _computes(schedule)
    if _constant(schedule, losses, computes):
        return None
    return Engines(clock, schedule, losses, computes, finish)


def _losses(schedule: Schedule) -> Floats:
    """Return the share of its rank's GEMM rate that each action takes while it runs."""
    by_kind = np.array([schedule.interference.get(kind, 0.0) for kind in KINDS])
    share = by_kind[schedule.kind]
    if schedule.means_of is not None:
        by_means = np.array([means.interference for means in schedule.means])
        share = np.where(schedule.means_of >= 0, by_means[schedule.means_of], share)
    losses: Floats = share * (schedule.src != schedule.dst)
    return losses


def _computes(schedule: Schedule) -> Bools:
    """Return which actions are work of an engine: on a lane that has one, and with no link to cross."""
    kind = schedule.kind
    local = (kind != LOCAL) & (kind != BARRIER) & (schedule.src == schedule.dst)
    computes: Bools = local & (schedule.lanes.engine[schedule.lane] >= 0)
    return computes


def _constant(schedule: Schedule, losses: Floats, computes: Bools) -> bool:
    """Whether all work has an engine to itself and nothing disturbs it."""
    working = computes.nonzero()[0]
    disturbing = losses.nonzero()[0]
    if len(working) and len(disturbing):
        barriers = (schedule.kind == BARRIER).nonzero()[0]
        if not ((barriers > working[-1]) & (barriers < disturbing[0])).any():
            return False
    engines = schedule.lanes.engine[list({*schedule.lane[working].tolist()})].tolist()
    return len(engines) == len(set(engines))
