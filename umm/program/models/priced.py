"""Layers of a model as chains: the kinds of layer that a chain computes, and the sizes that it takes."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, NoReturn

from umm.dtypes import EXPANDED
from umm.errors import ProblemError
from umm.program.models.layers import (
    Attention,
    Beside,
    Experts,
    LatentAttention,
    Layer,
    Lightning,
    LinearAttention,
    Mamba,
    Mlp,
    Model,
    Selective,
    ShortConvolution,
)
from umm.program.models.weights import Quantization, Stored

DENSE, SPARSE = "transformer-layer", "moe-layer"
MAX_NAMED_LAYERS = 3  # layers that a message names
ATTENTION, MLP = "attention", "mlp"  # parts of a layer whose weights may have types of their own
POST_NORMS = 4  # norms of a layer from which the results of its parts are normalised too
INDEX = ("index_heads", "index_dim", "top_keys")  # sizes of the indexer of sparse attention
SCAN = ("scan_heads", "scan_groups", "scan_key", "scan_value", "delta", "decay_rank")
"""Sizes of a mixer by a recurrence, as chains take them."""
BESIDE = ("qk_norm", "k_eq_v", "qkv_bias", "out_bias", "mlp_bias")
"""Sizes of parts beside the products of a layer: norms of queries and keys, values that are keys, biases."""
_SCANS = (LinearAttention, Mamba, Selective, Lightning, Beside, ShortConvolution)


class PricedWeights(NamedTuple):
    """The types of a layer's weights as a simulation takes them."""

    types: Mapping[str, str]  # type of the weights of each part that has another than the chain
    stored: float  # bytes of the layer's weights in the file, over those that the simulation counts
    remark: str  # what the file says, and what is priced; empty where the file does not quantise


def weights_priced(model: Model, number: int, parts: Collection[str] = (ATTENTION, MLP)) -> PricedWeights:
    """Return the types of a layer's weights, as its ``quantization_config`` says.

    A part has the type of most of its weights.

    Args:
        parts: Parts of the layer that the chain computes; the weights of others do not count.
    """
    types = Quantization(model)
    by_part = {part: Counter[Stored]() for part in parts}
    exact = counted = 0.0
    for weight in model.layers[number].weights(model.hidden):
        part = MLP if weight.module.startswith("mlp") else ATTENTION
        if part not in by_part:
            continue
        stored = types.stored(weight.module, weight.linear, number)
        exact += weight.elements * stored.bits
        if weight.linear:
            by_part[part][stored] += weight.elements
        else:
            counted += weight.elements * stored.bits
    priced, names = dict[str, str](), dict[str, list[str]]()
    for part, stores in by_part.items():
        for stored in stores:
            if stored != types.usual:
                names.setdefault(stored.name, []).append(part)
        most = max(stores, key=stores.__getitem__, default=types.usual)
        dtype = _type_of(most)
        if dtype:
            priced[part] = dtype
        counted += stores.total() * (_BITS.get(dtype, 8.0) if dtype else types.usual.bits)
    if not names:
        return PricedWeights({}, 1.0, "")
    in_words = ", ".join(f"{name} ({' and '.join(where)})" for name, where in names.items())
    remark = f"weights are {in_words} by quantization_config"
    if integers := [x for x in names if x.startswith("int")]:
        remark += f", {' and '.join(integers)} expanded by kernels to the type of activations"
    if floats := [x for x in names if x in ("nvfp4", "mxfp4")]:
        remark += f", {' and '.join(floats)} multiplied in 4 bits where the machine has a rate, else expanded"
    return PricedWeights(priced, exact / counted, remark)


def head_priced(model: Model) -> str:
    """Return the type of a head that ``quantization_config`` names; empty for the type of the chain."""
    return "" if model.tied else _type_of(Quantization(model).stored("lm_head"))


def _type_of(stored: Stored) -> str:
    """Return a type of as many bits as a stored one, or the next that is priced; empty for the chain's."""
    if stored.name.startswith("float8"):
        return "fp8"
    if stored.name in ("nvfp4", "mxfp4"):
        return "fp4"
    bits = int(stored.name[3:]) if stored.name.startswith("int") else 0
    return "int4" if 0 < bits <= 4 else "int8" if 0 < bits <= 8 else ""


_BITS = {x: 8 * nbytes for x, nbytes in EXPANDED.items()} | {"fp4": 8 * EXPANDED["float4_e2m1"]}


def usual_chain(model: Model) -> str:
    """Return the chain of the kind of layer that a model has most of.

    ProblemError as :func:`kinds_priced` does.
    """
    return max(kinds_priced(model), key=lambda x: x.layers).chain


class Priced(NamedTuple):
    """Layers of a model that a chain computes in the same way."""

    kind: str  # name of the kind: `attention + experts`
    chain: str  # name of the chain
    sizes: Mapping[str, int]  # its sizes, tokens aside
    gated: bool  # whether its MLP has a gate
    layers: int  # how many there are
    first: int  # number of the first of them, from 0


def kinds_priced(model: Model, layers: int | None = None) -> list[Priced]:
    """Return the first layers of a model by kind, those together whose chains are the same.

    ProblemError for more layers than it has where they are of several kinds, or for a kind that no chain
    computes, with the key that says so.
    """
    kinds: dict[tuple[str, tuple[tuple[str, int], ...], bool], Priced] = {}
    chosen = model.layers[:layers]
    for number, layer in enumerate(chosen):
        chain, sizes = SPARSE if layer.experts else DENSE, layer_sizes(model, layer)
        key = chain, tuple(sorted(sizes.items())), is_gated(layer)
        before = kinds.get(key) or Priced(layer.words, chain, sizes, is_gated(layer), 0, number)
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
    """Return the most frequent kind of layer that a chain computes or is a part of; None of a model's ends.

    ProblemError if it has none, naming the chain that fits.
    """
    fits = [x for x in model.kinds if _fits(x, needed)]
    if fits:
        return max(fits, key=model.kinds.__getitem__)
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
    if not set(needed) & {"heads", "experts", "ffn"}:
        return False
    complete = "heads" in needed and "ffn" in needed
    if "experts" in needed:
        part = layer.experts is not None
    elif complete and "scan_heads" in needed:
        part = layer.experts is None
    else:
        part = "ffn" not in needed or any(isinstance(x, Mlp) for x in layer.expansions)
    if "heads" not in needed:
        return part
    scans = isinstance(layer.mixer, _SCANS) or (layer.mixer is None and complete)
    latent = isinstance(layer.mixer, LatentAttention) or scans
    return part and (isinstance(layer.mixer, Attention) or (latent and "kv_rank" in needed))


def layer_sizes(model: Model, layer: Layer, needed: Collection[str] = ()) -> dict[str, int]:
    """Return the sizes of a layer, as a chain takes them.

    ProblemError if no chain computes it, naming the key that says so.

    Args:
        needed: Names of the sizes that are asked for: of a part of it alone; all if empty.
    """
    sizes = {"hidden": model.hidden}
    complete = not needed or {"heads", "ffn"} <= set(needed)
    both = [x for x in layer.expansions if isinstance(x, Mlp)] if layer.experts else []
    if complete and (len(layer.expansions) > 1 + len(both) or not layer.blocks):
        _refuse(model, layer, f"{layer.words} is not a mixer of tokens with an MLP or experts")
    if complete and layer.norms >= POST_NORMS:
        sizes["post_norm"] = 1
    if complete or "heads" in needed:
        sizes |= _mixer_sizes(model, layer)
    if complete and not layer.expansions:
        sizes["ffn"] = 0
    if complete or "ffn" in needed:
        for part in layer.expansions:
            if isinstance(part, Experts) and (complete or "experts" in needed):
                # An MLP beside experts counts as shared ones.
                columns = part.shared_ffn + sum(x.ffn for x in both)
                shared, rest = divmod(columns, part.ffn)
                if rest:
                    why = f"shared experts of {columns} columns are no multiple of {part.ffn}"
                    _refuse(model, layer, why, "" if both else "shared_expert_intermediate_size")
                sizes |= {"ffn": part.ffn, "experts": part.experts, "top_k": part.top_k, "shared": shared}
                sizes |= {"latent": part.latent} if part.latent else {}
            elif isinstance(part, Mlp) and "experts" not in needed and not (complete and both):
                sizes |= {"ffn": part.ffn} | ({"mlp_bias": 1} if part.bias else {})
            elif complete and part not in both:
                _refuse(model, layer, f"{part.words} in place of an MLP is not simulated")
    return sizes


def _mixer_sizes(model: Model, layer: Layer) -> dict[str, int]:
    mixer, scan = layer.mixer, tuple[int, ...]()
    match mixer:
        case LinearAttention():
            scan = mixer.value_heads, mixer.key_heads, mixer.key, mixer.value, 1, mixer.decay_rank
        case Mamba():
            scan = mixer.heads, mixer.groups, mixer.state_dim, mixer.head, 0, 0
        case Selective():
            scan = mixer.inner, 1, mixer.state_dim, 1, 0, mixer.rank
        case Lightning():  # whose decays are fixed, where Mamba-2 makes one a head of each token
            scan = mixer.heads, mixer.heads, mixer.head, mixer.head, 0, 0
        case Beside():
            both = (replace(layer, mixer=x) for x in (mixer.mamba, mixer.attention))
            return dict(x for one in both for x in _mixer_sizes(model, one).items())
    if not isinstance(mixer, Attention | LatentAttention):
        if not (mixer is None or scan or isinstance(mixer, ShortConvolution)):
            _refuse(model, layer, f"{layer.words} is not simulated")
        more = {"taps": mixer.conv} if isinstance(mixer, ShortConvolution) else {}
        return {"heads": 0, "kv_heads": 0, **dict(zip(SCAN, scan, strict=False)), **more}
    more = {"gate": 1} if mixer.gate else {}
    more |= {"value_dim": mixer.value} if mixer.value != mixer.head else {}
    if mixer.indexer:
        chosen = mixer.indexer.heads, mixer.indexer.head, mixer.indexer.top_k
        more |= dict(zip(INDEX, chosen, strict=True))
    if isinstance(mixer, LatentAttention):
        latent = {"q_rank": mixer.q_rank, "kv_rank": mixer.kv_rank, "rope_dim": mixer.rope_dim}
        return {"heads": mixer.heads, "kv_heads": mixer.heads, "head_dim": mixer.head, **latent, **more}
    if mixer.window:
        more["chunk" if mixer.chunked else "window"] = mixer.window
    if mixer.heads * mixer.head != model.hidden:
        more["head_dim"] = mixer.head
    if mixer.norms:
        more["qk_norm"] = 2 if mixer.norms > 2 * mixer.head else 1
    if mixer.keys_only:
        more["k_eq_v"] = 1
    more |= {name: 1 for name, has in (("qkv_bias", mixer.bias), ("out_bias", mixer.out_bias)) if has}
    return {"heads": mixer.heads, "kv_heads": mixer.kv_heads, **more}


def is_gated(layer: Layer) -> bool:
    """Return whether its MLPs have a gate, three weights instead of two."""
    return all(x.gated for x in layer.expansions if isinstance(x, Mlp | Experts))


def _refuse(model: Model, layer: Layer, why: str, key: str = "") -> NoReturn:
    """Refuse to simulate a kind of layer."""
    numbers = [x for x, other in enumerate(model.layers) if other == layer]
    named = ", ".join(map(str, numbers[:MAX_NAMED_LAYERS])) + (
        " …" if len(numbers) > MAX_NAMED_LAYERS else ""
    )
    layers = f"layer {named}" if len(numbers) == 1 else f"layers {named}"
    key = key or model.order_key or "num_hidden_layers"
    raise ProblemError(f"{why}: {layers} of {model.name}, by its key {key}; umm model counts them")
