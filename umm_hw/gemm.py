"""One local multiply on strided views: the BLAS that NumPy has loaded, adding to C without a copy."""

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_ROW_MAJOR, _AS_IT_IS = 101, 111  # CBLAS: order of storage, no transposition
_PANEL = 2**21  # bytes of C that are multiplied aside at once where BLAS cannot add in place


def multiply(a: Array, b: Array, c: Array, adds: bool) -> None:
    """Set C to AB or add AB to it; half precision is multiplied in float32.

    Args:
        a: m×k, the elements of a row adjacent; b and c likewise k×n and m×n.
        b: See a.
        c: Where the product goes.
        adds: Whether C is added to.

    >>> a, c = np.full((2, 3), 2.0), np.ones((2, 2))
    >>> multiply(a, np.ones((3, 2)), c, adds=True)
    >>> c.tolist()
    [[7.0, 7.0], [7.0, 7.0]]
    """
    routine = _routine(c.dtype.char) if a.dtype == b.dtype == c.dtype else None
    if routine is not None:
        (m, n), k = c.shape, a.shape[1]
        sides = [side for x in (a, b) for side in (x.ctypes.data, _leading(x))]
        routine(
            _ROW_MAJOR, _AS_IT_IS, _AS_IT_IS, m, n, k, 1.0, *sides, float(adds), c.ctypes.data, _leading(c)
        )
        return
    work_dtype = np.result_type(c.dtype, np.float32)
    if not adds:
        np.matmul(a, b, out=c, dtype=work_dtype, casting="same_kind")
        return
    rows = max(1, _PANEL // (c.shape[1] * work_dtype.itemsize))
    for start in range(0, len(c), rows):
        panel = c[start : start + rows]
        np.add(panel, np.matmul(a[start : start + rows], b, dtype=work_dtype), out=panel, casting="same_kind")


def _leading(array: Array) -> int:
    """Return the elements from one row to the next."""
    return max(int(array.strides[0]) // array.itemsize, int(array.shape[1]))


@lru_cache
def _routine(kind: str) -> Any:
    """Return CBLAS's gemm for float32 (``f``) or float64 (``d``), None for other types or if there is none.

    NumPy's wheels bring OpenBLAS with 64-bit integers under names of its own.
    """
    letter = {"f": "s", "d": "d"}.get(kind)
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return None
    if letter is None:
        return None
    for info in threadpool_info():
        if info["user_api"] != "blas":
            continue
        library = ctypes.CDLL(info["filepath"])
        for prefix, suffix in (("scipy_", "64_"), ("", "64_"), ("scipy_", ""), ("", "")):
            routine = getattr(library, f"{prefix}cblas_{letter}gemm{suffix}", None)
            if routine is not None:
                size = ctypes.c_int64 if suffix else ctypes.c_int32
                number = ctypes.c_float if letter == "s" else ctypes.c_double
                side = [ctypes.c_void_p, size]
                routine.argtypes = [ctypes.c_int] * 3 + [size] * 3 + [number, *side, *side, number, *side]
                routine.restype = None
                return routine
    return None
