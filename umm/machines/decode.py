"""Attention of a token of each sequence by an engine's kernels: the cache is read, cut among units."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from umm.arrays import Bools, Floats
from umm.machines.declaring import Field, model_validator
from umm.machines.prefill import HALF, Attention, Count, Keys, at_head, nearest, normed, whole_waves
from umm.machines.quantities import Bytes, BytesPerSecond, ShareOfPeak, Time

LEAST_ROWS = 8  # rows of the smallest tile of tensor cores, to which few query heads are padded
LEAST_KEYS = 16  # keys that a unit takes at least
SEGMENTS, SEGMENTED = 16, 128  # parts of vLLM's Triton, and heads of keys up to which it cuts them
SHORT = 256  # keys up to which FlashAttention 3 never cuts them on A100: 4 blocks of 64
FEW_BLOCKS, MOST_PARTS = 4, 128  # blocks that it never cuts, and parts that FlashAttention cuts keys into
FULL, ENOUGH = 0.8, 0.85  # share of its slots from which it does not, and of the best share that will do
SPARE = 1.1  # blocks of keys that FlashAttention 3 gives a multiprocessor, of an equal share
PART_KEYS, PART_SHARE, WAVES, MOST_GROUP = 128, 4, 8, 32  # of TensorRT-LLM's choice of kernels and parts
UNLIMITED = 2**31

Cut = tuple[Floats, Floats, Bools]
"""Parts that keys are cut into, keys of the longest, and whether a kernel adds up their results."""


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


class Decode(Attention):
    """An engine's kernel of attention of single tokens; products are in 16 bits."""

    # Whether it is that of heads that share no keys (true), of others (false), or both.
    alone: bool | None = None
    # Whether it computes tokens of `unshared_keys` alone (true), others (false), or both.
    unshared: bool | None = None
    # Whether it computes tokens of at most `SHORT` keys alone (true), of more (false), or both.
    short: bool | None = None
    feed: Annotated[list[BytesPerSecond], Field(min_length=1)]  # Bytes/s at which one unit reads, by head
    resident: Annotated[float, Field(gt=0)]  # parts of the work that one of them has at a time
    rows: Count  # query heads that share a tile
    wide: Count = UNLIMITED  # those that share one where so many share keys
    narrow: bool = False  # whether products are in 8 bits, at twice the rate
    # Query heads of a head of keys up to which keys are read once; above it once a query head.
    group: Count = UNLIMITED
    cuts: Literal["even", "past", "context", "segments", "flash2", "flash3", "xqa"] = "even"  # see `RULES`
    # Keys of a block, or of the smallest part; one number or one for each of `head`.
    chunk: Keys | list[Keys]
    # Parts that keys are cut into at most; of flash3 those that a CUDA graph has, in place of its heuristic.
    key_parts: Count = UNLIMITED
    column: Time = 0.0  # seconds that a part takes more for each column of a key and a value of 8 query heads
    # Seconds in which vLLM's FlashAttention 2 orders several sequences' queries by heads that they share.
    swap: Time = 0.0
    merge: Time = 0.0  # seconds in which one part adds up a column of a query head
    value: ShareOfPeak  # share of the peak that products reach
    l2: Bytes  # bytes that are read at `cached`, if a kernel before has left them in the L2 cache
    cached: BytesPerSecond  # Bytes/s of those
    # Bytes/s of latent vectors that further tiles read, and of keys that each head reads.
    again: BytesPerSecond = 1e15
    passes: BytesPerSecond = 1e15  # Bytes/s of a pass that rotates queries and puts results in their place

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if not len(self.head) == len(self.start) == len(self.feed):
            raise ValueError("head, start and feed must be equally long")
        if not isinstance(self.chunk, float) and len(self.chunk) != len(self.head):
            raise ValueError("chunk must be one number or as long as head")
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
        b, _, seen, heads, kv_heads, head, value, read = tokens
        group = heads / kv_heads
        over = group > self.group
        slots = self.units * self.resident
        size = np.where(group >= self.wide, self.wide, self.rows)
        items = np.where(over, b * heads, b * kv_heads * np.ceil(group / size))
        fewer = 2.0 ** np.ceil(np.log2(np.maximum(group, LEAST_ROWS)))
        rows = size if self.cuts.startswith("flash") else np.minimum(size, fewer)
        rate = self.value * np.asarray(peak) * (2.0 if self.narrow else 1.0)
        products = rows * 2.0 * (head + value) * slots / rate
        per_key = np.maximum(read * itemsize / at_head(head, self.head, self.feed), products)
        ramp = self.ramp + self.column * (head + value) * rows / LEAST_ROWS
        unit = np.asarray(np.inf)
        for parts, each, added in self.ways(tokens, items):
            merged = self.split + self.merge * np.minimum(group, size) * value / parts
            waves = whole_waves(items * parts, slots, self.tail)
            unit = np.minimum(unit, waves * (ramp + each * per_key) + np.where(added, merged, 0.0))
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

    def ways(self, tokens: Tokens, items: Floats) -> list[Cut]:
        """Return how keys may be cut; the fastest way is taken. Items are tiles of query heads."""
        chunk = at_head(tokens.head, self.head, np.broadcast_to(self.chunk, len(self.head)).tolist())
        return RULES[self.cuts](self, tokens, items, chunk)


def _idle(
    kernel: Decode, tokens: Tokens, items: Floats, chunk: Floats, past: bool = False, context: bool = False
) -> list[Cut]:
    """Cut keys among idle units, where that is faster.

    With ``past`` keys before the window are cut too. With ``context`` they are cut by the longest context
    allowed (SGLang passes max_context_len to FlashInfer's trtllm_batch_decode_with_kv_cache): of few keys one
    part alone has results, and adds up all its heads.
    """
    chunks = np.ceil((tokens.keys if past else tokens.seen) / chunk)
    room = np.floor(kernel.units * kernel.resident / items)
    parts = np.minimum(np.minimum(np.maximum(room, 1.0), chunks), kernel.key_parts)
    each = np.minimum(np.ceil(chunks / parts) * chunk, np.maximum(tokens.seen / parts, LEAST_KEYS))
    if context:
        return [(parts, np.where(parts > 1, each, tokens.seen), room >= 2)]
    return [(parts, each, parts > 1), (np.ones_like(items), tokens.seen, items < 0)]


def _segments(kernel: Decode, tokens: Tokens, items: Floats, chunk: Floats) -> list[Cut]:
    """Cut keys into 16 parts, few or many, up to 128 heads of keys of all sequences.

    Source: vllm-project/vllm, v1/attention/backends/triton_attn.py: NUM_PAR_SOFTMAX_SEGMENTS and
    MIN_LAUNCH_GRID_SIZE_2D.
    """
    cut = tokens.sequences * tokens.kv_heads <= SEGMENTED
    each = np.ceil(np.ceil(tokens.keys / chunk) / SEGMENTS) * chunk
    each = np.where(cut, np.minimum(each, np.maximum(tokens.seen, chunk)), tokens.seen)
    return [(np.where(cut, SEGMENTS, 1.0), each, cut)]


def _flash2(kernel: Decode, tokens: Tokens, items: Floats, chunk: Floats) -> list[Cut]:
    """Cut keys that several query heads share by FlashAttention 2's heuristic.

    Source: Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp, set_params_splitkv.
    """
    blocks = np.maximum(1.0, np.ceil(tokens.seen / chunk))
    parts = efficient_parts(items, kernel.units * kernel.resident, blocks, fewer=True)
    parts = np.where(tokens.heads > tokens.kv_heads, parts, 1.0)
    return [(parts, np.ceil(blocks / parts) * chunk, parts > 1)]


def _flash3(kernel: Decode, tokens: Tokens, items: Floats, chunk: Floats) -> list[Cut]:
    """Cut keys into parts of 1.1 times a multiprocessor's equal share of all blocks, before the window too.

    Parts are at most those of its heuristic for one sequence, or what an engine asks for.

    Source: Dao-AILab/flash-attention, hopper/flash_prepare_scheduler.cu and hopper/heuristics.h.
    """
    blocks, seen = (np.maximum(1.0, np.ceil(x / chunk)) for x in (tokens.keys, tokens.seen))
    most = efficient_parts(items / tokens.sequences, kernel.units, seen)
    # On A100 the heuristic has smaller blocks than parts, and short tokens a kernel of their own.
    most = np.where((seen <= FEW_BLOCKS) & (kernel.short is not False), 1.0, most)
    most = most if kernel.key_parts == UNLIMITED else np.asarray(kernel.key_parts)
    parts = np.minimum(np.ceil(blocks / np.ceil(SPARE * items * blocks / kernel.units)), most)
    return [(parts, np.ceil(seen / parts) * chunk, parts > 1)]


def _xqa(kernel: Decode, tokens: Tokens, items: Floats, chunk: Floats) -> list[Cut]:
    """Cut keys into parts of 128, into fewer where there are many of a sequence or more than 8 waves of all.

    Source: NVIDIA/TensorRT-LLM, decoderXQAImplCommon.h, computeMultiBlockCount.
    """
    parts = np.floor(tokens.keys / PART_KEYS)
    parts = np.minimum(parts, np.round(np.sqrt(WAVES * parts)))
    parts = np.maximum(1.0, np.floor(parts / np.maximum(1.0, items * parts / kernel.units / WAVES)))
    each = np.ceil(np.ceil(tokens.seen / chunk) / parts) * chunk
    return [(parts, np.minimum(each, np.maximum(tokens.seen, LEAST_KEYS)), parts > 1)]


RULES: Mapping[str, Callable[[Decode, Tokens, Floats, Floats], list[Cut]]] = {
    "even": _idle,
    "past": partial(_idle, past=True),
    "context": partial(_idle, context=True),
    "segments": _segments,
    "flash2": _flash2,
    "flash3": _flash3,
    "xqa": _xqa,
}


def efficient_parts(items: Floats, slots: float, blocks: Floats, fewer: bool = False) -> Floats:
    """Return the parts that FlashAttention cuts keys into: the fewest that fill waves nearly as well as any.

    Args:
        items: Heads of keys of all sequences.
        slots: Parts at a time.
        blocks: Blocks of keys.
        fewer: Whether more parts must have fewer blocks, as in version 2.

    Source: Dao-AILab/flash-attention, num_splits_heuristic.

    >>> efficient_parts([48, 128, 200], 216, 64, fewer=True).tolist()
    [4.0, 3.0, 1.0]
    """
    count, room, most = (np.asarray(x, dtype=np.float64)[..., None] for x in (items, slots, blocks))
    parts = np.arange(1.0, MOST_PARTS + 1)
    waves = count * parts / room
    allowed = parts <= np.minimum(most, room)
    if fewer:
        allowed &= np.ceil(most / parts) != np.ceil(most / np.maximum(parts - 1, 0.5))
    share = np.where(allowed, waves / np.ceil(waves), 0.0)
    good = (share >= ENOUGH * share.max(axis=-1, keepdims=True)) | ((parts == 1) & (count >= FULL * room))
    return np.asarray(np.argmax(good, axis=-1) + 1.0)


def decode_of(
    tables: Iterable[Decode],
    cache: str,
    head: float,
    latent: bool = False,
    named: bool = False,
    *,
    windowed: bool = False,
    alone: bool = False,
    short: bool = False,
    unshared: bool = False,
) -> Decode | None:
    """Return an engine's kernel of single tokens; with another type of cache where it has none of this one.

    Args:
        cache: Type of the cache's elements.
        head: Columns of a key.
        latent: Whether the cache has latent vectors.
        named: Whether the numbers of heads are among a backend's ``usual_heads``.
        windowed: As of a :class:`Decode`, and so are alone, short and unshared.
    """
    fit = [x for x in tables if x.latent == latent]
    fit = [x for x in fit if x.cache == cache] or fit
    which = {"windowed": windowed, "alone": alone, "short": short, "unshared": unshared}
    for key, wanted in which.items():
        fit = [x for x in fit if getattr(x, key) in (None, wanted)] or fit
    return nearest(fit, head, named)


def unshared_keys(tokens: Tokens, units: Floats | int, itemsize: float) -> Bools:
    """Return which tokens TensorRT-LLM computes by a kernel that reads keys once a query head.

    Heads of keys of one query head, or of more than 32; in 16 bits, tokens of fewer parts of 128 keys than a
    quarter of the multiprocessors too.

    Source: NVIDIA/TensorRT-LLM, decoderXQAImplJIT: mayHavePerfGain and supportConfig of QGMMA and HMMA.

    >>> unshared_keys(tokens(4, [512, 1280], 32, 1, 128, 128), 132, 2).tolist()
    [True, False]
    """
    parts = tokens.sequences * tokens.kv_heads * np.maximum(1.0, np.floor(tokens.keys / PART_KEYS))
    group = tokens.heads / tokens.kv_heads
    few = (PART_SHARE * parts < units) & (itemsize == 2)
    return np.asarray(few | (group == 1) | (group > MOST_GROUP))
