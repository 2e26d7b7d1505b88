"""Types of 8 bits on CPUs: each element beside its scale, and sums that do not depend on their order.

A real kernel keeps one scale for a matrix or for each 128 elements along k; here every element carries its
own copy, so that whatever slice of a tile moves, its scales move with it. Scales are powers of two. A product
of two elements then has at most 8 significant bits, and float64 adds up products exactly wherever they span
at most 53 bits: always for e4m3 under one scale up to k = 131,072. Sums are kept in float64 and rounded once,
at the end.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import BLOCK, FLOAT8, is_float8, rated
from umm.errors import ExecutorUnavailableError, InputError
from umm.schedules.schedule import Schedule
from umm_hw.bfloat16 import bfloat16_bits, float32_of

Array = NDArray[Any]
Types = Callable[[str], np.dtype[Any]]


def float8_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's type of an element and its scale.

    ExecutorUnavailableError if ml_dtypes is not installed.
    """
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        raise ExecutorUnavailableError(
            "NumPy has float8 from ml_dtypes, which is not installed; pip install 'umm-sim[bfloat16]'"
        ) from None
    value = {"float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}[rated(name)]
    return np.dtype([("value", value), ("scale", "<f4")])


def name_of(dtype: np.dtype[Any]) -> str:
    """Return the type, with scales of blocks, whose elements and scales NumPy holds so."""
    return f"{dtype['value'].name.removesuffix('fn')}:{BLOCK}"


def widened(array: Array) -> Array:
    """Return the numbers that scaled elements are, in float64; any other array as it is."""
    if array.dtype.names is None:
        return array
    numbers: Array = array["value"].astype(np.float64) * array["scale"]
    return numbers


def quantised(array: Array, dtype: str, axis: int) -> Array:
    """Return numbers as elements with scales, each scale the least power of two under which its numbers fit.

    Numbers that the type has come out exactly, whatever their scale.

    Args:
        array: Numbers; along the last two dimensions a matrix.
        dtype: A type of 8 bits; with scales of blocks if its name says so.
        axis: Of the matrix, along which a block of elements shares a scale.

    >>> scaled = quantised(np.array([[1.0, 3.0, 1000.0]]), "float8_e4m3", axis=1)
    >>> scaled["scale"].tolist(), widened(scaled).tolist()
    ([[4.0, 4.0, 4.0]], [[1.0, 3.0, 1024.0]])
    """
    most = FLOAT8[rated(dtype)][2]
    size = np.abs(np.asarray(array, dtype=np.float64))
    if dtype.endswith(f":{BLOCK}"):
        along = size.ndim - 2 + axis
        starts = np.arange(0, size.shape[along], BLOCK)
        largest = np.maximum.reduceat(size, starts, axis=along)
        largest = np.repeat(largest, BLOCK, axis=along).take(range(size.shape[along]), axis=along)
    else:
        largest = np.broadcast_to(size.max(initial=0.0), size.shape)
    if not np.isfinite(largest).all():
        raise InputError(f"{dtype} has no scale for numbers that are not finite")
    # −149: the least power of two that the scale, a float32, has
    exponent = np.maximum(np.ceil(np.log2(np.where(largest > 0, largest, most) / most)), -149)
    scaled = np.zeros(size.shape, dtype=float8_dtype(dtype))
    scaled["scale"] = np.exp2(exponent)
    scaled["value"] = (np.asarray(array, dtype=np.float64) / np.exp2(exponent)).astype(np.float32)
    return scaled


def stand_ins(schedule: Schedule, types: Types) -> list[np.dtype[Any]]:
    """Return the NumPy type that holds each tensor: float64 for sums of products of 8-bit factors.

    InputError if a tensor of 8 bits is computed: what it is rounded from is not kept anywhere.
    """
    tensors = schedule.tensors
    scaled = [is_float8(tensor.dtype) for tensor in tensors]
    for tensor, small in zip(tensors, scaled, strict=True):
        if small and tensor.role in ("output", "both"):
            raise InputError(f"{tensor.name} of {tensor.dtype} is computed; keep it in bfloat16 or wider")
    if not any(scaled):
        return [types(tensor.dtype) for tensor in tensors]
    return [
        types(tensor.dtype) if small else np.dtype(np.float64)
        for tensor, small in zip(tensors, scaled, strict=True)
    ]


def pools_of(schedule: Schedule, dtypes: Sequence[np.dtype[Any]]) -> Sequence[NDArray[np.int64]]:
    """Return the bytes of each rank's slots with tensors in these types; the schedule's if none is wider."""
    if all(dtype.itemsize == x.itemsize for dtype, x in zip(dtypes, schedule.tensors, strict=True)):
        return schedule.pools
    temporaries = schedule.temporaries
    item = np.array([dtype.itemsize for dtype in dtypes])[temporaries.tensor]
    nbytes = np.diff(temporaries.rows, axis=1)[:, 0] * np.diff(temporaries.cols, axis=1)[:, 0] * item
    pools = [np.zeros_like(sizes) for sizes in schedule.pools]
    for rank, slot, size in zip(
        temporaries.rank.tolist(), temporaries.slot.tolist(), nbytes.tolist(), strict=True
    ):
        pools[rank][slot] = max(pools[rank][slot], -(-size // 8) * 8)  # whole numbers of float64
    return pools


def rounded_once(array: NDArray[np.float64], dtype: str) -> Array:
    """Return float64 numbers rounded to a type, ties to even; bfloat16 as float32 that it has.

    Numbers go to bfloat16 by way of the odd float32 beside them, so that no tie arises or is lost.

    >>> rounded_once(np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8]), "bfloat16").tolist()
    [1.0078125, 1.0]
    """
    if dtype != "bfloat16":
        return array.astype(dtype)
    near = array.astype(np.float32)
    bits = near.view(np.uint32)
    bits = np.where(np.abs(near.astype(np.float64)) > np.abs(array), bits - 1, bits)
    bits = np.where(near.astype(np.float64) != array, bits | 1, bits)
    result: Array = float32_of(bfloat16_bits(bits.astype(np.uint32).view(np.float32)))
    return result
