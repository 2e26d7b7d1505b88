"""Least squares for laws that are off by factors: all in logarithms, and outliers count less."""

from collections.abc import Callable

import numpy as np

from umm.arrays import Floats

STEP = 0.03
"""Of a parameter's logarithm, to see what it does; laws with whole tiles have small steps of their own."""
OUTLIER = 0.1
"""Misfit from which rows count by its size, not its square."""
PULL = 0.01
"""By which parameters that no row decides stay where they began."""


def cost(misfits: Floats) -> float:
    """Return the sum of misfits, squared where they are small.

    >>> round(cost(np.array([0.01])), 6), round(cost(np.array([1.0])), 3)
    (0.0001, 0.181)
    """
    return float(np.sum(2 * OUTLIER**2 * (np.sqrt(1 + (misfits / OUTLIER) ** 2) - 1)))


def least(misfits: Callable[[Floats], Floats], begin: Floats, most: int = 40, pull: float = PULL) -> Floats:
    """Return the parameters of the least cost near where they begin, by Levenberg's method.

    Args:
        misfits: Logarithms of predicted over measured, from parameters.
        begin: The parameters to begin with.
        most: Steps.
        pull: Misfit that counts for each unit of a parameter's way from where it began.

    >>> x = np.arange(1.0, 5.0)
    >>> least(lambda p: p[0] + p[1] * x - (2.0 + 3.0 * x), np.array([0.0, 0.0])).round(1).tolist()
    [2.0, 3.0]
    """

    def pulled(at: Floats) -> Floats:
        return np.concatenate([misfits(at), pull * (at - begin)])

    at, damping = begin.copy(), 1.0
    now = pulled(at)
    for _ in range(most):
        slopes = np.stack([(pulled(at + STEP * axis) - now) / STEP for axis in np.eye(len(at))], axis=1)
        weights = 1.0 / np.sqrt(1 + (now / OUTLIER) ** 2)
        normal, down = slopes.T @ (weights[:, None] * slopes), slopes.T @ (weights * now)
        before = cost(now)
        for _ in range(6):
            move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -down)
            tried = at + np.clip(move, -1.0, 1.0)
            misfit = pulled(tried)
            if cost(misfit) < before:
                at, now, damping = tried, misfit, damping / 3
                break
            damping *= 3
        if before - cost(now) < 1e-5 * before:
            break
    return at
