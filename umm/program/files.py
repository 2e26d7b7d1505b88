"""A chain in a TOML file, and the sizes of public models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from umm.errors import InputError, ProblemError, did_you_mean
from umm.files import MOST_TOML, parse_json, parse_toml, read_text, shown, whole_file, whole_number
from umm.program.outline import Outline
from umm.quoting.toml import toml_key, toml_value


class Model(NamedTuple):
    """A decoder of equal layers.

    Attributes:
        hidden: Columns of activations between layers.
        ffn: Columns between the multiplies of an MLP.
        heads: Heads of queries.
        kv_heads: Heads of keys and values.
        layers: How many layers there are.
        vocab: Different tokens; 0 if unknown.
        gated: Whether the MLP has a gate, three weights instead of two.
        experts: MLPs of a layer of which each token takes some; 0 if it has just one. ffn is of one expert.
        top_k: How many each token takes.
        shared: Experts that all tokens take beside.
        head_dim: Columns of a head; 0 where all heads make up hidden.
        q_rank: Columns of the latent vector of queries; 0 where attention is not by latent vectors.
        kv_rank: Columns of that of keys and values.
        rope_dim: Columns of positions beside those of a head.
    """

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    layers: int
    vocab: int
    gated: bool = True
    experts: int = 0
    top_k: int = 0
    shared: int = 0
    head_dim: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0

    def sizes(self, names: tuple[str, ...]) -> dict[str, int]:
        """Return those of some sizes that it has."""
        return {name: int(getattr(self, name)) for name in names if getattr(self, name, 0)}


MODELS: Mapping[str, Model] = {
    # Grattafiori et al. (2024), The Llama 3 herd of models, table 3; vocabulary, section 3.2.
    "llama-3-8b": Model(4096, 14336, 32, 8, 32, 128256),
    "llama-3-70b": Model(8192, 28672, 64, 8, 80, 128256),
    "llama-3-405b": Model(16384, 53248, 128, 8, 126, 128256),
    # config.json of Qwen/Qwen2.5-72B on Hugging Face.
    "qwen-2.5-72b": Model(8192, 29568, 64, 8, 80, 152064),
    # config.json of mistralai/Mistral-Large-Instruct-2407 on Hugging Face.
    "mistral-large": Model(12288, 28672, 96, 8, 88, 32768),
    # Brown et al. (2020), Language models are few-shot learners, table 2.1, section 2.1; GPT-2's vocabulary.
    "gpt-3-175b": Model(12288, 49152, 96, 96, 96, 50257, gated=False),
    # config.json of mistralai/Mixtral-8x7B-v0.1 and Mixtral-8x22B-v0.1 on Hugging Face.
    "mixtral-8x7b": Model(4096, 14336, 32, 8, 32, 32000, experts=8, top_k=2),
    "mixtral-8x22b": Model(6144, 16384, 48, 8, 56, 32000, experts=8, top_k=2),
    # config.json of deepseek-ai/DeepSeek-V3 (58 of 61 layers), Qwen/Qwen3-235B-A22B and openai/gpt-oss-120b
    # (half of whose layers see 128 tokens alone).
    "deepseek-v3": Model(
        7168,
        2048,
        128,
        128,
        61,
        129280,
        experts=256,
        top_k=8,
        shared=1,
        head_dim=128,
        q_rank=1536,
        kv_rank=512,
        rope_dim=64,
    ),
    "qwen3-235b-a22b": Model(4096, 1536, 64, 4, 94, 151936, experts=128, top_k=8, head_dim=128),
    "gpt-oss-120b": Model(2880, 2880, 64, 8, 36, 201088, experts=128, top_k=4, head_dim=64),
}
MAX_CONFIG = 2**20
"""Bytes of a config.json: the longest of public models have some 10 KB."""
_KEYS = {  # of config.json: what several families call it
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "layers": ("num_hidden_layers", "n_layer"),
    "vocab": ("vocab_size",),
}
_ACTIVATIONS = ("hidden_act", "activation_function", "hidden_activation", "activation")
_GATES = ("silu", "swish", "swiglu", "gelu_pytorch_tanh")
"""Activations that configs of models with a gate name; those without have gelu, gelu_new or relu."""
_OF_EXPERTS = {  # 0 where a config does not say them
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok", "experts_per_token"),
    "shared": ("n_shared_experts",),
}

_LATENT = {
    "head_dim": "qk_nope_head_dim", "q_rank": "q_lora_rank", "kv_rank": "kv_lora_rank",
    "rope_dim": "qk_rope_head_dim",
}  # fmt: skip


def model(name: str) -> Model:
    """Return a model by its name, or that of a file ``config.json``.

    Raises:
        ProblemError: in one line, for an unknown name or a file that does not say the sizes.

    >>> model("llama-3-70b").layers
    80
    """
    if name in MODELS:
        return MODELS[name]
    if Path(name).suffix != ".json":
        raise ProblemError(f"there is no model {name!r}; {did_you_mean(name, MODELS)}, or name a config.json")
    return read_config(read_text(name, MAX_CONFIG), name)


def read_config(text: str, path: str) -> Model:
    """Return the model that the text of a Hugging Face ``config.json`` describes.

    Raises:
        ProblemError: if it is not one, or lacks a size.
    """
    try:
        found = parse_json(text, "config.json")
    except InputError as error:
        raise ProblemError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ProblemError(f"{path} is not an object of a model's sizes")
    config: dict[str, Any] = found.get("text_config") or found
    if not isinstance(config, dict):
        raise ProblemError(f"text_config of {path} is not an object of a model's sizes")
    sizes: dict[str, int] = {}
    for size, names in _KEYS.items():
        value = next((config[x] for x in names if config.get(x) is not None), None)
        if value is None and size == "ffn" and "hidden" in sizes:
            value = 4 * sizes["hidden"]  # as GPT-2's configs mean where they leave it out
        if value is None and size == "kv_heads":
            value = 1 if config.get("multi_query") is True else sizes["heads"]
        if value is None and size == "vocab":  # which a layer does not need
            sizes[size] = 0
            continue
        if value is None:
            raise ProblemError(f"{path} does not say {size}; it needs one of {', '.join(names)}")
        sizes[size] = whole_number(value, f"{size} of {path}", 1)
    for size, names in _OF_EXPERTS.items():
        value = next((config[x] for x in names if config.get(x) is not None), 0)
        sizes[size] = whole_number(value, f"{size} of {path}", 0)
    if sizes["experts"]:
        ffn = config.get("moe_intermediate_size") or sizes["ffn"]
        sizes["ffn"] = whole_number(ffn, f"moe_intermediate_size of {path}", 1)
        of_shared = config.get("shared_expert_intermediate_size")
        if of_shared:
            of_shared = whole_number(of_shared, f"shared_expert_intermediate_size of {path}", 1)
            sizes["shared"] = -(-of_shared // sizes["ffn"])
    head = config.get("head_dim") or 0
    if config.get("kv_lora_rank"):  # attention by latent vectors
        for size, name in _LATENT.items():
            sizes[size] = whole_number(config.get(name), f"{name} of {path}", 1)
        if config.get("v_head_dim") != sizes["head_dim"]:
            raise ProblemError(f"{path} has heads of values that are not as wide as those of keys")
        head = 0
    if sizes["heads"] and head and head * sizes["heads"] != sizes["hidden"]:
        sizes["head_dim"] = whole_number(head, f"head_dim of {path}", 1)
    act = next((config[x] for x in _ACTIVATIONS if config.get(x) is not None), "silu")
    if not isinstance(act, str):
        raise ProblemError(f"{path} names its activation as {shown(act)}, which is not a text")
    return Model(**sizes, gated=act in _GATES)


def load_chain(path: str | Path) -> Outline:
    """Return the chain that a TOML file holds; strict: an unknown key is refused.

    Raises:
        InputError: in one line, if it cannot be read or is not a chain.
    """
    return parse_chain(read_text(path, MOST_TOML), path)


def parse_chain(text: str, path: str | Path) -> Outline:
    """Return the chain that a TOML text holds; strict: an unknown key is refused.

    Args:
        text: The text.
        path: What it is called in a message.

    Raises:
        InputError: in one line, if it is not a chain.
    """
    content = parse_toml(text, path)
    try:
        return Outline.from_dict(content)
    except InputError as error:
        raise type(error)(f"{path}: {error}") from None


def save_chain(outline: Outline, path: str | Path) -> None:
    """Write a chain as TOML; :func:`load_chain` gives it back.

    Raises:
        InputError: if the file cannot be written.
    """
    with whole_file(path) as partial:
        partial.write_text(toml(outline), encoding="utf-8")


def toml(outline: Outline) -> str:
    """Return a chain as TOML."""
    said = outline.to_dict()
    lines = [f"{key} = {_value(said[key])}" for key in ("name", "kept", "weights")]
    for table in ("tensors", "statements"):
        for row in said[table]:
            lines += ["", f"[[{table}]]", *(f"{key} = {_value(value)}" for key, value in row.items())]
    for name, texts in said["layouts"].items():
        lines += ["", f"[layouts.{toml_key(name)}]"]
        lines += [f"{toml_key(key)} = {toml_value(text)}" for key, text in texts.items()]
    if "given" in said:
        lines += ["", "[given]"]
        lines += [f"{toml_key(key)} = {_value(text)}" for key, text in said["given"].items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """Return a text, a number, or a list or object of these, as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {_value(x)}" for key, x in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return toml_value(value)
