"""Experts by an engine's kernels: rows by expert, two grouped multiplies, and the sum of their results."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from umm.arrays import Floats
from umm.dtypes import has_blocks, rated
from umm.machines.prefill import HALF, Count, Norm, Part, normed, whole_waves
from umm.machines.quantities import Bytes, BytesPerSecond, Multiplied, ShareOfPeak, Sourced, Time

COLUMNS = 128  # of a tile
ROWS = (8, 16, 32, 64, 128)
DRAWS = 9  # of loads, of which the one in the middle counts

Weights = Literal[Multiplied, "int4", "mxfp4", "mxfp4:float8"]
"""Type of weights and rows: one type for both; or 4 bits beside rows of bfloat16, or of float8."""


class Format(NamedTuple):
    """Bytes of an element of weights and of rows with their scales, and the type of the products."""

    weight: float
    row: float
    dtype: str


FORMATS: Mapping[str, Format] = {
    "bfloat16": Format(2, 2, "bfloat16"), "float16": Format(2, 2, "float16"),
    "float8": Format(1, 1, "float8_e4m3"), "float8:128": Format(1.03, 1, "float8_e4m3"),
    "float4": Format(0.5625, 0.5625, "float4_e2m1"), "int4": Format(0.53, 2, "bfloat16"),
    "mxfp4": Format(0.53, 2, "bfloat16"), "mxfp4:float8": Format(0.53, 1, "float8_e4m3"),
}  # fmt: skip


def format_of(dtype: str) -> str:
    """Return the name of the format whose weights and rows both have a type; the type if there is none.

    >>> format_of("float8_e4m3:128"), format_of("bfloat16")
    ('float8:128', 'bfloat16')
    """
    alike = [x for x, form in FORMATS.items() if form.dtype == rated(dtype) and form.weight < 1.5 * form.row]
    return next((x for x in alike if (":" in x) == has_blocks(dtype)), rated(dtype))


class Load(NamedTuple):
    """Rows of a rank's experts, as numbers or arrays.

    Attributes:
        tiles: Tiles of rows, by their size.
        hit: Experts that have rows.
        rows: Of all of them.
        mean: Rows of an expert in the mean over all ranks.
        tokens: Of the layer.
        top_k: Experts of each.
        local: Experts of the rank.
    """

    tiles: Mapping[int, Floats]
    hit: Floats
    rows: Floats
    mean: Floats
    tokens: Floats
    top_k: Floats
    local: Floats


def load_of(rows: npt.ArrayLike, tokens: float, top_k: int, mean: float) -> Load:
    """Return the load of a rank from the rows of each of its experts.

    >>> load = load_of([100, 0, 3], 50, 2, 34.0)
    >>> float(load.tiles[64]), float(load.hit), float(load.rows)
    (3.0, 2.0, 103.0)
    """
    each = np.asarray(rows, dtype=np.float64)
    tiles = {size: np.ceil(each / size).sum() for size in ROWS}
    one = (np.count_nonzero(each), each.sum(), mean, tokens, top_k, each.size)
    return Load(tiles, *(np.asarray(x, dtype=np.float64) for x in one))


@lru_cache(maxsize=2**14)
def rows_of_experts(tokens: int, experts: int, top_k: int, groups: int = 1, skew: float = 0.0) -> Floats:
    """Return the rows of each expert of the rank that has most.

    Args:
        tokens: Of the layer.
        experts: Of all ranks.
        top_k: Experts of each token.
        groups: Ranks that the experts are spread over.
        skew: Exponent of a power law of the experts' shares; 0 for tokens that take turns.

    Source: ai-dynamo/aiconfigurator, collector/helper.py, whose loads measured tables have.

    >>> rows_of_experts(4, 8, 2, 2).tolist(), int(rows_of_experts(64, 8, 2, 2, 1.2).sum()) > 64
    ([1.0, 1.0, 1.0, 1.0], True)
    """
    if not skew:
        stride = -(-experts // top_k)
        token, turn = np.arange(tokens)[:, None], np.arange(top_k)[None, :] * stride
        first = token if tokens >= stride else token * stride / tokens
        picked = ((first + turn) % experts).astype(np.int64)
        return np.bincount(picked.reshape(-1), minlength=experts)[: experts // groups].astype(np.float64)
    draws = [_drawn(tokens, experts, top_k, groups, skew, seed) for seed in range(DRAWS)]
    return sorted(draws, key=lambda x: float(x.sum()))[DRAWS // 2]


def _drawn(tokens: int, experts: int, top_k: int, groups: int, skew: float, seed: int) -> Floats:
    least, most = (1.0, max(tokens * 0.8, 1.001)) if tokens * top_k > experts else (0.01, 2.0)
    low, high = least ** (1 - skew), most ** (1 - skew)
    shares = ((high - low) * np.random.default_rng(seed).random(experts) + low) ** (1 / (1 - skew))
    wanted = shares / shares.sum() * tokens * top_k
    rows = np.floor(wanted)
    rows[np.argsort(rows - wanted)[: round(tokens * top_k - rows.sum())]] += 1
    rows = np.minimum(rows, tokens).reshape(groups, -1)
    return np.asarray(rows[rows.sum(axis=1).argmax()])


class Experts(Sourced):
    """An engine's kernels of experts in one type.

    Attributes:
        dtype: Of weights and rows.
        models: Hidden and inner columns of models that the engine has these kernels for; all others if empty.
        spread: Whether they are those of experts spread over ranks (true), of one group (false), or both.
        everywhere: Whether rows of other ranks' experts pass too, as zeros.
        tiles: Rows of the tiles that kernels have.
        by_mean: Tiles are as large as the mean rows of an expert times this; 0 where the fastest are taken.
        units: Tiles at once: the device's multiprocessors.
        value: Share of the peak inside a tile.
        feed: Bytes/s at which a unit reads rows and weights.
        ramp: Seconds that beginning and ending a tile takes.
        tail: 1 where units without a tile wait for the last wave, 0 where work divides evenly.
        norm: How arithmetic and traffic overlap.
        memory: Bytes/s of weights and rows, each moved once.
        l2: Bytes of each multiply at `cached`, if a kernel before has left them in the L2 cache.
        cached: Bytes/s of those.
        passes: Bytes/s of sorting rows, the activation, and the sum of results.
        start: Seconds of all kernels beside their work.
        token: Seconds of each token and expert of it: routing.
        expert: Seconds of each expert of the rank.
    """

    dtype: Weights
    models: list[str] = Field(default_factory=list)
    spread: bool | None = None
    everywhere: bool = False
    tiles: Annotated[list[Literal[8, 16, 32, 64, 128]], Field(min_length=1)]
    by_mean: Annotated[float, Field(ge=0)] = 0.0
    units: Count
    value: ShareOfPeak
    feed: BytesPerSecond
    ramp: Time
    tail: Part
    norm: Norm
    memory: BytesPerSecond
    l2: Bytes
    cached: BytesPerSecond
    passes: BytesPerSecond
    start: Time
    token: Time
    expert: Time

    def multiply(
        self, load: Load, n: npt.ArrayLike, k: npt.ArrayLike, peak: float, warm: bool = False
    ) -> Floats:
        """Return the seconds of one grouped multiply beside its start: rows of k columns to n columns."""
        n, k = np.asarray(n, dtype=np.float64), np.asarray(k, dtype=np.float64)
        form = FORMATS[self.dtype]
        arithmetic = [self._arithmetic(load, size, n, k, peak) for size in self.tiles]
        if self.by_mean:
            wanted = np.searchsorted(np.array(self.tiles), load.mean * self.by_mean)
            best = np.choose(np.minimum(wanted, len(self.tiles) - 1), arithmetic)
        else:
            best = np.minimum.reduce(arithmetic)
        nbytes = load.hit * n * k * form.weight + load.rows * (k * form.row + n * HALF)
        inside = np.minimum(nbytes, self.l2) if warm else 0.0
        return normed(best, inside / self.cached + (nbytes - inside) / self.memory, self.norm)

    def _arithmetic(self, load: Load, size: int, n: Floats, k: Floats, peak: float) -> Floats:
        form = FORMATS[self.dtype]
        products = 2.0 * size * COLUMNS * self.units / (peak * self.value)
        each = np.maximum(products, (size * form.row + COLUMNS * form.weight) / self.feed)
        count = load.tiles[size] * np.ceil(n / COLUMNS)
        return np.asarray(whole_waves(count, self.units, self.tail) * (k * each + self.ramp))

    def seconds(
        self, load: Load, hidden: npt.ArrayLike, inner: npt.ArrayLike, gated: npt.ArrayLike,
        peak: float, warm: bool = False,
    ) -> Floats:  # fmt: skip
        """Return the seconds of a rank's experts, from routed tokens to their sums.

        Args:
            load: Rows of its experts.
            hidden: Columns of a token.
            inner: Columns of an expert's inner result, of one rank.
            gated: Whether a second product gates them.
            peak: flop/s of the device in the type of the products.
            warm: Whether the L2 cache has what it holds of weights, as where a kernel is run over and over.
        """
        hidden, inner = np.asarray(hidden, dtype=np.float64), np.asarray(inner, dtype=np.float64)
        wide = np.where(gated, 2.0, 1.0) * inner
        took = self.multiply(load, wide, hidden, peak, warm) + self.multiply(load, hidden, inner, peak, warm)
        row = FORMATS[self.dtype].row
        rows = load.tokens * load.top_k if self.everywhere else load.rows
        moved = rows * (2 * HALF * hidden + HALF * wide + row * inner) + load.tokens * 2 * HALF * hidden
        routed = load.tokens * load.top_k * self.token + load.local * self.expert
        return np.asarray(self.start + took + moved / self.passes + routed)


def experts_of(
    tables: Sequence[Experts], dtype: str, hidden: int, inner: int, spread: bool
) -> Experts | None:
    """Return the kernels that an engine has for a model in a type; None if it has none."""
    fit = [x for x in tables if x.dtype == dtype and x.spread in (None, spread)]
    model = f"{hidden}x{inner}"
    return next((x for x in fit if model in x.models), next((x for x in fit if not x.models), None))
