"""Causal convolutions over a few tokens, column by column, in NumPy; and their gradients.

out[t] = Σ weight[lag] · x[t − lag], over the lags at which token t − lag is of the same sequence. In
signatures the rows of x that a piece needs are ``k``; weights are a row, the lags of a column side by side,
``g``; the tokens before a decoded one, by column and lag from 1, ``p``.

Source: Gu & Dao (2023), Mamba, section 3.4; Liquid AI (2025), LFM2 technical report, section 2.
"""

from typing import Any

import numpy as np

from umm.interval import Interval
from umm.program.functions.signature import Array, Function, Parameter, Place


def _shifted(x: Array, span: Interval, rows: Interval, lag: int, tokens: int) -> Array:
    """Return the rows that lie so many tokens before some, or after; zero beyond their sequence."""
    # x: the rows of a span. lag: how many tokens before. tokens: of a sequence.
    row = np.arange(rows.start, rows.stop)
    place = row % tokens - lag
    inside = (place >= 0) & (place < tokens)
    result: Array = x[np.clip(row - lag - span.start, 0, len(x) - 1)] * np.asarray(inside[:, None], x.dtype)
    return result


def conv(x: Array, w: Array, *before: Array, at: Place, taps: int, tokens: int = 1) -> Array:
    """Return the convolution; of decoded tokens with those before each of them."""
    weights, rows, span = w.reshape(-1, taps), at.spans[0][0], at.spans[1][0]
    lags = range(1 if before else taps)
    result: Array = np.asarray(sum(weights[:, lag] * _shifted(x, span, rows, lag, tokens) for lag in lags))
    for earlier in before:
        by_lag = earlier.reshape(len(x), -1, taps - 1)
        result = result + (by_lag * weights[None, :, 1:]).sum(axis=2)
    return result


def conv_dx(dy: Array, w: Array, at: Place, taps: int, tokens: int) -> Array:
    """Return the gradient by x."""
    weights, rows, span = w.reshape(-1, taps), at.spans[0][0], at.spans[1][0]
    parts = (weights[:, lag] * _shifted(dy, span, rows, -lag, tokens) for lag in range(taps))
    return np.asarray(sum(parts))


def conv_dw(x: Array, dy: Array, at: Place, taps: int, tokens: int) -> Array:
    """Return the gradient by the weights through some rows."""
    span, rows = at.spans[1][0], at.spans[2][0]
    parts = [(dy * _shifted(x, span, rows, lag, tokens)).sum(axis=0) for lag in range(taps)]
    return np.stack(parts, axis=1).reshape(1, -1)


_WHOLE = Parameter(whole=True, least=1)
_PARAMETERS: dict[str, Any] = {"taps": _WHOLE, "tokens": _WHOLE}
FUNCTIONS = (
    Function("conv", "kc,1g->rc", conv, _PARAMETERS, indexed=True),
    Function("conv_step", "kc,1g,rp->rc", conv, {"taps": _WHOLE}, indexed=True),
    Function("conv_dx", "kc,1g->rc", conv_dx, _PARAMETERS, indexed=True),
    Function("conv_dw", "kc,rc->1g", conv_dw, _PARAMETERS, indexed=True),
)
"""What kernels of short convolutions compute, one result each."""
