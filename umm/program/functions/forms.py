"""NumPy forms of the functions that take more than an expression.

Each takes arrays of one type, float32 or wider, and returns that type. Index arrays are made ``like`` the
operand, so that an array library that follows NumPy's protocols can be given its own arrays.
"""

from functools import cache
from math import ceil, erfc, exp, inf, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from umm.interval import Interval
from umm.program.functions.signature import Array, Place


def zero(at: Place) -> Array:
    """Return zeros."""
    return np.zeros((at.rows.size, at.cols.size), dtype=np.float32, like=at.like)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(−x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def silu_grad(x: Array, dy: Array) -> Array:
    """Return dy times the derivative of x·sigmoid(x)."""
    share = sigmoid(x)
    return dy * share * (1.0 + x * (1.0 - share))


def gelu_grad(x: Array, dy: Array) -> Array:
    """Return dy times the derivative of x·Φ(x)."""
    density = np.exp(-0.5 * np.minimum(np.abs(x), 50.0) ** 2) / sqrt(2 * pi)
    return dy * (normal_cdf(x) + x * density)


def _scaled_erfc(z: float) -> float:
    """Return erfc(z)·exp(z²) for z ≥ 0; from 2 on by its continued fraction, which converges fast there."""
    if z < 2:
        return erfc(z) * exp(z * z)
    tail = 0.0
    for i in range(60, 0, -1):
        tail = i / 2 / (z + tail)
    return 1 / sqrt(pi) / (z + tail)


@cache
def _chebyshev(smallest: float) -> tuple[float, ...]:
    """Return the Chebyshev coefficients above a size of P, where erfc(z) = t·exp(−z²)·P(x), z ≥ 0."""
    # Here t = 2/(2 + z) and x = 2t − 1; P is smooth from z = 0 (x = 1) to ∞ (x = −1).
    coefficients: list[float] = np.polynomial.chebyshev.chebinterpolate(
        np.vectorize(lambda x: _scaled_erfc(4 / (x + 1) - 2) * 2 / (x + 1)), 27
    ).tolist()
    return tuple(c for c in coefficients if abs(c) > smallest)


def normal_cdf(x: Array) -> Array:
    """Return Φ(x), the share of a normal distribution below x, to some 3 units in the last place of 1.

    >>> normal_cdf(np.array([0.0, 1.0, -40.0])).round(6).tolist()
    [0.5, 0.841345, 0.0]
    """
    z = np.minimum(np.abs(x) * sqrt(0.5), 30.0)  # beyond, erfc is 0 in float64 too
    t = 2.0 / (2.0 + z)
    twice = 4.0 * t - 2.0
    first, *others = _chebyshev(float(np.finfo(x.dtype).eps) / 8)
    ahead, here = np.zeros_like(t), np.zeros_like(t)
    for coefficient in reversed(others):  # Clenshaw's recurrence
        here, ahead = twice * here - ahead + coefficient, here
    tail = 0.5 * t * np.exp(-z * z) * (0.5 * twice * here - ahead + first)
    share: Array = np.where(x > 0, 1.0 - tail, tail)
    return share


def kept(
    rows: Interval, cols: Interval, rate: float, seed: int, like: Array | None = None
) -> NDArray[np.bool_]:
    """Return which elements of a piece dropout keeps, from their global rows and columns.

    Element (i, j) is kept if the upper 53 bits of h(h(h(seed) + i) + j) are at least ⌈rate · 2^53⌉, where
    h(x) = mix(x + 0x9E3779B97F4A7C15), all modulo 2^64, is one step of splitmix64.
    """
    seeds = np.arange(seed, seed + 1, dtype=np.uint64, like=like)
    i = np.arange(rows.start, rows.stop, dtype=np.uint64, like=like)[:, None]
    j = np.arange(cols.start, cols.stop, dtype=np.uint64, like=like)
    keep: NDArray[np.bool_] = _hashed(_hashed(_hashed(seeds) + i) + j) >> np.uint64(11) >= ceil(rate * 2**53)
    return keep


def _hashed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return one step of splitmix64 of 64-bit words. Source: Steele, Lea & Flood (2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def dropout(x: Array, rate: float, seed: int, at: Place) -> Array:
    """Return x / (1 − rate) where an element is kept, else 0; of dy it gives the gradient."""
    keep = kept(at.rows, at.cols, rate, seed, like=x)
    scaled: Array = np.where(keep, x * (1.0 / (1.0 - rate)), 0.0)
    return scaled


def embed(table: Array, tokens: Array, at: Place) -> Array:
    """Return the row of a table for each token, a whole number; zeros where the piece has no such row."""
    lines = tokens[:, 0].astype(np.int64) - (at.spans[1][0].start if at.spans else 0)
    here = (lines >= 0) & (lines < table.shape[0])
    rows: Array = np.where(here[:, None], table[np.where(here, lines, 0)], 0.0)
    return rows


def embed_grad(dy: Array, tokens: Array, at: Place) -> Array:
    """Return the gradient of :func:`embed` by its table: for each row the sum over its tokens."""
    lines = tokens[:, 0].astype(np.int64)
    here = (lines >= at.rows.start) & (lines < at.rows.stop)
    total = np.zeros((at.rows.size, dy.shape[1]), dtype=dy.dtype, like=dy)
    np.add.at(total, lines[here] - at.rows.start, dy[here])
    return total


def softmax(x: Array, keys: int) -> Array:
    """Return exp(x) as shares of its row, of each ``keys`` columns of it (0: all are of one head)."""
    scores = _by_head(x, keys)
    share: Array = np.exp(scores - scores.max(axis=2, keepdims=True))
    total: Array = share.sum(axis=2, keepdims=True)
    return (share / total).reshape(x.shape)


def masked_softmax(x: Array, queries: int, keys: int, at: Place) -> Array:
    """Return softmax over the keys that each query may see; of a query that sees none, zeros.

    Rows are the queries of one sequence or head after those of another, ``queries`` each (0: all are of one);
    columns the keys of one head beside those of another, ``keys`` each. The last query sees all
    keys, the one before it all but the last, and so on.
    """
    queries, keys = queries or at.shape[0], keys or at.shape[1]
    query = np.arange(at.rows.start, at.rows.stop, like=x)[:, None, None] % queries
    visible = np.arange(keys, like=x) <= query + (keys - queries)
    scores = _by_head(x, keys)
    most = np.where(visible, scores, -inf).max(axis=2, keepdims=True)
    share = np.where(visible, np.exp(np.minimum(scores - np.where(most > -inf, most, 0.0), 0.0)), 0.0)
    total: Array = share.sum(axis=2, keepdims=True)
    return (share / np.where(most > -inf, total, 1.0)).reshape(x.shape)


def softmax_grad(y: Array, dy: Array, keys: int) -> Array:
    """Return the gradient by x, given y = softmax(x), masked or not, and the gradient by y."""
    y3, dy3 = _by_head(y, keys), _by_head(dy, keys)
    dot: Array = (y3 * dy3).sum(axis=2, keepdims=True)
    return (y3 * (dy3 - dot)).reshape(y.shape)


def _by_head(x: Array, keys: int) -> Array:
    """Return a matrix with its columns as heads of so many keys: rows, heads, keys."""
    return x.reshape(x.shape[0], -1, keys or x.shape[1])


def rope(
    x: Array, head: int, base: float, positions: int, first: int, at: Place, turn: float = 1.0,
    turned: int = 0,
) -> Array:  # fmt: skip
    """Return x with each pair of columns (2i, 2i + 1) of a head turned by position · base^(−2i / turned).

    Rows are the positions of one sequence after those of another, ``positions`` each (0: all are of one),
    from ``first`` on; columns are heads, ``head`` columns each, of which the first ``turned`` (0: all) turn.

    Source: Su et al. (2021), RoFormer, equation 34.
    """
    pair = np.arange(at.cols.start, at.cols.stop, 2, like=x) % head
    cos, sin = _turns(x, pair, base, positions, first, turned or head, at, turn)
    result = np.empty_like(x)
    result[:, ::2] = x[:, ::2] * cos - x[:, 1::2] * sin
    result[:, 1::2] = x[:, ::2] * sin + x[:, 1::2] * cos
    return result


def rope_halves(
    x: Array, head: int, base: float, positions: int, first: int, at: Place, turn: float = 1.0,
    turned: int = 0,
) -> Array:  # fmt: skip
    """Return :func:`rope` with column i of a head's first half turned with column i of its second half.

    Source: Black et al. (2022), GPT-NeoX-20B, and Hugging Face's Llama.
    """
    wide = turned or head
    cos, sin = _turns(x, np.arange(0, wide, 2, like=x), base, positions, first, wide, at, turn)
    cos, sin = cos[:, None], sin[:, None]
    heads = x.reshape(len(x), -1, head)
    one, other = heads[:, :, : wide // 2], heads[:, :, wide // 2 : wide]
    result = heads.copy()
    result[:, :, : wide // 2] = one * cos - other * sin
    result[:, :, wide // 2 : wide] = one * sin + other * cos
    return result.reshape(x.shape)


def _turns(
    x: Array, pair: NDArray[np.int64], base: float, positions: int, first: int, turned: int, at: Place,
    turn: float,
) -> tuple[Array, Array]:  # fmt: skip
    """Return cosines and sines by row and pair of columns; columns after those that turn stay."""
    position = first + np.arange(at.rows.start, at.rows.stop, like=x)[:, None] % (positions or at.shape[0])
    angle = np.where(pair < turned, turn * position * base ** (-pair / turned), 0.0)
    return np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)


def rms_norm(x: Array, scale: Array, epsilon: float) -> Array:
    """Return rows over their root mean square, times a scale. Source: Zhang & Sennrich (2019), equation 4."""
    return x * _over_rms(x, epsilon) * scale


def rms_norm_grad(dy: Array, x: Array, scale: Array, epsilon: float) -> Array:
    """Return the gradient of :func:`rms_norm` by x."""
    over = _over_rms(x, epsilon)
    bare, d = x * over, dy * scale
    result: Array = over * (d - bare * (d * bare).sum(axis=1, keepdims=True) / x.shape[1])
    return result


def rms_scale_grad(dy: Array, x: Array, epsilon: float) -> Array:
    """Return the gradient of :func:`rms_norm` by its scale."""
    result: Array = (dy * x * _over_rms(x, epsilon)).sum(axis=0, keepdims=True)
    return result


def head_rms_norm(x: Array, scale: Array, head: int, epsilon: float) -> Array:
    """Return each head's columns over their root mean square, times a scale."""
    result: Array = _heads_over_rms(x, head, epsilon)[1].reshape(x.shape) * scale
    return result


def head_rms_norm_grad(dy: Array, x: Array, scale: Array, head: int, epsilon: float) -> Array:
    """Return the gradient of :func:`head_rms_norm` by x."""
    over, bare = _heads_over_rms(x, head, epsilon)
    d = (dy * scale).reshape(bare.shape)
    result: Array = over * (d - bare * (d * bare).mean(axis=1, keepdims=True))
    return result.reshape(x.shape)


def head_rms_scale_grad(dy: Array, x: Array, head: int, epsilon: float) -> Array:
    """Return the gradient of :func:`head_rms_norm` by its scale."""
    result: Array = (dy * _heads_over_rms(x, head, epsilon)[1].reshape(x.shape)).sum(axis=0, keepdims=True)
    return result


def _heads_over_rms(x: Array, head: int, epsilon: float) -> tuple[Array, Array]:
    """Return one over the root mean square of each head, a row each, and the heads over theirs."""
    rows = x.reshape(-1, head)
    over = _over_rms(rows, epsilon)
    return over, rows * over


def _over_rms(x: Array, epsilon: float) -> Array:
    result: Array = 1.0 / np.sqrt((x * x).sum(axis=1, keepdims=True) / x.shape[1] + epsilon)
    return result


def rms_rstd(squares: Array, columns: int, epsilon: float) -> Array:
    """Return one over the root mean square of rows, given the sums of their squares."""
    return 1.0 / np.sqrt(squares / columns + epsilon)


def rstd(total: Array, squares: Array, columns: int, epsilon: float) -> Array:
    """Return one over the standard deviation of rows, given their sums and the sums of their squares."""
    variance = squares / columns - (total / columns) ** 2
    return 1.0 / np.sqrt(np.maximum(variance, 0.0) + epsilon)  # rounding must not make it negative


def normalise(x: Array, total: Array, squares: Array, epsilon: float, at: Place) -> Array:
    """Return rows with mean 0 and deviation 1, given their sums and the sums of their squares."""
    return centre(x, total, at) * rstd(total, squares, at.shape[1], epsilon)


def centre(x: Array, total: Array, at: Place) -> Array:
    """Return rows less their mean, given their sums."""
    return x - total / at.shape[1]


def norm_grad(dy: Array, y: Array, dot: Array, at: Place) -> Array:
    """Return rows of dy less their part along rows of y that have mean square 1, given the sums of y·dy."""
    # Of y = x / rms(x) the gradient by x is this times `rms_rstd`; of a layer norm it is this, then `centre`,
    # then times `rstd`.
    return dy - y * (dot / at.shape[1])
