"""One local multiply on strided views: the BLAS that NumPy has loaded, without a copy of any operand."""

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm_hw.float8 import widened

Array = NDArray[Any]
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112  # CBLAS: order of storage, transposition
_PANEL = 2**21  # bytes of C that are multiplied aside at once where BLAS cannot add in place


def multiply(a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 0.0) -> None:
    """Set C to α·AB + β·C; half precision is multiplied in float32. β = 0 does not read C.

    Where B is A's own memory, transposed, NumPy's SYRK computes one triangle and mirrors it.

    Args:
        a: m×k, the elements of a row or of a column adjacent, so a transposed view will do.
        b: k×n, the same.
        c: m×n, the elements of a row adjacent.
        alpha: Factor of the product.
        beta: Factor of what C was.

    >>> a, c = np.full((3, 2), 2.0), np.ones((2, 2))
    >>> multiply(a.T, np.ones((3, 2)), c, beta=1.0)
    >>> c.tolist()
    [[7.0, 7.0], [7.0, 7.0]]
    """
    a, b = widened(a), widened(b)
    routine = _routine(c.dtype.char) if a.dtype == b.dtype == c.dtype else None
    if routine is None or _is_transpose(a, b):
        _multiply_aside(a, b, c, alpha, beta)
        return
    (m, n), k = c.shape, a.shape[1]
    sides = [_side(x) for x in (a, b)]
    routine(
        _ROW_MAJOR, sides[0][0], sides[1][0], m, n, k, alpha, *sides[0][1:], *sides[1][1:], beta,
        c.ctypes.data, _leading(c),
    )  # fmt: skip


def _multiply_aside(a: Array, b: Array, c: Array, alpha: float, beta: float) -> None:
    """The same with NumPy's matmul, a panel of rows at a time."""
    work_dtype = np.result_type(c.dtype, np.float32)
    if alpha == 1 and beta == 0:
        np.matmul(a, b, out=c, dtype=work_dtype, casting="same_kind")
        return
    rows = len(c) if _is_transpose(a, b) else max(1, _PANEL // (c.shape[1] * work_dtype.itemsize))
    for start in range(0, len(c), rows):
        panel = c[start : start + rows]
        product = np.matmul(a[start : start + rows], b, dtype=work_dtype)
        if alpha != 1:
            product *= work_dtype.type(alpha)
        if beta != 0:
            product += panel if beta == 1 else work_dtype.type(beta) * panel.astype(work_dtype)
        panel[...] = product


def _is_transpose(a: Array, b: Array) -> bool:
    """Whether b is the transpose of a, in the same memory: NumPy's matmul then calls SYRK."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape[::-1] and a.strides == b.strides[::-1]


def _side(array: Array) -> tuple[int, int, int]:
    """Return how CBLAS reads a factor: its flag, its address, and the elements from one row to the next."""
    if array.strides[1] == array.itemsize:
        return _AS_IT_IS, array.ctypes.data, _leading(array)
    return _TRANSPOSED, array.ctypes.data, _leading(array.T)


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
