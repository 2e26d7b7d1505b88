"""How well predictions agree with measurements: makespan error, order, regret, with ties called ties."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from experiments.cpu.points import Point


@dataclass(frozen=True)
class Agreement:
    """Agreement over a set of layouts of one shape.

    Attributes:
        points: Number of layouts.
        mean_error: Mean of the makespan errors, which is off zero if they lean one way.
        median_error: Median of the absolute errors.
        worst_error: The largest one.
        noise: Median of the standard errors of what was measured, as shares.
        tau: Kendall's tau-b over the pairs whose measured times differ by more than their spreads.
        pairs: Share of all pairs that do.
        regret: How much slower the predicted best measured than the measured best.
        tie: Whether that difference is within the spreads of the two.
        inside: Share of the points whose measured time lies in the range that is stated for it.
        width: Median width of these ranges, as a share of the prediction.
        best: The layout predicted to be best.
    """

    points: int
    mean_error: float
    median_error: float
    worst_error: float
    noise: float
    tau: float
    pairs: float
    regret: float
    tie: bool
    inside: float
    width: float
    best: str


def agreement(points: Sequence[Point]) -> Agreement:
    """Return the agreement over the layouts of one shape."""
    errors = np.array([point.error for point in points])
    predicted_best = min(points, key=lambda point: point.predicted)
    best = min(points, key=lambda point: point.time)
    apart = [pair for pair in combinations(points, 2) if _apart(*pair)]
    return Agreement(
        points=len(points),
        mean_error=float(errors.mean()),
        median_error=float(np.median(np.abs(errors))),
        worst_error=float(np.abs(errors).max()),
        noise=float(np.median([point.spread / point.time for point in points])),
        tau=_tau(apart),
        pairs=len(apart) / max(1, len(points) * (len(points) - 1) // 2),
        regret=predicted_best.time / best.time - 1,
        tie=not _apart(predicted_best, best),
        inside=float(np.mean([point.range[0] <= point.time <= point.range[1] for point in points])),
        width=float(np.median([(point.range[1] - point.range[0]) / point.predicted for point in points])),
        best=predicted_best.name,
    )


def _apart(one: Point, other: Point) -> bool:
    return abs(one.time - other.time) > one.spread + other.spread


def _tau(pairs: list[tuple[Point, Point]]) -> float:
    """Return tau-b of pairs whose measured times all differ: a predicted tie counts for neither side."""
    signs = [np.sign(a.predicted - b.predicted) * np.sign(a.time - b.time) for a, b in pairs]
    decided = np.count_nonzero(signs)
    return float(np.sum(signs) / np.sqrt(decided * len(pairs))) if decided else float("nan")
