"""Experts by an engine's kernels: rows by expert, two grouped multiplies, and the sum of their results."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from umm.arrays import Floats
from umm.dtypes import expanded, has_blocks, rated
from umm.machines.declaring import Field, model_validator
from umm.machines.prefill import HALF, Count, Norm, Part, normed, whole_waves
from umm.machines.quantities import (
    Bytes,
    BytesPerSecond,
    Columns,
    ExpertShape,
    Multiplied,
    ShareOfPeak,
    Sourced,
    Time,
    increasing,
)

COLUMNS = 128  # of a tile
ROWS = (8, 16, 32, 48, 64, 128, 256)
ALIGNED = (
    16  # elements that a row of weights is a multiple of where its loads are wide (Triton's specialisation)
)
DRAWS = 5  # of loads, as many as a measured row is the mean of

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
    """Return the name of the format of a type of weights and rows; the type if there is none.

    >>> format_of("float8_e4m3:128"), format_of("bfloat16"), format_of("bfloat16xint4")
    ('float8:128', 'bfloat16', 'int4')
    """
    if stored := expanded(dtype):
        return {"float4_e2m1": "mxfp4"}.get(stored, stored)
    alike = [x for x, form in FORMATS.items() if form.dtype == rated(dtype) and form.weight < 1.5 * form.row]
    return next((x for x in alike if (":" in x) == has_blocks(dtype)), rated(dtype))


class Load(NamedTuple):
    """Rows of a rank's experts, as numbers or arrays."""

    tiles: Mapping[int, Floats]  # tiles of rows, by their size
    hit: Floats  # experts that have rows
    rows: Floats  # of all of them
    tokens: Floats  # of the layer
    arrived: Floats  # tokens that have an expert of the rank
    top_k: Floats  # experts of each
    local: Floats  # experts of the rank


def load_of(rows: npt.ArrayLike, tokens: float, top_k: int) -> Load:
    """Return the load of a rank from the rows of each of its experts, the mean of several lists of them.

    >>> load = load_of([100, 0, 3], 50, 2)
    >>> float(load.tiles[64]), float(load.hit), float(load.rows)
    (3.0, 2.0, 103.0)
    """
    each = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    tiles = {size: np.ceil(each / size).sum(axis=1).mean() for size in ROWS}
    total, pairs = each.sum(axis=1), tokens * top_k or 1.0
    arrived = (tokens * (1.0 - np.maximum(1.0 - total / pairs, 0.0) ** top_k)).mean()
    one = (np.count_nonzero(each) / len(each), total.mean(), tokens, arrived, top_k, each.shape[1])
    return Load(tiles, *(np.asarray(x, dtype=np.float64) for x in one))


@lru_cache(maxsize=2**14)
def rows_of_experts(tokens: int, experts: int, top_k: int, groups: int = 1, skew: float = 0.0) -> Floats:
    """Return the rows of each expert of the rank that has most, in several draws if they are drawn.

    Args:
        top_k: Experts of each token.
        groups: Ranks that the experts are spread over.
        skew: Exponent of a power law of the experts' shares; 0 for tokens that take turns.

    Source: ai-dynamo/aiconfigurator, collector/helper.py, whose loads measured tables have.

    >>> rows_of_experts(4, 8, 2, 2).tolist(), int(rows_of_experts(64, 8, 2, 2, 1.2).sum(axis=1).min()) > 64
    ([[1.0, 1.0, 1.0, 1.0]], True)
    """
    if not skew:
        stride = -(-experts // top_k)
        token, turn = np.arange(tokens)[:, None], np.arange(top_k)[None, :] * stride
        first = token if tokens >= stride else token * stride / tokens
        picked = ((first + turn) % experts).astype(np.int64)
        return np.bincount(picked.reshape(-1), minlength=experts)[None, : experts // groups].astype(
            np.float64
        )
    return drawn_rows(tokens, experts, top_k, groups, skew, groups)


def drawn_rows(tokens: int, experts: int, top_k: int, groups: int, skew: float, parts: int) -> Floats:
    """Return the rows of each expert of the rank that has most, in several draws.

    Args:
        top_k: Experts of each token.
        groups: Ranks that the experts are spread over.
        skew: Exponent of a power law of the experts' shares.
        parts: Parts of the experts that rows left over by rounding go to in turn.
    """
    return np.array([_drawn(tokens, experts, top_k, groups, skew, parts, seed) for seed in range(DRAWS)])


def _drawn(tokens: int, experts: int, top_k: int, groups: int, skew: float, parts: int, seed: int) -> Floats:
    least, most = (1.0, max(tokens * 0.8, 1.001)) if tokens * top_k > experts else (0.01, 2.0)
    low, high = least ** (1 - skew), most ** (1 - skew)
    shares = ((high - low) * np.random.default_rng(seed).random(experts) + low) ** (1 / (1 - skew))
    rows = np.minimum(np.round(shares / shares.sum() * tokens * top_k), tokens)
    # What rounding left over goes to the emptiest experts, or comes from the fullest, one part after another.
    left = round(tokens * top_k - rows.sum())
    each = abs(left) // parts + (np.arange(parts) < abs(left) % parts)
    sign = 1 if left > 0 else -1
    filled = [sign * _filled(sign * x, n) for x, n in zip(rows.reshape(parts, -1), each, strict=True)]
    rows = np.clip(filled, 0, tokens).reshape(groups, -1)
    return np.asarray(rows[rows.sum(axis=1).argmax()])


def _filled(rows: Floats, count: int) -> Floats:
    """Return rows after a count of ones has gone to the smallest, one by one.

    >>> _filled(np.array([5.0, 0.0, 2.0]), 4).tolist()
    [5.0, 3.0, 3.0]
    """
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    raised = np.searchsorted(np.arange(1, rows.size + 1) * rows - rows.cumsum(), count, side="right")
    level, over = divmod(rows[:raised].sum() + count, raised)
    rows[:raised] = level + (np.arange(raised) < over)
    result = np.empty_like(rows)
    result[order] = rows
    return result


class Experts(Sourced):
    """An engine's kernels of experts in one type."""

    dtype: Weights  # of weights and rows
    # Hidden and inner columns of models that the engine has these kernels for; all others if empty.
    models: list[Columns] = Field(default_factory=list)
    # Experts and inner columns of a rank, such as 8x4096, that the tiles were tuned for; all others if empty.
    shapes: list[ExpertShape] = Field(default_factory=list)
    # Whether they are those of experts spread over ranks (true), of one group (false), or both.
    spread: bool | None = None
    everywhere: bool = False  # whether rows of other ranks' experts pass too, as zeros
    computed: bool = False  # whether those rows are multiplied as if they were one more expert's
    arrived: bool = False  # whether only tokens pass that have an expert of the rank
    # Rows of the tiles that kernels have.
    tiles: Annotated[list[Literal[8, 16, 32, 48, 64, 128, 256]], Field(min_length=1)]
    # Tiles are as large as the passing rows for each expert of the rank times this, whichever of them those
    # are of; 0 where the fastest are taken.
    by_mean: Annotated[float, Field(ge=0)] = 0.0
    # Whether they are of the first size where tokens are no more than the rank's experts, else of the last.
    by_tokens: bool = False
    # Whether each tile of an expert's rows reads its weights anew, from memory what exceeds `l2`: tiles go
    # over all columns before the next rows.
    reread: bool = False
    # Share of these rates that is left where weights' rows are no multiple of 16 elements, which take narrow
    # loads.
    unaligned: Annotated[float, Field(gt=0, le=1)] = 1.0
    units: Count  # tiles at once: the device's multiprocessors
    value: ShareOfPeak  # share of the peak inside a tile
    feed: BytesPerSecond  # Bytes/s at which a unit reads rows and weights
    # Bytes/s at which all units together read the rows of their first tiles, before they multiply: they start
    # in step. Later tiles read theirs beside products.
    first: BytesPerSecond = 1e15
    ramp: Time  # seconds that beginning and ending a tile takes
    tail: Part  # 1 where units without a tile wait for the last wave, 0 where work divides evenly
    norm: Norm  # how arithmetic and traffic overlap
    memory: BytesPerSecond  # Bytes/s of weights and rows, each moved once
    l2: Bytes  # bytes of each multiply at `cached`, if a kernel before has left them in the L2 cache
    cached: BytesPerSecond  # Bytes/s of those
    passes: BytesPerSecond  # Bytes/s of sorting rows, the activation, and the sum of results
    start: Time  # seconds of all kernels beside their work
    token: Time  # seconds of each token and expert of it: routing
    expert: Time  # seconds of each expert of the rank

    @model_validator(mode="after")
    def _one_choice_of_tiles(self) -> Self:
        increasing(list(self.tiles))
        if self.by_tokens and self.by_mean:
            raise ValueError("by_tokens and by_mean both choose the tiles; state one of them")
        if self.by_tokens and len(self.tiles) < 2:
            raise ValueError("by_tokens chooses between the first and the last of tiles; state two or more")
        return self

    def multiply(
        self, load: Load, n: npt.ArrayLike, k: npt.ArrayLike, peak: float, warm: bool = False
    ) -> Floats:
        """Return the seconds of one grouped multiply beside its start: rows of k columns to n columns."""
        n, k = np.asarray(n, dtype=np.float64), np.asarray(k, dtype=np.float64)
        times = [self._tiled(load, size, n, k, peak, warm) for size in self.tiles]
        if self.by_tokens:
            return np.asarray(np.where(load.tokens <= load.local, times[0], times[-1]))
        if not self.by_mean:
            return np.asarray(np.minimum.reduce(times))
        mean = self._tokens(load) * load.top_k / load.local
        wanted = np.searchsorted(np.array(self.tiles), mean * self.by_mean)
        return np.asarray(np.choose(np.minimum(wanted, len(self.tiles) - 1), times))

    def _tiled(self, load: Load, size: int, n: Floats, k: Floats, peak: float, warm: bool) -> Floats:
        """Return the seconds of a multiply by tiles of so many rows."""
        form = FORMATS[self.dtype]
        nbytes = load.hit * n * k * form.weight + load.rows * (k * form.row + n * HALF)
        inside = np.minimum(nbytes, self.l2) if warm else 0.0
        if self.reread:
            nbytes = nbytes + np.maximum(load.tiles[size] - load.hit, 0.0) * np.maximum(
                n * k * form.weight - self.l2, 0.0
            )
        memory = inside / self.cached + (nbytes - inside) / self.memory
        return normed(self._arithmetic(load, size, n, k, peak), memory, self.norm)

    def _arithmetic(self, load: Load, size: int, n: Floats, k: Floats, peak: float) -> Floats:
        form = FORMATS[self.dtype]
        products = 2.0 * size * COLUMNS * self.units / (peak * self.value)
        each = np.maximum(products, (size * form.row + COLUMNS * form.weight) / self.feed)
        each = each / np.where(k % ALIGNED, self.unaligned, 1.0)
        others = np.ceil(self._others(load) / size) if self.computed else 0.0
        count = (load.tiles[size] + others) * np.ceil(n / COLUMNS)
        first = np.minimum(count, self.units) * size * k * form.row / self.first
        return np.asarray(whole_waves(count, self.units, self.tail) * (k * each + self.ramp) + first)

    def _tokens(self, load: Load) -> Floats:
        return load.arrived if self.arrived else load.tokens

    def _others(self, load: Load) -> Floats:
        """Return how many rows of other ranks' experts pass."""
        return np.maximum(self._tokens(load) * load.top_k - load.rows, 0.0)

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
        tokens = self._tokens(load)
        rows = load.rows + (self._others(load) if self.everywhere or self.computed else 0.0)
        moved = rows * (2 * HALF * hidden + HALF * wide + row * inner) + tokens * 2 * HALF * hidden
        routed = tokens * load.top_k * self.token + load.local * self.expert
        return np.asarray(self.start + took + moved / self.passes + routed)


def experts_of(
    tables: Sequence[Experts], dtype: str, hidden: int, inner: int, spread: bool, shape: str = ""
) -> Experts | None:
    """Return the kernels that an engine has for a model in a type; None if it has none.

    Args:
        shape: Experts and inner columns of a rank, such as 8x4096.
    """
    fit = [x for x in tables if x.dtype == dtype and x.spread in (None, spread)]
    tuned = [x for x in fit if shape in x.shapes]
    fit = tuned or [x for x in fit if not x.shapes]
    model = f"{hidden}x{inner}"
    return next((x for x in fit if model in x.models), next((x for x in fit if not x.models), None))
