"""How fast this host multiplies and copies, as a quick look tells: to a factor of two, not more."""

from collections.abc import Callable
from functools import lru_cache
from time import perf_counter

import numpy as np

SIDE = 384
COPIED = 2**23  # bytes, more than caches hold of one core
LOOKS = 3


@lru_cache
def multiply_rate(dtype: str) -> float:
    """Return flop/s of one process that multiplies with all threads that BLAS has; half types as float32.

    Args:
        dtype: Of the factors: float64, float32, float16 or bfloat16.
    """
    kept = {"float64": np.float64, "float16": np.float16}.get(dtype, np.float32)
    factor = np.ones((SIDE, SIDE), dtype=kept)
    work = np.result_type(kept, np.float32)
    return 2 * SIDE**3 / _quickest(lambda: np.matmul(factor, factor, dtype=work))


@lru_cache
def copy_rate() -> float:
    """Return bytes/s of one process that copies."""
    source = np.ones(COPIED, dtype=np.uint8)
    target = np.empty_like(source)
    return COPIED / _quickest(lambda: np.copyto(target, source))


def _quickest(work: Callable[[], object]) -> float:
    """Return the seconds of the quickest of a few calls."""
    seconds = []
    for _ in range(LOOKS):
        began = perf_counter()
        work()
        seconds.append(perf_counter() - began)
    return max(min(seconds), 1e-9)
