"""Attention of prompts by an engine's kernels: tiles of queries over units, and the cache they write."""

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from umm.arrays import Bools, Floats
from umm.machines.declaring import Field, model_validator
from umm.machines.quantities import (
    BytesPerSecond,
    HeadCounts,
    Name,
    Rated,
    ShareOfPeak,
    Sourced,
    Time,
    increasing,
)
from umm.numbers import parse_whole

HALF = 2  # bytes of an element of queries, results, and of keys and values before they are cached

Count = Annotated[int, Field(ge=1, le=2**31)]
Times = Annotated[list[Time], Field(min_length=1)]
Part = Annotated[float, Field(ge=0, le=1)]
Norm = Annotated[float, Field(ge=1, le=64)]
Keys = Annotated[float, Field(ge=1)]


class Attention(Sourced):
    """An engine's kernel of attention, for some sizes of heads."""

    cache: Rated  # type of the cache's elements
    latent: bool = False  # whether the cache has latent vectors
    # Whether it computes layers with a window alone (true), without (false), or both.
    windowed: bool | None = None
    backend: Name | None = None  # of attention, where the engine has several
    # Columns of a key for which the engine takes the backend unless asked otherwise; all if None.
    usual: list[Count] | None = None
    # Query heads and heads of keys of models for which it does so with all columns of `head`.
    usual_heads: list[HeadCounts] = Field(default_factory=list)
    head: Annotated[list[Count], Field(min_length=1)]  # columns of a key, increasing
    start: Times  # seconds beside the work, for each
    units: Count  # multiprocessors of the device
    ramp: Time  # seconds that beginning and ending a tile, or a part of keys, takes
    tail: Part  # 1 where units without work wait for the last wave, 0 where work divides evenly
    split: Time  # seconds that cutting keys adds
    norm: Norm  # how units' work and memory's overlap
    memory: BytesPerSecond  # Bytes/s of the cache, queries and results
    token: Time  # seconds of each token's new keys: of a prompt, or of each sequence and head of keys
    sequence: Time  # seconds of each sequence: its table of pages

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        increasing(self.head)
        if self.usual is not None and self.backend is None:
            raise ValueError("usual says for which heads an engine takes a backend; state backend too")
        if self.usual_heads and self.usual is None:
            raise ValueError(
                "usual_heads says where more heads than the usual ones are taken; state usual too"
            )
        return self


K = TypeVar("K", bound=Attention)


def nearest(tables: Iterable[K], head: float, named: bool = False) -> K | None:
    """Return the first table that computes a size of heads, or the nearest to it; None of none.

    Args:
        tables: Tables to choose from.
        head: Columns of a key.
        named: Whether the numbers of heads are among a backend's ``usual_heads``.
    """
    some = [(x, x.head if x.usual is None or (named and x.usual_heads) else x.usual) for x in tables]
    near = ((min(abs(np.log2(head / y)) for y in heads), x) for x, heads in some if heads)
    return min(near, key=lambda x: x[0], default=(0.0, None))[1]


def has_heads(names: Iterable[str], heads: npt.ArrayLike, kv_heads: npt.ArrayLike) -> Bools:
    """Return which numbers of query heads and heads of keys are among some, such as ``16/2``.

    >>> has_heads(["16/2", "8/1"], [16, 16, 8], [2, 1, 1]).tolist()
    [True, False, True]
    """
    some = [tuple(map(parse_whole, x.split("/"))) for x in names]
    masks = [np.equal(heads, x) & np.equal(kv_heads, y) for x, y in some]
    return np.asarray(np.logical_or.reduce(masks)) if masks else np.zeros(np.shape(heads), dtype=bool)


def at_head(head: npt.ArrayLike, heads: Sequence[int], values: Sequence[float]) -> Floats:
    """Return values between those of sizes of a head, by the logarithm of the size.

    >>> at_head([64, 96, 512], [64, 128], [1.0, 3.0]).round(1).tolist()
    [1.0, 2.2, 3.0]
    """
    return np.interp(np.log2(head), np.log2(heads), values)


def whole_waves(tiles: Floats, units: float, tail: float) -> Floats:
    """Return rounds in which units do tiles: whole ones with a tail of 1, else partly in proportion."""
    waves = tiles / units
    return np.maximum(1.0, tail * np.ceil(waves) + (1.0 - tail) * waves)


def normed(one: Floats, other: Floats, norm: float) -> Floats:
    """Return two times that overlap partly as one: their sum with a norm of 1, the larger with a high one."""
    larger = np.maximum(np.maximum(one, other), 1e-30)
    return np.asarray(larger * ((one / larger) ** norm + (other / larger) ** norm) ** (1.0 / norm))


class Prompts(NamedTuple):
    """Prompts of one kernel, all of one length; each field is a number or an array."""

    sequences: Floats  # prompts, or tokens, of one kernel
    queries: Floats  # of each
    keys: Floats  # of each, those cached before among them
    seen: Floats  # keys that a query sees in the mean
    most: Floats  # keys that a query sees at most
    edges: Floats  # edges of a mask that a tile of queries has: 1 with a causal mask, 2 with a window too
    heads: Floats  # query heads
    kv_heads: Floats  # heads of keys and values
    head: Floats  # columns of a query and a key
    value: Floats  # columns of a value


def causal(
    sequences: npt.ArrayLike,
    queries: npt.ArrayLike,
    heads: npt.ArrayLike,
    kv_heads: npt.ArrayLike,
    head: npt.ArrayLike,
    value: npt.ArrayLike,
    window: npt.ArrayLike = 0,
    prefix: npt.ArrayLike = 0,
) -> Prompts:
    """Return prompts with a causal mask.

    Args:
        sequences: Prompts, or tokens, of one kernel.
        heads: Query heads.
        kv_heads: Heads of keys and values.
        head: Columns of a query and a key.
        value: Columns of a value.
        window: Keys that a query sees at most; 0 for all.
        prefix: Keys of each that are cached before.

    >>> float(causal(1, 4, 1, 1, 64, 64).seen), float(causal(1, 4, 1, 1, 64, 64, window=2).seen)
    (2.5, 1.75)
    """
    names = (sequences, queries, heads, kv_heads, head, value, window, prefix)
    b, q, h, kv, d, v, w, p = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in names))
    keys = p + q
    windowed = (w > 0) & (w < keys)
    most = np.where(windowed, w, keys)
    short = np.maximum(np.minimum(q, most - p), 0.0)  # queries that see all keys before them
    seen = (short * (p + (short + 1) / 2) + (q - short) * most) / q
    return Prompts(b, q, keys, seen, most, 1.0 + windowed, h, kv, d, v)


class Prefill(Attention):
    """An engine's kernel of attention of prompts; with ``latent``, keys are made from latent vectors."""

    dtype: Rated  # of the products
    least: Count = 1  # queries of a sequence below which the kernel of tokens computes them
    value: Annotated[list[ShareOfPeak], Field(min_length=1)]  # share of the peak inside a tile, for each head
    tile: Count  # queries of a tile
    packed: bool  # whether a tile has the queries of all heads that share keys
    keys: Keys  # those that a tile takes at once; those it sees are padded to it
    skipped: Part = 0.0  # share of a key's time that one takes outside of the window; 0 where none is visited
    write: BytesPerSecond  # Bytes/s at which keys and values go to the cache, in a kernel before

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if not len(self.head) == len(self.value) == len(self.start):
            raise ValueError("head, value and start must be equally long")
        return self

    def seconds(self, prompts: Prompts, peak: npt.ArrayLike, itemsize: float, written: bool = True) -> Floats:
        """Return the seconds of a kernel.

        Args:
            peak: flop/s of the device.
            itemsize: Bytes of an element of the cache.
            written: Whether keys and values go to the cache before.

        Two tiles on two units, 64 and 128 keys long: the longer ends last.

        >>> text = {"dtype": "bfloat16", "cache": "bfloat16", "source": "a test", "ramp": "1 us"}
        >>> rates = {"memory": "1 PB/s", "write": "1 PB/s", "token": "0 s", "sequence": "0 s"}
        >>> kernel = Prefill(head=[64], value=[0.5], start=["5 us"], units=2, tile=64, packed=False,
        ...     keys=64.0, tail=1.0, split="1 s", norm=2.0, **text, **rates)
        >>> round(float(kernel.seconds(causal(1, 128, 1, 1, 64, 64), 2e12, 2)) * 1e6, 1)
        10.2
        """
        b, queries, keys, seen, most, edges, heads, kv_heads, head, value = prompts
        rows = self.tile * kv_heads / heads if self.packed else self.tile
        tiles = b * (kv_heads if self.packed else heads) * np.ceil(queries / rows)
        span = np.minimum(rows, queries)
        full = np.ceil(keys / self.keys) * self.keys
        mean = np.minimum(full, seen + (span + self.keys) / 2 * edges)
        longest = np.minimum(
            full, np.ceil(most / self.keys) * self.keys + np.where(edges > 1, span + self.keys, 0.0)
        )
        if self.skipped:
            mean = mean + self.skipped * np.maximum(keys - (queries - 1) / 2 - seen, 0.0)
            longest = longest + self.skipped * (keys - most)
        share = at_head(head, self.head, self.value)
        per_key = 2.0 * self.tile * (head + value) * self.units / (np.asarray(peak) * share)
        # Keys of the last tile may be cut among units that have none.
        parts = np.maximum(1.0, self.units / tiles)
        alone = self.ramp + np.minimum(longest * per_key, longest * per_key / parts + self.split)
        waves = whole_waves(tiles, self.units, self.tail)
        arithmetic = np.maximum(
            np.where(tiles >= self.units, waves * (self.ramp + mean * per_key), 0.0), alone
        )
        moved = b * HALF * heads * (head + value) * queries + b * keys * itemsize * kv_heads * (head + value)
        tokens = b * queries
        cached = kv_heads * (head + value) * (HALF + itemsize) / self.write + self.token
        work = normed(arithmetic, moved / self.memory, self.norm)
        took = at_head(head, self.head, self.start) + work
        return np.asarray(took + tokens * cached + b * self.sequence if written else took)


def prefill_of(
    tables: Iterable[Prefill],
    dtype: str,
    cache: str,
    head: float,
    windowed: bool = False,
    latent: bool = False,
    named: bool = False,
) -> Prefill | None:
    """Return an engine's kernel of prompts; with another type of cache where it has none of this one.

    Args:
        cache: Of the cache's elements.
        head: Columns of a key.
        windowed: Whether there is a window.
        latent: Whether keys are made from latent vectors.
        named: Whether the numbers of heads are among a backend's ``usual_heads``.
    """
    fit = [x for x in tables if x.latent == latent and x.dtype == dtype]
    fit = [x for x in fit if x.cache == cache] or fit
    return nearest([x for x in fit if x.windowed in (None, windowed)] or fit, head, named)
