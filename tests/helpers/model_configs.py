# ruff: noqa: E501
"""Small made-up config.json of the shapes that public families have, and the parameters of each, by hand."""

from typing import Any

BASE: dict[str, Any] = {
    "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "vocab_size": 32, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
TABLE, NORM = 32 * 8, 8
ENDS = 2 * TABLE + NORM
ATTENTION = 8 * 8 + 2 * (8 * 4) + 8 * 8  # Wq, Wk and Wv of 2 heads, Wo
MLP = 3 * 8 * 12
DENSE = ATTENTION + MLP + 2 * NORM
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 4}
ROUTED = 6 * 3 * 8 * 4 + 8 * 6  # and the router
SPARSE = ATTENTION + ROUTED + 2 * NORM
LATENT = {
    "q_lora_rank": 6, "kv_lora_rank": 4, "qk_nope_head_dim": 2, "qk_rope_head_dim": 1, "v_head_dim": 2,
}  # fmt: skip
OF_LATENTS = 8 * 6 + 6 + 6 * 4 * 3 + 8 * 5 + 4 + 4 * 4 * 4 + 8 * 8
MAMBA = {
    "mamba_num_heads": 4, "mamba_head_dim": 4, "n_groups": 2, "ssm_state_size": 3, "conv_kernel": 4,
    "use_conv_bias": True,
}  # fmt: skip
OF_MAMBA = 8 * (2 * 16 + 2 * 2 * 3 + 4) + (16 + 12) * 5 + 3 * 4 + 16 + 16 * 8 + NORM
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3,
    "linear_value_head_dim": 2, "linear_conv_kernel_dim": 4,
}  # fmt: skip
OF_DELTA = 8 * (2 * 6 + 8) + 8 * 8 + 2 * 8 * 4 + (2 * 6 + 8) * 4 + 2 * 4 + 2 + 8 * 8
CONFIGS: dict[str, tuple[dict[str, Any], int]] = {
    "llama": (BASE, 4 * DENSE + ENDS),
    "tied": (BASE | {"tie_word_embeddings": True}, 4 * DENSE + ENDS - TABLE),
    "gemma ties without a word": (
        {k: v for k, v in BASE.items() if k != "tie_word_embeddings"} | {"model_type": "gemma2"},
        4 * (DENSE + 2 * NORM) + ENDS - TABLE,
    ),
    "qwen2 has biases without a word": (BASE | {"model_type": "qwen2"}, 4 * (DENSE + 8 + 2 * 4) + ENDS),
    "qwen3 has norms of heads": (BASE | {"model_type": "qwen3", "head_dim": 2}, 4 * (DENSE + 2 * 2) + ENDS),
    "heads of another width": (BASE | {"head_dim": 4}, 4 * (DENSE + ATTENTION) + ENDS),
    "gpt-2": (
        {"model_type": "gpt2", "n_embd": 8, "n_head": 4, "n_layer": 2, "n_positions": 16, "vocab_size": 32},
        2 * (4 * 64 + 4 * 8 + 2 * 8 * 32 + 32 + 8 + 4 * NORM) + TABLE + 16 * 8 + 2 * NORM,
    ),
    "relu2 without a gate": (BASE | {"model_type": "nemotron", "hidden_act": "relu2"},
        4 * (DENSE - 8 * 12 + 2 * NORM) + ENDS + NORM),
    "mixtral": (
        BASE | {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 4}, 4 * SPARSE + ENDS
    ),
    "experts in every second layer": (BASE | EXPERTS | {"decoder_sparse_step": 2}, 2 * (DENSE + SPARSE) + ENDS),
    "layers named dense": (BASE | EXPERTS | {"mlp_only_layers": [0, 1, 3]}, 3 * DENSE + SPARSE + ENDS),
    "shared expert with a gate": (
        BASE | EXPERTS | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 10, "qkv_bias": False},
        4 * (SPARSE + 3 * 8 * 10 + 8) + ENDS,
    ),
    "llama-4": (
        BASE | {"num_local_experts": 6, "num_experts_per_tok": 1, "intermediate_size": 4,
                "intermediate_size_mlp": 12, "interleave_moe_layer_step": 2, "model_type": "llama4_text",
                "attention_chunk_size": 16},
        2 * DENSE + 2 * (SPARSE + 3 * 8 * 4) + ENDS,
    ),
    "deepseek": (
        BASE | LATENT | {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 4,
                         "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
                         "topk_method": "noaux_tc", "num_nextn_predict_layers": 1},
        4 * (OF_LATENTS + 2 * NORM) + MLP + 3 * (ROUTED + 6 + 2 * 3 * 8 * 4) + ENDS,
    ),
    "sparse attention": (
        BASE | LATENT | {"index_n_heads": 3, "index_head_dim": 2, "index_topk": 64,
                         "indexer_types": ["full", "shared", "shared", "full"]},
        4 * (OF_LATENTS + MLP + 2 * NORM) + 2 * (6 * 6 + 8 * 2 + 8 * 3 + 2 * 2) + ENDS,
    ),
    "experts by a list": (
        BASE | EXPERTS | {"moe_layer_freq": [0, 1, 1, 0], "sliding_window": 128,
                          "hybrid_layer_pattern": [0, 1, 1, 0], "swa_num_key_value_heads": 4},
        2 * DENSE + 2 * (SPARSE + 2 * 8 * 4) + ENDS,
    ),
    "values of another width": (
        BASE | {"head_dim": 2, "v_head_dim": 1}, 4 * (DENSE - 8 * 2 - 4 * 8) + ENDS
    ),
    "gpt-oss": (
        BASE | {"model_type": "gpt_oss", "num_local_experts": 6, "num_experts_per_tok": 2,
                "intermediate_size": 4, "sliding_window": 16, "attention_bias": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2},
        4 * (SPARSE + 8 + 2 * 4 + 8 + 4 + 6 * (2 * 4 + 8) + 6) + ENDS,
    ),
    "gemma-4 has an MLP and experts": (
        {**BASE, "model_type": "gemma4", "tie_word_embeddings": True, "enable_moe_block": True, "num_experts": 6,
         "top_k_experts": 2, "moe_intermediate_size": 4, "sliding_window": 16, "attention_k_eq_v": True,
         "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "head_dim": 2, "global_head_dim": 4,
         "num_global_key_value_heads": 1},
        4 * (MLP + ROUTED + 6 * NORM) + 3 * (ATTENTION + 4) + 2 * 8 * 16 + 8 * 4 + 8 + TABLE + NORM,
    ),
    "qwen3-next": (
        BASE | EXPERTS | DELTA | {"model_type": "qwen3_next", "shared_expert_intermediate_size": 4,
                                  "full_attention_interval": 4, "head_dim": 2},
        3 * OF_DELTA + ATTENTION + 8 * 8 + 4 + 4 * (ROUTED + 3 * 8 * 4 + 8 + 2 * NORM) + ENDS,
    ),
    "kimi linear": (
        BASE | LATENT | {"linear_attn_config": {
            "kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 2, "head_dim": 3,
            "short_conv_kernel_size": 4}},
        3 * (3 * 8 * 6 + 2 * (8 * 3 + 3 * 6) + 8 * 2 + 3 * 6 * 4 + 2 + 6 + 3 + 6 * 8)
        + OF_LATENTS + 4 * (MLP + 2 * NORM) + ENDS,
    ),
    "nemotron-h": (
        BASE | MAMBA | {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-M", "mlp_hidden_act": "relu2"},
        2 * OF_MAMBA + ATTENTION + NORM + 2 * 8 * 12 + NORM + ENDS,
    ),
    "nemotron-3": (
        BASE | MAMBA | {"model_type": "nemotron_h", "layers_block_type": ["mamba", "moe", "attention", "moe"],
                        "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 4,
                        "moe_latent_size": 5, "moe_shared_expert_intermediate_size": 7, "n_shared_experts": 1},
        OF_MAMBA + ATTENTION + NORM + 2 * (6 * 2 * 5 * 4 + 8 * 6 + 2 * 8 * 5 + 2 * 8 * 7 + NORM) + ENDS,
    ),
    "nemotron nas": (
        {**BASE, "intermediate_size": None, "num_key_value_heads": None, "num_hidden_layers": 3, "block_configs": [
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 48.0}},
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 0.5}},
            {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        ]},
        ATTENTION + 3 * 8 * 256 + 2 * NORM + 3 * 8 * 256 + NORM + 8 * 8 + NORM + ENDS,
    ),
    "minimax": (
        BASE | {"model_type": "minimax_m2", "num_local_experts": 6, "num_experts_per_tok": 2,
                "intermediate_size": 4, "use_qk_norm": True, "qk_norm_type": "per_layer",
                "use_routing_bias": True, "attn_type_list": [1, 1, 1, 1]},
        4 * (SPARSE + 8 + 4 + 6) + ENDS,
    ),
    "a model that sees": (
        {"model_type": "qwen3_vl", "tie_word_embeddings": False, "text_config": BASE, "vision_config": {
            "hidden_size": 4, "depth": 2, "intermediate_size": 6, "patch_size": 2, "in_channels": 3,
            "temporal_patch_size": 2, "num_position_embeddings": 9, "spatial_merge_size": 2,
            "out_hidden_size": 8, "deepstack_visual_indexes": [1]}},
        4 * (DENSE + 4) + ENDS + 2 * (4 * 16 + 2 * 4 * 6) + 4 * 3 * 4 * 2 + 4 * 9 + 2 * 16 * (16 + 8),
    ),
}  # fmt: skip
