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
        ceiling: The same tau between the medians of every second run and of the others, of these pairs: a
            prediction cannot agree much better with the runs than they do with each other.
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
    ceiling: float
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
        tau=_tau([(a.predicted - b.predicted, a.time - b.time) for a, b in apart]),
        pairs=len(apart) / max(1, len(points) * (len(points) - 1) // 2),
        ceiling=_ceiling(apart),
        regret=predicted_best.time / best.time - 1,
        tie=not _apart(predicted_best, best),
        inside=float(np.mean([point.range[0] <= point.time <= point.range[1] for point in points])),
        width=float(np.median([(point.range[1] - point.range[0]) / point.predicted for point in points])),
        best=predicted_best.name,
    )


def _apart(one: Point, other: Point) -> bool:
    return abs(one.time - other.time) > one.spread + other.spread


def _ceiling(pairs: list[tuple[Point, Point]]) -> float:
    """Return tau-b of one half of the runs against the other."""
    halves = {id(x): (x.times[::2], x.times[1::2]) for pair in pairs for x in pair if len(x.times) > 1}
    first, second = ({layout: float(np.median(x[half])) for layout, x in halves.items()} for half in (0, 1))
    both = [(id(a), id(b)) for a, b in pairs if id(a) in halves and id(b) in halves]
    return _tau([(first[a] - first[b], second[a] - second[b]) for a, b in both])


def _tau(differences: list[tuple[float, float]]) -> float:
    """Return tau-b of pairs by their differences on two sides: a tie counts for neither side.

    >>> round(_tau([(1.0, 2.0), (1.0, 1.0), (-1.0, 1.0), (0.0, 1.0)]), 2)
    0.29
    """
    signs = np.sign(np.array(differences).reshape(-1, 2))
    decided = np.count_nonzero(signs, axis=0)
    return float(signs.prod(axis=1).sum() / np.sqrt(decided.prod())) if decided.all() else float("nan")
