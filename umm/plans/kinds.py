"""Time and memory of a model with several kinds of layers, each kind simulated by itself."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from umm.plans.steady import KindTime, Steady


def together(kinds: Mapping[str, Steady]) -> Steady:
    """Add up layers of several kinds that run one after another.

    Seconds, bytes and flop add up by count. Layers of one kind overlap their neighbours as if all of a kind
    came in a row; where two kinds meet nothing overlaps. Of memory, what each layer keeps adds up, and what
    one layer after another uses is the most of any kind. The trace is of the kind that takes longest.

    Args:
        kinds: All layers of each kind, by its name.
    """
    main = max(kinds.values(), key=lambda x: x.makespan_s)
    if len(kinds) == 1:
        return main
    every = kinds.values()
    layers = sum(x.layers for x in every)
    memory, moved, breakdown, parts = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for kind in every:
        memory.update(kind.held)
        moved.update(kind.moved)
        breakdown.update(kind.breakdown)
        parts.update({x: seconds * kind.layers / layers for x, seconds in kind.parts.items()})
    # Layers run one after another and reuse the same working memory; what they hold stays.
    used_in_turn = max(x.memory_bytes - sum(x.held.values()) for x in every)
    layer_s = sum(x.layer_s * x.layers for x in every) / layers
    return replace(
        main,
        layers=layers,
        # A kind without attention has none of it to compute again.
        recompute=next((x.recompute for x in every if x.recompute != "none"), "none"),
        layer_s=layer_s,
        range_s=(layer_s, layer_s),
        makespan_s=sum(x.makespan_s for x in every),
        parts=parts,
        breakdown=breakdown,
        moved=moved,
        memory_bytes=sum(memory.values()) + used_in_turn,
        flop=sum(x.flop for x in every),
        held=memory,
        kept_bytes=max(x.kept_bytes for x in every),
        layer_bytes=max(x.layer_bytes for x in every),
        waits=any(x.waits for x in every),
        kinds={label: KindTime(x.layers, x.layer_s, x.makespan_s) for label, x in kinds.items()},
    )


def weights_stored(layers: Steady, share: float) -> Steady:
    """Return layers whose weights are stored in fewer bytes than their multiplies are priced with.

    Args:
        layers: With weights of the priced type.
        share: Bytes of the weights as stored, over those that were counted.
    """
    weights = layers.held.get("weights", 0)
    if share == 1 or not weights:
        return layers
    saved = round(weights * (1 - share))
    return replace(
        layers,
        held={**layers.held, "weights": weights - saved},
        memory_bytes=layers.memory_bytes - saved,
        layer_bytes=layers.layer_bytes - saved // layers.layers,
    )
