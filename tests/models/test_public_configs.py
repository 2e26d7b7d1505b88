"""Public models of other architectures: parameters by their config.json against published counts."""

import pytest

from umm.errors import InputError
from umm.program.models import model_of
from umm.program.models.count import count

MAMBA_2 = {
    "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_chunk_size": 256,
}  # fmt: skip
FULL_OF_KIMI = [4, 8, 12, 16, 20, 24, 27]
CONVOLVED = ["full_attention" if x in (2, 5, 8, 10, 12, 14) else "conv" for x in range(16)]


def sizes(hidden, layers, heads, kv_heads, ffn, vocab, **more):
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
        "tie_word_embeddings": False, **more,
    }  # fmt: skip


PUBLISHED = {  # billions, as their model cards on Hugging Face say
    "MiniMax-Text-01": (456.0, sizes(
        6144, 80, 64, 8, 9216, 200064, model_type="minimax_text_01", head_dim=128, num_local_experts=32,
        num_experts_per_tok=2, attn_type_list=([0] * 7 + [1]) * 10, shared_intermediate_size=0, postnorm=True,
    )),
    "Jamba-1.5-Mini": (51.6, sizes(
        4096, 32, 32, 8, 14336, 65536, model_type="jamba", num_experts=16, num_experts_per_tok=2,
        attn_layer_period=8, attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1,
        mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=256, mamba_conv_bias=True,
    )),
    "Granite-4.0-H-Small": (32.2, sizes(
        4096, 40, 32, 8, 768, 100352, model_type="granitemoehybrid", num_local_experts=72,
        num_experts_per_tok=10, shared_intermediate_size=1536,
        layer_types=["attention" if x % 10 == 5 else "mamba" for x in range(40)], **MAMBA_2,
    ) | {"tie_word_embeddings": True}),
    "Bamba-9B": (9.78, sizes(
        4096, 32, 32, 8, 14336, 128256, model_type="bamba", attn_layer_indices=[9, 18, 27], **MAMBA_2,
    )),
    "Falcon-H1-34B": (33.6, sizes(
        5120, 72, 20, 4, 21504, 261120, model_type="falcon_h1", head_dim=128, mamba_d_ssm=4096,
        mamba_rms_norm=False, ssm_multipliers=[1.0] * 5,
        **MAMBA_2 | {"mamba_n_heads": 32, "mamba_d_head": 128, "mamba_n_groups": 2, "mamba_d_state": 256},
    )),
    "DBRX": (131.6, {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
        "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        "tie_word_embeddings": False,
    }),
    "Mamba-Codestral-7B": (7.29, {
        "model_type": "mamba2", "num_heads": 128, "head_dim": 64, "vocab_size": 32768, "hidden_size": 4096,
        "state_size": 128, "num_hidden_layers": 64, "expand": 2, "n_groups": 8, "use_bias": False,
        "time_step_rank": 256, "tie_word_embeddings": False,
    }),
    "Falcon-Mamba-7B": (7.27, {
        "model_type": "falcon_mamba", "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 16,
        "intermediate_size": 8192, "time_step_rank": 256, "vocab_size": 65024, "tie_word_embeddings": False,
    }),
    "LFM2-1.2B": (1.17, sizes(
        2048, 16, 32, 8, 12288, 65536, model_type="lfm2", block_auto_adjust_ff_dim=True,
        block_ffn_dim_multiplier=1.0, block_multiple_of=256, conv_L_cache=3, layer_types=CONVOLVED,
    ) | {"tie_word_embeddings": True}),
    "Kimi-Linear-48B-A3B": (49.1, sizes(
        2304, 27, 32, 32, 9216, 163840, model_type="kimi_linear", moe_intermediate_size=1024,
        kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, num_experts=256,
        num_experts_per_token=8, num_shared_experts=1, first_k_dense_replace=1,
        linear_attn_config={
            "full_attn_layers": FULL_OF_KIMI, "num_heads": 32, "head_dim": 128,
            "kda_layers": [x for x in range(1, 28) if x not in FULL_OF_KIMI],
        },
    )),
    "Gemma-3-4B": (4.3, {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14,
        },
    }),
    "Qwen2-VL-7B": (8.291, sizes(
        3584, 28, 28, 4, 18944, 152064, model_type="qwen2_vl", vision_config={
            "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "patch_size": 14,
            "in_channels": 3, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
    )),
    "GLM-4.1V-9B": (10.293, {
        "model_type": "glm4v", "tie_word_embeddings": False,
        "text_config": sizes(4096, 40, 32, 2, 13696, 151552, model_type="glm4v_text", attention_bias=True),
        "vision_config": {
            "depth": 24, "hidden_size": 1536, "intermediate_size": 13696, "out_hidden_size": 4096,
            "hidden_act": "silu", "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
    }),
    "Trinity-Mini": (26.1, sizes(
        2048, 32, 32, 4, 6144, 200192, model_type="afmoe", head_dim=128, global_attn_every_n_layers=4,
        moe_intermediate_size=1024, num_dense_layers=2, num_experts=128, num_experts_per_tok=8,
        num_shared_experts=1, num_expert_groups=1, sliding_window=2048,
    )),
    "K-EXAONE-236B-A23B": (236.0, sizes(
        6144, 48, 64, 8, 18432, 153600, model_type="exaone_moe", head_dim=128, moe_intermediate_size=2048,
        num_experts=128, num_experts_per_tok=8, num_shared_experts=1, is_moe_layer=[False] + [True] * 47,
        sliding_window=128, sliding_window_pattern="LLLG",
    )),
    "MPT-30B": (29.96, {
        "model_type": "mpt", "d_model": 7168, "n_heads": 64, "n_layers": 48, "vocab_size": 50432,
        "expansion_ratio": 4, "no_bias": True, "attn_config": {"alibi": True},
    }),
    "Falcon-7B": (6.92, {
        "model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
        "num_kv_heads": 71, "multi_query": True, "vocab_size": 65024,
    }),
    "Grok-2": (269.5, sizes(
        8192, 64, 64, 8, 32768, 131072, model_type="git", head_dim=128, hidden_act="gelu", residual_moe=True,
        num_local_experts=8, num_experts_per_tok=2, moe_intermediate_size=16384,
    )),
    "ERNIE-4.5-21B-A3B": (21.83, sizes(
        2560, 28, 20, 4, 12288, 103424, model_type="ernie4_5_moe", moe_num_experts=64, moe_k=6,
        moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
    ) | {"tie_word_embeddings": True}),
    "BLOOM-176B": (176.2, {
        "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
        "vocab_size": 250880,
    }),
    "Seed-OSS-36B": (36.15, sizes(
        5120, 64, 80, 8, 27648, 155136, model_type="seed_oss", head_dim=128, attention_bias=True,
        attention_out_bias=False,
    )),
    "Phi-3.5-MoE": (41.87, sizes(
        4096, 32, 32, 8, 6400, 32064, model_type="phimoe", num_local_experts=16, num_experts_per_tok=2,
        attention_bias=True, lm_head_bias=True,
    )),
    "Moonlight-16B-A3B": (15.96, sizes(
        2048, 27, 16, 16, 11264, 163840, model_type="deepseek_v3", kv_lora_rank=512, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
        moe_intermediate_size=1408, first_k_dense_replace=1, topk_method="noaux_tc",
    )),
    "Ling-mini-2.0": (16.26, sizes(
        2048, 20, 16, 4, 5120, 157184, model_type="bailing_moe_v2", head_dim=128, num_experts=256,
        num_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=512, first_k_dense_replace=1,
        moe_router_enable_expert_bias=True, use_qk_norm=True,
    )),
    "StableLM-2-1.6B": (1.645, sizes(
        2048, 24, 32, 32, 5632, 100352, model_type="stablelm", use_qkv_bias=True,
    )),
    "BitNet-b1.58-2B": (2.41, sizes(
        2560, 30, 20, 5, 6912, 128256, model_type="bitnet", hidden_act="relu2",
    ) | {"tie_word_embeddings": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name):
    billions, config = PUBLISHED[name]
    assert count(model_of(config, name)).parameters == pytest.approx(billions * 1e9, rel=0.01)


EXACT = {  # parameters of their files on Hugging Face, or of transformers' classes
    "OLMoE-1B-7B": (6919161856, sizes(
        2048, 16, 16, 16, 1024, 50304, model_type="olmoe", num_experts=64, num_experts_per_tok=8,
    )),
    "Command-R+": (103810674688, sizes(
        12288, 64, 96, 8, 33792, 256000, model_type="cohere", use_qk_norm=True,
    ) | {"tie_word_embeddings": True}),
    "StableLM-3B-4E1T": (2795443200, sizes(2560, 32, 32, 32, 6912, 50304, model_type="stablelm")),
    "Qwen-7B": (7721324544, sizes(4096, 32, 32, 32, 22016, 151936, model_type="qwen")),
    "GPT-2": (124439808, {
        "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
        "vocab_size": 50257,
    }),
    "GPT-J-6B": (6050882784, {
        "model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400,
        "activation_function": "gelu_new",
    }),
    "EXAONE-4.0-1.2B": (1279391488, sizes(
        2048, 30, 32, 8, 4096, 102400, model_type="exaone4", head_dim=64,
    ) | {"tie_word_embeddings": True}),
    "MiniCPM-2B": (2724880896, {
        key: value for key, value in sizes(2304, 40, 36, 36, 5760, 122753, model_type="minicpm").items()
        if key != "tie_word_embeddings"
    }),
    "GLM-4-9B-Chat": (9399951360, {
        "model_type": "chatglm", "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32,
        "multi_query_group_num": 2, "ffn_hidden_size": 13696, "kv_channels": 128, "add_qkv_bias": True,
        "padded_vocab_size": 151552, "rope_ratio": 500,
    }),
    "Granite-4.0-Micro": (3402836480, sizes(
        2560, 40, 40, 8, 8192, 100352, model_type="granitemoehybrid", num_local_experts=0,
        shared_intermediate_size=8192, layer_types=["attention"] * 40, **MAMBA_2,
    ) | {"tie_word_embeddings": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_parameters_are_exact(name):
    parameters, config = EXACT[name]
    assert count(model_of(config, name)).parameters == parameters


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (sizes(2048, 32, 16, 16, 8192, 219520, model_type="motif", hidden_act="poly_norm"), "hidden_act"),
        (sizes(768, 12, 12, 12, 3072, 30522, model_type="bert", type_vocab_size=2), "type_vocab_size"),
        (
            {"d_model": 768, "num_layers": 12, "relative_attention_num_buckets": 32},
            "relative_attention_num_buckets",
        ),
        (sizes(768, 12, 12, 12, 3072, 1000, model_type="vit", patch_size=16), "patch_size"),
        (sizes(2048, 24, 32, 16, 5632, 32000, model_type="jetmoe"), "model_type"),
        (sizes(6144, 28, 64, 64, 1, 131072, zero_expert_num=256), "zero_expert_num"),
        (sizes(2048, 35, 8, 2, 16384, 262400, altup_num_inputs=4), "altup_num_inputs"),
        (sizes(6144, 128, 64, 8, 2048, 128256, hybrid_pattern="AMF"), "hybrid_pattern"),
        (
            sizes(768, 12, 12, 12, 3072, 50272, model_type="opt", word_embed_proj_dim=512),
            "word_embed_proj_dim",
        ),
    ],
)
def test_other_architectures_are_refused_by_a_key(config, key):
    with pytest.raises(InputError, match=key):
        model_of(config, "config.json")
