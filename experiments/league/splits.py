"""Experts split by tensor or by expert parallelism: which is faster, of kernels that were not fitted."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.league.serving import games, law

APART = 1.1
"""Ratio of two times from which their order counts."""
SHAPE = ["dtype", "tokens", "hidden", "inter", "top_k", "experts", "skew", "kernel"]


def report(folder: Path) -> Iterator[str]:
    """Yield for each system and engine the pairs of a shape whose order is right, and the mean error."""
    totals, errors = [0, 0], list[float]()
    yield f"{'system, engine':34}{'pairs':>8}{'order right':>14}{'mean error':>13}"
    for game in games(folder):
        if game.kind != "experts":
            continue
        rows = game.rows.assign(law=law(game), ranks=game.rows.tp * game.rows.ep)
        rows = rows[np.isfinite(rows.law) & (rows.ranks > 1) & ((rows.tp == 1) | (rows.ep == 1))]
        right, some = _pairs(rows)
        if not right:
            continue
        totals = [totals[0] + sum(right), totals[1] + len(right)]
        errors += some
        yield f"{game.name:34}{len(right):>8}{sum(right):>14}{np.mean(some):>13.0%}"
    yield f"{'all':34}{totals[1]:>8}{totals[0]:>14}{np.mean(errors):>13.1%}"


def _pairs(rows: pd.DataFrame) -> tuple[list[bool], list[float]]:
    """Return whether each pair's order is right, and the errors of both."""
    right, errors = list[bool](), list[float]()
    for _, some in rows.groupby([*SHAPE, "ranks"]):
        for one, other in combinations(some.itertuples(), 2):
            ratio = one.seconds / other.seconds
            if one.tp != other.tp and max(ratio, 1 / ratio) > APART:
                right.append((ratio > 1) == (one.law > other.law))
                errors += [abs(x.law / x.seconds - 1) for x in (one, other)]
    return right, errors
