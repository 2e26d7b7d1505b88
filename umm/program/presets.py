"""Blocks of transformers as chains, by name: sizes in, an outline out; and the sizes of public models."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from umm.dtypes import BLOCK, EXPANDED, canonical, has_blocks, is_float8
from umm.errors import ProblemError, did_you_mean, expect
from umm.files import shown, whole_number
from umm.numbers import as_int, real_from_0, yes_or_no
from umm.program.mixture import SHORT, Mixture, with_casts
from umm.program.mixture import outline as mixture_outline
from umm.program.models import Model, find_model
from umm.program.models.priced import ATTENTION, BESIDE, INDEX, MLP, SCAN, is_gated, layer_for, layer_sizes
from umm.program.norms import LayerNorm, Norm
from umm.program.outline import Outline
from umm.program.parts import Attention, LatentAttention, Mlp, Part, Sizes, StoredAttention
from umm.program.recurrent import Beside, GatedConvolution, Recurrence, Selective
from umm.program.routing import Routing
from umm.program.statements import Statement, renamed
from umm.program.statements.attention import Fused
from umm.program.statements.maps import Map
from umm.program.statements.scan import Recurrent as Scanned
from umm.program.tensors import LARGEST
from umm.program.writing import LAYERED, Writing

_Writes = Callable[[Writing, str, str], Part]
"""Writes a part of a layer from one tensor to another."""
_LATENT = ("q_rank", "kv_rank", "rope_dim")
_STORED = ("heads", "kv_heads", "sequences", "head_dim")
_ATTENTION = (
    *_STORED, *_LATENT, "window", "value_dim", "chunk", "gate", *INDEX, *SCAN, "taps", *BESIDE, "post_norm",
)  # fmt: skip
_EXPERTS = ("hidden", "ffn", "experts", "top_k", "shared", "latent")
_OPTIONAL = {"sequences": 1, **dict.fromkeys(("head_dim", "shared", "latent", *_ATTENTION[4:]), 0)}
"""Sizes that need not be given, and what they are then."""
_PARTS = ("heads", "kv_heads", "ffn", "experts", "top_k")
"""Sizes that are 0 where a model's layer has no such part."""


def _alone(w: Writing, backward: bool, sizes: Sizes, part: _Writes) -> None:
    """Write one part from X to Y."""
    _ends(w, sizes["hidden"])
    only = part(w, "X", "Y")
    if backward:
        only.backward(_gradients(w))


def _mlp(w: Writing, backward: bool, sizes: Sizes, gated: bool = False) -> None:
    _alone(w, backward, sizes, partial(Mlp, ffn=sizes["ffn"], gated=gated))


def _attends(kind: type[Attention], sizes: Sizes) -> _Writes | None:
    """Return a writer of attention of some sizes, stored or fused, or of a recurrence; None without heads."""
    if sizes["scan_heads"]:
        scans = partial(Selective if sizes["decay_rank"] and not sizes["delta"] else Recurrence, sizes=sizes)
        attends = _attends(kind, {**sizes, **dict.fromkeys(SCAN, 0)})
        return partial(Beside, first=attends, second=scans) if attends else scans
    if sizes["taps"]:
        return partial(GatedConvolution, sizes=sizes)
    if not sizes["heads"]:
        return None
    return partial(LatentAttention if sizes["kv_rank"] else kind, sizes=sizes)


def _attention(w: Writing, backward: bool, sizes: Sizes, kind: type[Attention] = Attention) -> None:
    attend = _attends(kind, sizes)
    assert attend is not None
    _alone(w, backward, sizes, attend)


def _layer(w: Writing, backward: bool, sizes: Sizes, kind: type[Attention] = Attention) -> None:
    """Write R = X + attention(norm(X)), Y = R + mlp(norm(R)): Touvron et al. (2023), LLaMA, section 2.2."""
    ffn = sizes["ffn"]
    expand = partial(Mlp, ffn=ffn, gated=w.gated, bias=sizes["mlp_bias"]) if ffn else None
    _residual(w, backward, sizes, "R", _attends(kind, sizes), expand)


def _residual(
    w: Writing, backward: bool, sizes: Sizes, middle: str, attend: _Writes | None, expand: _Writes | None
) -> None:
    """Write X plus attention, plus another part, each of its normalised input; either may be missing."""
    # middle: name of X with what attention adds.
    _ends(w, sizes["hidden"])
    parts = [x for x in (attend, expand) if x is not None]
    ends = ["X", middle, "Y"] if parts[1:] else ["X", "Y"]
    for name in ends[1:-1]:
        w.tensor(name, w.tokens, sizes["hidden"], "tokens")
    added = [
        _Added(w, x, out, part, number, bool(sizes["post_norm"]))
        for number, ((x, out), part) in enumerate(zip(pairwise(ends), parts, strict=True), 1)
    ]
    if not parts[1:]:
        w.front_and_back = w.front_and_back or "row"
    if backward:
        _gradients(w)
        for part in reversed(added):
            part.backward()


class _Added:
    """out = x + part(norm(x)), or x + norm(part(norm(x))): Gemma team (2024), Gemma 2, section 2."""

    def __init__(self, w: Writing, x: str, out: str, part: _Writes, number: int, post: bool) -> None:
        self.w, self.x, self.out = w, x, out
        self.norm = Norm(w, x, f"N{number}", f"g{number}")
        result = w.tensor(f"P{number}", w.tokens, w.shapes[x].cols, "tokens") if post else out
        self.part = part(w, f"N{number}", result)
        self.post = Norm(w, result, out, f"p{number}") if post else None
        (w.fused_map if post else w.map)(out, "add", out, x)

    def backward(self) -> None:
        """Write the gradients by the weights and by x, given that by out."""
        w, dout = self.w, f"d{self.out}"
        grad = dout
        if self.post is not None:
            grad = w.gradient(self.post.x)
            self.post.backward(dout, grad)
        normed = w.gradient(self.norm.out)
        self.part.backward(grad)
        dx = f"d{self.x}" if self.x == "X" else w.gradient(self.x)
        self.norm.backward(normed, dx, dout)


def _head(w: Writing, backward: bool, sizes: Sizes) -> None:
    """Write the logits Y = norm(X)·Wv of a language model."""
    w.tensor("X", w.tokens, sizes["hidden"], "tokens", "input")
    norm = Norm(w, "X", "N", "g")
    w.weight("Wv", sizes["hidden"], sizes["vocab"], "first weight")
    w.multiply(w.tensor("Y", w.tokens, sizes["vocab"], "inner", "output"), "N", "Wv")
    if backward:
        w.gradients("Wv", "N", _gradients(w))
        norm.backward("dN", "dX")


def _embedding(w: Writing, backward: bool, sizes: Sizes) -> None:
    """Write the rows Y of an embedding's table E for tokens T, each rank its rows of the table."""
    # Source: Shoeybi et al. (2019), section 3: the table cut by vocabulary.
    w.tensor("T", w.tokens, 1, "statistics", "input")
    w.shapes["T"] = replace(w.shapes["T"], dtype="float32")  # whole numbers up to 2^24
    w.weight("E", sizes["vocab"], sizes["hidden"], "second weight")
    w.map(w.tensor("Y", w.tokens, sizes["hidden"], "tokens", "output"), "embed", "E", "T")
    if backward:
        w.backward()
        w.map(w.gradient("E", "output"), "embed_grad", w.gradient("Y", "input"), "T")


def _summa25(w: Writing, backward: bool, sizes: Sizes) -> None:
    """Write R = norm(X + attention(X)), Y = norm(R + mlp(R)): an encoder's layer of SUMMA2.5, section 3.2."""
    _ends(w, sizes["hidden"])
    for name in ("A", "R", "M"):
        w.tensor(name, w.tokens, sizes["hidden"], "tokens")
    attention = StoredAttention(w, "X", "A", {**sizes, "kv_heads": sizes["heads"]}, causal=False)
    w.map("A", "add", "A", "X")
    first = LayerNorm(w, "A", "R")
    mlp = Mlp(w, "R", "M", sizes["ffn"])
    w.map("M", "add", "M", "R")
    second = LayerNorm(w, "M", "Y")
    if not backward:
        return
    second.backward(_gradients(w), w.gradient("M"))
    w.gradient("R")
    mlp.backward("dM")
    w.map("dR", "add", "dR", "dM")
    first.backward("dR", "dR")
    attention.backward("dR")
    w.map("dX", "add", "dX", "dR")


def _mixture(w: Writing, backward: bool, sizes: Sizes, layer: bool = False) -> Outline:
    """Write a mixture of experts, alone or in a layer; return it with its own layouts."""
    # A layer is A = X + attention(norm(X)), Y = A + experts(norm(A)): Jiang et al. (2024), section 2.
    expand = partial(Mixture, sizes=sizes)
    if layer:
        _residual(w, backward, sizes, "A", _attends(Attention, sizes), expand)
    else:
        _alone(w, backward, sizes, expand)
    routed = Routing(w.tokens, sizes["experts"], sizes["top_k"], *w.routing)
    return mixture_outline(w, "moe-layer" if layer else "moe", routed)


def _ends(w: Writing, hidden: int) -> None:
    w.tensor("X", w.tokens, hidden, "tokens", "input")
    w.tensor("Y", w.tokens, hidden, "tokens", "output")


def _gradients(w: Writing) -> str:
    """Begin the backward part: dY is given, dX goes out; return dY."""
    w.backward()
    given = w.gradient("Y", "input")
    w.gradient("X", "output")
    return given


JORDAN = (3.4445, -4.7750, 2.0315)
"""Coefficients a, b and c of each of Muon's five steps. Source: Jordan (2024), Muon."""


def _newton_schulz(w: Writing, backward: bool, sizes: Sizes) -> None:
    """Write five steps X ← aX + (bA + cA²)X with A = X·Xᵀ; of more rows than columns X(bA + cA²), A = Xᵀ·X.

    X is first divided by the most that its norm can be with elements up to 1: a norm above 1 would diverge.
    An optimizer has no backward part, so none is added.
    """
    (a, b, c), hidden = JORDAN, sizes["hidden"]
    tall, side = w.tokens > hidden, min(w.tokens, hidden)
    for name, role in (("X", "input"), ("P", "work"), ("Q", "work"), ("Y", "output")):
        w.tensor(name, w.tokens, hidden, "inner", role)
    for name in ("A", "B", "S"):
        w.tensor(name, side, side, "tokens")
    w.map("P", "scale", "X", factor=(w.tokens * hidden) ** -0.5)
    for x, y in ("PQ", "QP", "PQ", "QP", "PY"):
        w.multiply("A", x, x, "a" if tall else "b")
        w.multiply("B", "A", "A", alpha=c)
        w.map("S", "add", "B", "A", factor=b)
        w.map(y, "scale", x, factor=a)
        w.multiply(y, *((x, "S") if tall else ("S", x)), beta=1.0)


class Preset(NamedTuple):
    """A chain by name: its writer and its sizes."""

    write: Callable[..., Outline | None]  # writes its tensors and statements; may return the chain
    sizes: tuple[str, ...]  # names of its sizes beside tokens
    wider: int = 0  # how many times as wide as hidden ffn is if not given; 0 if it has to be
    # Its own layouts by name, a text for each place of a tensor.
    layouts: Mapping[str, Mapping[str, str]] = {}

    @property
    def stores_scores(self) -> bool:
        """Whether it stores attention's scores and caches no keys, so that it cannot decode."""
        return "heads" in self.sizes and "kv_rank" not in self.sizes


PRESETS: Mapping[str, Preset] = {
    "mlp": Preset(_mlp, ("hidden", "ffn")),
    "gated-mlp": Preset(partial(_mlp, gated=True), ("hidden", "ffn")),
    "embedding": Preset(_embedding, ("hidden", "vocab")),
    "head": Preset(_head, ("hidden", "vocab")),
    "newton-schulz": Preset(_newton_schulz, ("hidden",)),
    "moe": Preset(_mixture, _EXPERTS),
    "moe-layer": Preset(partial(_mixture, layer=True), (*_EXPERTS, *_ATTENTION)),
    "attention": Preset(_attention, ("hidden", *_ATTENTION)),
    "transformer-layer": Preset(_layer, ("hidden", "ffn", *_ATTENTION)),
    "attention-stored": Preset(partial(_attention, kind=StoredAttention), ("hidden", *_STORED)),
    "transformer-layer-stored": Preset(partial(_layer, kind=StoredAttention), ("hidden", "ffn", *_STORED)),
    "summa25-layer": Preset(
        _summa25, ("hidden", "ffn", "heads", "sequences"), wider=4, layouts={"summa2.5": LAYERED}
    ),
}


def chain(
    name: str,
    *,
    model: str | Model | None = None,
    layer: int | None = None,
    backward: bool = False,
    dtype: str = "float32",
    dropout: float = 0.0,
    decode: bool = False,
    weights: str | Mapping[str, str] = "",
    cache: str = "",
    routing: str = "uniform",
    routing_seed: int = 0,
    capacity: float = 0.0,
    **sizes: int,
) -> Outline:
    """Return a preset chain, not yet laid out; its layouts are ``megatron``, ``sequence`` and ``data``.

    ``summa25-layer`` is an encoder's layer of SUMMA2.5, whose first layouts are ``summa2.5``.

    InputError in one line, for an unknown name, model or size, or sizes that do not fit.

    Args:
        name: ``mlp``, ``gated-mlp``, ``newton-schulz``, ``attention``, ``transformer-layer``, ``moe``,
            ``moe-layer`` or ``summa25-layer``.
        model: A public model whose sizes stand in for those not given, such as ``llama-3-70b``, or the path
            of a Hugging Face ``config.json``.
        layer: Number of the model's layer, from 0, that has these sizes; the first that the chain computes if
            not given.
        backward: Whether gradients by every weight and by X follow, given dY.
        dtype: Type of all tensors.
        weights: Type of the weights that multiply, such as ``fp8`` or ``int4``, if another, or those of the
            parts ``attention`` and ``mlp`` (or experts); see :func:`_with_weights`.
        cache: Type of the keys and values that are cached: ``fp8``, with a scale for each 128 elements, or
            that of the chain. Prompts then write them.
        dropout: Share of the activations between the multiplies of an MLP that are dropped; which ones does
            not depend on the layouts.
        decode: Whether it computes the next token of each of ``batch`` sequences, in place of tokens: the
            keys and values of ``context`` earlier tokens are inputs.
        routing: Which tokens go to which experts, of ``moe``: a rule of
            :class:`~umm.program.routing.Routing`.
        routing_seed: Of what it draws.
        capacity: How many times the mean of all experts one takes at most; later tokens' rows are dropped.
            0 for no limit.
        sizes: ``tokens``, ``hidden``, ``ffn``, ``heads``, ``kv_heads`` (all heads if not given),
            ``sequences`` (equal parts of the tokens; 1 if not given), ``head_dim`` (columns of a head, as
            many as make up hidden if not given), ``q_rank``, ``kv_rank`` and ``rope_dim`` (columns of the
            latent vectors of queries, of keys and values, and of positions; none if attention is by heads
            alone), ``window`` (tokens that one attends to, itself the last; all before it if not given),
            ``value_dim`` (columns of a head of values, if not those of keys), ``chunk`` (tokens within which
            attention stays), ``gate`` (1 where a gate multiplies its result), ``index_heads``, ``index_dim``
            and ``top_keys`` (of an indexer, and the keys it chooses), ``experts``, ``top_k``,
            ``shared`` (experts that all tokens take; none if not given) and ``latent`` (columns of the tokens
            that experts take, if fewer), as the preset needs them. In place of attention, ``scan_heads``,
            ``scan_groups``, ``scan_key``, ``scan_value``, ``delta`` and ``decay_rank`` are those of
            :class:`~umm.program.recurrent.Sizes`; with heads too, both read the same tokens and add up.
            ``taps`` are the tokens that a gated convolution sees, in place of attention. ``qk_norm`` is 1
            where queries and keys are normalised head by head, 2 over all heads, and ``k_eq_v`` is 1 where
            values are the keys before their norm, as in Gemma 4; ``qkv_bias``, ``out_bias``
            and ``mlp_bias`` are 1 where products have biases, ``post_norm`` where the results of a layer's
            parts are normalised too.

    >>> print(chain("mlp", hidden=8, ffn=16, tokens=4))
    mlp: H = X·W1; G = gelu(H); Y = G·W2
    """
    expect(name, str, "chain", f"a name: {', '.join(PRESETS)}")
    if name not in PRESETS:
        raise ProblemError(f"there is no chain {name!r}; {did_you_mean(name, PRESETS)}")
    backward, decode = yes_or_no(backward, "backward"), yes_or_no(decode, "decode")
    dropout, capacity = real_from_0(dropout, "dropout"), real_from_0(capacity, "capacity")
    expect(routing, str, "routing", "a rule such as uniform or zipf:1.2")
    routing_seed = whole_number(as_int(routing_seed), "routing_seed")
    layer = None if layer is None else whole_number(as_int(layer), "layer")
    sizes = {key: as_int(size) for key, size in sizes.items()}
    preset, drawn, dtype = PRESETS[name], (routing, routing_seed, capacity), canonical(dtype)
    context = _decoded(name, ("tokens", *preset.sizes), sizes, backward) if decode else 0
    sizes, gated = _completed(name, sizes, model, layer)
    _check_heads(sizes)
    if "heads" in preset.sizes:
        _check_sequences(sizes, decode)
    if dropout and ("ffn" not in preset.sizes or "experts" in preset.sizes):
        raise ProblemError(f"chain {name} has no MLP, whose activations dropout drops; leave it out")
    if drawn != ("uniform", 0, 0) and "experts" not in preset.sizes:
        raise ProblemError(f"chain {name} has no experts, so no routing; take chain moe, or leave it out")
    cached = _cached(cache, dtype, backward, name) if cache else ""
    writing = Writing(sizes["tokens"], dtype, dropout, context, gated, drawn, decode, cached, backward)
    written = preset.write(writing, backward, _OPTIONAL | sizes)
    written = written or writing.outline(name, preset.layouts)
    parts = (ATTENTION, MLP)
    by_part = weights if isinstance(weights, Mapping) else dict.fromkeys(parts, weights)
    for part in by_part:
        if part not in parts:
            raise ProblemError(f"weights has no part {shown(part)}; choose from {', '.join(parts)}")
    types = {part: canonical(stored) for part, stored in by_part.items()}
    types = {part: stored for part, stored in types.items() if stored not in ("", dtype)}
    return _with_weights(written, types) if types else written


def _completed(
    name: str, sizes: dict[str, int], model: str | Model | None, layer: int | None
) -> tuple[dict[str, int], bool]:
    """Return all sizes of a chain, given and of a model, and whether its MLPs have a gate."""
    preset, gated = PRESETS[name], True
    needed = ("tokens", *preset.sizes)
    for key in sizes:
        if key not in needed:
            raise ProblemError(f"chain {name} has no size {key!r}; {did_you_mean(key, needed)}")
    if model is not None:
        of_model, gated = model_sizes(name, model, layer)
        sizes = of_model | sizes
    scans = bool(sizes.get("scan_heads") or sizes.get("taps"))
    if scans:
        sizes = {"heads": 0} | sizes
    if preset.wider and "hidden" in sizes:
        sizes = {"ffn": preset.wider * sizes["hidden"]} | sizes
    if "kv_heads" in needed and "heads" in sizes:
        sizes = {"kv_heads": sizes["heads"]} | sizes
    sizes = {x: size for x, size in _OPTIONAL.items() if x in needed} | sizes
    missing = [x for x in needed if x not in sizes]
    if missing:
        raise ProblemError(f"chain {name} needs {', '.join(needed)}; give {' and '.join(missing)}")
    missing_parts = _PARTS if model is not None or scans else ()
    for key, size in sizes.items():
        least = 0 if key in missing_parts else _OPTIONAL.get(key, 1)
        whole_number(size, f"{key} of chain {name}", least, LARGEST)
    return sizes, gated


def _check_heads(sizes: Sizes) -> None:
    """Refuse heads and latent vectors that do not fit each other, or the columns."""
    latents = [sizes.get(x, 0) for x in _LATENT]
    heads = sizes.get("heads", 0)
    kv_heads = sizes.get("kv_heads", heads)
    if any(latents):
        if not all(latents[1:]):
            raise ProblemError("attention by latent vectors needs kv_rank and rope_dim; give both or none")
        if sizes["window"]:
            raise ProblemError("attention by latent vectors has no window; leave it out")
        if kv_heads != heads:
            raise ProblemError("latent vectors make keys and values for each head; leave out kv_heads")
    elif heads:
        wide = sizes.get("head_dim", 0) * heads or sizes["hidden"]
        if wide % (2 * heads):
            raise ProblemError(
                f"{wide} columns cannot be cut into {heads} heads of an even width, as rotary positions "
                "need; hidden must be a multiple of 2 · heads"
            )
        if sizes.get("k_eq_v") and (not sizes["qk_norm"] or sizes["value_dim"]):
            raise ProblemError(
                "values that are the keys before their norm need qk_norm and no value_dim; change these, or "
                "leave out k_eq_v"
            )
        if heads % kv_heads:
            raise ProblemError(
                f"{heads} heads cannot share {kv_heads} keys evenly; kv_heads must divide heads"
            )


def _check_sequences(sizes: Sizes, decode: bool) -> None:
    """Refuse tokens that are no sequences of one length, or these no chunks."""
    tokens, sequences, chunk = sizes["tokens"], sizes["sequences"], sizes.get("chunk", 0)
    length = tokens // sequences
    if chunk and length > chunk and length % chunk and not decode:
        raise ProblemError(
            f"sequences of {length} tokens are no multiple of the chunk of {chunk} that attention sees; "
            f"choose {length // chunk * chunk} or {-(-length // chunk) * chunk}"
        )
    if tokens % sequences:
        raise ProblemError(
            f"{tokens} tokens cannot be {sequences} sequences of one length; tokens must be a multiple "
            f"of sequences, such as {-(-tokens // sequences) * sequences}"
        )


def _cached(cache: str, dtype: str, backward: bool, name: str) -> str:
    """Return the type of a chain's cache by its full name."""
    stored = canonical(cache)
    if backward or "kv_rank" not in PRESETS[name].sizes:  # chains with stored scores cache no keys
        why = "gradients" if backward else "no fused attention"
        raise ProblemError(
            f"a cache is of attention's forward part; chain {name} has {why}: leave out --cache"
        )
    if stored == dtype:
        return stored
    refused = f"a cache of {{}} is not possible; choose fp8, e5m2 or the chain's own type {dtype}"
    return _in_8_bits(stored, refused)


ROUTER = "Wg"
"""Weight of a mixture's router, which checkpoints leave in 16 bits, as ``modules_to_not_convert`` says."""
_OF_MLP = re.compile(r"W(s?[0-9]|[gdu])")
"""Names of the weights of an MLP, of experts and of their router; others are attention's."""


def _with_weights(outline: Outline, types: Mapping[str, str]) -> Outline:
    """Return a forward part whose weights have 8 bits or fewer, as an engine serves it.

    Weights of int8, int4 and float4 are stored so, and expanded by the kernels that multiply by them. What a
    weight of fp8 multiplies is cast before, by the pass that wrote it where that is a map; products have the
    type of the chain. Both have a scale for each 128 elements. Weights of batched multiplies stay. Tokens
    travel to experts of fp8 in 8 bits too, as DeepEP sends them; sums come back in the type of the chain.
    """
    refused = "weights of {} are not possible; choose fp8, e5m2, int8, int4, fp4 or the chain's own type"
    types = {x: y if y in EXPANDED else _in_8_bits(y, refused) for x, y in types.items()}
    if any(x.name == "dY" for x in outline.tensors):
        raise ProblemError("weights of 8 bits or fewer are of a forward part; leave out backward")
    tensors, statements = {x.name: x for x in outline.tensors}, list[Statement]()
    for statement in outline.statements:
        weight = statement.factor
        quantized = weight in outline.weights and weight != ROUTER
        part = MLP if _OF_MLP.fullmatch(weight) else ATTENTION
        of_weight = types.get(part, "") if quantized else ""
        if of_weight in EXPANDED:
            tensors[weight] = replace(tensors[weight], stored=of_weight)
        of_tokens = types.get(MLP, "") if statement.to_experts else ""
        dtype = of_tokens or of_weight
        if not is_float8(dtype):
            statements.append(statement)
            continue
        read = statement.reads[0]
        short = f"{read}{SHORT}"
        if short not in tensors:
            written = max((i for i, x in enumerate(statements) if read in x.outs), default=-1)
            fused = written >= 0 and statements[written].passes
            cast = Map(short, "cast", (read,), fused=(read,) if fused else ())
            statements.insert(written + 1 if fused else len(statements), cast)
            tensors[short] = replace(tensors[read], name=short, dtype=dtype, role="work")
        names = {read: short}
        if of_tokens:
            rows = f"{statement.out}{SHORT}"
            tensors[rows] = replace(tensors.pop(statement.out), name=rows, dtype=dtype)
            names[statement.out] = rows
        else:
            tensors[weight] = replace(tensors[weight], dtype=dtype)
        statements.append(renamed(statement, names))
    return with_casts(outline, tensors, statements)


def _in_8_bits(dtype: str, refused: str) -> str:
    """Return a type of 8 bits by its full name, with scales for blocks; ProblemError for another."""
    if not isinstance(dtype, str) or not is_float8(dtype) or "x" in dtype:
        raise ProblemError(refused.format(str(dtype).partition(":")[0]))
    return dtype if has_blocks(dtype) else f"{dtype}:{BLOCK}"


def ends(layer: Outline, vocab: int, head: str = "") -> dict[str, Outline]:
    """Return the embedding before and the head after layers like this one, with gradients where it has them.

    Without gradients the head multiplies the last token of each sequence, whose logits give the next one.

    Args:
        head: Type of its weight, if not that of the layer.

    >>> [*map(str, ends(chain("mlp", hidden=8, ffn=16, tokens=4), 32).values())]
    ['embedding: Y = embed(E, T)', 'head: N = rms_norm(X, g); Y = N·Wv']
    """
    shapes = {x.name: x for x in layer.tensors}
    if "X" not in shapes:
        raise ProblemError(f"chain {layer.name} has no X, so no embedding gives it")
    x, backward = shapes["X"], "dY" in shapes
    tokens = {"embedding": x.rows, "head": next_tokens(layer.statements, shapes) or x.rows}
    weights = {"embedding": "", "head": head}
    return {
        name: chain(
            name, dtype=x.dtype, backward=backward, weights=weights[name],
            tokens=count, hidden=x.cols, vocab=vocab,
        )
        for name, count in tokens.items()
    }  # fmt: skip


def next_tokens(statements: Iterable[object], tensors: Collection[str]) -> int:
    """Return how many tokens follow those that layers compute: one a sequence.

    0 of layers with gradients, whose head has all tokens, and of layers without attention.
    """
    if "dY" in tensors:
        return 0
    return max((x.sequences for x in statements if isinstance(x, Fused | Scanned)), default=0)


def model_sizes(name: str, model: str | Model, layer: int | None = None) -> tuple[dict[str, int], bool]:
    """Return the sizes that a model gives a chain, and whether its MLPs have a gate.

    InputError in one line, if there is no such model, or no such layer in it.

    Args:
        layer: Number of the layer; the first that the chain computes if None.
    """
    needed = PRESETS[name].sizes
    known = find_model(model)
    if layer is None:
        chosen = layer_for(known, name, needed)
    else:
        chosen = known.layers[min(layer, len(known.layers) - 1)]
    sizes = {"hidden": known.hidden} | ({"vocab": known.vocab} if known.vocab else {})
    if chosen is not None:
        sizes |= layer_sizes(known, chosen, needed)
    given = {x: size for x, size in sizes.items() if x in needed}
    return given, chosen is None or is_gated(chosen)


def _decoded(name: str, needed: tuple[str, ...], sizes: dict[str, int], backward: bool) -> int:
    """Set the sizes of a chain that computes the next token of each sequence; return the tokens before it."""
    if backward or "tokens" in sizes or "sequences" in sizes:
        raise ProblemError("decoding is forward, one token a sequence; give batch and context alone")
    if PRESETS[name].stores_scores:
        raise ProblemError(f"chain {name} stores its scores and caches no keys; decode attention or another")
    batch = whole_number(sizes.pop("batch", 1), f"batch of chain {name}", 1, LARGEST)
    context = sizes.pop("context", 0)
    if "heads" in needed:
        sizes["sequences"] = batch
        whole_number(context, f"context of chain {name}, the tokens before the one decoded,", 1, LARGEST)
    elif context:
        raise ProblemError(f"chain {name} has no attention, so no context; leave it out")
    sizes["tokens"] = batch
    return context
