"""A layer of a model as a step's kernels: seconds of each pass, exchanges, bytes kept for backward."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch

from umm.errors import ProblemError
from umm.interval import Interval
from umm.plans.collectives.library import domains
from umm.profiles.kernel import ATTENTION, COLLECTIVES, MAP, MULTIPLY, Kernel
from umm.program.functions.attention import Heads
from umm.program.models.layers import (
    Attention,
    Experts,
    Indexer,
    LatentAttention,
    Layer,
    Linear,
    LinearAttention,
    Mamba,
    Mlp,
)
from umm.program.models.split import heads_and_columns, split
from umm.step.parallel import Parallel
from umm.step.rates import BF16, FP32, READS, STORED, Rates

NORM, PROJECTION, CORE, MLP, EXPERTS, ROUTER, EXCHANGE = (
    "norms", "projections", "attention", "mlp", "experts", "router", "exchange",
)  # fmt: skip
FORWARD, DATA, WEIGHT, UPDATE = "forward", "backward of data", "backward of weights", "update"
"""Names of kernels: the pass that each is of."""
ROW_BLOCK = 128  # Rows and columns of a chunk of a state space model's scan: Dao and Gu (2024), section 7.


def taken(kernels: Iterable[Kernel], word: str) -> float:
    """Return the seconds of all kernels of a pass but its collectives."""
    return sum(x.seconds * x.calls for x in kernels if x.name == word and x.kind not in COLLECTIVES)


@dataclass(frozen=True)
class Part:
    """A part of a layer for one micro-batch at one rank."""

    name: str  # part of the step that its time is counted to
    kernels: tuple[Kernel, ...] = ()  # kernels and collectives, each named by its pass
    sent: float = 0.0  # seconds of its collectives forward that nothing hides
    returned: float = 0.0  # the same backward
    kept: float = 0.0  # bytes that backward needs of it; none if it is computed again
    inputs: float = 0.0  # bytes that backward needs of it even then: what it is computed from
    gradient: float = 0.0  # bytes of its result's gradient and of that one's casts, while backward runs
    recast: float = 0.0  # seconds to cast its result again, where it is computed again by itself
    issued: int = 0  # kernels that the host issues forward
    # Whether the host issues them forward only when it knows their sizes from the device.
    awaited: bool = False
    modules: tuple[str, ...] = ()  # names of Megatron-LM's modules that it belongs to

    @cached_property
    def forward(self) -> float:
        """Seconds of its kernels forward."""
        return taken(self.kernels, FORWARD)

    @cached_property
    def data(self) -> float:
        """Seconds backward without the gradients of weights."""
        return taken(self.kernels, DATA)

    @cached_property
    def weight(self) -> float:
        """Seconds of the gradients of weights."""
        return taken(self.kernels, WEIGHT)


@dataclass(frozen=True)
class Shape:
    """The sizes and rates by which a layer's kernels are priced."""

    hidden: int  # columns of activations
    parallel: Parallel  # degrees of parallelism
    rates: Rates  # rates of kernels

    @property
    def rows(self) -> int:
        """Tokens that a rank multiplies."""
        return self.parallel.tokens

    @property
    def own_rows(self) -> int:
        """Tokens that a rank norms: sequence parallel."""
        return -(-self.parallel.tokens // self.parallel.tp)

    def passes(self, word: str, nbytes: float, kernels: int = 1) -> Kernel:
        """Return kernels that read and write so many bytes together."""
        return Kernel(MAP, word, self.rates.passes(nbytes, kernels) / kernels, calls=float(kernels))

    def casts(self, word: str, elements: float, parts: int = 1) -> list[Kernel]:
        """Return the casts of an operand, part by part; none where multiplies are in bfloat16."""
        seconds = self.rates.casts(elements, parts)
        calls = READS.get(self.rates.precision, 1) * parts
        return [Kernel(MAP, word, seconds / calls, calls=float(calls))] if seconds else []

    def multiply(self, word: str, m: int, n: int, k: int, dtype: str, c_bytes: int = BF16) -> Kernel:
        """Return one multiply."""
        return Kernel(MULTIPLY, word, self.rates.gemm(m, n, k, dtype=dtype, c_bytes=c_bytes), (m, n, k))

    def collective(self, word: str, what: str, group: tuple[int, ...], nbytes: float) -> Kernel:
        """Return one collective."""
        seconds = self.rates.collective(what, group, nbytes)
        return Kernel(what, word, seconds, ranks=len(group), nbytes=int(nbytes), group=group)

    def linear(
        self,
        k: int,
        n: int,
        *,
        name: str = PROJECTION,
        rows: int = 0,
        dtype: str = "",
        kept: int = -1,
        module: str = "",
        entry: bool = False,
        bias: bool = False,
    ) -> Part:
        """Return a multiply of activations of k columns by a weight of k x n, already split.

        Args:
            k: Columns of the activations at this rank.
            n: Columns of the result.
            name: Part of the step.
            rows: Rows; those of the rank's tokens if 0.
            dtype: Type, where it is not that of the step's multiplies; nothing is cast then.
            kept: Rows of the activations that backward needs; -1 for all.
            module: Megatron-LM's module that it belongs to.
            entry: Whether its activations come from outside that module.
            bias: Whether a bias is added, whose gradient reads that of the result again.
        """
        rates, m = self.rates, rows or self.rows
        cast = [] if dtype else self.casts(FORWARD, m * k)
        cast_back = [] if dtype else self.casts(DATA, m * n)
        stored = BF16 if dtype else STORED[rates.precision] or BF16
        nbytes = (m if kept < 0 else kept) * k * stored
        return Part(
            name,
            (
                *cast,
                self.multiply(FORWARD, m, n, k, dtype),
                *cast_back,
                self.multiply(DATA, m, k, n, dtype),
                *([self.passes(DATA, m * n * BF16)] if bias else []),
                self.multiply(WEIGHT, k, n, m, dtype, FP32),
            ),
            kept=0.0 if entry else nbytes,
            inputs=nbytes if entry else 0.0,
            gradient=m * n * (BF16 + 2 * (0.0 if dtype else STORED[rates.precision])),
            issued=2 if cast else 1,
            modules=(module,) if module else (),
        )

    def dtype_of(self, module: str) -> str:
        """Return bfloat16 for a module that stays in it, else none: the type of the step's multiplies."""
        return "bfloat16" if module in self.parallel.kept_bf16 else ""

    def gathered(self, n: int, name: str = PROJECTION) -> Iterator[Part]:
        """Yield the gather of tokens and the multiply by a weight whose columns are split.

        Backward gathers them again, so each rank keeps its own tokens alone, as the norm's result.
        """
        yield self.gather(self.hidden)
        yield self.linear(self.hidden, n, name=name, kept=0)

    def map(
        self,
        name: str,
        rows: int,
        forward: float,
        backward: float,
        kept: float,
        *,
        module: str = "",
        inputs: float = 0.0,
    ) -> Part:
        """Return an elementwise part: columns read and written forward and backward, columns kept."""
        passes = self.rates.stack.passes
        return Part(
            name,
            (
                self.passes(FORWARD, rows * forward * BF16 * passes),
                self.passes(DATA, rows * backward * BF16 * passes),
            ),
            kept=rows * kept * BF16,
            inputs=rows * inputs * BF16,
            issued=max(1, round(passes)),
            modules=(module,) if module else (),
        )

    def activation(self, name: str, rows: int, wide: int, ffn: int, module: str = "") -> Part:
        """Return an MLP's activation: backward needs its input, and its result unless computed again."""
        stored = (STORED[self.rates.precision] or BF16) / BF16
        part = self.map(name, rows, wide + ffn, 2.0 * wide + ffn, ffn * stored, module=module, inputs=wide)
        return replace(part, recast=self.rates.casts(rows * ffn))

    def norm(self, fused: bool = True) -> Part:
        """Return a norm and the addition before it: kept is its result, which the next multiply reads.

        Args:
            fused: Whether it is part of the next multiply's module, which Megatron-LM does not repeat.
        """
        stored = (STORED[self.rates.precision] or BF16) / BF16
        if fused and self.parallel.tp > 1 and self.rates.precision == "nvfp4":
            # Its rows are gathered again for backward, so they are kept beside the columns; other types keep
            # one of the two. Source: Transformer Engine, module/layernorm_linear.py (ln_out_needs_gather).
            stored *= 2
        part = self.map(
            NORM, self.own_rows, 5.0 * self.hidden, 6.0 * self.hidden, self.hidden * stored,
            module="" if fused else "layernorm", inputs=self.hidden,
        )  # fmt: skip
        return replace(part, recast=self.rates.casts(self.own_rows * self.hidden))

    def gather(self, columns: int) -> Part:
        """Return the gather of tokens before tensor parallel multiplies, and the sum backward."""
        gather, scatter = self._moves(columns)
        # Backward gathers the tokens once more for the gradients of weights, as sequence parallelism does.
        return self._exchange([gather], [scatter, gather])

    def scatter(self, columns: int) -> Part:
        """Return the sum of tensor parallel products over tokens, and the gather backward."""
        gather, scatter = self._moves(columns)
        return self._exchange([scatter], [gather])

    def _moves(self, columns: int) -> tuple[Kernel, Kernel]:
        """Return an all-gather and a reduce-scatter of all tokens."""
        # Operands are gathered in the few bits that multiplies take; sums are in bfloat16. Source:
        # Transformer Engine, quantized all-gathers of sequence parallel modules.
        group, elements = tuple(range(self.parallel.tp)), self.rows * columns
        narrow = elements * (STORED[self.rates.precision] or BF16)
        return (
            self.collective(FORWARD, "all-gather", group, narrow),
            self.collective(FORWARD, "reduce-scatter", group, elements * BF16),
        )

    def _exchange(self, forward: list[Kernel], backward: list[Kernel]) -> Part:
        stack = self.rates.stack
        visible = 1.0 - stack.tensor_overlap * stack.overlaps_tensor(self.rates.precision)
        returned = [x._replace(name=DATA) for x in backward]
        # PyTorch gathers and scatters along the first dimension and copies chunks for the second. Source:
        # torch/distributed/_functional_collectives.py (all_gather_tensor, reduce_scatter_tensor).
        moved = [x for x in (*forward, *returned) if stack.reorders and x.seconds]
        copies = [self.passes(x.name, 2.0 * x.nbytes) for x in moved]
        return Part(
            EXCHANGE,
            (*forward, *returned, *copies),
            sent=visible * sum(x.seconds for x in forward),
            returned=visible * sum(x.seconds for x in backward),
            issued=int(self.parallel.tp > 1),
        )


@singledispatch
def parts_of(block: object, shape: Shape) -> Iterator[Part]:
    """Yield the parts of a mixer, an MLP or experts."""
    raise ProblemError(f"{getattr(block, 'words', block)} is not simulated; umm model counts it")


def pieces(block: Attention | LatentAttention, length: int) -> list[tuple[int, int]]:
    """Return the tokens of the pieces of a sequence that see no other, and how many are as long: chunks."""
    if not block.chunked:
        return [(length, 1)]
    full, rest = divmod(length, block.window)
    return [(block.window, full), (rest, 1)]


def _indexed(shape: Shape, indexer: Indexer | None, columns: int, weights: int = 0) -> Iterator[Part]:
    """Yield the multiplies of an indexer's queries and its key, and their rotation.

    Args:
        columns: Length of the rows that queries are made of.
        weights: Columns that weigh the scores of heads.
    """
    if indexer is None or indexer.shared:
        return
    queries, dtype = indexer.heads * indexer.head, shape.dtype_of("attention")
    rotated = queries + indexer.head
    yield shape.linear(columns, queries, kept=0, dtype=dtype)
    yield shape.linear(shape.hidden, indexer.head + weights, kept=0, dtype=dtype)
    yield shape.map(PROJECTION, shape.rows, 2.0 * rotated, 2.0 * rotated, rotated)


def _attend(
    shape: Shape, block: Attention | LatentAttention, heads: int, share: int, kv_columns: int
) -> Part:
    """Return attention by some heads of a rank, its keys passed round the context parallel ranks."""
    p, rates = shape.parallel, shape.rates
    rotary = block.rope_dim if isinstance(block, LatentAttention) else 0
    forward = backward = 0.0
    for tokens, count in pieces(block, p.length):
        window = block.window if block.window < tokens else 0
        scores = Heads(block.head, share, tokens, tokens, True, rotary, window=window, value=block.value)
        # With causal masks ranks take a slice from each end, so all see half of the keys in the mean.
        rows, sequences = Interval(0, tokens), p.micro_batch * count
        forward += rates.attention(scores, rows, heads, sequences, False, block.indexer) / p.cp
        backward += rates.attention(scores, rows, heads, sequences, True, block.indexer) / p.cp
    kernels = [Kernel(ATTENTION, FORWARD, forward), Kernel(ATTENTION, DATA, backward)]
    if getattr(block, "sinks", False) and rates.stack.sink_bytes:
        # Without a fused kernel that knows sinks, scores go through memory, those that masks cut too.
        nbytes = p.micro_batch * heads * p.length**2 / p.cp * rates.stack.sink_bytes
        unfused = rates.passes(nbytes)
        kernels += [Kernel(MAP, FORWARD, unfused / 3), Kernel(MAP, DATA, unfused * 2 / 3)]
        forward, backward = forward + unfused / 3, backward + unfused * 2 / 3
    nbytes = p.micro_batch * p.length * kv_columns * BF16
    sent = shape.collective(FORWARD, "all-gather", p.context_group, nbytes)
    back = shape.collective(DATA, "reduce-scatter", p.context_group, nbytes)
    return Part(
        CORE,
        (*kernels, sent, sent._replace(name=DATA), back),
        sent=max(0.0, sent.seconds - forward),
        returned=max(0.0, sent.seconds + back.seconds - backward),
        kept=shape.rows * (heads * block.value * BF16 + heads * FP32),
        issued=1,
        modules=("core_attn",),
    )


@parts_of.register
def _(block: Attention, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    heads, kv_heads, queries, keys = heads_and_columns(block, tp)
    yield shape.norm()
    yield shape.gather(shape.hidden)
    gate = heads * block.value if block.gate else 0
    dtype = shape.dtype_of("attention")
    yield shape.linear(shape.hidden, queries + keys + gate, dtype=dtype, bias=block.bias, kept=0)
    rotated, attended = queries + kv_heads * block.head, kv_heads * (block.head + block.value)
    yield shape.map(PROJECTION, shape.rows, 2.0 * rotated, 2.0 * rotated, queries + attended + gate)
    if block.norms:
        # Values that are keys have a norm of their own, without positions. Source: transformers, gemma4.
        normed = rotated + kv_heads * block.value * block.keys_only
        yield shape.map(NORM, shape.rows, 2.0 * normed, 3.0 * normed, rotated)
    yield from _indexed(shape, block.indexer, shape.hidden)
    yield _attend(shape, block, heads, max(1, heads // kv_heads), attended)
    yield shape.linear(heads * block.value, shape.hidden, kept=0, dtype=dtype, bias=block.out_bias)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: LatentAttention, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    heads, wide = split(block.heads, tp), block.head + block.rope_dim
    yield shape.norm(fused=False)
    yield shape.gather(shape.hidden)
    down = block.q_rank + block.kv_rank + block.rope_dim
    dtype, up = shape.dtype_of("attention"), "mla_up_proj"
    yield shape.linear(shape.hidden, down, dtype=dtype, kept=0)
    yield shape.map(NORM, shape.rows, 2.0 * down, 3.0 * down, down, module="layernorm")
    yield shape.linear(block.q_rank or shape.hidden, heads * wide, dtype=dtype, module=up, entry=True)
    yield shape.linear(block.kv_rank, heads * (block.head + block.value), dtype=dtype, module=up, entry=True)
    columns = heads * (2 * wide + block.value)
    yield shape.map(PROJECTION, shape.rows, 3.0 * heads * wide, 3.0 * heads * wide, columns, module=up)
    weights = block.indexer.heads if block.indexer else 0
    yield from _indexed(shape, block.indexer, block.q_rank or shape.hidden, weights)
    yield _attend(shape, block, heads, 1, heads * (wide + block.value))
    yield shape.linear(heads * block.value, shape.hidden, kept=0, dtype=dtype)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: LinearAttention, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    keys, values = split(block.key_heads * block.key, tp), split(block.value_heads * block.value, tp)
    yield shape.norm()
    yield shape.gather(shape.hidden)
    columns = 2 * keys + values
    yield shape.linear(shape.hidden, columns + (values if block.full_gate else 0), kept=0)
    yield shape.map(PROJECTION, shape.rows, 2.0 * columns, 3.0 * columns, columns)
    yield _scan(shape, split(block.value_heads, tp), block.key, block.value, columns)
    yield shape.map(NORM, shape.rows, 3.0 * values, 5.0 * values, 2 * values)
    yield shape.linear(values, shape.hidden)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: Mamba, shape: Shape) -> Iterator[Part]:
    tp = shape.parallel.tp
    inner = split(block.heads * block.head, tp)
    shared = 2 * split(block.groups, tp) * block.state_dim
    yield shape.norm()
    yield shape.gather(shape.hidden)
    columns = 2 * inner + shared + split(block.heads, tp)
    yield shape.linear(shape.hidden, columns, kept=0)
    yield shape.map(PROJECTION, shape.rows, 2.0 * (inner + shared), 3.0 * (inner + shared), columns)
    yield _scan(shape, split(block.heads, tp), block.state_dim, block.head, columns)
    yield shape.map(NORM, shape.rows, 3.0 * inner, 5.0 * inner, 2 * inner)
    yield shape.linear(inner, shape.hidden)
    yield shape.scatter(shape.hidden)


def _scan(shape: Shape, heads: int, keys: int, values: int, columns: int) -> Part:
    """Return a chunked scan of states: within a chunk as attention, between chunks by its states."""
    # Source: Dao and Gu (2024), Transformers are SSMs, section 6; Yang et al. (2024), Gated delta networks.
    rates, rows = shape.rates, shape.rows
    flop = 2.0 * rows * heads * (ROW_BLOCK * (keys + values) + 2 * keys * values)
    peak = rates.machine.peak("bfloat16") * rates.load.clock
    states = -(-rows // ROW_BLOCK) * heads * keys * values * FP32
    nbytes = rows * columns * BF16 * 2 + 2 * states
    forward = shape.passes(FORWARD, nbytes, 4)
    forward = forward._replace(seconds=forward.seconds + flop / (peak * rates.stack.scan) / 4)
    backward = forward._replace(name=DATA, seconds=2.5 * forward.seconds)
    return Part(CORE, (forward, backward), kept=states, issued=4)


@parts_of.register
def _(block: Linear, shape: Shape) -> Iterator[Part]:
    yield shape.norm()
    yield from shape.gathered(split(shape.hidden, shape.parallel.tp))


def _mlp(shape: Shape, ffn: int, gated: bool) -> Iterator[Part]:
    wide = 2 * ffn if gated else ffn
    yield from shape.gathered(wide, MLP)
    yield shape.activation(MLP, shape.rows, wide, ffn)
    yield shape.linear(ffn, shape.hidden, name=MLP, kept=0)
    yield shape.scatter(shape.hidden)


@parts_of.register
def _(block: Mlp, shape: Shape) -> Iterator[Part]:
    yield shape.norm()
    yield from _mlp(shape, split(block.ffn, shape.parallel.tp), block.gated)


def _dispatched(shape: Shape, top_k: int, nbytes: float) -> list[Kernel]:
    """Return the all-to-alls, side by side, in which tokens of so many bytes reach their experts' ranks."""
    # Where a token goes once to a rank with several of its experts, balanced experts miss a place of many for
    # (1 - 1/many)^top_k of the tokens. Between nodes it goes once to a node, whose ranks pass it on
    # meanwhile. Source: Zhao et al. (2025), Insights into DeepSeek-V3.
    rates, group = shape.rates, tuple(range(shape.parallel.ep))
    if not rates.stack.tokens_once:
        return [shape.collective(FORWARD, "all-to-all", group, top_k * nbytes)]
    nodes = domains(rates.machine, group, rates.machine.device_count)

    def reached(ranks: Sequence[int], places: int) -> Kernel:
        copies = places * (1.0 - (1.0 - 1.0 / places) ** top_k)
        return shape.collective(FORWARD, "all-to-all", tuple(ranks), copies * nbytes)

    inside = reached(nodes[0], len(group))
    return [inside, reached(group, len(nodes))] if len(nodes) > 1 else [inside]


@parts_of.register
def _(block: Experts, shape: Shape) -> Iterator[Part]:
    p, rates, rows = shape.parallel, shape.rates, shape.own_rows
    columns = block.latent or shape.hidden
    yield shape.norm(fused=False)
    router = shape.linear(
        shape.hidden,
        block.experts,
        name=ROUTER,
        rows=rows,
        dtype="float32" if rates.stack.router32 else "bfloat16",
        kept=0,
    )
    scores = shape.map(ROUTER, rows, 6.0 * block.experts, 6.0 * block.experts, block.experts)
    yield router
    yield replace(scores, issued=16)
    latent = shape.dtype_of("latent")
    if block.latent:
        yield shape.linear(shape.hidden, block.latent, name=MLP, rows=rows, dtype=latent)
    chosen = rows * block.top_k
    visible = 1.0 - rates.stack.expert_overlap
    moves = [x._replace(calls=2.0) for x in _dispatched(shape, block.top_k, rows * columns * BF16)]
    there_and_back = 2 * max(x.seconds for x in moves) * visible
    # Rows are put in order by expert, and back, with the sum over a token's experts.
    ordered = shape.passes(FORWARD, rates.stack.row_passes * chosen * columns * BF16, 4)
    syncs = rates.stack.syncs
    yield Part(
        EXCHANGE,
        tuple(x._replace(name=word) for word in (FORWARD, DATA) for x in (*moves, ordered)),
        sent=there_and_back,
        returned=there_and_back,
        issued=24,
        awaited=syncs,
    )
    local = block.experts // p.ep
    each = -(-chosen * p.ep // block.experts)
    wide = 2 * block.ffn if block.gated else block.ffn
    stored = STORED[rates.precision] or BF16
    fused = rates.stack.fused_experts
    for number, (k, n) in enumerate(((columns, wide), (block.ffn, columns))):
        cast = [] if fused and number else shape.casts(FORWARD, chosen * k, local)
        cast_back = [] if fused and not number else shape.casts(DATA, chosen * n, local)
        if number:
            act = shape.activation(EXPERTS, chosen, wide, block.ffn, "moe_act")
            yield replace(act, kernels=(), issued=0) if fused else act
        yield Part(
            EXPERTS,
            (
                *cast,
                Kernel(MULTIPLY, FORWARD, rates.grouped(each, local, n, k), (local, each, n, k)),
                *cast_back,
                Kernel(MULTIPLY, DATA, rates.grouped(each, local, k, n), (local, each, k, n)),
                *([shape.passes(DATA, chosen * n * BF16, local)] if block.bias else []),
                Kernel(MULTIPLY, WEIGHT, rates.in_streams(n, k, each, local, FP32), (local, n, k, each)),
            ),
            kept=0.0 if number else chosen * k * stored,
            issued=local * (1 if stored == BF16 else 2),
            awaited=syncs,
        )
    if block.latent:
        yield shape.linear(block.latent, shape.hidden, name=MLP, rows=rows, dtype=latent)
    if block.shared_ffn:
        for part in _mlp(shape, split(block.shared_ffn, p.tp), block.gated):
            yield replace(part, modules=(*part.modules, "shared_experts"))


def layer_parts(layer: Layer, shape: Shape) -> list[Part]:
    """Return the parts of a layer for one micro-batch at one rank."""
    parts = list[Part]()
    for block in layer.blocks:
        group = {Mlp: "mlp", Experts: "moe"}.get(type(block))
        for part in parts_of(block, shape):
            inside = group is not None and part.name != NORM
            parts.append(replace(part, modules=(*part.modules, group or "")) if inside else part)
    return parts
