"""The keys of a config.json: each is read, known to change nothing, named as not modelled, or refused."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from umm.errors import ProblemError
from umm.files import real_number, shown, whole_number

MAX_LAYERS = 1024  # layers of a model, and entries of a list by layer
MAX_FACTOR = 2**20  # of a width over another

# Names, tokens, text generation, how a checkpoint was trained or is loaded.
_OF_FILES = """
    architectures auto_map model_type _name_or_path name_or_path transformers_version torch_dtype dtype
    initializer_range initializer_cutoff_factor init_std use_cache cache_implementation use_flash_attn
    attn_implementation _attn_implementation _attn_implementation_autoset attn_implementation_internal
    _attn_implementation_internal _experts_implementation _flash_attn_2_enabled flash_attention
    output_attentions output_hidden_states output_scores output_router_logits return_dict
    return_dict_in_generate task_specific_params problem_type finetuning_task id2label label2id num_labels
    prefix is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder
    torchscript use_bfloat16 tf_legacy_loss pruned_heads chunk_size_feed_forward bad_words_ids
    suppress_tokens begin_suppress_tokens forced_bos_token_id forced_eos_token_id do_sample early_stopping
    max_length min_length num_beams num_beam_groups num_return_sequences temperature top_k top_p typical_p
    diversity_penalty length_penalty repetition_penalty exponential_decay_length_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size remove_invalid_values tokenizer_class ignore_index
    pretraining_tp ep_size num_logits_to_keep gradient_checkpointing unsloth_version unsloth_fixed
    quantization_bit bos_token eos_token image_placeholder num_image_tokens
    num_media_embeds anyres_pooling_size video_placeholder media_placeholder
    media_placeholder_token language_model_only tensor_parallel_degree moe_implementation
    use_deterministic_attn org_vocab_size init_method compression_ratio block_ff_dim block_dim conv_dim
    conv_dim_out block_mlp_init_scale block_out_init_scale block_use_xavier_init block_use_swiglu
    block_norm_eps do_layer_norm_before post_layer_norm reorder_and_upcast_attn
    scale_attn_by_inverse_layer_idx scale_attn_weights mamba_ssm_cache_dtype mamba_ssm_dtype
    use_mamba_kernels chunk_size mamba_chunk_size moe_gate moe_use_aux_free moe_capacity moe_jitter_eps
    moe_loss_weight moe_router_dtype router_dtype fp32_residual residual_in_fp32 attention_softmax_in_fp32
    new_decoder_architecture num_ln_in_parallel_attn d_inner
    conv_use_xavier_init use_mixed_mlp_moe cla_share_factor layer_switch order_of_interleaved_layers
    mamba_use_mlp use_unified_vision_chunk use_grouped_mm ssm_cfg fused_add_norm pad_vocab_size_multiple
"""
# Dropout and losses of training.
_OF_TRAINING = """
    attention_dropout hidden_dropout embd_pdrop resid_pdrop attn_pdrop resid_dropout embd_dropout
    attention_probs_dropout_prob hidden_dropout_prob classifier_dropout summary_type summary_use_proj
    summary_activation summary_first_dropout summary_proj_to_labels emb_dropout_prob attn_dropout_prob
    dropout layerdrop activation_dropout residual_dropout input_jitter_noise load_balance_coeff
    aux_loss_alpha router_aux_loss_coef router_z_loss_coef seq_aux
    router_jitter_noise z_loss z_loss_coefficient load_balance_loss_coeff moe_aux_loss_coeff
"""
# Positions are rotated at the same cost whatever their angles; lengths bound requests.
_OF_POSITIONS = """
    rope_theta rope_scaling rope_parameters rope_interleave rope_interleaved rope_type rope_local_base_freq
    rope_local_theta swa_rope_theta local_rope_theta compress_rope_theta rotary_emb_base rotary_base
    rotary_dim rotary_pct partial_rotary_factor partial_rotary_factors rotary_embedding_fraction
    max_position_embeddings n_positions n_ctx seq_length initial_context_length
    original_max_position_embeddings model_max_length max_sequence_length max_seq_len max_seq_length
    no_rope_layers no_rope_layer_interval rope_ratio nope_layer_interval indexer_rope_interleave mla_use_nope
    yarn_only_types rotary rope position_embedding_type use_rotary_embedding use_rope use_nope floor_scale
    attn_scale attn_temperature_tuning use_llama4_scaling theta use_pos_enc full_attn_mod interpolate_factor
"""
# Scales, thresholds and how scores become weights: the same passes over memory.
_OF_SCALES = """
    rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon hc_eps
    scoring_func topk_method norm_topk_prob moe_renormalize route_scale route_norm routed_scaling_factor
    moe_router_scaling_factor router_scaling_factor use_grouped_topk n_group topk_group num_expert_group
    num_limited_groups moe_router_activation_func moe_router_topk_scaling_factor swiglu_limit swiglu_alpha
    swiglu_limits swiglu_limits_shared hidden_act_alpha query_pre_attn_scalar attention_value_scale
    attention_multiplier embedding_multiplier residual_multiplier logits_scaling logit_scale
    mup_width_multiplier time_step_floor time_step_limit time_step_max time_step_min time_step_rank
    rescale_prenorm_residual gate_lower_bound activation_situ_beta activation_situ_linear_beta
    output_gate_type use_gemma_norm moe_router_enable_expert_bias moe_shared_expert_overlap
    layernorm_full_attention_alpha layernorm_full_attention_beta layernorm_linear_attention_alpha
    layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta full_attn_alpha_factor
    full_attn_beta_factor linear_attn_alpha_factor linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor
    lm_head_multiplier ssm_multipliers ssm_in_multiplier ssm_out_multiplier mlp_multipliers key_multiplier
    attention_in_multiplier attention_out_multiplier mlp_expansion_factor mixer_rms_eps norm_before_gate
    rms_norm mamba_norm_before_gate normalization_function norm_type mlp_type clip_qkv use_rmsnorm
    score_function postnorm layernorm_num_groups use_bidirectional_attention router_temperature scale_emb
    scale_depth dim_model_base normalize_embedding moe_norm_min use_expert_bias shared_moe_mode mup_enabled
    num_expert_groups score_func attn_output_multiplier embedding_multiplier_scale output_multiplier_scale
"""
_NO_EFFECT = frozenset(f"{_OF_FILES} {_OF_TRAINING} {_OF_POSITIONS} {_OF_SCALES}".split())
"""Keys that change neither sizes nor, as far as a pass over memory stays one, the time."""
_TOKENS = re.compile(r"(\w+_)?tokens?_(id|ids|index|per_image|per_second)|boi_\w+|eoi_\w+|\w+_tower_\w+")

SIDE_BY_SIDE = "attention and MLP side by side are priced one after the other"
NOT_PRICED = {
    # Counted where it has weights; what it computes is left out of the time.
    "use_routing_bias": "adding it is not priced",
    "use_parallel_residual": SIDE_BY_SIDE,
    "parallel_attn": SIDE_BY_SIDE,
    "use_parallel_block": SIDE_BY_SIDE,
    "attn_logit_softcapping": "not priced",
    "final_logit_softcapping": "not priced",
    "add_swa_attention_sink_bias": "not priced",
    "add_full_attention_sink_bias": "not priced",
    "attn_res_block_size": "residuals by attention over layers are neither counted nor priced",
    "latent_moe_use_norm": "not counted",
    "total_ut_steps": "layers are priced once, where the model computes them several times",
    "vision_config": "counted, not priced: the language model alone is simulated",
    "audio_config": "neither counted nor priced: the language model alone is simulated",
}
_SIZE = re.compile(
    r"(num|n)_\w+|.*_(size|sizes|dim|dims|rank|ranks|head|heads|layer|layers|freq|ratio|ratios|interval|step|period|"
    r"offset|pattern|type|types|types_list|mult|width|depth|groups|experts|blocks|config|window|kernel)|d_\w+"
)
"""How the names of keys read that may change the shape of a layer."""


class Keys:
    """The keys of an object of a config, and which of them have been read.

    Args:
        outer: The object around it, whose keys count where it has none of the name: of ``text_config``.
    """

    def __init__(self, values: Mapping[str, Any], path: str, outer: "Keys | None" = None) -> None:
        self.values, self.path, self.outer = values, path, outer
        self.read: set[str] = set()

    def get(self, *names: str) -> Any:
        """Return the value of the first of some keys that has one; None if none has."""
        self.read.update(names)
        value = next((self.values[x] for x in names if self.values.get(x) is not None), None)
        outside = self.outer.get(*names) if self.outer else None
        return outside if value is None else value

    def name_of(self, *names: str) -> str:
        """Return the first of some keys that has a value, for a message; the first if none has."""
        return next((x for x in names if self.values.get(x) is not None), names[0])

    def number(self, *names: str, default: int | None = 0, least: int = 0) -> int:
        """Return a whole number; the default if none of the keys has a value.

        ProblemError naming the key, if it is no whole number of at least ``least``, or is missing and has no
        default.
        """
        value = self.get(*names)
        if value is None:
            if default is None:
                few = "the key" if len(names) == 1 else "any of the keys"
                raise ProblemError(f"{self.path} lacks {few} {', '.join(names)}")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return whole_number(value, f"{self.name_of(*names)} of {self.path}", least, 2**48)

    def factor(self, *names: str, default: float) -> float:
        """Return a number by which widths are multiplied; the default if none of the keys has a value."""
        value, what = self.get(*names), f"{self.name_of(*names)} of {self.path}"
        result = default if value is None else real_number(value, what)
        if not 0 <= result <= MAX_FACTOR:
            raise ProblemError(f"{what} is {shown(value)}; a width is at most {MAX_FACTOR} times another")
        return result

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return true or false; the default if none of the keys has a value.

        ProblemError naming the key, if it is neither.
        """
        value: bool | None = self._typed(names, bool, "true or false")
        return default if value is None else value

    def text(self, *names: str, default: str = "") -> str:
        """Return a text; the default if none of the keys has a value.

        ProblemError naming the key, if it is none.
        """
        value: str | None = self._typed(names, str, "a text")
        return default if value is None else value

    def _typed(self, names: Sequence[str], kind: type, words: str) -> Any:
        """Return a value of some type; None if none of the keys has a value."""
        value = self.get(*names)
        if value is not None and not isinstance(value, kind):
            raise ProblemError(f"{self.name_of(*names)} of {self.path} is {shown(value)}; it must be {words}")
        return value

    def by_layer(self, name: str, layers: int, values: Collection[Any] | None = None) -> list[Any] | None:
        """Return a list with a value for each layer; None if the key has no value.

        ProblemError naming the key, if it is no list, or too short, or has another value.

        Args:
            layers: How many layers there are; of a longer list the rest is of layers of prediction.
            values: What may be in it; None for anything.
        """
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not layers <= len(value) <= MAX_LAYERS:
            length = f"{len(value)} entries" if isinstance(value, list) else shown(value)
            raise ProblemError(
                f"{name} of {self.path} has {length}; it needs one for each of {layers} layers"
            )
        for entry in value[:layers]:
            if values is not None and entry not in values:
                raise ProblemError(
                    f"{name} of {self.path} has {shown(entry)}, which is not modelled; known are "
                    f"{', '.join(map(str, values))}"
                )
        return value[:layers]

    def inner(self, name: str) -> "Keys | None":
        """Return an object below a key; None if the key has no value.

        ProblemError naming the key, if it is no object.
        """
        value = self._typed((name,), dict, "an object")
        return None if value is None else Keys(value, f"{name} of {self.path}")

    def rest(self, refuse: bool = True) -> Iterator[tuple[str, str]]:
        """Yield the keys that were not read and may change something, each with a remark.

        ProblemError naming the keys that refuse the file, all at once.

        Args:
            refuse: Whether a key whose name reads like a size does.
        """
        refused = dict[str, Any]()
        for key, value in self.values.items():
            if key in NOT_PRICED and value not in (None, False, 0):
                yield key, NOT_PRICED[key]
            if key in self.read or key in NOT_PRICED or key in _NO_EFFECT or _TOKENS.fullmatch(key):
                continue
            if value in (None, False, 0, "", [], {}):  # a part that is left out
                continue
            is_size = not isinstance(value, bool | str) and _SIZE.fullmatch(key)
            if refuse and (is_size or (isinstance(value, str) and key.endswith("pattern"))):
                refused[key] = value
            else:
                yield key, "not understood"
        if refused:
            words = ", ".join(f"{key} = {shown(value)}" for key, value in refused.items())
            ends, are = ("s", "are") if len(refused) > 1 else ("", "is")
            raise ProblemError(
                f"{self.path} has the key{ends} {words}, which {are} not modelled and may change its layers; "
                f"{ignoring(refused)}"
            )


def ignoring(refused: Iterable[str]) -> str:
    """Return how to read a file without some of its keys."""
    return " ".join(f"--ignore {key}" for key in refused) + " reads it without"
