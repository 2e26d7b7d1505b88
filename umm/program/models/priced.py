"""Layers of a model as chains: the kinds of layer that a chain computes, and the sizes that it takes."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, NoReturn

from umm.errors import ProblemError
from umm.program.models.layers import Attention, Experts, LatentAttention, Layer, Mlp, Model

DENSE, SPARSE = "transformer-layer", "moe-layer"
MAX_NUMBERS = 3
"""Layers that a message names."""


class Priced(NamedTuple):
    """Layers of a model that a chain computes in the same way.

    Attributes:
        kind: Name of the kind: ``attention + experts``.
        chain: Name of the chain.
        sizes: Its sizes, tokens aside.
        gated: Whether its MLP has a gate.
        layers: How many there are.
        first: Number of the first of them, from 0.
    """

    kind: str
    chain: str
    sizes: Mapping[str, int]
    gated: bool
    layers: int
    first: int


def kinds_priced(model: Model, name: str, layers: int | None = None) -> list[Priced]:
    """Return the first layers of a model by kind, those together whose chains are the same.

    Args:
        model: The model.
        name: What it is called, for messages.
        layers: How many of its layers; all if None.

    Raises:
        ProblemError: for more layers than it has where they are of several kinds, or for a kind that no chain
            computes, with the key that says so.
    """
    kinds: dict[tuple[str, tuple[tuple[str, int], ...], bool], Priced] = {}
    chosen = model.layers[:layers]
    for number, layer in enumerate(chosen):
        chain, sizes = _chain(layer), layer_sizes(model, name, layer)
        gated = is_gated(layer)
        key = chain, tuple(sorted(sizes.items())), gated
        before = kinds.get(key) or Priced(layer.words, chain, sizes, gated, 0, number)
        kinds[key] = before._replace(layers=before.layers + 1)
    if layers is not None and layers > len(model.layers):
        if len(kinds) > 1:
            raise ProblemError(
                f"{name} has {len(model.layers)} layers of {len(kinds)} kinds; give --layers up to that"
            )
        only = next(iter(kinds))
        kinds[only] = kinds[only]._replace(layers=layers)
    return list(kinds.values())


def layer_for(model: Model, name: str, chain: str, needed: Collection[str]) -> Layer | None:
    """Return the first layer of a model that a chain computes or is a part of; None of its ends.

    Args:
        model: The model.
        name: What it is called, for messages.
        chain: Name of the chain.
        needed: Names of the sizes that the chain takes.

    Raises:
        ProblemError: if it has none, naming the chain that fits.
    """
    fits = [x for x in model.kinds if _fits(x, needed)]
    if fits:
        return fits[0]
    experts = next((x.experts for x in model.kinds if x.experts), None)
    if "experts" in needed and not experts:
        raise ProblemError(f"{name} has no experts; take chain gated-mlp, or give experts and top_k")
    if "ffn" in needed and "experts" not in needed and experts:
        of_experts = SPARSE if chain == DENSE else "moe"
        raise ProblemError(f"{name} is a mixture of {experts.experts} experts: use --chain {of_experts}")
    if "heads" in needed and any(isinstance(x.mixer, LatentAttention) for x in model.kinds):
        raise ProblemError(f"attention of {name} is by latent vectors, which chain {chain} has not")
    if set(needed) & {"heads", "ffn", "experts"}:
        _refuse(model, name, next(iter(model.kinds)), f"no layer is a chain {chain}")
    return None


def _fits(layer: Layer, needed: Collection[str]) -> bool:
    """Whether a chain of some sizes computes a layer, or a part of it."""
    if "experts" in needed:
        part = layer.experts is not None
    else:
        part = "ffn" not in needed or any(isinstance(x, Mlp) for x in layer.expansions)
    if "heads" not in needed:
        return part and bool(set(needed) & {"experts", "ffn"})
    latent = isinstance(layer.mixer, LatentAttention)
    return part and (isinstance(layer.mixer, Attention) or (latent and "kv_rank" in needed))


def layer_sizes(model: Model, name: str, layer: Layer, needed: Collection[str] = ()) -> dict[str, int]:
    """Return the sizes of a layer, as a chain takes them.

    Args:
        model: The model that has it.
        name: What it is called, for messages.
        layer: The layer.
        needed: Names of the sizes that are asked for: of a part of it alone; all if empty.

    Raises:
        ProblemError: if no chain computes it, naming the key that says so.
    """
    sizes = {"hidden": model.hidden}
    whole = not needed
    if whole and (layer.mixer is None or len(layer.expansions) != 1):
        _refuse(model, name, layer, f"{layer.words} is not attention with an MLP or experts")
    if whole or "heads" in needed:
        sizes |= _attention_sizes(model, name, layer)
    if whole or "ffn" in needed:
        for part in layer.expansions:
            if isinstance(part, Experts) and (whole or "experts" in needed):
                sizes |= _expert_sizes(model, name, layer, part)
            elif isinstance(part, Mlp) and "experts" not in needed:
                sizes["ffn"] = part.ffn
            elif whole:
                _refuse(model, name, layer, f"{part.words} in place of an MLP is not simulated")
    return sizes


def _attention_sizes(model: Model, name: str, layer: Layer) -> dict[str, int]:
    mixer = layer.mixer
    if not isinstance(mixer, Attention | LatentAttention):
        _refuse(model, name, layer, f"{layer.words} is not simulated")
    if mixer.value != mixer.head:
        _refuse(
            model,
            name,
            layer,
            "heads of values that are not as wide as those of keys are not simulated",
            "v_head_dim",
        )
    if mixer.gate:
        _refuse(model, name, layer, "a gate of attention's result is not simulated", "attn_output_gate")
    if isinstance(mixer, LatentAttention):
        if not mixer.q_rank:
            _refuse(
                model,
                name,
                layer,
                "latent attention without a latent vector of queries is not simulated",
                "q_lora_rank",
            )
        latent = {"q_rank": mixer.q_rank, "kv_rank": mixer.kv_rank, "rope_dim": mixer.rope_dim}
        return {"heads": mixer.heads, "kv_heads": mixer.heads, "head_dim": mixer.head, **latent}
    sizes = {"heads": mixer.heads, "kv_heads": mixer.kv_heads}
    return sizes if mixer.heads * mixer.head == model.hidden else sizes | {"head_dim": mixer.head}


def _expert_sizes(model: Model, name: str, layer: Layer, part: Experts) -> dict[str, int]:
    if part.latent:
        _refuse(
            model, name, layer, "experts of tokens with fewer columns are not simulated", "moe_latent_size"
        )
    if not part.gated:
        _refuse(model, name, layer, "experts without a gate are not simulated", "mlp_hidden_act")
    shared, rest = divmod(part.shared_ffn, part.ffn)
    if rest:
        _refuse(
            model,
            name,
            layer,
            f"shared experts of {part.shared_ffn} columns are no multiple of {part.ffn}",
            "shared_expert_intermediate_size",
        )
    return {"ffn": part.ffn, "experts": part.experts, "top_k": part.top_k, "shared": shared}


def is_gated(layer: Layer) -> bool:
    """Return whether its MLPs have a gate, three weights instead of two."""
    return all(x.gated for x in layer.expansions if isinstance(x, Mlp | Experts))


def _chain(layer: Layer) -> str:
    return SPARSE if layer.experts else DENSE


def _refuse(model: Model, name: str, layer: Layer, why: str, key: str = "") -> NoReturn:
    """Refuse to simulate a kind of layer.

    Raises:
        ProblemError: always, with the numbers of the layers and the key that says what they are.
    """
    numbers = [x for x, other in enumerate(model.layers) if other == layer]
    named = ", ".join(map(str, numbers[:MAX_NUMBERS])) + (" …" if len(numbers) > MAX_NUMBERS else "")
    layers = f"layer {named}" if len(numbers) == 1 else f"layers {named}"
    key = key or model.order_key or "num_hidden_layers"
    raise ProblemError(f"{why}: {layers} of {name}, by its key {key}; umm model counts them")
