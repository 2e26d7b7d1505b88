"""Attention of each layer as a config.json describes it: by heads, latent, linear, Mamba-2, windows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from umm.errors import ProblemError
from umm.files import shown, whole_number
from umm.program.models.families import Family
from umm.program.models.keys import Keys
from umm.program.models.layers import (
    Attention,
    Beside,
    Indexer,
    LatentAttention,
    Lightning,
    Linear,
    LinearAttention,
    Mamba,
    Mixer,
    Selective,
    ShortConvolution,
)

FULL, SLIDING, CHUNKED, LINEAR, MAMBA, CONV, BOTH = (
    "full", "sliding", "chunked", "linear", "mamba", "convolution", "both",
)  # fmt: skip
INDEXED = "indexed_attention"
_LAYER_TYPES = {
    "full_attention": FULL, "attention": FULL, "global_attention": FULL, "global": FULL,
    "sliding_attention": SLIDING, "local_attention": SLIDING, "sliding": SLIDING, "local": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": LINEAR,
    "mamba": MAMBA, "mamba2": MAMBA,
    INDEXED: FULL,
    "conv": CONV,
}  # fmt: skip
_WINDOW = ("sliding_window", "sliding_window_size", "window_size")
_ROUND = 256  # Columns that widths given as a multiple of hidden are rounded up to: DeciLM's modelling file.


def mixers_of(keys: Keys, layers: int, hidden: int, family: Family) -> list[Mixer | None]:
    """Return each layer's mixer of tokens: attention, linear attention or Mamba-2.

    ProblemError naming the key that cannot be read.
    """
    kinds = _kinds(keys, layers, family)
    if set(kinds) == {MAMBA} and keys.get("num_attention_heads") is None:
        return [mamba_of(keys, hidden)] * layers
    full, sliding = _attention(keys, hidden, family), _attention(keys, hidden, family, sliding=True)
    indexers = _indexers(keys, layers, full.indexer)
    mixers: list[Mixer | None] = []
    for number, kind in enumerate(kinds):
        if kind == BOTH:
            mamba = mamba_of(keys, hidden)
            assert isinstance(full, Attention)
            assert isinstance(mamba, Mamba)
            mixers.append(Beside(full, mamba))
        elif kind == FULL:
            mixers.append(replace(full, indexer=indexers[number]))
        elif kind in (SLIDING, CHUNKED):
            names = ("attention_chunk_size",) if kind == CHUNKED else _WINDOW
            window = keys.number(*names, default=None, least=1)
            if isinstance(sliding, LatentAttention):
                raise ProblemError(
                    f"{keys.path} has windows of latent attention, which are not modelled: {names[0]}"
                )
            mixers.append(replace(sliding, window=window, chunked=kind == CHUNKED))
        elif kind == CONV:
            mixers.append(ShortConvolution(keys.number("conv_L_cache", default=3), keys.flag("conv_bias")))
        elif kind == LINEAR and not any(keys.get(x) for x in _STATES):
            mixers.append(_linear(keys, full))
        else:
            mixers.append(mamba_of(keys, hidden))
    return mixers


_STATES = ("mamba_num_heads", "mamba_n_heads", "mamba_d_state")
"""Keys of Mamba blocks, which recent configs call linear attention in layer_types."""
_UNUSED = (*_STATES, "mamba_n_groups", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_proj_bias")
"""Keys that Granite 4 has also where none of its layer_types is Mamba."""


def _indexers(keys: Keys, layers: int, usual: Indexer | None) -> Sequence[Indexer | None]:
    """Return the indexer of each layer; None where a token attends to all keys."""
    types = keys.by_layer("indexer_types", layers, ("full", "shared"))
    by_layer = keys.get("layer_types")
    if isinstance(by_layer, list) and INDEXED in by_layer:
        return [usual if x == INDEXED else None for x in by_layer[:layers]]
    inner = keys.inner("sparse_attention_config")
    if types is not None and usual is not None:
        return [replace(usual, shared=x == "shared") for x in types]
    listed = inner.by_layer("sparse_attention_freq", layers, (0, 1)) if inner else None
    return [usual if x else None for x in listed or [1] * layers]


def _kinds(keys: Keys, layers: int, family: Family) -> Sequence[str]:
    """Return the kind of attention of each layer."""
    by_layer = keys.by_layer("layer_types", layers, _LAYER_TYPES)
    hybrid = keys.by_layer("hybrid_layer_pattern", layers, (0, 1))  # MiMo
    softmax = keys.by_layer("attn_type_list", layers, (0, 1))  # MiniMax
    pattern = keys.get("sliding_window_pattern", "_sliding_window_pattern")
    every = keys.number("full_attention_interval", "global_attn_every_n_layers")
    window, chunk = keys.number(*_WINDOW), keys.number("attention_chunk_size")
    if window >= keys.number("max_position_embeddings", default=window + 1) > 0:
        window = 0  # as wide as the longest sequence
    no_rope = keys.get("no_rope_layers")
    uses = keys.flag("use_sliding_window", default=True)
    dense_first = keys.number("max_window_layers")
    linear = keys.inner("linear_attn_config")
    if linear is not None:
        return _by_numbers(linear, layers)
    mamba = _of_mamba(keys, layers)
    if mamba is not None and by_layer is None:
        return mamba
    if by_layer is not None:
        keys.get(*_UNUSED)
        kinds = [_LAYER_TYPES[x] for x in by_layer]
    elif hybrid is not None:
        kinds = [SLIDING if x else FULL for x in hybrid]
    elif softmax is not None:
        kinds = [FULL if x else LINEAR for x in softmax]
    elif every and keys.get("linear_num_value_heads") is not None:
        kinds = [FULL if (x + 1) % every == 0 else LINEAR for x in range(layers)]
    elif chunk and family.chunks:
        nope = no_rope or [(x + 1) % 4 != 0 for x in range(layers)]
        if not isinstance(nope, list) or len(nope) < layers:
            raise ProblemError(f"no_rope_layers of {keys.path} needs one entry for each of {layers} layers")
        kinds = [CHUNKED if x else FULL for x in nope[:layers]]
    elif window and uses:
        pattern = every or pattern or family.pattern
        kinds = _in_turn(keys, pattern, layers, dense_first if keys.get("use_sliding_window") else 0)
    else:
        kinds = [FULL] * layers
    if not window or not uses:
        kinds = [FULL if x == SLIDING else x for x in kinds]
    return kinds


def _of_mamba(keys: Keys, layers: int) -> list[str] | None:
    """Return the kinds of layers where other keys than ``layer_types`` make some Mamba blocks; else None."""
    period, offset = keys.number("attn_layer_period"), keys.number("attn_layer_offset")
    numbers = keys.get("attn_layer_indices")
    if keys.get("mamba_d_ssm") is not None:
        return [BOTH] * layers
    if period:
        return [FULL if x % period == offset % period else MAMBA for x in range(layers)]
    if isinstance(numbers, list):
        return [FULL if x in numbers else MAMBA for x in range(layers)]
    alone = keys.get("state_size") is not None and keys.get("num_attention_heads") is None
    return [MAMBA] * layers if alone or keys.text("model_type") == "bamba" else None


def _in_turn(keys: Keys, pattern: Any, layers: int, full_first: int) -> list[str]:
    """Return sliding and full attention in turn: full in every n-th layer, or as letters L and G say."""
    if isinstance(pattern, str) and pattern and set(pattern) <= set("LG"):
        return [SLIDING if pattern[x % len(pattern)] == "L" else FULL for x in range(layers)]
    if pattern is not None and (type(pattern) is not int or pattern < 0):
        name = keys.name_of("sliding_window_pattern", "_sliding_window_pattern")
        raise ProblemError(
            f"{name} of {keys.path} is {shown(pattern)}; it must be a whole number or letters L and G"
        )
    if not pattern or pattern == 1:
        return [FULL if x < full_first else SLIDING for x in range(layers)]
    return [FULL if (x + 1) % pattern == 0 else SLIDING for x in range(layers)]


def _by_numbers(linear: Keys, layers: int) -> list[str]:
    """Return the kinds that lists of layers' numbers from 1 give, as in Kimi Linear."""
    kinds = [""] * layers
    for name, kind in (("kda_layers", LINEAR), ("full_attn_layers", FULL)):
        numbers = linear.get(name)
        if not isinstance(numbers, list):
            raise ProblemError(f"{linear.path} has no list {name}")
        for number in numbers:
            if type(number) is not int or not 1 <= number <= layers or kinds[number - 1]:
                raise ProblemError(
                    f"{name} of {linear.path} names layer {shown(number)}; there are 1 to {layers}"
                )
            kinds[number - 1] = kind
    if "" in kinds:
        raise ProblemError(
            f"{linear.path} leaves out layer {kinds.index('') + 1}: kda_layers, full_attn_layers"
        )
    return kinds


def _attention(keys: Keys, hidden: int, family: Family, sliding: bool = False) -> Attention | LatentAttention:
    """Return attention of full layers, or of those with a window where their sizes differ."""
    first = ("swa_num_attention_heads",) if sliding else ()
    names: tuple[str, ...] = ("num_attention_heads", "n_head", "n_heads", "num_heads")
    heads = keys.number(*first, *names, default=family.heads[0] or None, least=1)
    bias = keys.flag("attention_bias", "use_bias", "bias", default=family.bias)
    qkv_bias = bias or keys.flag("qkv_bias", "add_qkv_bias", "use_qkv_bias", default=family.qkv_bias)
    out_bias = bias and family.out_bias
    gate = keys.flag("attn_output_gate", "attention_output_gate", "mla_use_output_gate", default=family.gate)
    indexer = _indexer(keys)
    if keys.get("kv_lora_rank") is not None:
        head = keys.number("qk_nope_head_dim", default=None, least=1)
        keys.get("qk_head_dim", "head_dim", "num_key_value_heads", "qk_layernorm")  # of the same sizes
        value = keys.number("v_head_dim", default=head, least=1)
        ranks = keys.number("q_lora_rank"), keys.number("kv_lora_rank", least=1)
        rope_dim = keys.number("qk_rope_head_dim", least=1)
        return LatentAttention(heads, head, value, *ranks, rope_dim, bias=bias, gate=gate, indexer=indexer)
    shares = keys.flag("attention_k_eq_v") and not sliding
    first = ("swa_num_key_value_heads",) if sliding else ("num_global_key_value_heads",)
    multi_query = keys.flag("multi_query", default=False) and keys.get("num_kv_heads") in (None, heads)
    usual = 1 if multi_query else family.heads[1] or heads
    names = (
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_query_groups",
        "kv_n_heads", "num_attention_groups",
    )  # fmt: skip
    kv_heads = 1 if multi_query else keys.number(*first, *names, default=usual, least=1)
    keys.get(*names)
    first = ("swa_head_dim",) if sliding else ("global_head_dim",)
    usual = family.heads[2] or hidden // heads
    head = keys.number(*first, "head_dim", "attention_head_dim", "kv_channels", default=usual, least=1)
    first = ("swa_v_head_dim",) if sliding else ()
    value = keys.number(*first, "v_head_dim", default=head, least=1)
    norms = 0
    if keys.flag("use_qk_norm", "qk_norm", "qk_layernorm", default=family.qk_norm) and family.norm_has_scale:
        wide = keys.text("qk_norm_type", default="") == "per_layer" or family.wide_norm
        norms = (heads + kv_heads) * head if wide else 2 * head
    sink = "add_swa_attention_sink_bias" if sliding else "add_full_attention_sink_bias"
    return Attention(
        heads, kv_heads, head, value,
        bias=qkv_bias, out_bias=out_bias, norms=norms, gate=gate, keys_only=shares,
        sinks=keys.flag(sink, default=family.sinks), indexer=indexer,
    )  # fmt: skip


def _indexer(keys: Keys) -> Indexer | None:
    """Return the indexer of sparse attention; None without."""
    inner = keys.inner("sparse_attention_config")
    if inner is not None and inner.flag("use_sparse_attention", default=True):  # MiniMax-M3
        blocks = inner.number("sparse_topk_blocks", default=None, least=1) * inner.number(
            "sparse_block_size", least=1
        )
        heads = inner.number("sparse_num_index_heads", default=None, least=1)
        return Indexer(heads, inner.number("sparse_index_dim", default=None, least=1), blocks)
    heads = keys.number("index_n_heads")
    keys.get(
        "index_topk_freq", "index_topk_pattern", "index_skip_topk_offset", "index_share_for_mtp_iteration"
    )
    if not heads:
        return None
    blocks = keys.number("index_topk_blocks") * keys.number("index_block_size")
    keys.get("index_local_blocks")
    width = keys.number("index_head_dim", default=None, least=1)
    return Indexer(heads, width, keys.number("index_topk", default=blocks or None))


def _linear(keys: Keys, full: Attention | LatentAttention) -> LinearAttention | Lightning:
    """Return linear attention by the keys of Qwen3-Next, of MiniMax, or by the object of Kimi Linear."""
    inner = keys.inner("linear_attn_config")
    if keys.get("linear_num_heads") is not None:
        heads, head = (keys.number(f"linear_{x}", default=None, least=1) for x in ("num_heads", "head_dim"))
        keys.get("short_conv_kernel_size")
        conv = keys.number("linear_conv_kernel_dim", default=4, least=1)
        return LinearAttention(heads, heads, head, head, conv, decay_rank=head, full_gate=False)
    if keys.text("model_type").lower().startswith("minimax"):
        assert isinstance(full, Attention)
        keys.get("block_size")
        return Lightning(full.heads, full.head)
    if inner is not None:
        heads, head = (inner.number(x, default=None, least=1) for x in ("num_heads", "head_dim"))
        return LinearAttention(
            heads, heads, head, head, inner.number("short_conv_kernel_size", default=4, least=1),
            decay_rank=head, full_gate=inner.flag("use_full_rank_gate"),
        )  # fmt: skip
    if keys.get("linear_num_value_heads") is None:
        raise ProblemError(
            f"{keys.path} has layers of linear attention in layer_types or attn_type_list, but not the key "
            "linear_num_value_heads"
        )
    key_heads, value_heads, key, value, conv = (
        keys.number(f"linear_{x}", default=None, least=1)
        for x in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
    )
    return LinearAttention(key_heads, value_heads, key, value, conv)


def mamba_of(keys: Keys, hidden: int = 0) -> Mamba | Selective:
    """Return the Mamba blocks of a config: of Mamba-2 where they have heads, else of Mamba-1.

    ProblemError naming the key that is missing.
    """
    alone = keys.get("state_size") is not None
    conv = keys.number("conv_kernel", "mamba_d_conv", default=4, least=1)
    state = keys.number("ssm_state_size", "mamba_d_state", "state_size", default=None, least=1)
    expand = keys.factor("expand", "mamba_expand", default=2.0)
    conv_bias = keys.flag("use_conv_bias", "mamba_conv_bias", default=True)
    bias = keys.flag("mamba_proj_bias", *(("use_bias",) if alone else ()))
    keys.get("mamba_inner_layernorms", "projectors_bias")
    heads = keys.number("mamba_num_heads", "mamba_n_heads", *(("num_heads",) if alone else ()))
    rank = keys.get("mamba_dt_rank", "time_step_rank")
    if not heads and (rank is not None or alone):
        inner = keys.number("intermediate_size") if alone else 0
        rank = -(-hidden // 16) if rank in (None, "auto") else whole_number(rank, f"rank of {keys.path}", 1)
        return Selective(inner or int(expand * hidden), state, rank, conv, bias, conv_bias, norms=not alone)
    inner = keys.number("mamba_d_ssm") or int(expand * hidden)
    names = ("mamba_head_dim", "mamba_d_head", *(("head_dim",) if alone else ()))
    head = inner // heads if keys.get(*names) == "auto" else keys.number(*names, default=None, least=1)
    heads = keys.number("mamba_num_heads", "mamba_n_heads", "num_heads", default=None, least=1)
    groups = keys.number("n_groups", "mamba_n_groups", default=1, least=1)
    return Mamba(heads, head, groups, state, conv, bias, conv_bias, keys.flag("mamba_rms_norm", default=True))


def pruned(block: Keys, usual: Attention) -> Mixer | None:
    """Return the attention of a pruned layer: with fewer heads of keys, as one matrix, or none.

    Source: Bercovich et al. (2024), Puzzle; ``block_configs`` of nvidia's Nemotron NAS models.
    """
    for key in ("sparsify", "llama4", "mamba"):
        if block.get(key):
            raise ProblemError(f"{block.path} has {key}, which is not modelled: block_configs")
    block.get("num_sink_tokens", "unshifted_sink", "use_prefill_window_in_sink_attention")
    if block.flag("no_op"):
        return None
    if block.flag("replace_with_linear"):
        return Linear("self_attn")
    per_group, kv_heads = block.number("n_heads_in_group"), block.number("num_key_value_heads")
    kv_heads = kv_heads or (usual.heads // per_group if per_group else usual.kv_heads)
    if not kv_heads or usual.heads % kv_heads:
        raise ProblemError(
            f"{block.path} shares keys among {per_group} of {usual.heads} heads: n_heads_in_group"
        )
    return replace(usual, kv_heads=kv_heads, window=block.number("window_length"))


def pruned_ffn(block: Keys, hidden: int, usual: int) -> int:
    """Return the columns of a pruned layer's MLP, 0 where it has none."""
    for key in ("sparsify", "moe"):
        if block.get(key):
            raise ProblemError(f"{block.path} has {key}, which is not modelled: block_configs")
    if block.flag("no_op"):
        return 0
    times = block.factor("ffn_mult", default=0.0)
    ffn = block.number("intermediate_size", default=usual)
    return -(-int(2 * times * hidden / 3) // _ROUND) * _ROUND if times else ffn
