"""bfloat16 without NumPy's help: the upper half of a float32, kept in a type that has no arithmetic."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# One named field, so that it is 2 bytes wide, is not taken for whole numbers, and refuses + and @.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])


def to_bfloat16(array: NDArray[Any]) -> NDArray[np.void]:
    """Return an array rounded to bfloat16, to nearest and ties to even; NaN stays NaN.

    >>> to_float32(to_bfloat16(np.array([1.0, 1.00390625, 1.01171875]))).tolist()
    [1.0, 1.0, 1.015625]
    """
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    quiet = (bits >> 16) | 0x40  # rounding could carry a NaN into infinity
    upper = np.where(np.isnan(bits.view(np.float32)), quiet, rounded).astype(np.uint16)
    return upper.view(BFLOAT16)


def to_float32(array: NDArray[np.void]) -> NDArray[np.float32]:
    """Return the float32 values of a bfloat16 array, exactly."""
    upper = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
    return (upper << 16).view(np.float32)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a type, ``bfloat16`` for the one that NumPy does not have."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name
