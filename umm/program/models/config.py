"""A decoder from its Hugging Face config.json, each key read as transformers' classes read it."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from umm.errors import ProblemError, did_you_mean
from umm.files import shown, whole_number
from umm.program.models.families import Family, family_of
from umm.program.models.keys import MAX_LAYERS, SIDE_BY_SIDE, Keys, ignoring
from umm.program.models.layers import (
    Attention,
    Expansion,
    Experts,
    LatentAttention,
    Layer,
    Linear,
    Mamba,
    Mixer,
    Mlp,
    Model,
    Selective,
)
from umm.program.models.mixers import mamba_of, mixers_of, pruned, pruned_ffn
from umm.program.models.vision import vision_parameters
from umm.program.models.weights import check_quantization

_TEXT = ("text_config", "llm_config", "language_config")
_GATES = ("silu", "swish", "swiglu", "gelu_pytorch_tanh", "swigluoai", "swiglu_oai", "situ")
_PLAIN = ("gelu", "gelu_new", "gelu_fast", "gelu_python", "quick_gelu", "relu", "relu2", "xielu")
"""Activations that configs of models with a gate name, and of those without."""
_BLOCKS = {
    "M": "mamba", "*": "attention", "-": "mlp", "E": "moe",
    "linear_attention": "mamba", "full_attention": "attention",
}  # fmt: skip
_NESTED = ("attn_config", "ffn_config")
"""Objects of sizes, as MPT and DBRX have them, read as if their keys stood outside."""
_TYPES = {
    "jetmoe": "experts of attention",
    "modernbert-decoder": "layers of an encoder",
    "t5": "an encoder and a decoder",
}
_REFUSED = {
    # Keys that change layers in ways umm does not count.
    "compress_ratios": "attention over compressed keys",
    "hc_mult": "several residual streams",
    "altup_num_inputs": "several residual streams",
    "laurel_rank": "low-rank residuals",
    "moa_topk": "experts of attention",
    "attention_other_setting": "other heads in layers with a window",
    "qkv_proj_multipliers": "layers of unlike widths",
    "num_heads_list": "layers of unlike heads",
    "zero_expert_num": "two attentions in a layer",
    "residual_mlp": "dense layers beside experts",
    "parallel_attn_mlp_res": "dense layers beside experts",
    "relative_attention_num_buckets": "an encoder and a decoder",
    "encoder_layers": "an encoder and a decoder",
    "num_memory_blocks": "layers that share weights",
    "rescale_every": "a recurrent network",
    "attention_hidden_size": "heads of another width",
    "use_cla": "layers that share keys",
    "kv_reuse_layers": "layers that share keys",
    "moe_num_shared_experts_list": "layers of unlike shared experts",
}
_ORDER = (
    "hybrid_override_pattern", "layers_block_type", "block_configs", "linear_attn_config", "layer_types",
    "attn_type_list", "full_attention_interval", "enable_moe_block",
)  # fmt: skip
_DTYPES = {"bfloat16", "float16", "float32"}
APART = "counted apart, not priced"  # the remark of multi-token prediction, which only steps price


def model_of(values: Any, path: str, ignore: Collection[str] = ()) -> Model:
    """Return the model that the values of a ``config.json`` describe.

    InputError in one line that names the key, if one is missing, cannot be read, or is not modelled.

    Args:
        ignore: Keys to read without, although they may change its layers.
    """
    if not isinstance(values, dict):
        raise ProblemError(f"{path} is not an object of a model's sizes")
    read = values
    values = {key: value for key, value in values.items() if key not in ignore}
    name = next((x for x in _TEXT if values.get(x) is not None), "")
    inner = values[name] if name else values
    if not isinstance(inner, dict):
        raise ProblemError(f"{name} of {path} is not an object of a model's sizes")
    known = dict.fromkeys((*inner, *read))
    for key in ignore:
        if key not in known:
            raise ProblemError(f"{path} has no key {key!r} to ignore; {did_you_mean(key, known)}")
    inner = {key: value for key, value in inner.items() if key not in ignore}
    for key in _NESTED:
        if isinstance(inner.get(key), dict):
            inner = {**inner[key], **{x: value for x, value in inner.items() if x != key}}
    outside = Keys({key: value for key, value in values.items() if key != name}, path) if name else None
    keys = Keys(inner, path, outside)
    if refused := [key for key in _REFUSED if inner.get(key) not in (None, False, 0, [], {})]:
        words = " and ".join(dict.fromkeys(_REFUSED[key] for key in refused))
        raise ProblemError(
            f"{path} has {words}, which are not modelled: key{'s' * (len(refused) > 1)} "
            f"{', '.join(refused)}; {ignoring(refused)}"
        )
    model_type = keys.text("model_type", default="")
    if model_type in _TYPES and "model_type" not in ignore:
        raise ProblemError(f"{path} has {_TYPES[model_type]}, which are not modelled: key model_type")
    family = family_of(model_type if inner.get("model_type") else str(values.get("model_type") or ""))
    hidden = keys.number("hidden_size", "n_embd", "n_embed", "d_model", default=None, least=1)
    vocab = keys.number("vocab_size", "padded_vocab_size", default=family.vocab)
    narrow = keys.number("word_embed_proj_dim", default=hidden)
    if narrow != hidden:
        raise ProblemError(
            f"{path} has embeddings of {narrow} columns, which are not modelled: word_embed_proj_dim"
        )
    layers = _layers(keys, hidden, family)
    mtp, mtp_key = _prediction(keys, layers, hidden, family)
    quantization = keys.get("quantization_config", "compression_config") or {}
    remarks = check_quantization(quantization, path)
    expert_dtype = keys.text("expert_dtype", default="")
    if expert_dtype:
        quantization = {**quantization, "expert_dtype": expert_dtype}
    vision, vision_is_known = vision_parameters(
        (outside or keys).values.get("vision_config"), hidden, str(values.get("model_type"))
    )
    tied = keys.flag("tie_word_embeddings", "tie_embedding", default=family.tied)
    dtype = keys.text("torch_dtype", "dtype", default="bfloat16")
    positions = keys.number("n_positions", "max_position_embeddings") if family.positions >= 0 else 0
    inputs = keys.number("hidden_size_per_layer_input")
    model = Model(
        path,
        hidden,
        vocab,
        layers,
        tied=tied,
        mtp=mtp,
        positions=positions + family.positions if positions else 0,
        inputs=inputs,
        inputs_vocab=keys.number("vocab_size_per_layer_input", default=vocab),
        head_bias=keys.flag("lm_head_bias", default=model_type in ("phi", "gptj", "codegen")),
        vision=vision,
        dtype=dtype if dtype in _DTYPES else "bfloat16",
        quantization=quantization,
        order_key=next((x for x in _ORDER if keys.values.get(x) is not None), ""),
    )
    not_modelled = dict(remarks)
    if not vocab:
        not_modelled["vocab_size"] = "not in the file: neither embedding nor head is counted"
    if mtp:
        not_modelled[mtp_key] = APART
    if any(isinstance(x.mixer, LatentAttention) and x.mixer.bias for x in layers):
        not_modelled["attention_bias"] = "adding it to latent vectors is not priced"
    if any(x.experts and x.experts.bias for x in layers):
        not_modelled["model_type"] = (
            f"experts of {model_type} have biases: counted, adding them is not priced"
        )
    if any(x.experts and len(x.expansions) > 1 for x in layers):
        key = keys.name_of("enable_moe_block", "residual_moe")
        not_modelled[key] = "the MLP beside experts is priced as shared ones, without norms of its own"
    if "shared" in (keys.get("indexer_types") or ()):
        not_modelled["indexer_types"] = (
            "in a chain, layers that share a choice of keys are priced as if each chose"
        )
    if any(isinstance(x.mixer, Selective) and x.mixer.norms for x in layers):
        not_modelled[keys.name_of("mamba_dt_rank", "time_step_rank")] = "norms of time steps are not priced"
    side_by_side = any(x.mixer and x.expansions and x.norms == 1 for x in layers)
    if side_by_side and not {"parallel_attn", "use_parallel_block"} & inner.keys():
        not_modelled["model_type"] = SIDE_BY_SIDE
    not_modelled |= dict(keys.rest()) | dict(outside.rest(refuse=False) if outside else ())
    not_modelled |= dict.fromkeys(ignore, "ignored as asked")
    if not vision_is_known:
        not_modelled["vision_config"] = "neither counted nor priced"
    return replace(model, not_modelled=not_modelled)


def _layers(keys: Keys, hidden: int, family: Family) -> tuple[Layer, ...]:
    """Return the layers in order."""
    names: tuple[str, ...] = ("hybrid_override_pattern", "layers_block_type")
    blocks = keys.get(*names)
    if blocks is not None:
        return _blocks(keys, blocks, keys.name_of(*names), hidden, family)
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    count = keys.number(*names, default=None, least=1)
    _check_count(keys.name_of(*names), keys, count)
    by_block = keys.by_layer("block_configs", count)
    mixers = mixers_of(keys, count, hidden, family)
    inputs = keys.number("hidden_size_per_layer_input")
    if by_block is not None:
        return tuple(
            _pruned(keys, block, number, mixer, hidden, family)
            for number, (block, mixer) in enumerate(zip(by_block, mixers, strict=True))
        )
    experts = _experts(keys, family)
    sparse = _sparse(keys, count) if experts else [False] * count
    both = keys.flag("enable_moe_block", "residual_moe")
    alone = keys.get("state_size") is not None and keys.get("num_attention_heads") is None
    dense = _mlp(keys, family, needed=not alone and (both or not all(sparse)))
    if keys.get("state_size") is not None and all(isinstance(x, Mamba | Selective) for x in mixers):
        return tuple(Layer(x, norms=1) for x in mixers)
    layers = []
    for mixer, has_experts in zip(mixers, sparse, strict=True):
        parts: tuple[Expansion, ...] = (experts,) if has_experts and experts else (dense,) if dense else ()
        extra = 0
        if has_experts and both and dense:  # Gemma 4 and Grok-2: both, each with its norms
            parts, extra = (dense, *parts), 2
        layers.append(Layer(mixer, parts, family.norms + extra, family.norm_bias, inputs))
    return tuple(layers)


def _blocks(keys: Keys, blocks: Any, name: str, hidden: int, family: Family) -> tuple[Layer, ...]:
    """Return layers that are a mixer, an MLP or experts alone, as Nemotron-H has them."""
    listed = isinstance(blocks, str | list) and all(isinstance(x, str) for x in blocks)
    if not listed or not 1 <= len(blocks) <= MAX_LAYERS:
        raise ProblemError(f"{name} of {keys.path} is {shown(blocks)}; it must list the blocks of all layers")
    names = [_BLOCKS.get(x, x) for x in blocks]
    count = keys.number("num_hidden_layers", "n_layer", default=len(names))
    if count != len(names):
        raise ProblemError(f"{name} of {keys.path} has {len(names)} layers, num_hidden_layers {count}")
    # Sizes of a kind that no layer has need not be there.
    kinds: dict[str, Layer] = {}
    for kind in dict.fromkeys(names):
        if kind == "mamba":
            kinds[kind] = Layer(mamba_of(keys, hidden), norms=1)
        elif kind == "attention":
            kinds[kind] = Layer(mixers_of(keys, 1, hidden, family)[0], norms=1)
        elif kind == "mlp":
            kinds[kind] = Layer(None, (_mlp(keys, family),), norms=1)
        elif kind == "moe" and (experts := _experts(keys, family)):
            kinds[kind] = Layer(None, (experts,), norms=1)
        else:
            raise ProblemError(f"{name} of {keys.path} has a block {shown(kind)}, which is not modelled")
    # Read the sizes of parts that a model of blocks may name without having them.
    _experts(keys, Family())
    keys.get(
        "intermediate_size", "expand", "n_groups", "mamba_num_heads", "mamba_head_dim", "ssm_state_size",
        "conv_kernel", "mamba_proj_bias", "use_conv_bias", "mamba_hidden_act", "mlp_hidden_act",
        "num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim", "sliding_window",
    )  # fmt: skip
    return tuple(kinds[x] for x in names)


def _check_count(name: str, keys: Keys, count: int) -> None:
    if count > MAX_LAYERS:
        raise ProblemError(f"{name} of {keys.path} is {count}; a model has at most {MAX_LAYERS} layers")


def _pruned(keys: Keys, block: Any, number: int, usual: Mixer | None, hidden: int, family: Family) -> Layer:
    """Return a layer as ``block_configs`` describes it."""
    path = f"block_configs[{number}] of {keys.path}"
    if not isinstance(block, dict) or not isinstance(usual, Attention):
        raise ProblemError(f"{path} is {shown(block)}; it must be an object with attention and ffn")
    mixer: Mixer | None = usual
    inner = Keys(block, path)
    attention, ffn = inner.inner("attention"), inner.inner("ffn")
    if attention is not None:
        mixer = pruned(attention, usual)
        list(attention.rest())
    gated = _gated(keys, family)
    parts: tuple[Expansion, ...] = ()
    if ffn is None:
        parts = (_mlp(keys, family),)
    elif ffn.flag("replace_with_linear"):
        parts = (Linear("mlp"),)
    elif columns := pruned_ffn(ffn, hidden, keys.number("intermediate_size")):
        parts = (Mlp(columns, gated, keys.flag("mlp_bias")),)
    if ffn is not None:
        ffn.get("hidden_act", "gated")
        list(ffn.rest())
    return Layer(mixer, parts, norms=(mixer is not None) + bool(parts))


def _gated(keys: Keys, family: Family) -> bool:
    """Return whether MLPs have a gate: as the family has it, else as the activation suggests."""
    names = (
        "hidden_act", "activation_function", "hidden_activation", "activation", "mlp_hidden_act", "act_fn",
    )  # fmt: skip
    activation = keys.text(*names, default="silu")
    if family.gated is None and activation not in (*_GATES, *_PLAIN):
        name = keys.name_of(*names)
        raise ProblemError(
            f"{name} of {keys.path} is {shown(activation)}, with a gate or without; "
            f"{ignoring([name])}, as gated"
        )
    return activation in _GATES if family.gated is None else family.gated


def _mlp(keys: Keys, family: Family, needed: bool = True) -> Mlp:
    """Return the MLP of dense layers, which may be missing where no layer is dense."""
    hidden = keys.number("hidden_size", "n_embd", "n_embed", "d_model", default=None)
    names = (
        "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner",
        "ffn_dim",
    )  # fmt: skip
    value = keys.get(*names)
    if isinstance(value, list):  # Gemma 3n: one a layer
        raise ProblemError(f"{keys.name_of(*names)} of {keys.path} is a list, which is not modelled")
    usual = None if needed else 1
    if family.gated is False:
        usual = int(keys.factor("expansion_ratio", default=4.0) * hidden)
    ffn = keys.number(*names, default=usual, least=1)
    if keys.flag("block_auto_adjust_ff_dim"):  # LFM2
        times, unit = keys.factor("block_ffn_dim_multiplier", default=1.0), keys.number("block_multiple_of")
        ffn = -(-int(times * (2 * ffn // 3)) // max(unit, 1)) * max(unit, 1)
    if keys.text("model_type") == "granitemoehybrid":  # where no experts are, the shared ones
        ffn = keys.number("shared_intermediate_size", default=ffn)
    if keys.text("model_type", default="") == "qwen":
        ffn //= 2  # which Qwen-1 gives for the gate and what it multiplies together
    bias = keys.flag("mlp_bias", "use_bias", "add_bias_linear", default=family.mlp_bias)
    return Mlp(ffn, _gated(keys, family), bias)


def _experts(keys: Keys, family: Family) -> Experts | None:
    """Return the experts of sparse layers; None where a config has none."""
    experts = _number(
        keys, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts",
        "num_routed_experts",
    )  # fmt: skip
    top_k = _number(
        keys, "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k_experts",
        "moe_topk", "moe_k", "moe_top_k", "num_selected_experts",
    )  # fmt: skip
    ffn = _number(keys, "moe_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size")
    ffn = ffn or keys.number("intermediate_size", "ffn_hidden_size")
    many = _number(
        keys, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"
    )
    # The width of all shared experts together, unless a config gives their number alone.
    shared_ffn = keys.get(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
        "shared_intermediate_size",
    )  # fmt: skip
    latent = keys.number("moe_latent_size", "routed_expert_hidden_size")
    router_bias = keys.flag("use_routing_bias", "use_moe_router_bias", default=family.expert_bias)
    if keys.get("topk_method") == "noaux_tc":
        router_bias = True
    if not experts:
        return None
    if not top_k or not ffn:
        missing = "num_experts_per_tok" if not top_k else "moe_intermediate_size"
        raise ProblemError(f"{keys.path} has {experts} experts but not {missing}")
    if top_k > experts:
        raise ProblemError(f"{keys.path} has {experts} experts, fewer than the {top_k} that a token takes")
    if shared_ffn is None:
        shared_ffn = (many or family.shared) * ffn
    shared_ffn = whole_number(shared_ffn, f"width of shared experts of {keys.path}")
    return Experts(
        experts, top_k, ffn, shared_ffn, _gated(keys, family), family.expert_bias, latent,
        shared_gate=family.shared_gate and shared_ffn > 0, router_bias=router_bias,
    )  # fmt: skip


def _number(keys: Keys, *names: str) -> int:
    """Return a whole number, or that of a list of equal ones, as Hunyuan writes them; 0 if there is none."""
    value = keys.get(*names)
    if isinstance(value, list):
        numbers = {whole_number(x, f"{keys.name_of(*names)} of {keys.path}", 0, 2**31) for x in value}
        if len(numbers) != 1:
            name = keys.name_of(*names)
            raise ProblemError(f"{name} of {keys.path} differs from layer to layer, which is not modelled")
        return numbers.pop()
    return keys.number(*names)


def _sparse(keys: Keys, layers: int) -> list[bool]:
    """Return which layers have experts: those that no key makes dense."""
    first = keys.number("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    last = layers - 1  # which Ernie 4.5 writes as −1
    if keys.get("moe_layer_end_index") != -1:
        last = keys.number("moe_layer_end_index", default=last)
    sparse = [first <= x <= last for x in range(layers)]
    for name, offset in (
        ("decoder_sparse_step", 1), ("moe_layer_interval", 1), ("interleave_moe_layer_step", 1),
    ):  # fmt: skip
        step = keys.number(name, default=1)
        # 0 means that no layer has experts.
        sparse = [was and step > 0 and (x + offset) % step == 0 for x, was in enumerate(sparse)]
    period = keys.number("expert_layer_period", default=1, least=1)
    offset = keys.number("expert_layer_offset")
    sparse = [was and x % period == offset % period for x, was in enumerate(sparse)]
    if isinstance(keys.get("moe_layer_freq"), list):
        listed = keys.by_layer("moe_layer_freq", layers, (0, 1)) or []
        sparse = [was and bool(entry) for was, entry in zip(sparse, listed, strict=True)]
    else:
        step = keys.number("moe_layer_freq", default=1, least=1)
        sparse = [was and x % step == 0 for x, was in enumerate(sparse)]
    marked = keys.by_layer("is_moe_layer", layers, (False, True))
    if marked is not None:
        sparse = [bool(x) for x in marked]
    types = keys.by_layer("mlp_layer_types", layers, ("dense", "sparse"))
    if types is not None:
        sparse = [x == "sparse" for x in types]
    for name, dense in (("mlp_only_layers", True), ("moe_layers", False)):
        numbers = keys.get(name)
        if numbers is None or (not dense and not numbers):
            continue
        if not isinstance(numbers, list) or any(type(x) is not int for x in numbers):
            raise ProblemError(
                f"{name} of {keys.path} is {shown(numbers)}; it must be a list of layers' numbers"
            )
        sparse = [was and (x in numbers) != dense for x, was in enumerate(sparse)]
    listed_text = keys.get("moe_layers_enum")
    if listed_text is not None:
        chosen = {x.strip() for x in str(listed_text).split(",")}
        sparse = [str(x) in chosen for x in range(layers)]
    return sparse


def _prediction(
    keys: Keys, layers: tuple[Layer, ...], hidden: int, family: Family
) -> tuple[tuple[Layer, ...], str]:
    """Return the layers of multi-token prediction, each like the last layer, and the key that has them."""
    names = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers")
    name = next((x for x in names if keys.values.get(x)), names[0])
    count = keys.number(name)
    keys.get(
        *names, "use_mtp", "mtp_transformer_layers", "mtp_use_dedicated_embeddings",
        "mtp_loss_scaling_factor", "mtp_lambda", "mtp_block_configs", "mtp_layer_types",
    )  # fmt: skip
    blocks = keys.get("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    _check_count(name, keys, count)
    if count and blocks is not None:
        if not isinstance(blocks, str | list):
            raise ProblemError(
                f"mtp_layers_block_type of {keys.path} is {shown(blocks)}; it must list blocks"
            )
        inner = Keys({**keys.values, "num_hidden_layers": len(blocks)}, keys.path)
        of_blocks = keys.name_of("mtp_hybrid_override_pattern", "mtp_layers_block_type")
        return _blocks(inner, blocks, of_blocks, hidden, family) * count, name
    return layers[-1:] * count, name
