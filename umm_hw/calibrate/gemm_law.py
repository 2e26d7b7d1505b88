"""The law that seconds of multiplies follow on a core, and times drawn to it where repeats scatter.

A multiply takes its arithmetic, and besides what it packs, loads and stores, of A, B and C each as much as
there is of them, and its call: seconds = mnk · (a + b/n + c/m + d/k) + e. Five numbers that hundreds of
shapes share are surer than any one shape's own repeats.
"""

from collections.abc import Sequence

import numpy as np

from umm.arrays import Floats

ROUNDS = 50  # of reweighting, after which the fit changes no more
LEAST = 0.01  # relative residual below which a shape counts no more than others


def law(shapes: Sequence[tuple[int, int, int]], seconds: Floats) -> Floats:
    """Return the seconds that the law gives each shape (m, n, k): relative errors, least in absolute sum.

    >>> shapes = [(m, n, k) for m in (16, 256) for n in (16, 256) for k in (16, 256)]
    >>> took = np.array([m * n * k * (2e-11 + 3e-10 / n) for m, n, k in shapes])
    >>> bool(np.allclose(law(shapes, took), took, rtol=1e-6))
    True
    """
    m, n, k = np.array(shapes, dtype=np.float64).T
    terms = np.stack([m * n * k, m * k, n * k, m * n, np.ones_like(m)], axis=1) / seconds[:, None]
    weight = np.ones(len(seconds))
    for _ in range(ROUNDS):
        factors = np.linalg.lstsq(terms * weight[:, None], weight, rcond=None)[0]
        weight = np.maximum(np.abs(terms @ factors - 1), LEAST) ** -0.5
    return np.asarray(terms @ factors * seconds)


def drawn_to_law(
    shapes: Sequence[tuple[int, int, int]], seconds: Floats, noise: Floats
) -> tuple[Floats, float]:
    """Return each shape's seconds between measurement and law, and the scatter that noise leaves unexplained.

    The less of their distance noise explains, the nearer to the measurement.

    Args:
        shapes: m, n and k of each.
        seconds: Measured.
        noise: Standard error of each, as a share of it.
    """
    fitted = np.maximum(
        law(shapes, seconds), seconds / 4
    )  # small shapes may fall below what the law can give
    off = np.log(seconds / fitted)
    scatter = float(np.median(np.abs(off))) * 1.48  # a standard deviation, whatever a few shapes do
    variance = max(0.0, scatter**2 - float(np.median(noise)) ** 2)
    trust = variance / scatter**2 if scatter else 1.0
    return fitted * np.exp(trust * off), variance**0.5
