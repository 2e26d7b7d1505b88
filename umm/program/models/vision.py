"""Parameters of vision towers: a transformer over patches, and its projection to tokens."""

from collections.abc import Mapping
from typing import Any

_GATED = ("gemma4_vision", "qwen2_5_vl", "pixtral", "mllama_vision_model")  # kinds whose MLPs have a gate


def vision_parameters(tower: Any, hidden: int, model_type: str) -> tuple[int, bool]:
    """Return the parameters of a vision tower, and whether they are known; 0 without one.

    Biases and norms are left out, thousandths of it. Of a merger (Qwen-VL) there is one for each picture, and
    one for each depth whose features are added.
    """
    if not isinstance(tower, dict):
        return 0, tower is None
    # Qwen2-VL's hidden_size is that of tokens.
    width = _size(tower, "embed_dim", "hidden_size", "vt_hidden_size", "width")
    depth = _size(tower, "depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    if not width or not depth:
        return 0, False
    ffn = _size(tower, "intermediate_size", "vt_intermediate_size")
    ffn = ffn or width * _size(tower, "mlp_ratio", usual=4)
    out = _size(tower, "out_hidden_size", usual=hidden)
    merged = width * _size(tower, "spatial_merge_size", usual=1) ** 2
    depths = tower.get("deepstack_visual_indexes")
    joins = (1 + (len(depths) if isinstance(depths, list) else 0)) * merged * (merged + out)
    if "spatial_merge_size" not in tower:
        joins = width * hidden
    matrices = 3 if tower.get("model_type") in _GATED or tower.get("hidden_act") == "silu" else 2
    if model_type.startswith("glm4"):  # whose intermediate_size is that of the merger alone
        joins, ffn = merged * out + out * (out + 3 * ffn), out
    layers = depth * (4 * width**2 + matrices * width * ffn)
    pixels = _size(tower, "in_channels", usual=3) * _size(tower, "patch_size", usual=14) ** 2
    pixels *= _size(tower, "temporal_patch_size", usual=1)
    return layers + width * (pixels + _size(tower, "num_position_embeddings")) + joins, True


def _size(tower: Mapping[str, Any], *names: str, usual: int = 0) -> int:
    return next((tower[x] for x in names if type(tower.get(x)) is int and 0 < tower[x] < 2**48), usual)
