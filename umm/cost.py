"""The cost of an action: a roofline for GEMMs, bytes to charge on the links for transfers."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from umm.arrays import Bools, Floats, Ints
from umm.dtypes import element_bytes, expanded, has_blocks, is_float8, itemsize, rated, weight_bytes
from umm.interval import Interval
from umm.machines import Machine
from umm.machines.decode import SHORT, decode_of, tokens, unshared_keys
from umm.machines.exchange import exchange_of
from umm.machines.experts import FORMATS, experts_of, format_of, load_of, rows_of_experts
from umm.machines.kernels import Kernels
from umm.machines.prefill import Prompts, causal, has_heads, prefill_of
from umm.machines.serving_tables import format_text

if TYPE_CHECKING:
    from umm.program.functions.attention import Heads

# Of what calibration's multiplies add to: every third adds to the tile of the one before.
LOADED_OF_C = 2.0 / 3.0
GROUPED_ROWS = 64  # of a tile of grouped kernels, as wgmma multiplies them: PTX ISA 8.4, section 9.7.15
SCORE = 4  # bytes of a score of sparse attention, in float32
SPARSE_KERNELS = 3  # launches: scores, the choice, attention; backward scores, attention, the indexer
BROUGHT = 16  # gets of which the cache holds so many drive nothing out that is missed


class Pace(NamedTuple):
    """Factors of the devices of some actions on a machine's numbers, where devices are not all alike."""

    peak: Floats | float = 1.0  # of the peak
    memory: Floats | float = 1.0  # of the memory bandwidth


ALIKE = Pace()


def pace_of(machine: Machine, ranks: Ints, total: int) -> Pace:
    """Return the factors of the devices of some ranks, of so many, on the machine's numbers."""
    if machine.paces is None:
        return ALIKE
    return Pace(machine.pace("peak", ranks, total), machine.pace("memory_bandwidth", ranks, total))


def gemm_seconds(
    machine: Machine,
    dtype: str,
    m: npt.ArrayLike,
    n: npt.ArrayLike,
    k: npt.ArrayLike,
    c_itemsize: int,
    batch: npt.ArrayLike = 1,
    again: npt.ArrayLike = 0,
    by_columns: bool = False,
    pace: Pace = ALIKE,
    scheduled: bool = False,
    warm: bool = True,
) -> Floats:
    """Return how long local multiplies take with a device to themselves, in seconds.

    Launch overhead plus the larger of the arithmetic, 2mnk over peak times efficiency, and the memory
    traffic: A and B read once, C read and written. What of C a rank adds to again it does not load, where the
    machine says how fast it would; with that no multiply goes below the roofline at the best efficiency.
    MachineError if the machine states no peak for this dtype.

    Where the machine file describes a library's kernels, these give the time: their start, which a kernel
    queued behind another takes too, tiles, waves and memory. The launch is not counted then: it is exposed
    only where nothing is queued. Kernels of an engine that rounds A before take that too, see
    :func:`cast_seconds`.

    Args:
        machine: The device's peak, efficiency, memory bandwidth and launch overhead.
        dtype: Of A and B.
        m: Rows of C; `m`, `n` and `k` broadcast against each other.
        batch: Multiplies of this shape that run together; the result is for one of them.
        again: Bytes of C that are in a cache, for each was added to before.
        by_columns: Whether B is stored by columns, as the kernels of some types need it. With a scale for
            each block it is, as engines keep weights, and nothing is in a cache before.
        pace: Factors of the device of each multiply on the machine's numbers.
        scheduled: Whether A has its type already, because rounding it is an action of its own, and kernels in
            graphs take no time of the host.
        warm: Whether the L2 cache has what it holds of B, as where a multiply is done over and over; in a
            schedule it has not.

    Weights that kernels expand, as of ``bfloat16xint4``, are read in their own bytes, and multiply at A's
    rate. Floats of 4 bits multiply as such where the device can; A is then rounded first.

    Source: roofline model, as in Brock & Golin (2025), section 4.3.
    """
    kernels, multiplied = machine.kernels(dtype), machine.multiplied(dtype)
    if kernels is not None:
        if scheduled:
            kernels = kernels.scheduled(machine.engine is not None and machine.engine.graphs)
        elif not warm:
            kernels = kernels.unrepeated
        if has_blocks(dtype):
            kernels, by_columns = kernels.from_memory, True
        together = _by_kernels(kernels, (m, n, k, batch), pace, c_itemsize, by_columns)
        took = kernels.start_s + (together - kernels.start_s) / np.asarray(batch, dtype=np.float64)
        if scheduled and multiplied == expanded(dtype):
            took = took + cast_seconds(machine, multiplied, m, k)
        return took if machine.tables is None else took * table_factors(machine, multiplied, m, n, k)[0]
    m, n, k = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
    elements = m * n
    at_peak = arithmetic = elements * k * (2.0 / machine.peak(dtype))
    if pace is not ALIKE:
        at_peak = arithmetic = at_peak / pace.peak
    if machine.gemm_table(dtype) is not None:
        arithmetic = at_peak / machine.gemm_efficiency(dtype, m, n, k, batch)
    factors = (m * element_bytes(dtype) + n * weight_bytes(dtype)) * k
    traffic = (factors + elements * (2 * c_itemsize)) / machine.work_bandwidth
    if pace is not ALIKE:
        traffic = traffic / pace.memory
    took = np.maximum(arithmetic, traffic)
    if machine.refill:
        best = np.maximum(at_peak / machine.most_efficiency(dtype, k), traffic)
        saved = np.asarray(again, dtype=np.float64) * (LOADED_OF_C / machine.refill)
        took = np.maximum(took - saved, np.minimum(took, best))
    return machine.launch_s + took


multiply_seconds = partial(gemm_seconds, scheduled=True)  # seconds of a schedule's multiplies


def batched_seconds(
    machine: Machine, dtype: str, batch: int, m: int, n: int, k: int, c_itemsize: int, warm: bool = True
) -> float:
    """Return the seconds of equal multiplies in one kernel, which starts once."""
    start = machine.gemm_start(dtype)
    one = float(gemm_seconds(machine, dtype, m, n, k, c_itemsize, batch=batch, warm=warm))
    return start + batch * (one - start)


def table_factors(
    machine: Machine, dtype: str, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike
) -> tuple[Floats, Bools]:
    """Return factors of multiplies' seconds by measured tables, and which shapes are inside such a table.

    Args:
        machine: One with a table beside its file; of others all factors are 1, and none is inside.
    """
    sizes = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (m, n, k)))
    shape = sizes[0].shape
    rows = None if machine.tables is None else machine.tables.of(dtype)
    if rows is None or not sizes[0].size:
        return np.ones(shape), np.zeros(shape, dtype=bool)
    factors, inside = rows.factors(*(np.maximum(x.reshape(-1), 1.0) for x in sizes))
    if machine.inside != 1.0:
        factors = np.where(inside, factors * machine.inside, factors)
    return factors.reshape(shape), inside.reshape(shape)


def least_factors(
    machine: Machine, dtype: str, shortest: Sequence[npt.ArrayLike], longest: Sequence[npt.ArrayLike]
) -> Floats | float:
    """Return factors that :func:`table_factors` of no shape between two are below; 1 without a table.

    Args:
        shortest: m, n and k of the one.
        longest: Of the other.
    """
    rows = None if machine.tables is None else machine.tables.of(machine.multiplied(dtype))
    if rows is None:
        return 1.0
    sizes = np.broadcast_arrays(*shortest, *longest)
    m, n, k, *longer = (np.maximum(np.asarray(x, dtype=np.float64), 1.0) for x in sizes)
    return rows.least((m, n, k), longer)


def cast_seconds(machine: Machine, dtype: str, m: npt.ArrayLike, k: npt.ArrayLike) -> Floats:
    """Return the seconds of multiplies in the kernel that rounds A to the type before.

    Args:
        machine: One with the kernels of an engine that does so; of others it is 0.
        m: Rows of A; `m` and `k` broadcast against each other.
        k: Columns of A.

    >>> from umm.machines import machine
    >>> engines = [machine("h100-8", kernels=x) for x in ("vllm", "xla")]
    >>> [float(cast_seconds(x, "float8_e4m3", 128, 4096)) > 0 for x in engines]
    [True, False]
    """
    kernels = machine.kernels(dtype)
    m, k = np.broadcast_arrays(np.asarray(m, dtype=np.float64), np.asarray(k, dtype=np.float64))
    if kernels is None:
        return np.zeros(m.shape)
    return np.zeros(m.shape) + kernels.cast_seconds(m, k, np.ones(m.shape))


def _by_kernels(
    kernels: Kernels, sizes: tuple[npt.ArrayLike, ...], pace: Pace, c_itemsize: int, by_columns: bool
) -> Floats:
    """Return the seconds of a library's kernels for some m, n, k and batch, those of a batch together."""
    if pace is ALIKE:
        return kernels.seconds(*sizes, c_itemsize=c_itemsize, by_columns=by_columns)
    together = np.broadcast_arrays(*sizes, pace.peak, pace.memory)
    *shape, peak, memory = (np.atleast_1d(x) for x in together)
    took = np.zeros(peak.shape)
    for one, other in set(zip(peak.tolist(), memory.tolist(), strict=True)):
        device_rows = (peak == one) & (memory == other)
        device = kernels.paced(one, other)
        took[device_rows] = device.seconds(
            *(x[device_rows] for x in shape), c_itemsize=c_itemsize, by_columns=by_columns
        )
    return took.reshape(together[0].shape)


def attention_seconds(
    machine: Machine,
    dtype: str,
    heads: "Heads",
    rows: Interval,
    count: int,
    keys: Interval,
    backward: bool,
    pace: Pace = ALIKE,
    written: bool = False,
    cached: str = "",
) -> float:
    """Return how long a kernel of fused attention takes on a device to itself, in seconds.

    Launch overhead plus the larger of arithmetic, at the machine's rate for kernels of this kind, and memory
    traffic. Each operand is read or written once, and no score ever is. Forward, an engine's own kernel gives
    the time where the machine has one. MachineError if the machine states no peak for this dtype.

    Args:
        backward: Whether it is the kernel of the gradients.
        pace: Factors of the device on the machine's numbers.
        written: Whether an engine writes keys and values to its cache before.
        cached: Type of keys and values in memory, if not that of the products.
    """
    cached = cached or dtype
    if machine.prefill and not backward:
        took = None
        if heads.queries == 1 and rows.size and keys.size:
            took = _engine_tokens(machine, heads, rows, count, keys, cached)
        if took is None:
            took = _engine_attention(machine, rated(dtype), heads, rows, count, keys, written, cached)
        if took is not None:
            return machine.launch_s + max(0.0, took - machine.launch_s) / float(min(pace.peak, pace.memory))
    # Of p ranks' blocks under a mask, p² in all, a few have masks of their own.
    rows, keys = heads.like(rows, keys)
    arithmetic, traffic = _attention_alike(machine, dtype, heads, rows, count, keys, backward, cached)
    return machine.launch_s + max(float(arithmetic / pace.peak), float(traffic / pace.memory))


@lru_cache(maxsize=2**16)
def _engine_attention(
    machine: Machine, dtype: str, heads: "Heads", rows: Interval, count: int, keys: Interval, written: bool,
    cached: str,
) -> float | None:  # fmt: skip
    """Return the seconds of an engine's kernel of prompts; None if it has none of this type."""
    dtype, head = "bfloat16" if dtype == "float16" else dtype, heads.head + heads.rotary
    windowed, latent = 0 < heads.window < heads.keys, heads.rotary > 0
    kept = "float8" if is_float8(cached) else dtype
    kernel = prefill_of(machine.prefill, dtype, kept, head, windowed, latent)
    other = prefill_of(machine.prefill, dtype, kept, head, windowed, latent, named=True)
    if other is not None and has_heads(other.usual_heads, count, count / heads.share):
        kernel = other
    if kernel is None or not rows.size or not keys.size:
        return None
    sequences = max(1.0, rows.size / heads.queries)
    last = Interval(max(rows.start, rows.stop - kernel.tile), rows.stop)
    most = heads.pairs(last, keys) / last.size + (kernel.tile / 2 if heads.causal else 0.0)
    seen = heads.pairs(rows, keys) / rows.size
    edges = min(1.0, heads.masked(rows, keys) / rows.size) + windowed
    numbers = (
        sequences, rows.size / sequences, min(heads.keys, keys.size), seen, min(most, keys.size), edges,
        count, count / heads.share, head, heads.head,
    )  # fmt: skip
    prompts = Prompts(*(np.asarray(x, dtype=np.float64) for x in numbers))
    return float(kernel.seconds(prompts, machine.peak(dtype), itemsize(cached), written))


@lru_cache(maxsize=2**14)
def _engine_tokens(
    machine: Machine, heads: "Heads", rows: Interval, count: int, keys: Interval, cached: str
) -> float | None:
    """Return the seconds of an engine's kernel of a token of each sequence; None without one."""
    seen, latent = heads.pairs(rows, keys) / rows.size, heads.alike
    took = decode_seconds(
        machine, "float8" if is_float8(cached) else "bfloat16", rows.size, max(1.0, seen), count,
        1 if latent else max(1.0, count / heads.share), heads.head + heads.rotary, heads.values,
        latent=latent,
    )  # fmt: skip
    return None if took is None else float(took)


def prefill_seconds(
    machine: Machine,
    dtype: str,
    cache: str,
    sequences: npt.ArrayLike,
    queries: npt.ArrayLike,
    heads: npt.ArrayLike,
    kv_heads: npt.ArrayLike,
    head: int,
    value: int,
    window: int = 0,
    prefix: npt.ArrayLike = 0,
    latent: bool = False,
) -> Floats | None:
    """Return the seconds of causal attention of prompts by an engine's kernel; None without one.

    Args:
        dtype: Of the products: bfloat16 or float8.
        cache: Type of the cache's elements.
        sequences: This and the other sizes are those of :func:`umm.machines.prefill.causal`.
        latent: Whether keys are made from latent vectors.

    >>> from umm.machines import machine
    >>> trtllm = machine("h100-8", kernels="trtllm")
    >>> float(prefill_seconds(trtllm, "bfloat16", "float8", 8, 4096, 32, 8, 128, 128)) > 1.5e-3
    True
    """
    kernel = prefill_of(machine.prefill, dtype, cache, head, bool(window), latent)
    if kernel is None:
        return None
    prompts = causal(sequences, queries, heads, kv_heads, head, value, window, prefix)
    peak, itemsize = machine.peak("float8_e4m3" if dtype == "float8" else dtype), _cached_bytes(cache)
    took = kernel.seconds(prompts, peak, itemsize)
    other = prefill_of(machine.prefill, dtype, cache, head, bool(window), latent, named=True)
    if other is not None and other is not kernel:
        mine = has_heads(other.usual_heads, heads, kv_heads)
        took = np.where(mine, other.seconds(prompts, peak, itemsize), took)
    if np.any(np.less(queries, kernel.least)):
        keys = np.add(queries, prefix)
        single = decode_seconds(
            machine, cache, sequences, keys, heads, kv_heads, head, value, window, warm=True
        )
        took = took if single is None else np.where(np.less(queries, kernel.least), single, took)
    sizes = (sequences, queries, np.add(queries, prefix), heads, kv_heads)
    return took * prefill_factors(machine, (dtype, cache, head, value, window, latent), sizes)


def prefill_factors(
    machine: Machine, form: tuple[str, str, int, int, int, bool], sizes: tuple[npt.ArrayLike, ...]
) -> Floats:
    """Return factors of the seconds of attention of prompts by measured tables, 1 without any.

    Args:
        machine: The device, with its tables.
        form: Types of products and of the cache, columns of keys and of values, window, whether latent.
        sizes: Prompts, queries and keys of each, heads, heads of keys.
    """
    dtype, cache, head, value, window, latent = form

    def law(base: Machine, b: Floats, q: Floats, keys: Floats, h: Floats, kv: Floats) -> Floats | None:
        return prefill_seconds(base, dtype, cache, b, q, h, kv, head, value, window, keys - q, latent)

    ones = np.ones(np.broadcast_shapes(*(np.shape(x) for x in sizes)))
    return _measured(machine, "prefill", (*form[:5], int(latent)), sizes, law, ones)


def decode_seconds(
    machine: Machine,
    cache: str,
    sequences: npt.ArrayLike,
    keys: npt.ArrayLike,
    heads: npt.ArrayLike,
    kv_heads: npt.ArrayLike,
    head: int,
    value: int,
    window: int = 0,
    latent: bool = False,
    warm: bool = False,
) -> Floats | None:
    """Return the seconds of attention of a token of each sequence, by an engine's kernel; None without one.

    Args:
        cache: Type of the cache's elements: bfloat16 or float8.
        sequences: Prompts, or tokens, of one kernel.
        keys: Of each in the cache.
        heads: Query heads.
        kv_heads: Heads of keys and values; 1 of latent vectors.
        head: Columns of a query and a key.
        value: Columns of a value.
        window: Keys that a query sees at most; 0 for all.
        latent: Whether the cache has latent vectors, which are keys and values.
        warm: Whether the L2 cache has what it holds of the keys, as in a benchmark.

    >>> from umm.machines import machine
    >>> vllm = machine("h100-8", kernels="vllm")
    >>> float(decode_seconds(vllm, "bfloat16", 256, 4096, 32, 8, 128, 128)) > 1e-3
    True
    """
    windowed, alone = window > 0, bool(np.all(np.equal(heads, kv_heads)))
    one_of = partial(decode_of, machine.decode, cache, head, latent, windowed=windowed, alone=alone)
    kernel = one_of()
    if kernel is None:
        return None
    some = tokens(sequences, keys, heads, kv_heads, head, value, window, latent)
    peak, itemsize = machine.peak("bfloat16"), _cached_bytes(cache)
    took = kernel.seconds(some, peak, itemsize, warm)
    # An engine may have another kernel for some of the tokens.
    for other, is_its in (
        (one_of(unshared=True), lambda x: unshared_keys(some, x.units, itemsize)),
        (one_of(short=True), lambda x: np.less_equal(some.keys, SHORT)),
        (one_of(named=True), lambda x: has_heads(x.usual_heads, heads, kv_heads)),
    ):
        if other is not None and other is not kernel and np.any(its := is_its(other)):
            took = np.where(its, other.seconds(some, peak, itemsize, warm), took)

    def law(base: Machine, b: Floats, n: Floats, h: Floats, kv: Floats) -> Floats | None:
        return decode_seconds(base, cache, b, n, h, kv, head, value, window, latent, warm=True)

    cut = windowed and bool(np.max(keys) > window)
    shape = (cache, head, value, window, int(latent), int(alone), int(cut))
    return _measured(machine, "decode", shape, (sequences, keys, heads, kv_heads), law, took)


def _cached_bytes(cache: str) -> float:
    return 1.0 if cache == "float8" else 2.0


def _measured(
    machine: Machine, kernel: str, shape: tuple[object, ...], sizes: tuple[npt.ArrayLike, ...],
    law: Callable[..., Floats | None], took: Floats,
) -> Floats:  # fmt: skip
    """Return seconds by law as measured rows of the same format correct them, where the machine has some."""
    # machine: the device, with its tables. law: seconds on a machine of sizes, as benchmarks measure them
    # with a warm cache.
    tables = machine.serving
    rows = tables.of(kernel, format_text(*shape)) if tables else None
    if rows is None or tables is None:
        return took
    points = np.stack([np.ravel(x) for x in np.broadcast_arrays(*sizes)], axis=1).astype(np.float64)
    factors = [rows.factor(lambda x: law(tables.base, *x.T), point) for point in np.maximum(points, 1.0)]
    times = np.array([x * machine.inside if inside else x for x, inside in factors])
    return np.asarray(took * times.reshape(np.shape(took)))


@lru_cache(maxsize=2**14)
def experts_seconds(
    machine: Machine, dtype: str, tokens: int, hidden: int, inner: int, top_k: int, experts: int,
    tp: int = 1, ep: int = 1, gated: bool = True, skew: float = 0.0, warm: bool = False,
    rows_of: Callable[[int, int, int, int, float], Floats] = rows_of_experts,
) -> float | None:  # fmt: skip
    """Return the seconds of the busiest rank's experts, routing and sums included, by an engine's kernels.

    Args:
        machine: With an engine's kernels; None comes back without any of the type.
        dtype: Of weights and rows, such as ``float8:128`` or ``int4``; see ``umm.machines.experts.FORMATS``.
        tokens: Of the layer, all ranks'.
        hidden: Columns of a token.
        inner: Columns of an expert's inner result.
        top_k: Experts of each token.
        experts: Of all ranks.
        tp: Ranks that share each expert.
        gated: Whether a second product gates the inner result.
        skew: Exponent of a power law of the experts' shares; 0 for tokens that take turns.
        warm: Whether the L2 cache has what it holds of weights, as in a benchmark.
        rows_of: Returns each expert's rows; a table by other loads has its own.
    """
    shape = f"{experts // ep}x{-(-inner // tp)}"
    kernels = experts_of(machine.experts, dtype, hidden, inner, ep > 1, shape)
    if kernels is None:
        return None
    load = load_of(rows_of(tokens, experts, top_k, ep, skew), tokens, top_k)
    took = kernels.seconds(load, hidden, -(-inner // tp), gated, machine.peak(FORMATS[dtype].dtype), warm)
    model = (hidden, inner, top_k, experts, tp, ep)

    def law(base: Machine, sizes: Floats) -> Floats:
        some = (experts_seconds(base, dtype, int(x), *model, gated, skew, True, rows_of) for x in sizes)
        return np.array([np.nan if x is None else x for x in some])

    return float(_measured(machine, "experts", (dtype, *model, skew), (tokens,), law, took))


def exchange_seconds(
    machine: Machine, tokens: int, hidden: int, top_k: int, experts: int, ranks: int, low_latency: bool
) -> float | None:
    """Return the seconds of sending tokens to their experts and back, by an engine's kernels.

    Args:
        machine: With an engine's kernels; None comes back without any, or of ranks of several nodes.
        tokens: Of each rank.
        hidden: Columns of a token.
        top_k: Experts of each.
        low_latency: Whether few tokens go once for each expert, rather than many once for each rank.
    """
    ways = [exchange_of(machine.exchange, x, low_latency) for x in ("dispatch", "combine")]
    if None in ways or ranks > machine.device_count or ranks < 2:
        return None
    width = machine.hears(range(ranks))[0]
    shape = (tokens, hidden, top_k, experts, ranks, width)
    return float(sum(x.seconds(*shape) for x in ways if x is not None))


@lru_cache(maxsize=2**16)
def _attention_alike(
    machine: Machine, dtype: str, heads: "Heads", rows: Interval, count: int, keys: Interval, backward: bool,
    cached: str,
) -> tuple[float, float]:  # fmt: skip
    """Return the seconds of arithmetic and of memory traffic of a kernel; many ranks have the same one."""
    rate = machine.attention_rate(dtype, backward)
    share = rate.share(heads, rows, count, keys)
    flop = heads.flop(backward) * count * heads.pairs(rows, keys)
    # Queries, the result and, backward, both their gradients; keys and values, and theirs; a number a query.
    times = 2 if backward else 1
    nbytes = (heads.moved(rows.size, 0, count) * times + rows.size * count) * itemsize(dtype)
    nbytes += heads.moved(0, keys.size, count) * times * itemsize(cached)
    return (
        float(flop / (machine.peak(dtype) * share * rate.sustained)),
        float(nbytes / machine.pass_bandwidth),
    )


def sparse_seconds(
    machine: Machine,
    dtype: str,
    heads: "Heads",
    rows: Interval,
    count: int,
    keys: Interval,
    indexer: tuple[int, int, int],
    cached: str,
    backward: bool,
    pace: Pace = ALIKE,
) -> float:
    """Return the seconds of the kernels of sparse attention, assumed.

    Products run at the rate of fused attention. Operands move once, chosen keys once for all queries or once
    for each, whichever is less; scores are written and read.

    Args:
        count: Heads of queries.
        keys: The keys that they see.
        indexer: Index heads, the columns of one, and the keys that a query attends to at most. Without heads
            the choice is that of a layer before.
        cached: Type of keys and values.
        backward: Whether they are the gradients: operands and results move twice, scores once more.
        pace: Factors of the device on the machine's numbers.
    """
    indices, index, top = indexer
    some = heads._replace(window=top)
    pairs, attended = heads.pairs(rows, keys), some.pairs(rows, keys)
    products = pairs + (2 * attended if backward else 0)
    flop = some.flop(backward) * attended * count + 2 * index * indices * products
    elements = heads.moved(rows.size, 0, count) + rows.size * indices * (index + 1)
    of_keys = heads.moved(0, min(keys.size, attended), count) + keys.size * index
    nbytes = (2 if backward else 1) * (elements * itemsize(dtype) + of_keys * itemsize(cached))
    rate = machine.attention_rate(dtype, backward)
    arithmetic = flop / (machine.peak(dtype) * max(rate.value) * rate.sustained)
    traffic = (nbytes + (2 * SCORE * pairs if indices else 0)) / machine.pass_bandwidth
    least = max(arithmetic / float(pace.peak), traffic / float(pace.memory))
    return SPARSE_KERNELS * machine.launch_s + least


def grouped_seconds(
    machine: Machine, dtype: str, rows: Ints, n: int, k: int, c_itemsize: int, pace: Pace = ALIKE
) -> Floats:
    """Return how long each part of one kernel takes that multiplies rows of several experts, in seconds.

    The rows of each are padded to whole tiles, which is what few rows of an expert cost; each expert's weight
    is read once. The first part has the launch. An engine's kernels of experts give the time where the
    machine has some of this type; else what the file states of grouped kernels, or its other multiplies.
    MachineError if the machine states no peak for this dtype.

    Args:
        dtype: Of both operands; see :func:`gemm_seconds`.
        rows: Of each expert, more than 0.
        pace: Factors of the device on the machine's numbers.
    """
    multiplied = machine.multiplied(dtype)
    rate = machine.grouped.get(rated(multiplied))
    tile = GROUPED_ROWS if rate is None else rate.rows
    padded = -(-rows // tile) * tile
    total = int(padded.sum())
    traffic = len(rows) * n * k * weight_bytes(dtype) + int(rows.sum()) * (
        k * itemsize(dtype) + n * c_itemsize
    )
    form = format_of(multiplied if multiplied == expanded(dtype) else dtype)
    kernels = experts_of(machine.experts, form, k, n, spread=False)
    if kernels is not None:
        load, launch = load_of(rows, float(rows.sum()), 1), machine.launch_s
        took = kernels.multiply(load, n, k, machine.peak(dtype) * float(pace.peak))
        total_s = launch + float(took) / float(pace.memory)
    elif rate is None:
        launch = machine.gemm_start(dtype)
        total_s = max(
            float(multiply_seconds(machine, dtype, total, n, k, c_itemsize, pace=pace)),
            launch + float(traffic / machine.work_bandwidth / pace.memory),
        )
    else:
        launch, peak = rate.start, machine.peak(dtype) * float(pace.peak)
        total_s = launch + rate.seconds(rows, n, k, peak, traffic, float(pace.memory))
    shares = padded / total * (total_s - launch)
    shares[0] += launch
    return np.asarray(shares, dtype=np.float64)


def transfer_bytes(machine: Machine, payload: npt.ArrayLike, cached: npt.ArrayLike = False) -> Ints:
    """Return the bytes a get, put or broadcast is charged on its links.

    Args:
        cached: Whether what is moved is in a cache, or a share; see ``MessageSizes.slowdown``.
    """
    return machine.effective_bytes(payload, cached=cached)


def accumulate_bytes(machine: Machine, payload: npt.ArrayLike, strided: npt.ArrayLike = False) -> Ints:
    """Return the bytes an accumulate or reduce is charged on its links.

    Args:
        strided: Whether it adds to some of its tile's columns, so that its rows lie apart in memory.
    """
    efficiency = machine.accumulate_efficiency * _strided_rate(machine, strided)
    return machine.effective_bytes(payload, efficiency)


def local_accumulate_seconds(
    machine: Machine, payload: npt.ArrayLike, strided: npt.ArrayLike = False, pace: Pace = ALIKE
) -> Floats:
    """Return how long an accumulate inside one device takes: two reads and a write of the payload.

    Args:
        strided: Whether it adds to some of its tile's columns.
        pace: Factors of the device on the machine's numbers.
    """
    per_byte = 3.0 / machine.work_bandwidth / _strided_rate(machine, strided) / pace.memory
    return machine.local_overhead_s + np.asarray(payload, dtype=np.float64) * per_byte


def _strided_rate(machine: Machine, strided: npt.ArrayLike) -> Floats | float:
    if machine.strided_accumulates == 1.0:
        return 1.0
    return np.where(strided, machine.strided_accumulates, 1.0)


def refill_seconds(
    machine: Machine,
    payload: npt.ArrayLike,
    rank: Ints,
    gemm_rank: Ints,
    gemm_bytes: npt.ArrayLike,
    got: npt.ArrayLike = False,
) -> Floats | float:
    """Return how much longer each transfer makes the GEMMs of its rank: their data have left its caches.

    A transfer drives out as much as it moves, at most what a GEMM of its rank works on, in the mean. A get of
    at most a sixteenth of the cache costs nothing: what it brings is there when a GEMM reads it.

    Args:
        machine: How fast they load it again.
        rank: Whose caches each goes through.
        gemm_bytes: What each GEMM reads and adds to.
        got: Whether each is a get.
    """
    if not machine.refill:
        return 0.0
    ranks = 1 + int(max(rank.max(initial=0), gemm_rank.max(initial=0)))
    count = np.bincount(gemm_rank, minlength=ranks)
    mean = np.bincount(gemm_rank, gemm_bytes, ranks) / np.maximum(count, 1)
    small = np.asarray(got) & (np.asarray(payload) * BROUGHT <= machine.cache)
    return np.where(small, 0.0, np.minimum(payload, mean[rank]) / machine.refill)


def leaves_caches(machine: Machine, payload: npt.ArrayLike) -> Bools:
    """Return which temporaries hold so much that it is no longer in the caches when a GEMM reads it."""
    # The caches hold four of them: where it came from, what was got before, itself, and what is got next.
    return np.asarray(payload) * 4 > (machine.cache or np.inf)


def load_seconds(machine: Machine, new_bytes: npt.ArrayLike) -> Floats | float:
    """Return how much longer each GEMM takes for memory that no GEMM of its rank has used before.

    It is in no cache yet, no more than what a transfer drove out.

    Args:
        machine: How fast they load it.
        new_bytes: Bytes that each is the first to touch: of its rank's own A, of tiles that left the caches
            since the rank got them, and of a pool slot to write.
    """
    return np.asarray(new_bytes, dtype=np.float64) / machine.refill if machine.refill else 0.0


def local_copy_seconds(machine: Machine, payload: npt.ArrayLike, pace: Pace = ALIKE) -> Floats:
    """Return how long a copy inside one device takes: a read and a write of the payload."""
    took = np.asarray(payload, dtype=np.float64) * (2.0 / machine.work_bandwidth) / pace.memory
    return machine.local_overhead_s + took
