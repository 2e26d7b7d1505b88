"""Decisions under noise: makespans over draws of slow ranks and jitter, and the layout that suffers least."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Floats, Ints
from umm.executor import Executor
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import LOCAL
from umm.space.choice import Choice
from umm.space.search.found import Found
from umm.space.search.noise import Noise
from umm.space.search.walk import BestFirst
from umm.units import counted, format_seconds, percent

MAX_SLOWDOWN = 1.1  # up to how many times the least makespan a point is a candidate for the robust choice
CANDIDATES = 20  # how many points are, at most
LEAST_SAVING = 0.02
"""Share of the p95 of the fastest that a robust choice saves at least: on two cores smaller savings were
measured as losses (experiments/cpu, robust)."""
MOST_DRAWN = 4_000_000
"""Actions simulated over all draws of all candidates; the fastest are kept where that would be more."""


class Spread(NamedTuple):
    """Median and 95th percentile of a makespan over draws, in seconds."""

    p50_s: float
    p95_s: float


def drawn_makespans(schedule: Schedule, noise: Noise, performer: Executor) -> Floats:
    """Return the makespan of a schedule in each draw, in seconds.

    Local work (gemms, maps, local sums) takes its rank's factor times its seconds; a transfer between ranks
    has the bytes it puts on its route times the factor of the rank they leave. It waits its launch times the
    factor of its own rank, as does the start of a collective.
    """
    # One straggler without jitter has as many days as ranks: each is simulated once.
    days, of_draw = np.unique(noise.by_run(schedule.ranks), axis=0, return_inverse=True)
    # Noise by kind: bytes slow with the sender's link, starts with the
    # rank's launch factor, the rest with its gemms.
    moves = (schedule.src != schedule.dst) & (schedule.src >= 0)
    alone = schedule.rank < 0  # barriers
    launches = moves | (schedule.kind == LOCAL)
    rank, src = np.where(alone, 0, schedule.rank), np.where(moves, schedule.src, 0)

    def column(day: Floats) -> tuple[Floats, Ints]:
        gemm, link, launch = day
        seconds = schedule.seconds * np.where(alone, 1.0, np.where(launches, launch[rank], gemm[rank]))
        nbytes = np.rint(schedule.nbytes * np.where(moves, link[src], 1.0)).astype(np.int64)
        return seconds, nbytes

    redrawn = (replace(schedule, seconds=x, nbytes=y) for x, y in map(column, days))
    seconds = [performer.makespan(x) for x in redrawn]
    return np.array(seconds)[of_draw.reshape(-1)]


def spread(schedule: Schedule, noise: Noise, performer: Executor) -> Spread:
    """Return the median and the 95th percentile of a schedule's makespan over draws."""
    return _spread(drawn_makespans(schedule, noise, performer))


def _spread(seconds: Floats) -> Spread:
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    return Spread(float(p50), float(p95))


@dataclass(frozen=True)
class Delays:
    """Runs with delays beside the simulator's of the same draws."""

    noise: Noise  # what was drawn
    predicted: Spread  # median and p95 of the predicted makespans
    measured: Spread  # those of the measured ones, of the same draws

    @classmethod
    def of(cls, schedule: Schedule, noise: Noise, performer: Executor, seconds: Sequence[float]) -> "Delays":
        """Return the two; of runs that were ended early the draws that ran.

        Args:
            seconds: Of each run, in the order of the draws.
        """
        # The same draws as the runs had: only then do differences show the model and not the luck of a draw.
        predicted = drawn_makespans(schedule, noise, performer)[: len(seconds)]
        ran = replace(noise, draws=len(seconds))
        return cls(ran, _spread(predicted), _spread(np.array(seconds)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "noise": self.noise.to_dict(),
            "predicted": self.predicted._asdict(),
            "measured": self.measured._asdict(),
        }

    def __str__(self) -> str:
        parts = []
        for name, predicted, measured in zip(("p50", "p95"), self.predicted, self.measured, strict=True):
            parts.append(
                f"{name} predicted {format_seconds(predicted)}, measured {format_seconds(measured)} "
                f"({percent(predicted / measured - 1, 1, signed=True)})"
            )
        return f"With {self.noise}: {'; '.join(parts)}."


@dataclass(frozen=True)
class Robust:
    """The point with the least p95 among the best ones."""

    noise: Noise  # what was drawn
    fastest: Choice  # the point with the least makespan without noise
    choice: Choice  # the one with the least p95
    spreads: dict[Choice, Spread]  # median and p95 of every candidate

    @property
    def good_day_cost(self) -> float:
        """How much longer than the fastest the robust choice takes without noise, as a share."""
        return self.choice.makespan_s / self.fastest.makespan_s - 1

    @property
    def saving(self) -> float:
        """How much less its p95 is than that of the fastest, as a share."""
        return 1 - self.spreads[self.choice].p95_s / self.spreads[self.fastest].p95_s

    def to_dict(self) -> dict[str, Any]:
        """Return the robust choice, its cost and its saving as plain values."""
        return self.choice.to_dict() | {
            **self.spreads[self.choice]._asdict(),
            "noise": self.noise.to_dict(),
            "is_fastest": self.choice == self.fastest,
            "good_day_cost": self.good_day_cost,
            "p95_saving": self.saving,
            "candidates": len(self.spreads),
        }

    def record(self, choice: Choice) -> dict[str, float | None]:
        """Return the median and p95 of a point as plain values, None of one that was no candidate."""
        result = self.spreads.get(choice)
        return {"p50_s": None, "p95_s": None} if result is None else result._asdict()

    def __str__(self) -> str:
        first, best = self.spreads[self.fastest], self.spreads[self.choice]
        among = f"of {counted(len(self.spreads), 'candidate')}"
        if self.choice == self.fastest:
            return (
                f"With {self.noise}, the fastest is also the robust choice {among}: p50 "
                f"{format_seconds(best.p50_s)}, p95 {format_seconds(best.p95_s)}."
            )
        return (
            f"With {self.noise}, the least p95 {among} is {format_seconds(best.p95_s)} (p50 "
            f"{format_seconds(best.p50_s)}): {self.choice.words}, {self.choice.way}. The fastest has p95 "
            f"{format_seconds(first.p95_s)}. On a good day the robust choice takes "
            f"{100 * self.good_day_cost:.2g} % more: {format_seconds(self.choice.makespan_s)}."
        )


def robust(result: Found, noise: Noise, performer: Executor) -> Robust:
    """Return the point with the least p95 among the best of a search, and its cost without noise.

    A small saving is within what predictions of two layouts are off by: the fastest without noise is taken if
    another saves less than :data:`LEAST_SAVING` of its p95.
    """
    noise.by_run(result.points.ranks)  # refuses more stragglers than ranks
    spreads: dict[Choice, Spread] = {}
    left = MOST_DRAWN
    for x in candidates(result):
        # The first candidate, the fastest, is always drawn: the others are compared with it.
        left -= x.actions * noise.draws
        if spreads and left < 0:
            break
        spreads[x] = spread(x.schedule(result.pricer.machine), noise, performer)
    fastest = next(iter(spreads))
    # The tail decides; among equal tails the point that is faster without noise.
    best = min(spreads, key=lambda x: (spreads[x].p95_s, x.makespan_s))
    if spreads[best].p95_s > spreads[fastest].p95_s * (1 - LEAST_SAVING):
        best = fastest
    return Robust(noise, fastest, best, spreads)


def candidates(result: Found) -> Sequence[Choice]:
    """Return the points worth drawing for, fastest first: the best ones, and of a multiply the front."""
    # A robust point may lie on the front of time and memory without being among the top by time.
    near = list(result.top)
    if result.space.is_multiply:
        best = BestFirst(result.pricer, result.limit, CANDIDATES)
        best.run()
        near += [*best.found.choices(), *result.frontier]
    reach = MAX_SLOWDOWN * result.top[0].makespan_s
    near = sorted((x for x in near if x.makespan_s <= reach), key=lambda x: x.makespan_s)
    return list(dict.fromkeys([result.top[0], *near]))[:CANDIDATES]
