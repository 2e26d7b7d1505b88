"""The kernels' arithmetic on an element, in C that OpenCL and CUDA both read.

``x``, ``y``, ``z`` and ``u`` are a map's inputs, in the order of its operands; parameters have their names.
``cols`` are the columns of the piece, ``whole`` those of the whole. ``X`` is float, or double if anything is.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from umm_hw.blocks import Mapped

LETTERS = "xyzu"
_NORMAL = "X normal_cdf(X x) { return (X)0.5 * erfc(-x * (X)0.70710678118654752440); }\n"
_SIGMOID = "X sigmoid(X x) { const X e = exp(-fabs(x)); return (x >= 0 ? (X)1 : e) / ((X)1 + e); }\n"
_RSTD = "X deviation(X t, X s, long n, X e) { return 1 / sqrt(fmax(s / n - t / n * (t / n), (X)0) + e); }\n"
_SILU_GRAD = "sigmoid(x) * (1 + x * (1 - sigmoid(x)))"
ELEMENTWISE: Mapping[str, tuple[str, str]] = {
    "zero": ("", "0"),
    "cast": ("", "x"),
    "scale": ("", "x * factor"),
    "add": ("", "x + factor * y"),
    "mul": ("", "x * y"),
    "bias": ("", "x + y"),
    "mul_cols": ("", "x * y"),
    "mul_rows": ("", "x * y"),
    "relu": ("", "isnan(x) ? x : fmax(x, (X)0)"),
    "relu_grad": ("", "x > 0 ? y : 0"),
    "gelu": (_NORMAL, "x * normal_cdf(x)"),
    "gelu_grad": (_NORMAL, "y * (normal_cdf(x) + x * exp((X)-0.5 * x * x) * (X)0.39894228040143267794)"),
    "silu": (_SIGMOID, "x * sigmoid(x)"),
    "silu_grad": (_SIGMOID, f"y * {_SILU_GRAD}"),
    "silu_mul": (_SIGMOID, "x * sigmoid(x) * y"),
    "silu_mul_grad": (_SIGMOID, f"z * y * {_SILU_GRAD}"),
    "rstd": (_RSTD, "deviation(x, y, columns, epsilon)"),
    "rms_rstd": ("", "1 / sqrt(x / columns + epsilon)"),
    "centre": ("", "x - y / whole"),
    "normalise": (_RSTD, "(x - y / whole) * deviation(y, z, whole, epsilon)"),
    "norm_grad": ("", "x - y * (z / whole)"),
}
"""C of the functions that a kernel performs: what it defines before, and the expression."""

_RMS = "X over(X s, long n, X e) { return 1 / sqrt(s / n + e); }\n"
_RMS_GRAD = (
    "over(s, cols, epsilon) * (x * z - y * over(s, cols, epsilon) * over(s, cols, epsilon) * t / cols)"
)
ROWWISE: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "row_sum": ("", ("x",), "s"),
    "row_sum_squares": ("", ("x * x",), "s"),
    "row_dot": ("", ("x * y",), "s"),
    "rms_norm": (_RMS, ("x * x",), "x * over(s, cols, epsilon) * y"),
    "rms_norm_grad": (_RMS, ("y * y", "x * z * y"), _RMS_GRAD),
    "rms_norm_grad_add": (_RMS, ("y * y", "x * z * y"), f"{_RMS_GRAD} + u"),
}
"""The same of functions of whole rows: what a row sums, as ``s`` and ``t``, and the expression after it."""


def numbers_of(mapped: Mapped, types: Collection[str]) -> list[Any]:
    """Return the parameters of a map as its kernel takes them: whole ones as int, others as X is.

    Args:
        types: Of all that it reads and writes.
    """
    known, real = mapped.function.checked(mapped.parameters), np.float64 if "float64" in types else np.float32
    return [
        known[name] if parameter.whole else real(known[name])
        for name, parameter in mapped.function.parameters.items()
    ]
