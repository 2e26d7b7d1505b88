"""A layer of a model as a step's kernels: seconds of each pass, exchanges, bytes kept for backward."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch

from umm.interval import Interval
from umm.program.functions.attention import Heads
from umm.program.models.layers import (
    Attention,
    Experts,
    LatentAttention,
    Layer,
    Linear,
    LinearAttention,
    Mamba,
    Mlp,
)
from umm.step.parallel import Parallel
from umm.step.rates import BF16, FP32, STORED, Rates

NORM, PROJECTION, CORE, MLP, EXPERTS, ROUTER, EXCHANGE = (
    "norms", "projections", "attention", "mlp", "experts", "router", "exchange",
)  # fmt: skip
ROW_BLOCK = 128
"""Rows and columns of a chunk of a state space model's scan: Dao and Gu (2024), section 7."""


@dataclass(frozen=True)
class Part:
    """A part of a layer for one micro-batch at one rank.

    Attributes:
        name: Part of the step that its time is counted to.
        forward: Seconds of its kernels forward.
        data: Seconds backward without the gradients of weights.
        weight: Seconds of the gradients of weights.
        sent: Seconds of its collectives forward that nothing hides.
        returned: The same backward.
        kept: Bytes that backward needs of it.
        kernels: Kernels that the host issues forward.
    """

    name: str
    forward: float = 0.0
    data: float = 0.0
    weight: float = 0.0
    sent: float = 0.0
    returned: float = 0.0
    kept: float = 0.0
    kernels: int = 0


@dataclass(frozen=True)
class Shape:
    """The sizes and rates by which a layer's kernels are priced.

    Attributes:
        hidden: Columns of activations.
        parallel: Degrees of parallelism.
        rates: Rates of kernels.
    """

    hidden: int
    parallel: Parallel
    rates: Rates

    @property
    def rows(self) -> int:
        """Tokens that a rank multiplies."""
        return self.parallel.tokens

    @property
    def own_rows(self) -> int:
        """Tokens that a rank norms: sequence parallel."""
        return -(-self.parallel.tokens // self.parallel.tp)

    def linear(
        self, k: int, n: int, *, name: str = PROJECTION, rows: int = 0, dtype: str = "", kept: int = -1
    ) -> Part:
        """Return a multiply of activations of k columns by a weight of k x n, already split.

        Args:
            k: Columns of the activations at this rank.
            n: Columns of the result.
            name: Part of the step.
            rows: Rows; those of the rank's tokens if 0.
            dtype: Type, where it is not that of the step's multiplies; nothing is cast then.
            kept: Rows of the activations that backward needs; -1 for all.
        """
        rates, m = self.rates, rows or self.rows
        cast = 0.0 if dtype else rates.casts(m * k)
        cast_back = 0.0 if dtype else rates.casts(m * n)
        stored = BF16 if dtype else STORED[rates.precision] or BF16
        return Part(
            name,
            forward=cast + rates.gemm(m, n, k, dtype=dtype),
            data=cast_back + rates.gemm(m, k, n, dtype=dtype),
            weight=rates.gemm(k, n, m, dtype=dtype, c_bytes=FP32),
            kept=(m if kept < 0 else kept) * k * stored,
            kernels=2 if cast else 1,
        )

    def gathered(self, n: int, name: str = PROJECTION) -> Iterator[Part]:
        """Yield the gather of tokens and the multiply by a weight whose columns are split.

        Backward gathers them again, so each rank keeps its own tokens alone.
        """
        yield self.gather(self.hidden)
        yield self.linear(self.hidden, n, name=name, kept=self.own_rows)

    def map(self, name: str, rows: int, forward: float, backward: float, kept: float) -> Part:
        """Return an elementwise part: columns read and written forward and backward, columns kept."""
        rates, passes = self.rates, self.rates.stack.passes
        return Part(
            name,
            forward=rates.passes(rows * forward * BF16 * passes),
            data=rates.passes(rows * backward * BF16 * passes),
            kept=rows * kept * BF16,
            kernels=max(1, round(passes)),
        )

    def norm(self) -> Part:
        """Return a norm and the addition before it: kept is its input."""
        return self.map(NORM, self.own_rows, 5.0 * self.hidden, 6.0 * self.hidden, self.hidden)

    def gather(self, columns: int) -> Part:
        """Return the gather of tokens before tensor parallel multiplies, and the sum backward."""
        gather, scatter = self._exchanges(columns)
        # Backward gathers the tokens once more for the gradients of weights, as sequence parallelism does.
        return self._exchange(gather, scatter + gather)

    def scatter(self, columns: int) -> Part:
        """Return the sum of tensor parallel products over tokens, and the gather backward."""
        gather, scatter = self._exchanges(columns)
        return self._exchange(scatter, gather)

    def _exchanges(self, columns: int) -> tuple[float, float]:
        """Return the seconds that nothing hides of an all-gather and a reduce-scatter of all tokens."""
        rates, group = self.rates, self.parallel.tensor_group
        nbytes = self.rows * columns * BF16
        visible = 1.0 - rates.stack.tensor_overlap
        gather, scatter = (rates.collective(x, group, nbytes) for x in ("all-gather", "reduce-scatter"))
        return gather * visible, scatter * visible

    def _exchange(self, sent: float, returned: float) -> Part:
        return Part(EXCHANGE, sent=sent, returned=returned, kernels=int(self.parallel.tp > 1))


@singledispatch
def parts_of(block: object, shape: Shape) -> Iterator[Part]:
    """Yield the parts of a mixer, an MLP or experts."""
    raise NotImplementedError(type(block).__name__)


def _split(columns: int, ranks: int) -> int:
    return -(-columns // ranks)


def _attend(
    shape: Shape,
    heads: int,
    share: int,
    head: int,
    rotary: int,
    window: int,
    kv_columns: int,
    sinks: bool = False,
) -> Part:
    """Return attention by some heads of a rank, its keys passed round the context parallel ranks."""
    p, rates = shape.parallel, shape.rates
    scores = Heads(
        head, share, p.length, p.length, True, rotary, 0, False, window if window < p.length else 0
    )
    # With causal masks ranks take a slice from each end, so all do the same: half of the keys in the mean.
    rows = Interval(0, p.length)
    forward = rates.attention(scores, rows, heads, p.micro_batch, False) / p.cp
    backward = rates.attention(scores, rows, heads, p.micro_batch, True) / p.cp
    if sinks and rates.stack.sink_bytes:
        # Without a fused kernel that knows sinks, scores go through memory, those that masks cut too.
        unfused = rates.passes(p.micro_batch * heads * p.length**2 / p.cp * rates.stack.sink_bytes)
        forward, backward = forward + unfused / 3, backward + unfused * 2 / 3
    sent = rates.collective("all-gather", p.context_group, p.micro_batch * p.length * kv_columns * BF16)
    back = rates.collective("reduce-scatter", p.context_group, p.micro_batch * p.length * kv_columns * BF16)
    return Part(
        CORE,
        forward=forward,
        data=backward,
        sent=max(0.0, sent - forward),
        returned=max(0.0, sent + back - backward),
        kept=shape.rows * (heads * head * BF16 + heads * FP32),
        kernels=1,
    )


@parts_of.register
def _(block: Attention, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    heads, kv_heads = _split(block.heads, tp), _split(block.kv_heads, tp)
    queries, keys = heads * block.head, kv_heads * (block.head + (0 if block.keys_only else block.value))
    yield shape.norm()
    yield shape.gather(shape.hidden)
    gate = heads * block.value if block.gate else 0
    yield shape.linear(shape.hidden, queries + keys + gate)
    rotated = queries + kv_heads * block.head
    yield shape.map(PROJECTION, shape.rows, 2.0 * rotated, 2.0 * rotated, queries + keys + gate)
    if block.norms:
        yield shape.map(NORM, shape.rows, 2.0 * rotated, 3.0 * rotated, rotated)
    window = block.indexer.top_k if block.indexer else block.window
    yield _attend(shape, heads, max(1, heads // kv_heads), block.head, 0, window, keys, block.sinks)
    yield shape.linear(heads * block.value, shape.hidden, kept=0)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: LatentAttention, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    heads, wide = _split(block.heads, tp), block.head + block.rope_dim
    yield shape.norm()
    yield shape.gather(shape.hidden)
    down = block.q_rank + block.kv_rank + block.rope_dim
    yield shape.linear(shape.hidden, down)
    yield shape.map(NORM, shape.rows, 2.0 * down, 3.0 * down, down)
    yield shape.linear(block.q_rank or shape.hidden, heads * wide)
    yield shape.linear(block.kv_rank, heads * (block.head + block.value))
    columns = heads * (2 * wide + block.value)
    yield shape.map(PROJECTION, shape.rows, 3.0 * heads * wide, 3.0 * heads * wide, columns)
    yield _attend(shape, heads, 1, block.head, block.rope_dim, 0, heads * (wide + block.value))
    yield shape.linear(heads * block.value, shape.hidden, kept=0)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: LinearAttention, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    keys, values = _split(block.key_heads * block.key, tp), _split(block.value_heads * block.value, tp)
    yield shape.norm()
    yield shape.gather(shape.hidden)
    columns = 2 * keys + values
    yield shape.linear(shape.hidden, columns + (values if block.full_gate else 0))
    yield shape.map(PROJECTION, shape.rows, 2.0 * columns, 3.0 * columns, columns)
    yield _scan(shape, _split(block.value_heads, tp), block.key, block.value, columns)
    yield shape.map(NORM, shape.rows, 3.0 * values, 5.0 * values, 2 * values)
    yield shape.linear(values, shape.hidden)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: Mamba, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    inner = _split(block.heads * block.head, tp)
    shared = 2 * _split(block.groups, tp) * block.state_dim
    yield shape.norm()
    yield shape.gather(shape.hidden)
    columns = 2 * inner + shared + _split(block.heads, tp)
    yield shape.linear(shape.hidden, columns)
    yield shape.map(PROJECTION, shape.rows, 2.0 * (inner + shared), 3.0 * (inner + shared), columns)
    yield _scan(shape, _split(block.heads, tp), block.state_dim, block.head, columns)
    yield shape.map(NORM, shape.rows, 3.0 * inner, 5.0 * inner, 2 * inner)
    yield shape.linear(inner, shape.hidden)
    yield shape.scatter(shape.hidden)


def _scan(shape: Shape, heads: int, keys: int, values: int, columns: int) -> Part:
    """Return a chunked scan of states: within a chunk as attention, between chunks by its states.

    Source: Dao and Gu (2024), Transformers are SSMs, section 6; Yang et al. (2024), Gated delta networks.
    """
    rates, rows = shape.rates, shape.rows
    flop = 2.0 * rows * heads * (ROW_BLOCK * (keys + values) + 2 * keys * values)
    peak = rates.machine.peak("bfloat16") * rates.load.bf16
    states = -(-rows // ROW_BLOCK) * heads * keys * values * FP32
    nbytes = rows * columns * BF16 * 2 + 2 * states
    forward = rates.passes(nbytes, 4) + flop / (peak * rates.stack.scan)
    return Part(CORE, forward=forward, data=2.5 * forward, kept=states, kernels=4)


@parts_of.register
def _(block: Linear, shape: Shape) -> Iterator[Part]:
    yield shape.norm()
    yield from shape.gathered(_split(shape.hidden, shape.parallel.tp))


def _mlp(shape: Shape, ffn: int, gated: bool) -> Iterator[Part]:
    wide = 2 * ffn if gated else ffn
    yield from shape.gathered(wide, MLP)
    yield shape.map(MLP, shape.rows, wide + ffn, 2.0 * wide + ffn, wide)
    yield shape.linear(ffn, shape.hidden, name=MLP)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: Mlp, shape: Shape) -> Iterator[Part]:
    yield shape.norm()
    yield from _mlp(shape, _split(block.ffn, shape.parallel.tp), block.gated)


@parts_of.register
def _(block: Experts, shape: Shape) -> Iterator[Part]:
    p, rates, rows = shape.parallel, shape.rates, shape.own_rows
    columns = block.latent or shape.hidden
    yield shape.norm()
    router = shape.linear(
        shape.hidden,
        block.experts,
        name=ROUTER,
        rows=rows,
        dtype="float32" if rates.stack.router32 else "bfloat16",
    )
    scores = shape.map(ROUTER, rows, 6.0 * block.experts, 6.0 * block.experts, block.experts)
    yield router
    yield replace(scores, kernels=16)
    if block.latent:
        yield shape.linear(shape.hidden, block.latent, name=MLP, rows=rows)
    chosen = rows * block.top_k
    # A token goes to each rank once that has one of its experts, and comes back summed: Zhao et al. (2025),
    # Insights into DeepSeek-V3. With balanced experts a rank of ep misses a token by (1 - 1/ep)^top_k.
    remote = rows * p.ep * (1.0 - (1.0 - 1.0 / p.ep) ** block.top_k) if rates.stack.tokens_once else chosen
    visible = 1.0 - rates.stack.expert_overlap
    nbytes = remote * columns
    there_and_back = 2 * rates.collective("all-to-all", p.expert_group, nbytes * BF16) * visible
    # Rows are put in order by expert, and back, with the sum over a token's experts.
    ordered = rates.passes(2.0 * chosen * columns * BF16 * 2, 4)
    yield Part(
        EXCHANGE, forward=ordered, data=ordered, sent=there_and_back, returned=there_and_back, kernels=24
    )
    local = block.experts // p.ep
    each = -(-chosen * p.ep // block.experts)
    wide = 2 * block.ffn if block.gated else block.ffn
    stored = STORED[rates.precision] or BF16
    for k, n in ((columns, wide), (block.ffn, columns)):
        yield Part(
            EXPERTS,
            forward=rates.casts(chosen * k) + rates.grouped(each, local, n, k),
            data=rates.casts(chosen * n) + rates.grouped(each, local, k, n),
            weight=rates.grouped_weights(each, local, n, k),
            kept=chosen * k * stored,
            kernels=local * (1 if stored == BF16 else 2),
        )
    yield shape.map(EXPERTS, chosen, wide + block.ffn, 2.0 * wide + block.ffn, wide)
    if block.latent:
        yield shape.linear(block.latent, shape.hidden, name=MLP, rows=rows)
    if block.shared_ffn:
        yield from _mlp(shape, _split(block.shared_ffn, p.tp), block.gated)


def layer_parts(layer: Layer, shape: Shape) -> list[Part]:
    """Return the parts of a layer for one micro-batch at one rank."""
    return [part for block in layer.blocks for part in parts_of(block, shape)]
