"""GEMM engines whose speed changes: shared by ranks on one device, or disturbed by their own transfers."""

from collections.abc import Callable

from umm.schedules.table import GEMM, KINDS, Schedule
from umm_sim.clock import Alarm, Clock


class _Gemm:
    """A running gemm: seconds of engine still to go at time ``since``, and how fast they pass."""

    __slots__ = ("action", "alarm", "engine", "left", "rank", "rate", "since")

    def __init__(self, action: int, rank: int, engine: int, seconds: float, now: float) -> None:
        self.action = action
        self.rank = rank
        self.engine = engine
        self.left = seconds
        self.rate = 0.0
        self.since = now
        self.alarm: Alarm | None = None


class GemmEngines:
    """Gemms of one engine share it equally; a rank's transfers take their interference off its own gemm."""

    def __init__(self, clock: Clock, schedule: Schedule, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._rank = schedule.rank.tolist()
        self._engine = schedule.lanes.engine[schedule.lane].tolist()
        self._seconds = schedule.seconds.tolist()
        loss = [schedule.interference.get(kind, 0.0) for kind in KINDS]
        self.disturbs = [
            loss[kind] if src != dst else 0.0
            for kind, src, dst in zip(
                schedule.kind.tolist(), schedule.src.tolist(), schedule.dst.tolist(), strict=True
            )
        ]
        """Share of its rank's GEMM rate each action takes while it runs."""
        self._losses: list[dict[float, int]] = [{} for _ in range(schedule.ranks)]
        self._running: dict[int, list[_Gemm]] = {}
        self._of_rank: list[list[_Gemm]] = [[] for _ in range(schedule.ranks)]
        self._touched: set[int] = set()
        self._ringing = [self._ring]

    def start(self, action: int) -> None:
        """Let a gemm begin."""
        rank, engine = self._rank[action], self._engine[action]
        gemm = _Gemm(action, rank, engine, self._seconds[action], self._clock._now)
        self._running.setdefault(engine, []).append(gemm)
        self._of_rank[rank].append(gemm)
        self._touch(engine)

    def disturb(self, action: int, count: int) -> None:
        """Count a transfer of a rank in (+1) or out (−1)."""
        rank, losses = self._rank[action], self._losses[self._rank[action]]
        loss = self.disturbs[action]
        losses[loss] = losses.get(loss, 0) + count
        if losses[loss] == 0:
            del losses[loss]
        for gemm in self._of_rank[rank]:
            self._touch(gemm.engine)

    def _touch(self, engine: int) -> None:
        if not self._touched:
            self._clock.settle(self._share)
        self._touched.add(engine)

    def _share(self) -> None:
        now = self._clock._now
        touched, self._touched = self._touched, set()
        for engine in touched:
            running = self._running[engine]
            for gemm in running:
                rate = (1.0 - max(self._losses[gemm.rank], default=0.0)) / len(running)
                if rate == gemm.rate:
                    continue
                gemm.left -= gemm.rate * (now - gemm.since)
                gemm.rate, gemm.since = rate, now
                gemm.alarm = alarm = Alarm(self._ringing, gemm)
                self._clock.ring(alarm, max(gemm.left, 0.0) / rate)

    def _ring(self, alarm: Alarm) -> None:
        gemm: _Gemm = alarm.key
        if gemm.alarm is not alarm:
            return
        self._running[gemm.engine].remove(gemm)
        self._of_rank[gemm.rank].remove(gemm)
        self._touch(gemm.engine)
        self._finish(gemm.action)


def constant(schedule: Schedule) -> bool:
    """Whether every gemm has an engine to itself and nothing disturbs it, so that it takes its seconds."""
    kinds = {KINDS[kind] for kind in set(schedule.kind[schedule.src != schedule.dst].tolist())}
    if any(schedule.interference.get(kind, 0.0) > 0 for kind in kinds):
        return False
    gemm_lanes = set(schedule.lane[schedule.kind == GEMM].tolist())
    engines = [int(schedule.lanes.engine[lane]) for lane in gemm_lanes]
    return len(engines) == len(set(engines))
