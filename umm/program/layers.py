"""A chain repeated as the layers of a model: forward one after another, then backward in reverse."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from umm.errors import ProblemError, did_you_mean
from umm.files import whole_number
from umm.program.outline import Outline, Shape
from umm.program.statements import Statement, renamed

RECOMPUTE = ("none", "attention", "all")
"""What the backward part computes again: nothing; what attention reads and gives; all but a layer's input."""
X, Y, DX, DY = "X", "Y", "dX", "dY"
CACHE = ".cache"  # how the names of tensors end that each layer keeps for later tokens


class Parts(NamedTuple):
    """The statements of a layer."""

    forward: tuple[Statement, ...]  # those of the forward part
    backward: tuple[Statement, ...]  # those of the backward part, none of a forward part alone
    again: tuple[Statement, ...]  # those of the forward part that come again before the backward part
    kept: frozenset[str]  # tensors of the forward part that stay until the backward part reads them


def repeated(outline: Outline, layers: int, recompute: str = "none", inner: bool = False) -> Outline:
    """Return a chain of some equal layers, each like a chain that takes X and gives Y of one shape.

    Weights, their gradients and what is kept for the backward part are of each layer; all else is memory that
    the layers use one after another. ProblemError if the chain has no X and Y of one shape, or for what
    cannot be computed again.

    Args:
        inner: Whether others follow, so that the last layer too gathers and computes again for its backward
            part.

    >>> from umm.program.presets import chain
    >>> print(repeated(chain("mlp", hidden=8, ffn=16, tokens=4), 2))
    mlp: H = X·W1.0; G = gelu(H); Y.0 = G·W2.0; H = Y.0·W1.1; G = gelu(H); Y = G·W2.1
    """
    whole_number(layers, "layers", 1)
    if not is_layer(outline):
        raise ProblemError(
            f"chain {outline.name} has no X and Y of one shape, so its layers do not follow each other"
        )
    parts = parts_of(outline, recompute)
    names = [_names(outline, parts, layer, layers) for layer in range(layers)]
    statements = [renamed(x.from_memory(X), names[0]) for x in parts.forward]
    statements += [renamed(x, names[layer]) for layer in range(1, layers) for x in parts.forward]
    for layer in reversed(range(layers)) if parts.backward else ():
        last = layer == layers - 1 and not inner
        # What the last layer has just computed is there still.
        again = () if last and recompute != "none" else parts.again
        again = again if last else (*again, *_gathered(parts, again))
        # Weights gathered to compute again are there still: FSDP gathers them once for both.
        backward = (x for x in parts.backward if not (x.moves_only and x in again))
        statements += [renamed(x, names[layer]) for x in (*again, *backward)]
    tensors: dict[str, Shape] = {}
    layouts: dict[str, dict[str, str]] = {scheme: {} for scheme in outline.layouts}
    for layer, called in enumerate(names):
        for x in outline.tensors:
            name = called[x.name]
            tensors.setdefault(name, replace(x, name=name, role=_role(x, layer, layers)))
            for scheme, texts in outline.layouts.items():
                if x.name in texts:
                    layouts[scheme][name] = texts[x.name]
    kept = dict.fromkeys(called[x] for called in names for x in outline.kept)
    weights = [called[x] for called in names for x in outline.weights]
    return Outline(
        outline.name, tuple(tensors.values()), tuple(statements), tuple(kept), layouts, tuple(weights)
    )


def is_layer(outline: Outline) -> bool:
    """Return whether a chain has an X and a Y of one shape, so that it can follow itself."""
    shapes = [(x.rows, x.cols) for x in outline.tensors if x.name in (X, Y)]
    return len(shapes) == 2 and shapes[0] == shapes[1]


def of_layers(
    outline: Outline, layers: int, by_name: Mapping[str, str], recompute: str = "none"
) -> dict[str, str]:
    """Return an entry of each tensor of some layers, given one of each tensor of a layer."""
    parts = parts_of(outline, recompute)
    called = (_names(outline, parts, layer, layers) for layer in range(layers))
    return {names[x]: entry for names in called for x, entry in by_name.items()}


def parts_of(outline: Outline, recompute: str = "none") -> Parts:
    """Return the statements of a layer, and the tensors that it keeps.

    ProblemError if there is no such way to compute again, or nothing of the kind in the chain.
    """
    if recompute not in RECOMPUTE:
        raise ProblemError(f"recompute {recompute!r} is unknown; {did_you_mean(recompute, RECOMPUTE)}")
    first = next((i for i, x in enumerate(outline.statements) if DY in x.reads), len(outline.statements))
    forward, backward = outline.statements[:first], outline.statements[first:]
    kept = frozenset(outline.kept) - {X, Y}
    if recompute == "none" or not backward:
        return Parts(forward, backward, (), kept)
    if recompute == "all":
        dropped = kept
    else:
        dropped = frozenset(name for x in forward if x.attends for name in (*x.outs, *x.reads))
        if not dropped:
            raise ProblemError(f"chain {outline.name} has no attention to compute again; choose none or all")
    return Parts(forward, backward, tuple(_again(forward, kept, dropped)), kept - dropped)


def copies(outline: Outline, layers: int, recompute: str = "none", written: bool = False) -> dict[str, int]:
    """Return how many of each tensor of a layer some layers have: of ``dX`` at most three, used in turn.

    Of a forward part alone two outputs are enough, which no layer has to keep.

    Args:
        written: Whether to count those of :func:`repeated`, where each layer has an output of its own.

    >>> from umm.program.presets import chain
    >>> copies(chain("mlp", hidden=8, ffn=16, tokens=4), 80)
    {'X': 1, 'Y': 2, 'W1': 80, 'W2': 80, 'H': 1, 'G': 1}
    """
    parts = parts_of(outline, recompute)
    called, most = _names(outline, parts, 1, 3), {DX: 3}  # one in the middle
    if not (parts.backward or written):
        most[Y] = 2
    per_layer = {x.name: called[x.name] == f"{x.name}.1" for x in outline.tensors}
    return {
        x: min(layers, most[x]) if x in most else layers if of_each else 1 for x, of_each in per_layer.items()
    }


def _gathered(parts: Parts, again: Sequence[Statement]) -> Iterator[Statement]:
    """Yield the copies that the last layer's backward part still has, and that of others makes again."""
    copied = {x.out: x for x in parts.forward if x.moves_only and x.out not in parts.kept}
    written = {name for x in again for name in x.outs}
    for statement in parts.backward:
        yield from (copied[x] for x in statement.reads if x in copied and x not in written)
        written.update(statement.reads, statement.outs)


def _again(
    forward: Sequence[Statement], kept: frozenset[str], dropped: frozenset[str]
) -> Iterator[Statement]:
    """Yield the statements that compute dropped tensors again, in order."""
    wanted, needed = set(dropped), []
    for statement in reversed(forward):
        if wanted & set(statement.outs):
            needed.append(statement)
            # Inputs that are not kept have to be computed again as well; in place, also the value before.
            wanted |= {x for x in statement.reads if x not in kept - dropped}
    yield from reversed(needed)


def _names(outline: Outline, parts: Parts, layer: int, layers: int) -> Mapping[str, str]:
    """Return the names of a layer's tensors among several layers."""
    per_layer = {*outline.weights, *(f"d{x}" for x in outline.weights), *parts.kept}
    names = {x.name: f"{x.name}.{layer}" if x.name in per_layer else x.name for x in outline.tensors}
    names |= {x: f"{x}.{layer}" for x in names if x.endswith(CACHE)}
    ends = {
        X: X if layer == 0 else f"{Y}.{layer - 1}",
        Y: Y if layer == layers - 1 else f"{Y}.{layer}",
        DX: DX if layer == 0 else f"{DX}.{layer % 2}",
        DY: DY if layer == layers - 1 else f"{DX}.{(layer + 1) % 2}",
    }
    return names | {x: name for x, name in ends.items() if x in names}


def _role(x: Shape, layer: int, layers: int) -> str:
    """Return the role of a tensor of a layer: those between layers are neither inputs nor outputs."""
    inner = {X: layer > 0, DX: layer > 0, Y: layer < layers - 1, DY: layer < layers - 1}
    return "work" if inner.get(x.name, False) else x.role
