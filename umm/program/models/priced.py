"""Layers of a model as chains: the kinds of layer that a chain computes, and the sizes that it takes."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, NoReturn

from umm.errors import ProblemError
from umm.program.models.layers import Attention, Experts, LatentAttention, Layer, Mlp, Model
from umm.program.models.weights import Quantization

DENSE, SPARSE = "transformer-layer", "moe-layer"
MAX_NAMED_LAYERS = 3
"""Layers that a message names."""
ATTENTION, MLP = "attention", "mlp"
"""Parts of a layer whose weights may have types of their own."""


class PricedWeights(NamedTuple):
    """The type of a layer's weights as a simulation takes it.

    Attributes:
        dtype: Type that the weights of some parts multiply in; empty for that of the chain.
        stored: Bytes of the layer's weights in the file, over those that the simulation counts.
        remark: What the file says, and what is priced; empty where the file does not quantise.
    """

    dtype: str
    parts: tuple[str, ...]
    stored: float
    remark: str


def weights_priced(model: Model, number: int) -> PricedWeights:
    """Return the types that a layer's weights multiply in, as its ``quantization_config`` says.

    Float types of 4 bits are priced as 8 bits, whole numbers, which kernels expand, as the chain's type.

    Args:
        number: Number of the layer, from 0.
    """
    types = Quantization(model.quantization, model.dtype)
    parts, names, exact, counted = dict[str, None](), dict[str, dict[str, None]](), 0.0, 0.0
    for weight in model.layers[number].weights(model.hidden):
        stored = types.stored(weight.module, weight.linear, number)
        part = MLP if weight.module.startswith("mlp") else ATTENTION
        bits = types.usual.bits
        if stored != types.usual:
            names.setdefault(stored.name, {})[part] = None
            if not stored.name.startswith("int"):
                bits, parts[part] = 8.0, None
        exact, counted = exact + weight.elements * stored.bits, counted + weight.elements * bits
    if not names:
        return PricedWeights("", (), 1.0, "")
    types_in_words = ", ".join(f"{name} ({' and '.join(where)})" for name, where in names.items())
    remark = f"weights are {types_in_words} by quantization_config"
    if any(name not in ("float8_e4m3", "float8_e4m3:128") for name in names):
        remark += f", priced as {'fp8' if parts else model.dtype}, counted in their bits with --layers"
    return PricedWeights("fp8" if parts else "", tuple(parts), exact / counted, remark)


def usual_chain(model: Model) -> str:
    """Return the chain of the kind of layer that a model has most of.

    Raises:
        ProblemError: as :func:`kinds_priced` does.
    """
    return max(kinds_priced(model), key=lambda x: x.layers).chain


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


def kinds_priced(model: Model, layers: int | None = None) -> list[Priced]:
    """Return the first layers of a model by kind, those together whose chains are the same.

    Args:
        layers: How many of its layers; all if None.

    Raises:
        ProblemError: for more layers than it has where they are of several kinds, or for a kind that no chain
            computes, with the key that says so.
    """
    kinds: dict[tuple[str, tuple[tuple[str, int], ...], bool], Priced] = {}
    chosen = model.layers[:layers]
    for number, layer in enumerate(chosen):
        chain, sizes = _chain(layer), layer_sizes(model, layer)
        gated = is_gated(layer)
        key = chain, tuple(sorted(sizes.items())), gated
        before = kinds.get(key) or Priced(layer.words, chain, sizes, gated, 0, number)
        kinds[key] = before._replace(layers=before.layers + 1)
    if layers is not None and layers > len(model.layers):
        if len(kinds) > 1:
            raise ProblemError(
                f"{model.name} has {len(model.layers)} layers of {len(kinds)} kinds; give --layers up to that"
            )
        only = next(iter(kinds))
        kinds[only] = kinds[only]._replace(layers=layers)
    return list(kinds.values())


def layer_for(model: Model, chain: str, needed: Collection[str]) -> Layer | None:
    """Return the first layer of a model that a chain computes or is a part of; None of its ends.

    Args:
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
        raise ProblemError(f"{model.name} has no experts; take chain gated-mlp, or give experts and top_k")
    if "ffn" in needed and "experts" not in needed and experts:
        of_experts = SPARSE if chain == DENSE else "moe"
        raise ProblemError(
            f"{model.name} is a mixture of {experts.experts} experts: use --chain {of_experts}"
        )
    if "heads" in needed and any(isinstance(x.mixer, LatentAttention) for x in model.kinds):
        raise ProblemError(f"attention of {model.name} is by latent vectors, which chain {chain} has not")
    if set(needed) & {"heads", "ffn", "experts"}:
        _refuse(model, next(iter(model.kinds)), f"no layer is a chain {chain}")
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


def layer_sizes(model: Model, layer: Layer, needed: Collection[str] = ()) -> dict[str, int]:
    """Return the sizes of a layer, as a chain takes them.

    Args:
        model: The model that has it.
        needed: Names of the sizes that are asked for: of a part of it alone; all if empty.

    Raises:
        ProblemError: if no chain computes it, naming the key that says so.
    """
    sizes = {"hidden": model.hidden}
    complete = not needed
    if complete and (layer.mixer is None or len(layer.expansions) != 1):
        _refuse(model, layer, f"{layer.words} is not attention with an MLP or experts")
    if complete or "heads" in needed:
        sizes |= _attention_sizes(model, layer)
    if complete or "ffn" in needed:
        for part in layer.expansions:
            if isinstance(part, Experts) and (complete or "experts" in needed):
                sizes |= _expert_sizes(model, layer, part)
            elif isinstance(part, Mlp) and "experts" not in needed:
                sizes["ffn"] = part.ffn
            elif complete:
                _refuse(model, layer, f"{part.words} in place of an MLP is not simulated")
    return sizes


def _attention_sizes(model: Model, layer: Layer) -> dict[str, int]:
    mixer = layer.mixer
    if not isinstance(mixer, Attention | LatentAttention):
        _refuse(model, layer, f"{layer.words} is not simulated")
    if mixer.value != mixer.head:
        why = "heads of values that are not as wide as those of keys are not simulated"
        _refuse(model, layer, why, "v_head_dim")
    if mixer.gate:
        _refuse(model, layer, "a gate of attention's result is not simulated", "attn_output_gate")
    if isinstance(mixer, LatentAttention):
        if not mixer.q_rank:
            why = "latent attention without a latent vector of queries is not simulated"
            _refuse(model, layer, why, "q_lora_rank")
        latent = {"q_rank": mixer.q_rank, "kv_rank": mixer.kv_rank, "rope_dim": mixer.rope_dim}
        return {"heads": mixer.heads, "kv_heads": mixer.heads, "head_dim": mixer.head, **latent}
    sizes = {"heads": mixer.heads, "kv_heads": mixer.kv_heads}
    if mixer.window and not mixer.chunked:
        sizes["window"] = mixer.window
    return sizes if mixer.heads * mixer.head == model.hidden else sizes | {"head_dim": mixer.head}


def _expert_sizes(model: Model, layer: Layer, part: Experts) -> dict[str, int]:
    if part.latent:
        _refuse(model, layer, "experts of tokens with fewer columns are not simulated", "moe_latent_size")
    if not part.gated:
        _refuse(model, layer, "experts without a gate are not simulated", "mlp_hidden_act")
    shared, rest = divmod(part.shared_ffn, part.ffn)
    if rest:
        why = f"shared experts of {part.shared_ffn} columns are no multiple of {part.ffn}"
        _refuse(model, layer, why, "shared_expert_intermediate_size")
    return {"ffn": part.ffn, "experts": part.experts, "top_k": part.top_k, "shared": shared}


def is_gated(layer: Layer) -> bool:
    """Return whether its MLPs have a gate, three weights instead of two."""
    return all(x.gated for x in layer.expansions if isinstance(x, Mlp | Experts))


def _chain(layer: Layer) -> str:
    return SPARSE if layer.experts else DENSE


def _refuse(model: Model, layer: Layer, why: str, key: str = "") -> NoReturn:
    """Refuse to simulate a kind of layer.

    Raises:
        ProblemError: always, with the numbers of the layers and the key that says what they are.
    """
    numbers = [x for x, other in enumerate(model.layers) if other == layer]
    named = ", ".join(map(str, numbers[:MAX_NAMED_LAYERS])) + (
        " …" if len(numbers) > MAX_NAMED_LAYERS else ""
    )
    layers = f"layer {named}" if len(numbers) == 1 else f"layers {named}"
    key = key or model.order_key or "num_hidden_layers"
    raise ProblemError(f"{why}: {layers} of {model.name}, by its key {key}; umm model counts them")
