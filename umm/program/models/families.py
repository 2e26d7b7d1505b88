"""Traits that transformers' classes have and a config.json does not name: biases, norms, tied ends, gates."""

from typing import NamedTuple


class Family(NamedTuple):
    """Defaults of the models of one ``model_type``."""

    tied: bool = False  # whether the head multiplies by the embedding's table if the config does not say
    bias: bool = False  # whether all matrices of attention have biases
    qkv_bias: bool = False  # whether queries, keys and values have
    out_bias: bool = True  # whether the result has one where `attention_bias` is true
    mlp_bias: bool = False  # whether the MLP has biases
    gated: bool | None = None  # Whether the MLP has a gate; None if its activation says.
    qk_norm: bool = False  # whether queries and keys are normalised
    norm_has_scale: bool = True  # whether these norms have scales
    wide_norm: bool = False  # whether these scales are as wide as all heads, in place of one
    norms: int = 2  # norms of a layer
    norm_bias: bool = False  # whether they have biases
    pattern: int = 0  # every how many layers attention is full where others have a window
    chunks: bool = False  # whether `attention_chunk_size` is of its layers
    sinks: bool = False  # whether heads have a score that no key has
    gate: bool = False  # whether a gate multiplies the result of attention
    positions: int = -1  # whether positions are learned, with so many rows more than tokens; −1 if not
    shared_gate: bool = False  # whether a column of the router weighs the shared experts
    shared: bool = False  # whether a shared expert as wide as one of the others is there without a key
    expert_bias: bool = False  # whether experts and their router have biases
    # Heads of queries, of keys, and columns of one, if the config does not say; zeros if it must.
    heads: tuple[int, int, int] = (0, 0, 0)
    vocab: int = 0  # different tokens if the config does not say; 0 if unknown


_LEARNED = Family(tied=True, bias=True, mlp_bias=True, gated=False, norm_bias=True, positions=0)
# Source: configuration_*.py and modeling_*.py of huggingface/transformers 4.57 and of models' repositories.
FAMILIES = {
    **dict.fromkeys(
        (
            "mamba",
            "falcon_mamba",
            "ernie4_5",
            "minicpm",
            "minicpm3",
            "vaultgemma",
            "youtu",
            "granite_swa",
            "lfm3",
            "smollm3",
        ),
        Family(tied=True),
    ),
    **dict.fromkeys(
        ("qwen3", "dots1", "exaone4", "exaone_moe", "apertus", "mellum", "hy_v3"), Family(qk_norm=True)
    ),
    **dict.fromkeys(("jais", "btlm"), _LEARNED._replace(gated=True, positions=-1)),
    "gpt2": _LEARNED,
    "gpt_bigcode": _LEARNED,
    "opt": _LEARNED._replace(positions=2),
    "gpt_neox": _LEARNED._replace(tied=False, positions=-1),
    "bloom": _LEARNED._replace(positions=-1),
    "phi": _LEARNED._replace(tied=False, positions=-1, norms=1),
    "gptj": Family(mlp_bias=True, gated=False, norms=1, norm_bias=True),
    "codegen": Family(mlp_bias=True, gated=False, norms=1, norm_bias=True),
    "gpt_neo": _LEARNED,
    "bitnet": Family(gated=True),
    "biogpt": _LEARNED._replace(positions=2),
    "falcon_h1": Family(),
    "lfm2": Family(tied=True, qk_norm=True),
    "dbrx": Family(gated=True),
    "starcoder2": Family(tied=True, gated=False, norm_bias=True, mlp_bias=True, bias=True),
    "falcon": Family(tied=True, gated=False, norms=1, norm_bias=True),
    "mpt": Family(tied=True, gated=False),
    "nemotron": Family(gated=False, norm_bias=True),
    "nemotron_h": Family(gated=False, norms=1),
    "qwen2": Family(qkv_bias=True),
    "qwen": Family(qkv_bias=True),
    "qwen3_next": Family(qk_norm=True, gate=True, shared_gate=True),
    "qwen3_5": Family(qk_norm=True, gate=True, shared_gate=True),
    "gemma": Family(tied=True, gated=True),
    "gemma2": Family(tied=True, gated=True, norms=4, pattern=2),
    "gemma3": Family(
        tied=True, gated=True, norms=4, qk_norm=True, pattern=6, vocab=262208, heads=(8, 4, 256)
    ),
    "gemma4": Family(tied=True, gated=True, norms=4, qk_norm=True, pattern=6),
    "cohere": Family(tied=True, norms=1, wide_norm=True),
    "cohere2": Family(tied=True, norms=1, pattern=4),
    "stablelm": Family(norm_bias=True),
    "phimoe": Family(norm_bias=True),
    "grok-1": Family(gated=True, norms=4),
    "git": Family(gated=True, norms=2),  # as Grok-2's file calls itself
    "gpt_oss": Family(pattern=2, sinks=True, expert_bias=True),
    "llama4": Family(chunks=True, norm_has_scale=False, shared=True),
    "glm4_moe": Family(out_bias=False),
    "glm4": Family(norms=4, out_bias=False),
    "glm": Family(out_bias=False),
    "chatglm": Family(out_bias=False, gated=True),
    **dict.fromkeys(("minimax_m2", "olmo2", "olmoe", "flex_olmo"), Family(qk_norm=True, wide_norm=True)),
    "olmo3": Family(qk_norm=True, wide_norm=True, pattern=4),
    "mimo": Family(),
    "afmoe": Family(norms=4, qk_norm=True, gate=True),
}


def family_of(model_type: str) -> Family:
    """Return the family that a ``model_type`` belongs to: the longest whose name it begins with.

    >>> family_of("qwen3_moe").qk_norm, family_of("qwen2_5_vl_text").qkv_bias, family_of("new") == Family()
    (True, True, True)
    """
    if model_type == "qwen2_moe":
        return FAMILIES["qwen2"]._replace(shared_gate=True)
    names = [x for x in FAMILIES if model_type == x or model_type.startswith(f"{x}_")]
    return FAMILIES[max(names, key=len)] if names else Family()
