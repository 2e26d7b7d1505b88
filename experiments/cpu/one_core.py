"""The rate of one core: the reference of several ranks."""

import numpy as np

from umm_hw.calibrate.host_benchmarks import timed
from umm_hw.mpi.transport import MpiTransport

REFERENCE = 2048  # m = n = k


def numpy_rate(transport: MpiTransport, dtype: str) -> float | None:
    """Return the flop/s of one core's ``a @ b``, on rank 0, while the other ranks rest."""
    if transport.rank > 0:
        return None
    a, b = (np.full((REFERENCE, REFERENCE), 1e-3, dtype) for _ in range(2))
    c = np.empty_like(a)
    return 2.0 * REFERENCE**3 / min(timed(lambda: np.matmul(a, b, out=c), 2))
