"""Random fused attention, perhaps with gradients or a cache, on some ranks and in any layouts."""

from hypothesis import strategies as st
from strategies import layout_texts

from umm.program import Attention, AttentionGrad, Outline
from umm.program.outline import Shape

WAYS = ("auto", "gather", "ring")


@st.composite
def attentions(draw):
    """Attention, perhaps its gradients or a cache of earlier keys, on some ranks, in any layouts."""
    ranks, sequences = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    head, share, of_keys = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    queries, more = draw(st.integers(1, 9)), draw(st.integers(0, 3))
    backward, cached = draw(st.booleans()), draw(st.booleans())
    how = {"head": head, "share": share, "sequences": sequences, "causal": draw(st.booleans())}
    how["way"] = draw(st.sampled_from(WAYS))
    rotary, values = draw(st.sampled_from([0, 0, 1, 2])), "K" if draw(st.booleans()) and not backward else "V"
    if how["causal"] and not (cached and not backward) and draw(st.booleans()):
        how["window"] = draw(st.integers(1 + more * backward, 9))
    value = draw(st.sampled_from([head, 1, 4])) if values == "V" else head
    chunks = draw(st.sampled_from([1, 1, 2]))
    how |= {"value": 0 if value == head else value, "chunks": chunks}
    parts = sequences * chunks
    rows, keys = queries * parts, (queries + more) * parts
    wide, narrow = head * share * of_keys, head * of_keys
    result, stored = value * share * of_keys, value * of_keys
    cache = () if backward or not cached else ("Kc", f"{values}c")
    shapes = {"Q": (rows, wide), "K": (keys, narrow), values: (keys, stored)}
    earlier = draw(st.integers(1, 5)) * parts
    shapes |= dict(zip(cache, ((earlier, narrow), (earlier, stored)), strict=False))
    shapes |= {"dO": (rows, result)} if backward else {}
    turned = {"Qr": (rows, wide // head * rotary), "Kr": (keys, rotary)} if rotary else {}
    shapes |= turned
    how |= {"rotary": tuple(turned), "scaled": draw(st.sampled_from([0, 3]))}
    if rotary and cache:
        cache, shapes["Krc"] = (*cache, "Krc"), (earlier, rotary)
    small = cache if draw(st.booleans()) else ()
    inputs = [
        Shape(name, *shape, "float8_e4m3:128" if name in small else "float64", "input")
        for name, shape in shapes.items()
    ]
    results = {"O": (rows, result), "L": (rows, wide // head)}
    statements = [Attention("O", "Q", "K", values, "L", cache=cache, **how)]
    if backward:
        results |= {"dQ": (rows, wide), "dK": (keys, narrow), "dV": (keys, stored)}
        gradients = {f"d{name}": shape for name, shape in turned.items()}
        results |= gradients
        how |= {"drotary": tuple(gradients)} if rotary else {}
        statements.append(AttentionGrad("dQ", "dK", "dV", "Q", "K", "V", "O", "L", "dO", **how))
    outputs = [Shape(name, *shape, "float64", "output") for name, shape in results.items()]
    tensors = (*inputs, *outputs)
    if draw(st.booleans()):  # so that keys can go round
        texts = dict.fromkeys((x.name for x in tensors), draw(st.sampled_from(ALIKE)).format(sequences))
    else:
        texts = {x.name: draw(layout_texts((x.rows, x.cols), ranks)) for x in tensors}
    return Outline("attention", tensors, tuple(statements)).laid_out(texts, ranks)


ALIKE = ("row", "zigzag", "zigzag:{}", "row:balanced", "col")
