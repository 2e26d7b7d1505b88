"""bfloat16, which NumPy lacks: that of ml_dtypes, or the upper half of a float32 without arithmetic."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import ExecutorUnavailableError

# One named field, so that it is 2 bytes wide, is not taken for whole numbers, and refuses + and @.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])


def numpy_bfloat16() -> np.dtype[Any]:
    """Return the type of ml_dtypes, with which NumPy calculates.

    ExecutorUnavailableError if that is not installed.
    """
    try:
        from ml_dtypes import bfloat16
    except ModuleNotFoundError:
        raise ExecutorUnavailableError(
            "NumPy has bfloat16 from ml_dtypes, which is not installed; pip install 'umm-sim[bfloat16]'"
        ) from None
    result: np.dtype[Any] = np.dtype(bfloat16)
    return result


def to_bfloat16(array: NDArray[Any]) -> NDArray[np.void]:
    """Return an array rounded to bfloat16, to nearest and ties to even; NaN stays NaN.

    >>> to_float32(to_bfloat16(np.array([1.0, 1.00390625, 1.01171875]))).tolist()
    [1.0, 1.0, 1.015625]
    """
    try:
        bits = array.astype(numpy_bfloat16())
    except ExecutorUnavailableError:
        bits = bfloat16_bits(array)
    rounded: NDArray[np.void] = bits.view(BFLOAT16)
    return rounded


def bfloat16_bits(array: Any) -> Any:
    """Return the bits of an array rounded to bfloat16, as uint16; of NumPy or of CuPy."""
    bits = array.astype(np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    quiet = (bits >> 16) | 0x40  # rounding could carry a NaN into infinity
    return np.where(np.isnan(bits.view(np.float32)), quiet, rounded).astype(np.uint16)


def to_float32(array: NDArray[np.void]) -> NDArray[np.float32]:
    """Return the float32 values of a bfloat16 array, exactly."""
    values: NDArray[np.float32] = float32_of(array.view(np.uint16))
    return values


def float32_of(bits: Any) -> Any:
    """Return the float32 values of bfloat16 bits, exactly; of NumPy or of CuPy."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a type, also of those that NumPy does not have."""
    if dtype == BFLOAT16:
        return "bfloat16"
    return "float8" if dtype.names else dtype.name
