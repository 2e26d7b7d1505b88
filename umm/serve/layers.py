"""A layer of a model as the kernels of one iteration of a serving engine, at one rank."""

from dataclasses import dataclass
from functools import singledispatch

from umm.errors import ProblemError
from umm.interval import Interval
from umm.program.functions.attention import Heads
from umm.program.models.count import STATE_BYTES
from umm.program.models.layers import Attention, Experts, LatentAttention, Linear, LinearAttention, Mamba, Mlp
from umm.program.models.split import heads_and_columns, split
from umm.serve.deployment import Deployment
from umm.serve.rates import BF16, EIGHT_BITS, Rates

SCORE = 4  # bytes of a score, which one kernel writes and the choice reads
KEY_BLOCK = 128  # columns of a key of the indexer that share a scale of 4 bytes


def key_bytes(block: object, bits: int) -> float:
    """Return the bytes of an indexer's key in the cache, which every rank has: 132 of latent attention."""
    indexer = getattr(block, "indexer", None)
    if indexer is None:
        return 0.0
    latent = isinstance(block, LatentAttention)
    return float(indexer.cache * (1 + 4 / KEY_BLOCK if latent else bits / 8))


@dataclass(frozen=True)
class Batch:
    """The tokens, sequences and model of one iteration."""

    hidden: int  # columns of activations
    decoded: int  # sequences of an attention group of which a token is decoded
    context: int  # tokens in the cache of each of them
    prompt: int  # tokens of prompts beside, of an attention group
    length: int  # tokens of each prompt, of which these may be a chunk
    deployment: Deployment  # how the model is spread
    rates: Rates  # seconds of kernels

    @property
    def rows(self) -> int:
        """Tokens of an attention group."""
        return self.decoded + self.prompt

    def prefill(self, scores: Heads, heads: int) -> float:
        """Return the seconds of attention of the tokens of prompts, as their share of whole prompts."""
        if not self.prompt:
            return 0.0
        prompts = max(1, self.prompt // self.length)
        took = self.rates.attention(scores, Interval(0, self.length), heads * prompts)
        return took * min(1.0, self.prompt / self.length)

    def linear(self, k: int, n: int, dtype: str = "") -> float:
        """Return the seconds of a multiply by a weight of k x n, already split."""
        return self.rates.gemm(self.rows, n, k, dtype or self.rates.dense)

    def passes(self, columns: float, kernels: int = 1) -> float:
        """Return the seconds of elementwise kernels that read and write so many columns of each token."""
        return self.rates.passes(self.rows * columns * BF16, kernels)

    def all_reduce(self) -> float:
        """Return the seconds of the sum over the ranks of an attention group."""
        return self.rates.all_reduce(self.deployment.tp, self.rows * self.hidden * BF16)


@singledispatch
def seconds_of(block: object, batch: Batch) -> float:
    """Return the seconds of a mixer, an MLP or experts for one iteration."""
    raise ProblemError(f"{getattr(block, 'words', block)} is not simulated; umm model counts it")


def _choice(block: Attention | LatentAttention, batch: Batch) -> float:
    """Return the seconds in which keys are scored for sparse attention; 0 without an indexer."""
    indexer = block.indexer
    if indexer is None or indexer.shared:
        return 0.0
    keys = batch.decoded * batch.context
    scores = keys + batch.prompt * batch.length / 2
    nbytes = keys * key_bytes(block, batch.deployment.cache_bits)
    if isinstance(block, LatentAttention):
        # Every rank multiplies all heads in 8 bits, weighs and adds them. Source: vLLM and SGLang, Indexer of
        # deepseek_v2.py, by DeepGEMM's fp8_mqa_logits and fp8_paged_mqa_logits.
        columns, dtype = block.q_rank or batch.hidden, "float8_e4m3"
        heads = weights = indexer.heads
        nbytes += 2.0 * SCORE * scores
    else:
        # A head of scores for each head of keys, split as these; blocks are chosen without weights. Source:
        # vLLM and SGLang, MiniMax-M3 (index_q_proj, index_k_proj).
        columns, dtype = batch.hidden, "bfloat16"
        heads, weights = split(indexer.heads, batch.deployment.tp), 0
    width = heads * indexer.head
    took = batch.linear(columns, width) + batch.linear(batch.hidden, indexer.head + weights)
    return took + batch.rates.reads(nbytes, 2.0 * width * scores, dtype)


@seconds_of.register
def _(block: Attention, batch: Batch) -> float:
    tp = batch.deployment.tp
    heads, kv_heads, queries, keys = heads_and_columns(block, tp)
    gate = heads * block.value if block.gate else 0
    took = batch.passes(4.0 * batch.hidden) + batch.linear(batch.hidden, queries + keys + gate)
    # Values that are keys are written apart, for these are normalised and rotated. Source: vLLM, gemma4.py.
    written = queries + kv_heads * (block.head + block.value)
    took += batch.passes(2.0 * written, 1 + bool(block.norms))
    took += _choice(block, batch)
    seen, length = block.indexer.top_k if block.indexer else block.window, batch.length
    window = seen if seen < length else 0
    share = max(1, heads // kv_heads)
    scores = Heads(block.head, share, length, length, True, window=window, value=block.value)
    took += batch.prefill(scores, heads)
    if batch.decoded:
        context = min(batch.context, block.indexer.top_k) if block.indexer else batch.context
        took += batch.rates.decode(
            batch.decoded, context, heads, kv_heads, block.head, block.value,
            0 if block.indexer else block.window, bits=batch.deployment.cache_bits,
        )  # fmt: skip
    return took + batch.linear(heads * block.value, batch.hidden) + batch.all_reduce()


@seconds_of.register
def _(block: LatentAttention, batch: Batch) -> float:
    tp = batch.deployment.tp
    heads, wide = split(block.heads, tp), block.head + block.rope_dim
    took = batch.passes(4.0 * batch.hidden)
    gate = heads * block.value if block.gate else 0
    took += batch.linear(batch.hidden, block.q_rank + block.kv_rank + block.rope_dim + gate)
    took += batch.passes(2.0 * (block.q_rank + block.kv_rank), 2)
    took += batch.linear(block.q_rank or batch.hidden, heads * wide)
    took += _choice(block, batch)
    latent = block.kv_rank + block.rope_dim
    if batch.prompt:
        wide_keys = heads * (block.head + block.value)
        took += batch.rates.gemm(batch.prompt, wide_keys, block.kv_rank, batch.rates.dense)
    scores = Heads(block.head, 1, batch.length, batch.length, True, block.rope_dim, value=block.value)
    took += batch.prefill(scores, heads)
    if batch.decoded:
        # Queries and results pass through the latent vectors, so keys and values are never made.
        took += batch.rates.batched(heads, batch.decoded, block.kv_rank, block.head)
        took += batch.rates.batched(heads, batch.decoded, block.value, block.kv_rank)
        seen = min(batch.context, block.indexer.top_k) if block.indexer else batch.context
        took += batch.rates.decode(
            batch.decoded,
            seen,
            heads,
            1,
            latent,
            block.kv_rank,
            bits=batch.deployment.cache_bits,
            latent=True,
        )
    return took + batch.linear(heads * block.value, batch.hidden) + batch.all_reduce()


def _states(batch: Batch, columns: int, state: int) -> float:
    """Return the seconds of a state space model: scans of prompts, or states read and written."""
    rates, took = batch.rates, 0.0
    if batch.prompt:
        took += rates.passes(4.0 * batch.prompt * columns * BF16 * 2, 4)
    if batch.decoded:
        took += rates.reads(2.0 * batch.decoded * state * STATE_BYTES, 0.0) + rates.passes(0.0, 2)
    return took


@seconds_of.register
def _(block: LinearAttention, batch: Batch) -> float:
    tp = batch.deployment.tp
    keys, values = split(block.key_heads * block.key, tp), split(block.value_heads * block.value, tp)
    took = batch.passes(4.0 * batch.hidden) + batch.linear(batch.hidden, 2 * keys + 2 * values)
    took += _states(batch, 2 * keys + values, split(block.state, tp)) + batch.passes(3.0 * values)
    return took + batch.linear(values, batch.hidden) + batch.all_reduce()


@seconds_of.register
def _(block: Mamba, batch: Batch) -> float:
    tp = batch.deployment.tp
    inner = split(block.heads * block.head, tp)
    columns = 2 * inner + 2 * split(block.groups, tp) * block.state_dim
    took = batch.passes(4.0 * batch.hidden) + batch.linear(batch.hidden, columns)
    took += _states(batch, columns, split(block.state, tp)) + batch.passes(3.0 * inner)
    return took + batch.linear(inner, batch.hidden) + batch.all_reduce()


@seconds_of.register
def _(block: Linear, batch: Batch) -> float:
    return batch.passes(4.0 * batch.hidden) + batch.linear(batch.hidden, batch.hidden)


def _mlp(batch: Batch, ffn: int, gated: bool, ranks: int) -> float:
    ffn = split(ffn, ranks)
    wide = 2 * ffn if gated else ffn
    return batch.linear(batch.hidden, wide) + batch.passes(wide + ffn) + batch.linear(ffn, batch.hidden)


@seconds_of.register
def _(block: Mlp, batch: Batch) -> float:
    took = batch.passes(4.0 * batch.hidden)
    return took + _mlp(batch, block.ffn, block.gated, batch.deployment.tp) + batch.all_reduce()


@seconds_of.register
def _(block: Experts, batch: Batch) -> float:
    d, rates = batch.deployment, batch.rates
    shared, groups = d.experts_split
    columns = block.latent or batch.hidden
    ffn = split(block.ffn, shared)
    wide = 2 * ffn if block.gated else ffn
    tokens = batch.rows * d.attention_dp  # of all attention groups
    chosen = tokens * block.top_k / groups
    local = split(block.experts, groups)
    # A rank reads the experts that some token has chosen, each once.
    hit = local * (1.0 - (1.0 - block.top_k / block.experts) ** tokens)
    took = batch.passes(4.0 * batch.hidden)
    took += rates.gemm(batch.rows, block.experts, batch.hidden, "bfloat16")
    if block.latent:
        took += 2 * batch.linear(batch.hidden, block.latent)
    law = rates.experts(tokens, columns, block.ffn, block.top_k, block.experts, shared, groups, block.gated)
    if law is None:
        law = rates.grouped(chosen, hit, wide, columns) + rates.grouped(chosen, hit, columns, ffn)
        law += rates.passes(chosen * (wide + ffn + 3.0 * columns) * BF16, 5)
    took += law + (rates.engine.scatter_s if groups > 1 and rates.precision in EIGHT_BITS else 0.0)
    if d.attention_dp > 1:
        each = batch.rows / d.tp
        took += rates.exchange(d.ranks, each, columns, block.top_k, block.experts, not batch.prompt)
    else:
        took += batch.all_reduce()
    if block.shared_ffn:
        took += _mlp(batch, block.shared_ffn, block.gated, d.tp)
    return took
