"""What an action costs: a roofline for GEMMs, bytes to charge on the links for transfers."""

import numpy as np
import numpy.typing as npt

from umm.errors import ProblemError
from umm.machines import Machine

Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.int64]

_ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def itemsize(dtype: str) -> int:
    """Return the bytes of one element.

    Raises:
        ProblemError: The dtype is none of the four that umm multiplies.

    >>> itemsize("float32"), itemsize("bfloat16")
    (4, 2)
    """
    try:
        return _ITEMSIZE[dtype]
    except KeyError:
        raise ProblemError(f"unknown dtype {dtype!r}; choose from {', '.join(_ITEMSIZE)}") from None


def c_dtype(dtype: str) -> str:
    """Return the dtype of C unless asked otherwise: float32 for half-precision inputs, else the inputs' own.

    >>> c_dtype("float16"), c_dtype("float64")
    ('float32', 'float64')
    """
    return "float32" if itemsize(dtype) == 2 else dtype


def gemm_seconds(
    machine: Machine, dtype: str, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, c_itemsize: int
) -> Floats:
    """Return how long local multiplies take with a device to themselves, in seconds.

    Launch overhead plus the larger of the arithmetic, 2mnk over peak times efficiency, and the memory
    traffic: A and B read once, C read and written.

    Args:
        machine: The device's peak, efficiency, memory bandwidth and launch overhead.
        dtype: Of A and B.
        m: Rows of C; `m`, `n` and `k` broadcast against each other.
        n: Columns of C.
        k: Length of the sums.
        c_itemsize: Bytes of one element of C.

    Raises:
        MachineError: The machine states no peak for this dtype.

    Source: roofline model, as in Brock & Golin (2025), section 4.3.
    """
    m, n, k = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
    arithmetic = m * n * k * (2.0 / machine.peak(dtype))
    if dtype in machine.efficiency:
        arithmetic /= machine.gemm_efficiency(dtype, m, n, k)
    traffic = ((m + n) * k * itemsize(dtype) + m * n * (2 * c_itemsize)) / machine.memory_bandwidth
    return machine.launch_s + np.maximum(arithmetic, traffic)


def transfer_bytes(machine: Machine, payload: npt.ArrayLike) -> Bytes:
    """Return the bytes a get, put or broadcast is charged on its links, for a payload in bytes."""
    return machine.effective_bytes(payload)


def accumulate_bytes(machine: Machine, payload: npt.ArrayLike) -> Bytes:
    """Return the bytes an accumulate or reduce is charged on its links, for a payload in bytes."""
    return machine.effective_bytes(payload, machine.accumulate_efficiency)


def local_accumulate_seconds(machine: Machine, payload: npt.ArrayLike) -> Floats:
    """Return how long an accumulate inside one device takes: two reads and a write of the payload."""
    return np.asarray(payload, dtype=np.float64) * (3.0 / machine.memory_bandwidth)


def local_copy_seconds(machine: Machine, payload: npt.ArrayLike) -> Floats:
    """Return how long a copy inside one device takes: a read and a write of the payload."""
    return np.asarray(payload, dtype=np.float64) * (2.0 / machine.memory_bandwidth)
