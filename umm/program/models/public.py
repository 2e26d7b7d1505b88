"""Public models as the keys of their config.json that count; the whole file is read in the same way."""

from collections.abc import Mapping
from typing import Any


def _dense(
    hidden: int, ffn: int, heads: int, kv_heads: int, layers: int, vocab: int, **more: Any
) -> dict[str, Any]:
    """Return the keys of a decoder as Llama's: gated MLPs, heads that share keys."""
    return {
        "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "num_hidden_layers": layers, "vocab_size": vocab, **more,
    }  # fmt: skip


_DEEPSEEK = {
    "model_type": "deepseek_v3", "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "hidden_size": 7168, "num_hidden_layers": 61, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "topk_method": "noaux_tc",
}  # fmt: skip
_QWEN3 = {"model_type": "qwen3", "head_dim": 128}
_GPT_OSS = {
    "model_type": "gpt_oss", "head_dim": 64, "sliding_window": 128, "num_experts_per_tok": 4,
    "attention_bias": True, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
PUBLIC: Mapping[str, Mapping[str, Any]] = {
    # Grattafiori et al. (2024), The Llama 3 herd of models, table 3; vocabulary, section 3.2.
    "llama-3-8b": _dense(4096, 14336, 32, 8, 32, 128256),
    "llama-3-70b": _dense(8192, 28672, 64, 8, 80, 128256),
    "llama-3-405b": _dense(16384, 53248, 128, 8, 126, 128256),
    # config.json of Qwen/Qwen2.5-72B on Hugging Face.
    "qwen-2.5-72b": _dense(8192, 29568, 64, 8, 80, 152064, model_type="qwen2"),
    # config.json of mistralai/Mistral-Large-Instruct-2407 on Hugging Face.
    "mistral-large": _dense(12288, 28672, 96, 8, 88, 32768),
    # Brown et al. (2020), Language models are few-shot learners, table 2.1, section 2.1; GPT-2's vocabulary.
    "gpt-3-175b": _dense(12288, 49152, 96, 96, 96, 50257, model_type="gpt2", n_positions=2048),
    # config.json of mistralai/Mixtral-8x7B-v0.1 and Mixtral-8x22B-v0.1 on Hugging Face.
    "mixtral-8x7b": _dense(4096, 14336, 32, 8, 32, 32000, num_local_experts=8, num_experts_per_tok=2),
    "mixtral-8x22b": _dense(6144, 16384, 48, 8, 56, 32000, num_local_experts=8, num_experts_per_tok=2),
    # config.json of deepseek-ai/DeepSeek-V3 and moonshotai/Kimi-K2-Instruct on Hugging Face, as they were
    # trained: weights of 8 bits by --weights fp8.
    "deepseek-v3": _DEEPSEEK
    | {"num_attention_heads": 128, "n_routed_experts": 256, "first_k_dense_replace": 3, "vocab_size": 129280},
    "kimi-k2": _DEEPSEEK
    | {"num_attention_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1, "vocab_size": 163840},
    # config.json of Qwen/Qwen3-8B, Qwen3-32B, Qwen3-30B-A3B and Qwen3-235B-A22B on Hugging Face.
    "qwen3-8b": _dense(4096, 12288, 32, 8, 36, 151936, **_QWEN3),
    "qwen3-32b": _dense(5120, 25600, 64, 8, 64, 151936, **_QWEN3),
    "qwen3-30b-a3b": _dense(
        2048, 6144, 32, 4, 48, 151936, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8,
        **_QWEN3,
    ),
    "qwen3-235b-a22b": _dense(
        4096, 12288, 64, 4, 94, 151936, moe_intermediate_size=1536, num_experts=128, num_experts_per_tok=8,
        **_QWEN3,
    ),
    # config.json of openai/gpt-oss-20b and gpt-oss-120b on Hugging Face.
    "gpt-oss-20b": _dense(2880, 2880, 64, 8, 24, 201088, num_local_experts=32, **_GPT_OSS),
    "gpt-oss-120b": _dense(2880, 2880, 64, 8, 36, 201088, num_local_experts=128, **_GPT_OSS),
    # text_config of meta-llama/Llama-4-Scout-17B-16E and Llama-4-Maverick-17B-128E on Hugging Face.
    "llama-4-scout": _dense(
        5120, 8192, 40, 8, 48, 202048, model_type="llama4_text", head_dim=128, intermediate_size_mlp=16384,
        num_local_experts=16, num_experts_per_tok=1, interleave_moe_layer_step=1, attention_chunk_size=8192,
    ),
    "llama-4-maverick": _dense(
        5120, 8192, 40, 8, 48, 202048, model_type="llama4_text", head_dim=128, intermediate_size_mlp=16384,
        num_local_experts=128, num_experts_per_tok=1, interleave_moe_layer_step=2,
        attention_chunk_size=8192,
    ),
    # config.json of zai-org/GLM-4.5 and GLM-4.5-Air on Hugging Face.
    "glm-4.5": _dense(
        5120, 12288, 96, 8, 92, 151552, model_type="glm4_moe", head_dim=128, attention_bias=True,
        use_qk_norm=True, moe_intermediate_size=1536, n_routed_experts=160, n_shared_experts=1,
        num_experts_per_tok=8, first_k_dense_replace=3,
    ),
    "glm-4.5-air": _dense(
        4096, 10944, 96, 8, 46, 151552, model_type="glm4_moe", head_dim=128, attention_bias=True,
        moe_intermediate_size=1408, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8,
        first_k_dense_replace=1,
    ),
    # config.json of zai-org/GLM-5 on Hugging Face.
    "glm-5": _DEEPSEEK | {
        "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78,
        "num_attention_heads": 64, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256,
        "n_routed_experts": 256, "first_k_dense_replace": 3, "vocab_size": 154880, "index_n_heads": 32,
        "index_head_dim": 128, "index_topk": 2048,
    },
    # config.json of MiniMaxAI/MiniMax-M2 on Hugging Face.
    "minimax-m2": _dense(
        3072, 1536, 48, 8, 62, 200064, model_type="minimax_m2", head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, use_qk_norm=True, qk_norm_type="per_layer",
    ),
    # config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B and -Super-120B-A12B on Hugging Face.
    "nemotron-3-nano": _dense(
        2688, 1856, 32, 2, 52, 131072, model_type="nemotron_h", head_dim=128, mamba_num_heads=64,
        mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4, n_routed_experts=128,
        num_experts_per_tok=6, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
        hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    ),
    "nemotron-3-super": _dense(
        4096, 2688, 32, 2, 88, 131072, model_type="nemotron_h", head_dim=128, mamba_num_heads=128,
        mamba_head_dim=64, n_groups=8, ssm_state_size=128, conv_kernel=4, n_routed_experts=512,
        num_experts_per_tok=22, moe_intermediate_size=2688, moe_shared_expert_intermediate_size=5376,
        moe_latent_size=1024,
        hybrid_override_pattern="MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
    ),
    # text_config of google/gemma-3-27b-it on Hugging Face.
    "gemma-3-27b": _dense(
        5376, 21504, 32, 16, 62, 262208, model_type="gemma3_text", head_dim=128, sliding_window=1024,
        hidden_act="gelu_pytorch_tanh",
    ),
    # config.json of microsoft/phi-4 on Hugging Face.
    "phi-4": _dense(5120, 17920, 40, 10, 40, 100352, model_type="phi3"),
}  # fmt: skip
