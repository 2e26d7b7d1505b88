"""Parameters of a model, in all and for one token, their bytes by type, and the bytes of its cache."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from umm.program.models.layers import Layer, Model, Weight
from umm.program.models.weights import Quantization, Stored, cache_bits

STATE_BYTES = 4  # bytes of an element of a state: float32, as Mamba-2 and the gated delta net keep it


@dataclass(frozen=True)
class KindCount:
    """Parameters of the layers of one kind."""

    kind: str  # its name
    count: int  # how many layers there are
    parameters: int  # of one layer
    active: int  # of these, those that multiply one token
    cache_bytes: int  # bytes that a token leaves in the cache of one layer
    state_bytes: int  # bytes of a sequence's state in one layer
    window: int  # tokens whose cache is kept; 0 if all
    first: int  # number of the first of them, from 0


@dataclass(frozen=True)
class Count:
    """Parameters of a model."""

    parameters: int  # in all, layers of multi-token prediction aside
    active: int  # of these, those that multiply one token; the rows of tables that it takes are none
    kinds: tuple[KindCount, ...]  # by kind of layer, by where it comes first
    ends: int  # of embedding, last norm and head
    vision: int  # of what turns pictures into tokens
    mtp: int  # of layers of multi-token prediction, which are not in `parameters`
    by_type: dict[str, int]  # bytes by the type that they are stored in, scales included
    # Bytes that a token leaves in the caches of all layers, while it is inside every window.
    cache_bytes_per_token: int
    window_bytes_per_token: int  # of these, the bytes in layers with a window
    cache_type: str  # type of the cache
    state_bytes: int  # bytes of a sequence's states, whatever its length
    not_modelled: dict[str, str]  # keys that are not priced or not understood, and a remark on each

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as ``umm model --json`` prints them."""
        return {
            "parameters": self.parameters,
            "active_parameters": self.active,
            "layers": [
                {
                    "kind": x.kind,
                    "count": x.count,
                    "parameters": x.parameters,
                    "active_parameters": x.active,
                    "cache_bytes_per_token": x.cache_bytes,
                    "window": x.window or None,
                }
                for x in self.kinds
            ],
            "ends_parameters": self.ends,
            "vision_parameters": self.vision,
            "mtp_parameters": self.mtp,
            "bytes_by_type": self.by_type,
            "bytes": sum(self.by_type.values()),
            "cache_bytes_per_token": self.cache_bytes_per_token,
            "window_cache_bytes_per_token": self.window_bytes_per_token,
            "cache_type": self.cache_type,
            "state_bytes_per_sequence": self.state_bytes,
            "not_modelled": list(self.not_modelled),
            "remarks": self.not_modelled,
        }


CACHE_BITS = {"bfloat16": 16, "fp8": 8, "fp4": 4}  # bits of an element of a cache, by type


def count(model: Model, cache: str = "") -> Count:
    """Return the parameters of a model.

    Args:
        cache: Type of the cache, one of :data:`CACHE_BITS`; as its ``quantization_config`` says if empty.

    >>> from umm.program.models import find_model
    >>> llama = count(find_model("llama-3-8b"))
    >>> llama.parameters, llama.cache_bytes_per_token, [(x.kind, x.count) for x in llama.kinds]
    (8030261248, 131072, [('attention + mlp', 32)])
    """
    types = Quantization(model)
    bits: defaultdict[Stored, int] = defaultdict(int)
    of_kind: dict[Layer, tuple[int, int]] = {}
    for layer in model.kinds:
        of_kind[layer] = _added(layer.weights(model.hidden))
    for number, layer in enumerate(model.layers):
        for weight in layer.weights(model.hidden):
            bits[types.stored(weight.module, weight.linear, number)] += weight.elements
    ends, ends_active = _added(model.ends())
    for weight in model.ends():
        bits[types.stored(weight.module, weight.linear)] += weight.elements
    bits[types.usual] += model.vision
    of_cache = CACHE_BITS[cache] if cache else cache_bits(model.quantization) or 16
    kinds = tuple(
        KindCount(
            name,
            many,
            *of_kind[layer],
            cache_bytes=layer.cache * of_cache // 8,
            state_bytes=getattr(layer.mixer, "state", 0) * STATE_BYTES,
            window=layer.mixer.window if layer.mixer else 0,
            first=model.layers.index(layer),
        )
        for name, (layer, many) in zip(kind_names(model), model.kinds.items(), strict=True)
    )
    per_kind = [(of_kind[layer], many) for layer, many in model.kinds.items()]
    return Count(
        parameters=sum(each * many for (each, _), many in per_kind) + ends + model.vision,
        active=sum(each * many for (_, each), many in per_kind) + ends_active,
        kinds=kinds,
        ends=ends,
        vision=model.vision,
        mtp=sum(_added(x.weights(model.hidden))[0] + 2 * model.hidden**2 for x in model.mtp),
        by_type=_bytes(bits),
        cache_bytes_per_token=sum(x.cache_bytes * x.count for x in kinds),
        window_bytes_per_token=sum(x.cache_bytes * x.count for x in kinds if x.window),
        cache_type=next(name for name, bits in CACHE_BITS.items() if bits == of_cache),
        state_bytes=sum(x.state_bytes * x.count for x in kinds),
        not_modelled=dict(model.not_modelled),
    )


def kind_names(model: Model) -> list[str]:
    """Return a name for each kind of layer, with the number of the first where several would share one.

    >>> from umm.program.models import find_model
    >>> kind_names(find_model("deepseek-v3"))
    ['latent attention + mlp', 'latent attention + experts']
    """
    words = [x.words for x in model.kinds]
    often = Counter(words)
    return [
        f"{name} from layer {model.layers.index(layer)}" if often[name] > 1 else name
        for name, layer in zip(words, model.kinds, strict=True)
    ]


def _added(weights: Iterable[Weight]) -> tuple[int, int]:
    """Return the elements of weights, and those that multiply a token."""
    elements = active = 0
    for weight in weights:
        elements, active = elements + weight.elements, active + weight.active
    return elements, active


def _bytes(bits: dict[Stored, int]) -> dict[str, int]:
    """Return bytes by type, most first."""
    sizes = {stored.name: round(stored.bits * elements / 8) for stored, elements in bits.items() if elements}
    return dict(sorted(sizes.items(), key=lambda x: -x[1]))
