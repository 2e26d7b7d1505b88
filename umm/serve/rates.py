"""Seconds of a serving engine's kernels on a machine."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from umm.cost import (
    attention_seconds,
    batched_seconds,
    decode_seconds,
    exchange_seconds,
    experts_seconds,
    gemm_seconds,
    prefill_factors,
)
from umm.dtypes import element_bytes, rated
from umm.errors import MachineError, ProblemError, did_you_mean
from umm.files import read_toml
from umm.interval import Interval
from umm.machines import Machine
from umm.machines.engines import VERSION
from umm.plans.collectives.library import seconds_alone
from umm.program.functions.attention import Heads
from umm.program.models.count import count
from umm.program.models.layers import Attention, LinearAttention, Mamba, Model
from umm.program.models.weights import Quantization
from umm.units import parse_seconds

BF16 = 2
FEW_ROWS = 256  # rows up to which engines have kernels of their own, that read weights while they multiply
EIGHT_BITS = ("fp8", "fp8-block")
BLOCKS = ("fp8-block", "nvfp4")  # precisions whose scales are of blocks of a row
TINY = 256  # columns of a multiply that takes no longer than its start
MEMORY_BOUND = 0.6  # share of the peak that these reach at most
DTYPES = {
    "bf16": "bfloat16", "fp8": "float8_e4m3", "fp8-block": "float8_e4m3:128", "nvfp4": "float4_e2m1",
    "int4": "bfloat16",
}  # fmt: skip
"""Type of multiplies; weights of 4-bit integers are expanded to bfloat16."""
FORMATS = {
    "bf16": ("bfloat16",), "fp8": ("float8:128", "float8"), "fp8-block": ("float8:128", "float8"),
    "nvfp4": ("float4", "mxfp4:float8", "mxfp4"), "int4": ("int4",),
}  # fmt: skip
"""Formats of experts' weights and rows, the first that the engine has kernels for. 8-bit checkpoints of
mixtures (DeepSeek-V3, Qwen3) have scales of blocks."""
QUANTIZED = {
    "float8_e4m3": "fp8", "float8_e4m3:128": "fp8-block", "nvfp4": "nvfp4", "mxfp4": "nvfp4", "int4": "int4",
}  # fmt: skip
"""Precision of the weights that a ``quantization_config`` names. MXFP4 takes the kernels of 4-bit floats that
the engine has."""
OUTSIDE = {"nvfp4": "bf16", "int4": "bf16", "fp8": "fp8-block"}
"""Usual precision outside the experts of a mixture, where it is another: 8 bits have scales of blocks."""
SKEW = 1.01  # exponent of the power law of experts' loads
STORED = {"bf16": 2.0, "fp8": 1.0, "fp8-block": 1.0, "nvfp4": 0.5625, "int4": 0.53}
"""Bytes of a weight, with its scales."""


@dataclass(frozen=True)
class Engine:
    """Seconds that an engine adds to its kernels, and its shares of their rates."""

    gap_s: float  # seconds of an iteration in which the device waits for the host
    row_s: float  # seconds more for each sequence of it: sampling, detokenising, scheduling
    read: float  # share of memory's bandwidth at which attention reads the cache
    weights: float  # the same of few rows by many experts' weights
    expanded: float  # the same of weights that kernels expand: 4-bit integers, and types the device has not
    few: float  # the same of few rows by one weight, by kernels made for them
    blocks: float  # share of the start of multiplies with scales of blocks, as timed alone, that they take
    # Seconds to sort and pad rows in a layer whose experts, in 8 bits, are spread over ranks.
    scatter_s: float
    # Share of a kernel's start that elementwise kernels take, which begin before the last one ends.
    small: float
    waits: float  # prompts computed before one, over the root of the requests of its group
    together: bool  # whether groups of attention begin prompts in one iteration, else each on its own
    spread: float  # by how much all these are uncertain
    cache: tuple[str, ...]  # precisions of weights with which the cache is in 8 bits unless asked otherwise
    source: str  # where they are from

    def cache_bits(self, precision: str) -> int:
        """Return the bits of an element of the cache that the engine takes for weights of a precision."""
        return 8 if precision in self.cache else 16


@lru_cache(maxsize=1)
def _engines() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("engines.toml"))


def engine_names() -> list[str]:
    """Return the names of the engines."""
    return [name for name in _engines() if VERSION not in name]


def find_engine(name: str) -> Engine:
    """Return an engine by its name, which a version or a backend of attention may follow: ``sglang+triton``.

    A ProblemError names those there are.
    """
    rows, version = _engines(), name.partition("+")[0]
    name = version.partition(VERSION)[0]
    if name not in rows:
        raise ProblemError(f"engine {name!r} is unknown; {did_you_mean(name, engine_names())}")
    row = {**rows[name], **rows.get(version, {})}
    seconds: dict[str, Any] = {f"{x}_s": parse_seconds(row.pop(x)) for x in ("gap", "row", "scatter")}
    return Engine(cache=tuple(row.pop("cache")), **seconds, **row)


HYBRIDS = {LinearAttention: "triton", Mamba: "flashinfer"}
"""Mixers beside attention, and the backend of attention that SGLang takes for such a model on Blackwell.

Source: sgl-project/sglang, sm100_default_attention_backend of Qwen3-Next and of Nemotron-H.
"""


def kernels_of(engine: str, model: Model, machine: Machine) -> str:
    """Return an engine with the backend of attention that it takes for a model, where its kernels are known.

    >>> from umm.machines import machine
    >>> from umm.program.models import find_model
    >>> machines = [machine(x) for x in ("b200-8", "h100-8")]
    >>> [kernels_of("sglang", find_model("nemotron-3-nano"), x) for x in machines]
    ['sglang+flashinfer', 'sglang']
    """
    mixers = [x.mixer for x in model.layers]
    heads = {x.head for x in mixers if isinstance(x, Attention)}
    backend = next((x for kind, x in HYBRIDS.items() if any(isinstance(y, kind) for y in mixers)), "")
    tables = machine.choices.get("engines", {}).get(engine, {}).get("decode", [])
    measured = any(x.get("backend") == backend and heads <= set(x["head"]) for x in tables)
    return f"{engine}+{backend}" if engine == "sglang" and backend and heads and measured else engine


@lru_cache(64)
def stored_type(model: Model) -> str:
    """Return the type of most of a model's weights by its file, one of :data:`QUANTIZED`; empty without."""
    nbytes = count(model).by_type if model.quantization else {}
    elements = {x: nbytes[x] / STORED[QUANTIZED[x]] for x in nbytes if x in QUANTIZED}
    return max(elements, key=elements.__getitem__, default="")


@lru_cache(64)
def outside_of(model: Model, precision: str) -> str:
    """Return the precision outside a mixture's experts: the file's, if its weights have the one asked for."""
    if QUANTIZED.get(stored_type(model)) != precision:
        return OUTSIDE.get(precision, precision)
    types, elements = Quantization(model), Counter[str]()
    for number, layer in enumerate(model.layers):
        for weight in layer.weights(model.hidden):
            if weight.linear and not weight.module.startswith("mlp.experts"):
                name = types.stored(weight.module, True, number).name
                elements[QUANTIZED.get(name, "bf16")] += weight.elements
    return max(elements, key=elements.__getitem__)


def head_of(model: Model, precision: str) -> str:
    """Return the precision of a model's head: its file's, if weights are served in few bits.

    A head that is the embedding's table has the type of that.
    """
    stored = Quantization(model).stored("lm_head").name
    return "bf16" if precision == "bf16" or model.tied else QUANTIZED.get(stored, "bf16")


@dataclass(frozen=True)
class Rates:
    """Prices of an engine's kernels."""

    machine: Machine  # with the engine's kernels where its file has them
    engine: Engine
    precision: str  # type of the weights' multiplies
    outside: str = "bf16"  # precision outside experts; that of all weights of a model without
    head: str = "bf16"  # precision of the multiply by which a token's logits come
    laws: float = 1.0  # factor of the seconds of attention and experts by the machine's laws
    _known: dict[tuple[object, ...], float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def dense(self) -> str:
        """Type of multiplies outside experts; empty where kernels expand their weights to bfloat16.

        They expand integers of 4 bits, and types that the device has no rate of.
        """
        dtype = DTYPES[self.outside]
        return "" if self.outside == "int4" or rated(dtype) not in self.machine.peaks else dtype

    def logits(self, tokens: int, vocab: int, hidden: int) -> float:
        """Return the seconds of the multiply by the head."""
        dtype = DTYPES[self.head]
        return self.gemm(tokens, vocab, hidden, dtype if rated(dtype) in self.machine.peaks else "bfloat16")

    def gemm(self, m: int, n: int, k: int, dtype: str) -> float:
        """Return the seconds of one multiply, without a dtype of weights that kernels expand.

        Few rows read these as they are stored; more take what a multiply of bfloat16 does.
        """
        key = ("gemm", m, n, k, dtype)
        if key not in self._known:
            law = float(gemm_seconds(self.machine, dtype or "bfloat16", max(1, m), n, k, BF16, warm=False))
            nbytes = n * k * (element_bytes(dtype) if dtype else STORED[self.outside]) + m * (n + k) * BF16
            share = self.engine.few if dtype else self.engine.expanded
            start = self._start(m, dtype)
            flop = 2.0 * m * n * k / (self.machine.peak(rated(dtype or "bfloat16")) * MEMORY_BOUND)
            read = start + max(nbytes / (self.machine.memory_bandwidth * share), flop)
            self._known[key] = min(law, read) if m <= FEW_ROWS else law
        return self._known[key]

    def _start(self, m: int, dtype: str) -> float:
        """Return the seconds of a multiply of few rows beside its work."""
        # Engines cast activations with one scale in the kernel before; scales of blocks take more.
        plain = self.machine.gemm_start("bfloat16")
        if self.outside not in BLOCKS or not dtype:
            return plain
        timed = float(gemm_seconds(self.machine, dtype, max(1, m), TINY, TINY, BF16, warm=False))
        return plain + max(0.0, timed - plain) * self.engine.blocks

    def batched(self, batch: int, m: int, n: int, k: int) -> float:
        """Return the seconds of equal multiplies in one kernel."""
        key = ("batched", batch, m, n, k)
        if key not in self._known:
            rows = max(1, m)
            self._known[key] = batched_seconds(self.machine, "bfloat16", batch, rows, n, k, BF16, warm=False)
        return self._known[key]

    def grouped(self, rows: float, experts: float, n: int, k: int) -> float:
        """Return the seconds of one kernel that multiplies rows by the weights of some experts."""
        dtype = DTYPES[self.precision]
        share = self.engine.expanded if self.precision == "int4" else self.engine.weights
        try:
            work = self.gemm(round(rows), n, k, dtype)
        except MachineError:
            work, share = self.gemm(round(rows), n, k, "bfloat16"), self.engine.expanded
        nbytes = experts * n * k * STORED[self.precision]
        read = nbytes / (self.machine.memory_bandwidth * share)
        return max(work, self.machine.gemm_start("bfloat16") + read)

    def experts(
        self, tokens: int, hidden: int, inner: int, top_k: int, experts: int, tp: int, ep: int, gated: bool
    ) -> float | None:
        """Return the seconds of a rank's experts by the engine's kernels; None without any of the type.

        See :func:`umm.cost.experts_seconds`.
        """
        for name in FORMATS[self.precision]:
            shape = (tokens, hidden, inner, top_k, experts, tp, ep, gated, SKEW)
            took = experts_seconds(self.machine, name, *shape)
            if took is not None:
                return took * self.laws
        return None

    def attention(self, heads: Heads, rows: Interval, count: int) -> float:
        """Return the seconds of attention of whole prompts."""
        key = ("attention", heads, rows, count)
        if key not in self._known:
            keys = Interval(0, heads.keys)
            took = attention_seconds(self.machine, "bfloat16", heads, rows, count, keys, False, written=True)
            if self.machine.serving is not None:
                latent = heads.rotary > 0
                form = ("bfloat16", "bfloat16", heads.head + heads.rotary, heads.values, heads.window, latent)
                prompts = (rows.size / heads.queries, heads.queries, heads.keys, count, count / heads.share)
                took *= float(prefill_factors(self.machine, form, prompts))
            self._known[key] = took
        return self._known[key] * (self.laws if self.machine.prefill else 1.0)

    def decode(
        self, rows: int, keys: int, heads: int, kv_heads: int, head: int, value: int, window: int = 0, *,
        bits: int, latent: bool = False,
    ) -> float:  # fmt: skip
        """Return the seconds of attention of a token of each sequence.

        Args:
            keys: Of each in the cache.
            heads: Query heads.
            kv_heads: Heads of keys and values; 1 of latent vectors.
            head: Columns of a key.
            value: Columns of a value.
            window: Keys that are seen at most; 0 for all.
            bits: Of an element of the cache.
            latent: Whether the cache has latent vectors, which are keys and values.
        """
        cache = "bfloat16" if bits > 8 else "float8"
        law = decode_seconds(
            self.machine, cache, rows, max(1, keys), heads, kv_heads, head, value, window, latent
        )
        if law is not None:
            return float(law) * self.laws
        seen = rows * min(keys, window or keys)
        read = kv_heads * (head if latent else head + value)
        return self.reads(seen * read * bits / 8, 2.0 * seen * heads * (head + value))

    def reads(self, nbytes: float, flop: float, dtype: str = "bfloat16") -> float:
        """Return the seconds of kernels that read a cache once; without a rate of a type, by bfloat16's."""
        read = nbytes / (self.machine.memory_bandwidth * self.engine.read)
        peak = self.machine.peak(dtype if dtype in self.machine.peaks else "bfloat16")
        return 2 * self.machine.launch_s + max(read, flop / (peak * 0.5))

    def passes(self, nbytes: float, kernels: int = 1) -> float:
        """Return the seconds of elementwise kernels."""
        return kernels * self.machine.launch_s * self.engine.small + nbytes / self.machine.pass_bandwidth

    def all_reduce(self, ranks: int, nbytes: float) -> float:
        """Return the seconds of a sum over ranks by the fastest of the engine's ways."""
        if ranks == 1:
            return 0.0
        key = ("all-reduce", ranks, nbytes)
        if key not in self._known:
            kernels = self.machine.library.kernels if self.machine.library else {}
            ways = [None, *(name for name, kernel in kernels.items() if kernel.joins(ranks))]
            members = tuple(range(ranks))
            self._known[key] = min(
                seconds_alone(self.machine, "all-reduce", members, nbytes, way) for way in ways
            )
        return self._known[key]

    def exchange(
        self, ranks: int, tokens: float, columns: int, top_k: int, experts: int, low_latency: bool
    ) -> float:
        """Return the seconds of sending each rank's tokens to their experts and back.

        Engines without kernels for it gather all ranks' tokens, and sum and scatter what experts return.
        """
        shape = (max(1, round(tokens)), columns, top_k, experts, ranks, low_latency)
        law = exchange_seconds(self.machine, *shape)
        if law is not None:
            return law * self.laws
        key = ("exchange", ranks, tokens, columns)
        if key not in self._known:
            nbytes, members = tokens * ranks * columns * BF16, tuple(range(ranks))
            ways = ("all-gather", "reduce-scatter")
            self._known[key] = sum(seconds_alone(self.machine, way, members, nbytes) for way in ways)
        return self._known[key]
