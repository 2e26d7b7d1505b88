"""Parameters of vision towers: a transformer over patches, and its projection to tokens."""

from typing import Any

_WIDTH = ("hidden_size", "vt_hidden_size", "embed_dim", "width")
_DEPTH = ("depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
_FFN = ("intermediate_size", "vt_intermediate_size")
_GATED = ("gemma4_vision", "qwen2_5_vl", "pixtral", "mllama_vision_model")  # kinds whose MLPs have a gate


def vision_parameters(tower: Any, hidden: int) -> tuple[int, bool]:
    """Return the parameters of a vision tower, and whether they are known; 0 without one.

    Biases and norms are left out, thousandths of it. Of a merger (Qwen-VL) there is one for each picture, and
    one for each depth whose features are added.
    """
    if not isinstance(tower, dict):
        return 0, tower is None
    values = [
        next((tower[x] for x in names if type(tower.get(x)) is int), 0) for names in (_WIDTH, _DEPTH, _FFN)
    ]
    width, depth, ffn = values
    if not width or not depth:
        return 0, False
    ffn = ffn or 4 * width
    matrices = 3 if tower.get("model_type") in _GATED or tower.get("hidden_act") == "silu" else 2
    layers = depth * (4 * width**2 + matrices * width * ffn)
    patch, colours = (tower.get(x) for x in ("patch_size", "in_channels"))
    patch = patch if type(patch) is int else 14
    times = tower.get("temporal_patch_size")
    patches = (
        width * (colours if type(colours) is int else 3) * patch**2 * (times if type(times) is int else 1)
    )
    positions = tower.get("num_position_embeddings")
    patches += width * positions if type(positions) is int else 0
    merged, out = tower.get("spatial_merge_size"), tower.get("out_hidden_size")
    depths = tower.get("deepstack_visual_indexes")
    if type(merged) is int and type(out) is int:
        columns = width * merged**2
        joins = (1 + (len(depths) if isinstance(depths, list) else 0)) * columns * (columns + out)
    else:
        joins = width * hidden
    return layers + patches + joins, True
