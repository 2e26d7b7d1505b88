"""GEMMs by CLBlast where its library is installed: tuned for GPUs of many kinds.

Source: https://github.com/CNugteren/CLBlast, clblast_c.h of 1.5 and later.
"""

import ctypes
import os
from ctypes.util import find_library
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl

from umm_hw.devices.device import Stream

VARIABLE = "UMM_CLBLAST"
"""The environment variable that says ``on``, for CPUs too, or ``off``; if unset, CLBlast is for GPUs."""
_ROWS, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_SIZE, _CALLS = ctypes.c_size_t, {"float32": ("CLBlastSgemm", ctypes.c_float)}
_CALLS["float64"] = "CLBlastDgemm", ctypes.c_double  # type: ignore[assignment]


@cache
def library() -> Any:
    """Return the library; None where it is not installed."""
    name = find_library("clblast")
    return None if name is None else ctypes.CDLL(name)


def wanted(on_cpu: bool) -> bool:
    """Whether a device multiplies by CLBlast."""
    setting = os.environ.get(VARIABLE, "").lower()
    return setting != "off" and (setting == "on" or not on_cpu) and library() is not None


def multiply(
    dtype: np.dtype[Any],
    sizes: tuple[int, int, int],
    a: tuple[cl.Buffer, int, int, bool],
    b: tuple[cl.Buffer, int, int, bool],
    c: tuple[cl.Buffer, int, int],
    alpha: float,
    beta: float,
    stream: Stream,
) -> bool:
    """Queue C = α·op(A)·op(B) + β·C; return whether CLBlast took it. β = 0 does not read C.

    Args:
        dtype: That of all three.
        sizes: m, n and k.
        a: Its buffer, the bytes before it, the elements from row to row, and whether it is transposed.
        c: The same of C, which is not.
        alpha: Factor of the product.
        beta: Factor of what C was.
    """
    if dtype.name not in _CALLS or not all(sizes):
        return False
    name, real = _CALLS[dtype.name]
    arguments: list[Any] = [ctypes.c_int(_ROWS)]
    arguments += [ctypes.c_int(_TRANSPOSED if x[3] else _AS_IT_IS) for x in (a, b)]
    arguments += [_SIZE(x) for x in sizes]
    for factor, (buffer, offset, stride, *_) in ((alpha, a), (None, b), (beta, c)):
        if factor is not None:
            arguments.append(real(factor))
        arguments += [ctypes.c_void_p(buffer.int_ptr), _SIZE(offset // dtype.itemsize), _SIZE(stride)]
    queue = ctypes.c_void_p(stream.int_ptr)
    return int(getattr(library(), name)(*arguments, ctypes.byref(queue), None)) == 0
