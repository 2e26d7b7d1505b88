"""Layers of a decoder: the parts of each kind, their weights, and a token's elements in a cache."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Weight(NamedTuple):
    """Weights that a checkpoint has under one name."""

    module: str  # path below the layer, as `quantization_config` names it: `self_attn.q_proj`
    elements: int  # how many there are
    active: int  # how many of them multiply one token
    linear: bool = True  # whether it is a matrix that quantised checkpoints store in few bits; a norm is not
    rows: int = 0  # rows of the matrix, or of each expert's; 0 for a vector


def _matrix(module: str, rows: int, cols: int, bias: bool = False) -> Iterator[Weight]:
    yield Weight(module, rows * cols, rows * cols, rows=rows)
    if bias:
        yield _vector(f"{module}.bias", cols)


def _vector(module: str, elements: int) -> Weight:
    return Weight(module, elements, elements, linear=False)


@dataclass(frozen=True)
class Indexer:
    """Scores by which sparse attention chooses the keys of a token: DeepSeek-V3.2, section 2.1."""

    heads: int  # heads of the scores
    head: int  # columns of one
    top_k: int  # keys that a token attends to
    shared: bool = False  # whether the layer has none, and takes the choice of one before it

    @property
    def cache(self) -> int:
        """Elements that a token leaves in the cache."""
        return 0 if self.shared else self.head


@dataclass(frozen=True)
class Attention:
    """Attention by heads of queries, which may share keys and values."""

    heads: int  # heads of queries
    kv_heads: int  # heads of keys and values
    head: int  # columns of a head of queries and keys
    value: int  # columns of a head of values
    window: int = 0  # tokens that one sees, itself included; 0 if all before it
    chunked: bool = False  # whether the window is a chunk that starts anew, instead of one that slides
    bias: bool = False  # whether queries, keys and values have biases
    out_bias: bool = False  # whether the result has one
    norms: int = 0  # elements of the scales that queries and keys are normalised with
    gate: bool = False  # whether a gate as wide as the queries multiplies the result
    keys_only: bool = False  # whether the values are the keys
    sinks: bool = False  # whether each head has a score that no key has
    indexer: Indexer | None = None  # What chooses the keys; None if a token attends to all in its window.

    @property
    def words(self) -> str:
        """Name of the kind."""
        if self.window:
            return f"{'chunked' if self.chunked else 'sliding'} attention"
        return "sparse attention" if self.indexer else "attention"

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        keys, values = self.kv_heads * self.head, self.kv_heads * self.value
        queries, result = self.heads * self.head, self.heads * self.value
        yield from _matrix("self_attn.q_proj", hidden, queries, self.bias)
        yield from _matrix("self_attn.k_proj", hidden, keys, self.bias)
        if not self.keys_only:
            yield from _matrix("self_attn.v_proj", hidden, values, self.bias)
        if self.gate:
            yield from _matrix("self_attn.gate_proj", hidden, result)
        yield from _matrix("self_attn.o_proj", result, hidden, self.out_bias)
        if self.norms:
            yield _vector("self_attn.norm", self.norms)
        if self.sinks:
            yield _vector("self_attn.sinks", self.heads)
        if self.indexer and not self.indexer.shared:
            yield from _matrix("self_attn.indexer.q_proj", hidden, self.indexer.heads * self.indexer.head)
            yield from _matrix("self_attn.indexer.k_proj", hidden, self.indexer.head)

    @property
    def cache(self) -> int:
        """Elements that a token leaves in the cache."""
        # Values that are the keys differ from them once these are normalised and rotated.
        return self.kv_heads * (self.head + self.value) + (self.indexer.cache if self.indexer else 0)


@dataclass(frozen=True)
class LatentAttention:
    """Attention whose keys and values are made of one latent vector a token: DeepSeek-V2, section 2.1."""

    heads: int  # heads of queries, keys and values
    head: int  # columns of a head of queries and keys, beside those of positions
    value: int  # columns of a head of values
    q_rank: int  # columns of the latent vector of queries; 0 if they are made of the activations
    kv_rank: int  # columns of the latent vector of keys and values
    rope_dim: int  # columns of positions
    bias: bool = False  # whether what makes latent vectors, and the result, have biases
    gate: bool = False  # whether a gate as wide as the values multiplies the result
    indexer: Indexer | None = None  # What chooses the keys; None if a token attends to all.

    window, chunked = 0, False

    @property
    def words(self) -> str:
        """Name of the kind."""
        return "sparse latent attention" if self.indexer else "latent attention"

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        queries = self.heads * (self.head + self.rope_dim)
        if self.q_rank:
            yield from _matrix("self_attn.q_a_proj", hidden, self.q_rank, self.bias)
            yield _vector("self_attn.q_a_layernorm", self.q_rank)
        yield from _matrix("self_attn.q_b_proj", self.q_rank or hidden, queries)
        yield from _matrix("self_attn.kv_a_proj_with_mqa", hidden, self.kv_rank + self.rope_dim, self.bias)
        yield _vector("self_attn.kv_a_layernorm", self.kv_rank)
        yield from _matrix("self_attn.kv_b_proj", self.kv_rank, self.heads * (self.head + self.value))
        if self.gate:
            yield from _matrix("self_attn.g_proj", hidden, self.heads * self.value)
        yield from _matrix("self_attn.o_proj", self.heads * self.value, hidden, self.bias)
        if self.indexer and not self.indexer.shared:
            queries = self.indexer.heads * self.indexer.head
            yield from _matrix("self_attn.indexer.wq_b", self.q_rank or hidden, queries)
            yield from _matrix("self_attn.indexer.wk", hidden, self.indexer.head)
            yield from _matrix("self_attn.indexer.weights_proj", hidden, self.indexer.heads)
            yield _vector("self_attn.indexer.k_norm", 2 * self.indexer.head)

    @property
    def cache(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.kv_rank + self.rope_dim + (self.indexer.cache if self.indexer else 0)


@dataclass(frozen=True)
class LinearAttention:
    """Gated delta net: a state for each head in place of a cache.

    Source: Yang et al. (2024), Gated delta networks; Kimi Linear (2025), section 3.
    """

    key_heads: int  # heads of queries and keys
    value_heads: int  # heads of values, each with a state
    key: int  # columns of a head of keys
    value: int  # columns of a head of values
    conv: int  # tokens that the convolution before it sees
    # Columns between the two matrices that give a decay for each column of keys, as in Kimi delta attention;
    # 0 where a head has one decay (Qwen3-Next).
    decay_rank: int = 0
    # Whether the gate of the result is one matrix; else it has two, with `decay_rank` between.
    full_gate: bool = True

    words, cache, window, chunked = "linear attention", 0, 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        keys, values = self.key_heads * self.key, self.value_heads * self.value
        yield from _matrix("linear_attn.in_proj_qkv", hidden, 2 * keys + values)
        if self.full_gate:
            yield from _matrix("linear_attn.in_proj_z", hidden, values)
        else:
            yield from _matrix("linear_attn.g_a_proj", hidden, self.decay_rank)
            yield from _matrix("linear_attn.g_b_proj", self.decay_rank, values)
        yield from _matrix("linear_attn.in_proj_b", hidden, self.value_heads)
        if self.decay_rank:
            yield from _matrix("linear_attn.f_a_proj", hidden, self.decay_rank)
            yield from _matrix("linear_attn.f_b_proj", self.decay_rank, keys)
        else:
            yield from _matrix("linear_attn.in_proj_a", hidden, self.value_heads)
        yield _vector("linear_attn.conv1d", (2 * keys + values) * self.conv)
        yield _vector("linear_attn.A_log", self.value_heads)
        yield _vector("linear_attn.dt_bias", keys if self.decay_rank else self.value_heads)
        yield _vector("linear_attn.norm", self.value)
        yield from _matrix("linear_attn.out_proj", values, hidden)

    @property
    def state(self) -> int:
        """Elements of a sequence's state."""
        columns = 2 * self.key_heads * self.key + self.value_heads * self.value
        return self.value_heads * self.key * self.value + columns * (self.conv - 1)


@dataclass(frozen=True)
class Mamba:
    """A Mamba-2 block: Dao and Gu (2024), Transformers are SSMs, section 7."""

    heads: int  # heads, each with a state
    head: int  # columns of one
    groups: int  # groups of heads that share what writes and reads the state
    state_dim: int  # rows of a head's state
    conv: int  # tokens that the convolution before it sees
    bias: bool = False  # whether its two matrices have biases
    conv_bias: bool = True  # whether the convolution has one
    norm: bool = True  # whether its result is normalised

    words, cache, window, chunked = "mamba-2", 0, 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        inner, shared = self.heads * self.head, 2 * self.groups * self.state_dim
        yield from _matrix("mamba.in_proj", hidden, 2 * inner + shared + self.heads, self.bias)
        yield _vector("mamba.conv1d", (inner + shared) * (self.conv + self.conv_bias))
        yield _vector("mamba.norm", inner * self.norm + 3 * self.heads)  # and A, D, the bias of time steps
        yield from _matrix("mamba.out_proj", inner, hidden, self.bias)

    @property
    def state(self) -> int:
        """Elements of a sequence's state."""
        columns = self.heads * self.head + 2 * self.groups * self.state_dim
        return self.heads * self.head * self.state_dim + columns * (self.conv - 1)


@dataclass(frozen=True)
class Selective:
    """A Mamba-1 block, with a state for each of its columns: Gu and Dao (2023), Mamba, section 3.4."""

    inner: int  # its columns
    state_dim: int  # elements of a column's state
    rank: int  # columns that time steps are made of
    conv: int  # tokens that the convolution before it sees
    bias: bool = False  # whether its two outer matrices have biases
    conv_bias: bool = True  # whether the convolution has one
    norms: bool = False  # whether time steps and what writes and reads states are normalised, as in Jamba

    words, cache, window, chunked = "mamba-1", 0, 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        yield from _matrix("mamba.in_proj", hidden, 2 * self.inner, self.bias)
        yield _vector("mamba.conv1d", self.inner * (self.conv + self.conv_bias))
        yield from _matrix("mamba.x_proj", self.inner, self.rank + 2 * self.state_dim)
        yield from _matrix("mamba.dt_proj", self.rank, self.inner, bias=True)
        yield _vector("mamba.A_log", self.inner * (self.state_dim + 1))  # and D
        if self.norms:
            yield _vector("mamba.norm", self.rank + 2 * self.state_dim)
        yield from _matrix("mamba.out_proj", self.inner, hidden, self.bias)

    @property
    def state(self) -> int:
        """Elements of a sequence's state."""
        return self.inner * (self.state_dim + self.conv - 1)


@dataclass(frozen=True)
class Lightning:
    """Linear attention whose heads decay at fixed rates: MiniMax-01 (2025), section 2.2."""

    heads: int  # heads of queries, keys and values
    head: int  # columns of one

    words, cache, window, chunked = "lightning attention", 0, 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        wide = self.heads * self.head
        yield from _matrix("self_attn.qkv_proj", hidden, 3 * wide)
        yield from _matrix("self_attn.output_gate", hidden, wide)
        yield from _matrix("self_attn.out_proj", wide, hidden)
        yield _vector("self_attn.norm", wide)

    @property
    def state(self) -> int:
        """Elements of a sequence's state."""
        return self.heads * self.head**2


@dataclass(frozen=True)
class ShortConvolution:
    """A gated convolution over a few tokens: Liquid AI (2025), LFM2."""

    conv: int  # tokens that it sees
    bias: bool = False  # whether its matrices and it have biases

    words, cache, window, chunked = "convolution", 0, 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        yield from _matrix("conv.in_proj", hidden, 3 * hidden, self.bias)
        yield _vector("conv.conv", hidden * (self.conv + self.bias))
        yield from _matrix("conv.out_proj", hidden, hidden, self.bias)


@dataclass(frozen=True)
class Beside:
    """Attention and a Mamba-2 block that read the same tokens and add up, as in Falcon-H1."""

    attention: Attention  # the one
    mamba: Mamba  # the other

    words, window, chunked = "attention beside mamba-2", 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield their weights."""
        yield from self.attention.weights(hidden)
        yield from self.mamba.weights(hidden)

    @property
    def cache(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.attention.cache

    @property
    def state(self) -> int:
        """Elements of a sequence's state."""
        return self.mamba.state


@dataclass(frozen=True)
class Linear:
    """One matrix in place of a part, as pruned models have it."""

    module: str  # the part it replaces

    words, cache, window, chunked = "linear", 0, 0, False

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        yield from _matrix(f"{self.module}.linear_attn", hidden, hidden)


@dataclass(frozen=True)
class Mlp:
    """An MLP that every token takes."""

    ffn: int  # columns between its multiplies
    gated: bool = True  # whether it has a gate, three weights instead of two
    bias: bool = False  # whether they have biases

    words = "mlp"

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        for name in ("gate_proj", "up_proj") if self.gated else ("up_proj",):
            yield from _matrix(f"mlp.{name}", hidden, self.ffn, self.bias)
        yield from _matrix("mlp.down_proj", self.ffn, hidden, self.bias)


@dataclass(frozen=True)
class Experts:
    """MLPs of which each token takes some, chosen by a router."""

    experts: int  # how many there are
    top_k: int  # how many a token takes
    ffn: int  # columns between the multiplies of one
    shared_ffn: int = 0  # columns of those that every token takes beside, together; 0 if there are none
    gated: bool = True  # whether each has a gate, three weights instead of two
    bias: bool = False  # whether they have biases
    latent: int = 0  # columns of the tokens that experts read and write; 0 if those of the layer
    shared_gate: bool = False  # whether a column of the router weighs the shared experts
    router_bias: bool = False  # whether the router's scores have a bias

    words = "experts"

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        columns = self.latent or hidden
        of_one = Mlp(self.ffn, self.gated, self.bias)
        for _, elements, _, linear, rows in of_one.weights(columns):
            module = "mlp.experts" if linear else "mlp.experts.bias"
            yield Weight(module, elements * self.experts, elements * self.top_k, linear, rows)
        yield _vector("mlp.gate", hidden * self.experts)
        if self.router_bias:
            yield _vector("mlp.gate.bias", self.experts)
        if self.latent:
            yield from _matrix("mlp.fc1_latent_proj", hidden, self.latent)
            yield from _matrix("mlp.fc2_latent_proj", self.latent, hidden)
        if self.shared_ffn:
            for weight in Mlp(self.shared_ffn, self.gated).weights(hidden):
                yield weight._replace(module=weight.module.replace("mlp", "mlp.shared_experts"))
        if self.shared_gate:
            yield _vector("mlp.shared_expert_gate", hidden)


Mixer = (
    Attention | LatentAttention | LinearAttention | Mamba | Selective | Lightning | ShortConvolution | Beside
    | Linear
)  # fmt: skip
Expansion = Mlp | Experts | Linear


@dataclass(frozen=True)
class Layer:
    """A layer: a mixer of tokens, then MLPs or experts of each token; either may be missing."""

    mixer: Mixer | None  # Attention, or what is in its place; None if it has none.
    # An MLP or experts; both where a layer adds them; none where a mixer is a layer alone.
    expansions: tuple[Expansion, ...] = ()
    norms: int = 2  # how many norms it has, each with a scale as wide as the activations
    norm_bias: bool = False  # whether each has a bias too
    inputs: int = 0  # columns of the embedding of each layer's own that it adds; 0 if there is none

    @property
    def blocks(self) -> tuple[Mixer | Expansion, ...]:
        """Its mixer, if it has one, and its expansions, in their order."""
        return (*([self.mixer] if self.mixer else []), *self.expansions)

    @property
    def words(self) -> str:
        """Name of the kind: ``attention + experts``."""
        return " + ".join(x.words for x in self.blocks) or "nothing"

    @property
    def experts(self) -> Experts | None:
        """Its experts, if it has any."""
        return next((x for x in self.expansions if isinstance(x, Experts)), None)

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield its weights."""
        for block in self.blocks:
            yield from block.weights(hidden)
        if self.norms:
            yield _vector("norm", self.norms * (1 + self.norm_bias) * hidden)
        if self.inputs:
            yield from _matrix("per_layer_input_gate", hidden, self.inputs)
            yield from _matrix("per_layer_projection", self.inputs, hidden)

    @property
    def cache(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.mixer.cache if self.mixer else 0


@dataclass(frozen=True)
class Model:
    """A decoder."""

    name: str  # what it is called: a name, or the path of its file
    hidden: int  # columns of activations between layers
    vocab: int  # different tokens; 0 if unknown
    layers: tuple[Layer, ...]  # its layers in order
    tied: bool = False  # whether the head multiplies by the embedding's table
    # Layers of multi-token prediction after them, with what joins each to the embedding.
    mtp: tuple[Layer, ...] = ()
    positions: int = 0  # rows of the table of learned positions; 0 if there is none
    inputs: int = 0  # columns of an embedding of each layer's own; 0 if there is none
    inputs_vocab: int = 0  # rows of its table
    head_bias: bool = False  # whether the logits have a bias
    vision: int = 0  # parameters of what turns pictures or sounds into tokens
    dtype: str = "bfloat16"  # type of what is not quantised
    # `quantization_config` as it is in the file; empty if there is none.
    quantization: Mapping[str, object] = field(default_factory=dict, hash=False)
    # Keys of the file that are not priced or not understood, and a remark on each.
    not_modelled: Mapping[str, str] = field(default_factory=dict, hash=False)
    order_key: str = ""  # key that says which layer is of which kind; empty if all are of one

    @property
    def kinds(self) -> dict[Layer, int]:
        """Each kind of layer with the number of such layers, by where it comes first."""
        return dict(Counter(self.layers))

    def ends(self) -> Iterator[Weight]:
        """Yield the weights outside its layers: embedding, last norm, head."""
        # A token takes one row of a table, so tables are not active; a tied one multiplies as the head.
        table = self.hidden * self.vocab
        yield Weight("embed_tokens", table, table if self.tied else 0, linear=False)
        if self.positions:
            yield Weight("embed_positions", self.positions * self.hidden, 0, linear=False)
        if self.inputs:
            columns = self.inputs * len(self.layers)
            yield Weight("embed_tokens_per_layer", self.inputs_vocab * columns, 0, linear=False)
            yield from _matrix("per_layer_model_projection", self.hidden, columns)
        yield _vector("norm", self.hidden * (1 + self.layers[-1].norm_bias))
        if not self.tied and self.vocab:
            yield from _matrix("lm_head", self.hidden, self.vocab, self.head_bias)
