"""Attention of a token of each sequence by an engine's kernels: the cache is read, cut among units."""

from collections.abc import Iterable
from typing import Annotated, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from umm.arrays import Bools, Floats
from umm.machines.declaring import Field, model_validator
from umm.machines.prefill import (
    HALF,
    Count,
    Norm,
    Part,
    Times,
    at_head,
    check_usual,
    nearest,
    normed,
    whole_waves,
)
from umm.machines.quantities import (
    Bytes,
    BytesPerSecond,
    HeadCounts,
    Name,
    Rated,
    ShareOfPeak,
    Sourced,
    Time,
    increasing,
)

LEAST_ROWS = 8  # rows of the smallest tile of tensor cores, to which few query heads are padded
LEAST_KEYS = 16  # keys that a unit takes at least
PART_KEYS, PART_SHARE = 128, 4  # of TensorRT-LLM's choice between two kernels
SHORT = 256  # keys up to which FlashAttention 3 never cuts them: 4 blocks of 64
MOST_PARTS = 128  # into which FlashAttention cuts keys
FULL, ENOUGH = 0.8, 0.85  # share of its slots from which it does not, and of the best share that will do
SPARE = 1.1  # blocks of keys that FlashAttention 3 gives a multiprocessor, of an equal share


class Tokens(NamedTuple):
    """Tokens of one kernel, one of each sequence; each field is a number or an array."""

    sequences: Floats  # prompts, or tokens, of one kernel
    keys: Floats  # of each in the cache, itself among them
    seen: Floats  # keys that it sees: all, or those of the window
    heads: Floats  # query heads
    kv_heads: Floats  # heads of keys and values; 1 of latent vectors
    head: Floats  # columns of a query and a key
    value: Floats  # columns of a value
    read: Floats  # elements of the cache that a key has in a head: keys and values, or a latent vector once


def tokens(
    sequences: npt.ArrayLike,
    keys: npt.ArrayLike,
    heads: npt.ArrayLike,
    kv_heads: npt.ArrayLike,
    head: npt.ArrayLike,
    value: npt.ArrayLike,
    window: npt.ArrayLike = 0,
    latent: bool = False,
) -> Tokens:
    """Return a token of each sequence; see :class:`Tokens`, all arguments broadcast.

    >>> float(tokens(8, 4096, 32, 8, 128, 128, window=128).seen), float(tokens(8, 64, 32, 8, 64, 64).read)
    (128.0, 128.0)
    """
    names = (sequences, keys, heads, kv_heads, head, value, window)
    b, n, h, kv, d, v, w = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in names))
    return Tokens(b, n, np.where((w > 0) & (w < n), w, n), h, kv, d, v, d if latent else d + v)


class Decode(Sourced):
    """An engine's kernel of attention of single tokens, for some sizes of heads."""

    cache: Rated  # type of the cache's elements; products are in 16 bits
    latent: bool = False  # whether the cache has latent vectors
    # Whether it computes tokens with a window alone (true), without (false), or both.
    windowed: bool | None = None
    # Whether it is that of heads that share no keys (true), of others (false), or both.
    alone: bool | None = None
    # Whether it computes tokens of few parts alone (true), of more (false), or both; see `few_parts`.
    few: bool | None = None
    # Whether it computes tokens of at most `SHORT` keys alone (true), of more (false), or both.
    short: bool | None = None
    backend: Name | None = None  # of attention, where the engine has several
    # Columns of a key for which the engine takes the backend unless asked otherwise; all if None.
    usual: list[Count] | None = None
    # Query heads and heads of keys of models for which it does so with all columns of `head`.
    usual_heads: list[HeadCounts] = Field(default_factory=list)
    head: Annotated[list[Count], Field(min_length=1)]  # columns of a key, increasing
    start: Times  # seconds beside the work, for each
    # Bytes/s at which one unit reads the cache, for each.
    feed: Annotated[list[BytesPerSecond], Field(min_length=1)]
    units: Count  # multiprocessors of the device
    resident: Annotated[float, Field(gt=0)]  # parts of the work that one of them has at a time
    rows: Count  # query heads that share a tile
    wide: Count = 2**31  # those that share one where so many share keys
    narrow: bool = False  # whether products are in 8 bits, at twice the rate
    # Query heads of a head of keys up to which keys are read once; above it once a query head.
    group: Count = 2**31
    chunk: Annotated[float, Field(ge=1)]  # keys of the smallest part that is cut
    key_parts: Count = 2**31  # parts that keys are cut into at most
    # Parts that keys are cut into, few or many, up to so many heads of keys of all sequences; no parts above.
    segments: Count | None = None
    segmented: Count | None = None
    # Version of FlashAttention, where its rule cuts keys into parts of whole blocks of `chunk` keys; its
    # tiles have all `rows`, however few heads share keys.
    flash: Annotated[int, Field(ge=2, le=3)] | None = None
    past: bool = False  # whether keys outside the window are cut into parts too
    ramp: Time  # seconds that beginning and ending a part takes
    column: Time = 0.0  # seconds more of it for each column of a key and a value
    tail: Part  # 1 where units without a part wait for the last wave, 0 where work divides evenly
    split: Time  # seconds that cutting keys adds
    # Seconds of copies of queries and results, which vLLM's FlashAttention 2 orders by heads of keys: none of
    # one sequence, one head of keys, or heads that share none (vllm_flash_attn, mha_varlen_fwd).
    swap: Time = 0.0
    # Seconds in which one part adds up a column of a query head. An engine that states it cuts keys by the
    # longest context it allows, not by how many there are (SGLang passes max_context_len to FlashInfer's
    # trtllm_batch_decode_with_kv_cache): of few keys one part alone has results, and adds up all its heads.
    merge: Time = 0.0
    value: ShareOfPeak  # share of the peak that products reach
    norm: Norm  # how units' work and memory's overlap
    memory: BytesPerSecond  # Bytes/s of the cache
    l2: Bytes  # bytes that are read at `cached`, if a kernel before has left them in the L2 cache
    cached: BytesPerSecond  # Bytes/s of those
    # Bytes/s of latent vectors that further tiles read, and of keys that each head reads.
    again: BytesPerSecond = 1e15
    passes: BytesPerSecond = 1e15  # Bytes/s of a pass that rotates queries and puts results in their place
    sequence: Time  # seconds of each sequence
    token: Time  # seconds of each sequence and head of keys: its new key is written

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        increasing(self.head)
        if not len(self.head) == len(self.start) == len(self.feed):
            raise ValueError("head, start and feed must be equally long")
        if (self.segments is None) != (self.segmented is None):
            raise ValueError("segments and segmented belong together; state both or none")
        check_usual(self)
        return self

    def seconds(self, tokens: Tokens, peak: npt.ArrayLike, itemsize: float, warm: bool = True) -> Floats:
        """Return the seconds of a kernel.

        Args:
            peak: flop/s of the device in 16 bits.
            itemsize: Bytes of an element of the cache.
            warm: Whether the L2 cache has what it holds of the keys, as where a kernel is run over and over.

        One sequence on 4 units reads its 2 MB in 4 parts, at 1 TB/s each:

        >>> rates = {"memory": "1 PB/s", "cached": "1 PB/s", "l2": "1 MiB", "source": "a test"}
        >>> times = {"ramp": "0 s", "split": "1 us", "sequence": "0 s", "token": "0 s"}
        >>> kernel = Decode(cache="bfloat16", head=[128], start=["5 us"], feed=["1 TB/s"], units=4, rows=8,
        ...     resident=1.0, chunk=64.0, tail=1.0, value=1.0, norm=2.0, **rates, **times)
        >>> round(float(kernel.seconds(globals()["tokens"](1, 4096, 1, 1, 128, 128), 1e15, 2)) * 1e6, 2)
        6.52
        """
        b, keys, seen, heads, kv_heads, head, value, read = tokens
        group = heads / kv_heads
        over = group > self.group
        slots = self.units * self.resident
        size = np.where(group >= self.wide, self.wide, self.rows)
        items = np.where(over, b * heads, b * kv_heads * np.ceil(group / size))
        chunks = np.ceil((keys if self.past else seen) / self.chunk)
        room = np.floor(slots / items)
        if self.segments and self.segmented:
            parts = np.where(b * kv_heads <= self.segmented, float(self.segments), 1.0)
            each = np.minimum(np.ceil(chunks / parts) * self.chunk, np.maximum(seen, self.chunk))
        elif self.flash:
            chunks = np.maximum(chunks, 1.0)
            parts = np.minimum(self._flash_parts(items, kv_heads, chunks), self.key_parts)
            each = np.ceil(chunks / parts) * self.chunk
        else:
            parts = np.minimum(np.minimum(np.maximum(room, 1.0), chunks), self.key_parts)
            each = np.minimum(np.ceil(chunks / parts) * self.chunk, np.maximum(seen / parts, LEAST_KEYS))
        fewer = 2.0 ** np.ceil(np.log2(np.maximum(group, LEAST_ROWS)))
        rows = size if self.flash else np.minimum(size, fewer)
        rate = self.value * np.asarray(peak) * (2.0 if self.narrow else 1.0)
        products = rows * 2.0 * (head + value) * slots / rate
        per_key = np.maximum(read * itemsize / at_head(head, self.head, self.feed), products)
        ramp = self.ramp + self.column * (head + value)
        uncut = whole_waves(items, slots, self.tail) * (ramp + (each if self.flash else seen) * per_key)
        added = self.split + self.merge * np.minimum(group, size) * value / parts
        cut = whole_waves(items * parts, slots, self.tail) * (ramp + each * per_key) + added
        if self.merge:
            unit = np.where(parts > 1, cut, uncut + np.where(room >= 2, added, 0.0))
        else:
            unit = np.where(parts > 1, cut if self.segments or self.flash else np.minimum(cut, uncut), uncut)
        cache = b * kv_heads * seen * read * itemsize
        queries = b * heads * (head + value) * HALF
        nbytes = cache + queries
        inside = np.minimum(nbytes, self.l2) if warm else 0.0
        memory = inside / self.cached + (nbytes - inside) / self.memory
        # Tiles of the same latent vectors run apart: what one has read, the next reads again.
        others = np.where(group >= self.wide, 0.0, np.ceil(group / size) - 1.0) if self.latent else 0.0
        memory = memory + np.where(over, group, others) * cache / self.again
        work = normed(unit, memory, self.norm)
        swaps = (b > 1) & (kv_heads > 1) & (group > 1)
        beside = b * (self.sequence + kv_heads * self.token) + queries / self.passes + self.swap * swaps
        return np.asarray(at_head(head, self.head, self.start) + work + beside)

    def _flash_parts(self, items: Floats, kv_heads: Floats, blocks: Floats) -> Floats:
        """Return the parts of keys by FlashAttention's rule.

        Source: Dao-AILab/flash-attention, hopper/flash_prepare_scheduler.cu and hopper/flash_api.cpp.
        """
        if self.flash == 2:
            return efficient_parts(items, self.units * self.resident, blocks)
        each = np.ceil(SPARE * items * blocks / self.units)
        return np.minimum(np.ceil(blocks / each), efficient_parts(kv_heads, self.units, blocks))


def efficient_parts(items: npt.ArrayLike, slots: npt.ArrayLike, blocks: npt.ArrayLike) -> Floats:
    """Return the parts that FlashAttention cuts keys into: the fewest that fill waves nearly as well as any.

    Args:
        items: Heads of keys of all sequences.
        slots: Parts at a time.
        blocks: Blocks of keys.

    Source: Dao-AILab/flash-attention, num_splits_heuristic.

    >>> efficient_parts([48, 128, 200], 216, 64).tolist()
    [4.0, 3.0, 1.0]
    """
    count, room, most = (np.asarray(x, dtype=np.float64)[..., None] for x in (items, slots, blocks))
    parts = np.arange(1.0, MOST_PARTS + 1)
    waves = count * parts / room
    per_part = np.ceil(most / parts)
    fewer = np.ceil(most / np.maximum(parts - 1, 0.5))  # not worth it where no part has fewer blocks
    share = np.where((parts <= np.minimum(most, room)) & (per_part != fewer), waves / np.ceil(waves), 0.0)
    good = (share >= ENOUGH * share.max(axis=-1, keepdims=True)) | ((parts == 1) & (count >= FULL * room))
    return np.asarray(np.argmax(good, axis=-1) + 1.0)


def decode_of(
    tables: Iterable[Decode],
    cache: str,
    head: float,
    windowed: bool = False,
    alone: bool = False,
    latent: bool = False,
    few: bool = False,
    named: bool = False,
    short: bool = False,
) -> Decode | None:
    """Return an engine's kernel of single tokens; with another type of cache where it has none of this one.

    Args:
        cache: Type of the cache's elements.
        head: Columns of a key.
        windowed: Whether there is a window.
        alone: Whether heads share no keys.
        latent: Whether the cache has latent vectors.
        few: Whether there are few parts.
        named: Whether the numbers of heads are among a backend's ``usual_heads``.
        short: Whether there are at most :data:`SHORT` keys.
    """
    fit = [x for x in tables if x.latent == latent]
    fit = [x for x in fit if x.cache == cache] or fit
    fit = [x for x in fit if x.windowed in (None, windowed)] or fit
    fit = [x for x in fit if x.alone in (None, alone)] or fit
    fit = [x for x in fit if x.short in (None, short)] or fit
    return nearest([x for x in fit if x.few in (None, few)] or fit, head, named)


def few_parts(tokens: Tokens, units: int) -> Bools:
    """Return which tokens have fewer parts of 128 keys than a quarter of the multiprocessors.

    TensorRT-LLM computes these by a kernel that reads keys once a query head.

    Source: NVIDIA/TensorRT-LLM, decoderXQAImplPrecompiled.cpp, shouldUse.

    >>> few_parts(tokens(4, [512, 1280], 32, 1, 128, 128), 132).tolist()
    [True, False]
    """
    parts = tokens.sequences * tokens.kv_heads * np.maximum(1.0, np.floor(tokens.keys / PART_KEYS))
    return np.asarray(PART_SHARE * parts < units)
