"""How far two series agree in their order."""

from collections.abc import Sequence

import numpy as np

from umm.arrays import Floats


def rank_correlation(ours: Floats | Sequence[float], theirs: Floats | Sequence[float]) -> float:
    """Return Spearman's coefficient; equal values count in the order in which they come."""
    ranks = [np.argsort(np.argsort(x)) for x in (ours, theirs)]
    return float(np.corrcoef(*ranks)[0, 1])
