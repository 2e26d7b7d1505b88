"""A mixture of experts as a part of presets: gate, dispatch, the experts' gated MLPs, combine; and gradients.

Experts' weights are stored alike, ``hidden`` rows and ``ffn`` columns for each expert; that of the second
multiply is read transposed. So one cut by experts and by columns of ``ffn`` serves all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from umm.dtypes import is_float8
from umm.errors import ProblemError
from umm.layouts.text import read_form
from umm.program.outline import Outline, Shape
from umm.program.parts import Mlp
from umm.program.routing import Routing
from umm.program.schemes import shared_rule
from umm.program.statements import Statement, renamed
from umm.program.statements.combine import Combine
from umm.program.statements.dispatch import Dispatch
from umm.program.statements.grouped import Grouped, summing_copies
from umm.program.statements.maps import Map
from umm.program.statements.routed import routings
from umm.program.writing import Writing

# Where a tensor lies if experts are cut over ranks (GShard, Lepikhin et al. 2020), if each expert's columns
# are (Megatron, Shoeybi et al. 2019), and if every rank has all experts and a share of the rows.
PLACES = {
    "tokens": ("row", "row", "row"),
    "statistics": ("row", "row", "row"),
    "scale": ("row@p", "row@p", "row@p"),
    "routed": ("experts", "row@p", "row"),
    "product": ("experts", "col", "row"),
    "routed inner": ("experts", "col", "row"),
    "weight": ("experts", "col", "row@p"),
    "cache": ("row", "row@p", "row"),
    # What is dense beside them: by tokens, or cut as by Korthikanti et al. (2022).
    "inner": ("row", "col", "row"),
    "first weight": ("row@p", "col", "row@p"),
    "second weight": ("row@p", "row", "row@p"),
}
SCHEMES = ("expert", "tensor", "whole")


class Mixture:
    """Y = the sum over a token's experts of its gate's share times (silu(X·W1) * X·W3)·W2ᵀ.

    Shared experts, which every token takes, are one MLP beside, as wide as all of them. Without a gate,
    experts are gelu(X·W1)·W2ᵀ. Tokens may be made shorter before they travel to experts, and long again.

    Source: Jiang et al. (2024), Mixtral of experts, section 2.1.
    """

    def __init__(self, w: Writing, x: str, y: str, sizes: Mapping[str, int]) -> None:
        self.routed = routed = Routing(w.tokens, sizes["experts"], sizes["top_k"], *w.routing)
        self.w, self.x, self.text, self.names = w, x, str(routed), ("W1", "W3") if w.gated else ("W1",)
        self.latent, hidden, ffn = sizes["latent"], w.shapes[x].cols, sizes["ffn"]
        columns, latent = self.latent or hidden, self.latent
        w.weight("Wg", hidden, routed.experts, "scale")
        for name in (*self.names, "W2"):
            w.weight(name, routed.places * columns, ffn, "weight")
        w.multiply(w.tensor("Lg", w.tokens, routed.experts, "tokens"), x, "Wg")
        w.map(w.tensor("P", w.tokens, routed.experts, "tokens"), "routed_softmax", "Lg", routing=self.text)
        source, sums = ("Xl", "Yl") if latent else (x, y)
        if latent:
            for name, size in (("Wd", (hidden, latent)), ("Wu", (latent, hidden))):
                w.weight(name, *size, "scale")
            for name in ("Xl", "Yl"):
                w.tensor(name, w.tokens, latent, "tokens")
            w.multiply("Xl", x, "Wd")
        w.statements.append(Dispatch(self.rows("R", columns, "routed"), source, self.text))
        w.statements.append(Dispatch(self.rows("S", 1, "routed"), "P", self.text, gates=True))
        # Engines keep W1 and W3 side by side: one kernel multiplies by both, and so do those of gradients.
        beside = ""
        for weight in self.names:
            out = self.rows(f"H{weight[1]}", ffn, "routed inner")
            w.statements.append(Grouped(out, "R", weight, self.text, beside=beside))
            beside = out
        w.map(self.rows("G", ffn, "routed inner"), *(("silu_mul", "H1", "H3") if w.gated else ("gelu", "H1")))
        w.statements.append(Grouped(self.rows("Z", columns, "product"), "G", "W2", self.text, ("b",)))
        w.statements.append(Combine(sums, "Z", self.text, "S"))
        if latent:
            w.multiply(y, "Yl", "Wu")
        shared = sizes["shared"] * ffn
        self.shared = Mlp(w, x, y, shared, w.gated, "s") if shared else None

    def rows(self, name: str, cols: int, place: str) -> str:
        """Add a routed tensor; return its name."""
        return self.w.tensor(name, self.routed.rows, cols, place)

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights, by the gate's weight and by X."""
        w, add, columns = self.w, self.w.statements.append, self.w.shapes["R"].cols
        sums, into = dy, f"d{self.x}"
        if self.latent:
            sums, into = w.gradient("Yl"), w.gradient("Xl")
            w.gradients("Wu", "Yl", dy)
        add(Dispatch(self.rows("D", columns, "routed"), sums, self.text, again=True))
        # Of each row's gate the gradient is that of G times the gate (as Megatron weights activations), so
        # nothing reads Z again, and ranks with some columns of an expert need not add it up row by row.
        add(Grouped(w.gradient("G"), "D", "W2", self.text))
        w.map(w.gradient("S"), "row_dot", "G", "dG")
        w.fused_map(self.rows("Vg", w.shapes["G"].cols, "routed inner"), "mul_rows", "G", "S")
        add(Grouped(w.gradient("W2", "output"), "D", "Vg", self.text, ("a",)))
        w.map("dG", "mul_rows", "dG", "S")
        w.activation_gradients("dG", *(f"H{name[1]}" for name in self.names))
        beside = ""
        for name in self.names:
            out = w.gradient(name, "output")
            add(Grouped(out, "R", f"dH{name[1]}", self.text, ("a",), beside=beside))
            beside = out
        self.rows("U", columns, "product")  # by R, which has Z's layout: the summed dimension is cut alike
        beside = ""
        for name in self.names:
            add(Grouped("U", f"dH{name[1]}", name, self.text, ("b",), add=bool(beside), beside=beside))
            beside = "U"
        add(Combine(into, "U", self.text))
        add(Combine(w.gradient("P"), "dS", self.text, gates=True))
        w.map(w.gradient("Lg"), "softmax_grad", "P", "dP")
        w.gradients("Wg", self.x, "dLg")
        if self.latent:
            w.gradients("Wd", self.x, "dXl")
        if self.shared is not None:
            self.shared.backward(dy)


def outline(w: Writing, name: str, routed: Routing) -> Outline:
    """Return the mixture's outline, with layouts by experts, within them, and with all of them everywhere."""
    edges = {x: tuple(routed.edges.tolist()) for x in ("routed", "product", "routed inner")}
    shapes = []
    for x in w.shapes.values():
        place, height = w.places[x.name], x.rows // routed.places
        equal = tuple(expert * height for expert in range(routed.places + 1))
        shapes.append(
            replace(x, experts=edges.get(place, equal if place == "weight" else ()), whole=place == "routed")
        )
    layouts: Mapping[str, Mapping[str, str]] = {
        scheme: {x: _text(place, number, w.front_and_back, w.decode) for x, place in w.places.items()}
        for number, scheme in enumerate(SCHEMES)
    }
    return Outline(
        name,
        tuple(shapes),
        tuple(w.statements),
        w.kept(("tokens", "statistics", "inner", "routed", "product", "routed inner")),
        layouts,
        tuple(w.weights),
    )


def _text(place: str, scheme: int, front_and_back: str, decoded: bool) -> str:
    """Return a layout of a place; tokens that attention reads by rows balance its causal mask."""
    # Few tokens, as are decoded, are on every rank where their experts are cut, as servers have them.
    text = PLACES[place][scheme]
    if decoded and place in ("tokens", "statistics") and SCHEMES[scheme] == "tensor":
        return "row@p"
    by_tokens = place in ("tokens", "statistics", "inner") and SCHEMES[scheme] != "tensor"
    return front_and_back if by_tokens and front_and_back else text


def in_parts(outline: Outline, parts: int) -> Outline:
    """Return a mixture that serves each rank's experts in parts, so that moves hide behind multiplies."""
    return _moved(outline, parts=parts)


def each_by_itself(outline: Outline) -> Outline:
    """Return a mixture that moves each choice of a token by itself, in one kernel for low latency."""
    return _moved(outline, each=True)


def _moved(outline: Outline, **how: Any) -> Outline:
    """Return a mixture that moves rows another way; gates as before."""
    statements = tuple(replace(x, **how) if x.moves_rows else x for x in outline.statements)
    return replace(outline, statements=statements)


EIGHT_BITS, SHORT = "float8_e4m3:128", ".fp8"
"""The type that tokens travel in, and how the names of tensors end that are others cast to 8 bits."""


def in_8_bits(outline: Outline) -> Outline:
    """Return a mixture whose tokens travel to experts in 8 bits, with a scale for each 128 elements.

    They are cast before and back after, unless they have 8 bits; sums come back in the type they have, as
    DeepSeek-V3 does it.
    """
    tensors, statements = {x.name: x for x in outline.tensors}, list[Statement]()
    for statement in outline.statements:
        read = next(iter(statement.reads), "")
        if not statement.to_experts or is_float8(tensors[read].dtype):
            statements.append(statement)
            continue
        sent = {name: f"{name}{SHORT}" for name in (read, statement.out)}
        cast = [] if sent[read] in tensors else [Map(sent[read], "cast", (read,))]
        for name, short in sent.items():
            tensors[short] = replace(tensors[name], name=short, dtype=EIGHT_BITS, role="work")
        moved = renamed(statement, sent)
        statements += [*cast, moved, Map(statement.out, "cast", (moved.out,))]
    return with_casts(outline, tensors, statements)


def with_casts(outline: Outline, tensors: Mapping[str, Shape], statements: Sequence[Statement]) -> Outline:
    """Return a program of other tensors and statements, in which a tensor cast to 8 bits keeps its layout."""
    layouts = {
        name: {
            **{x: text for x, text in texts.items() if x in tensors},
            **{f"{x}{SHORT}": text for x, text in texts.items() if f"{x}{SHORT}" in tensors},
        }
        for name, texts in outline.layouts.items()
    }
    return replace(outline, tensors=tuple(tensors.values()), statements=tuple(statements), layouts=layouts)


def with_copies(outline: Outline, spare: int, groups: int, at_once: bool = False) -> Outline:
    """Return a mixture with copies of its experts that have most rows, as slots beside one for each.

    Weights of copies are inputs that hold the same, placed before; their gradients are summed over copies.
    Groups of slots have about as many rows. ProblemError if it has no experts, or copies already.

    Args:
        at_once: Whether gradients are summed over copies and data groups at once.

    >>> from umm.program.presets import chain
    >>> sizes = {"hidden": 2, "ffn": 2, "tokens": 6, "experts": 3, "top_k": 1}
    >>> hot = with_copies(chain("moe", routing="counts:4-1-1", **sizes), 1, 2)
    >>> [x.experts for x in hot.tensors if x.name == "R"]
    [(0, 2, 3, 5, 6)]
    """
    before = _routing(outline, "copies of experts are")
    after = replace(before, spare=spare, groups=groups)

    def sized(x: Shape) -> Shape:
        if not x.experts or x.role == "work":
            return x
        height = x.rows // before.places
        equal = tuple(place * height for place in range(after.places + 1))
        return replace(x, rows=after.places * height, experts=equal)

    statements = tuple(
        x for statement in outline.statements for x in summing_copies(statement, after, at_once)
    )
    return _rerouted(outline, after, tuple(map(sized, outline.tensors)), statements)


def in_data_groups(outline: Outline, groups: int, ranks: int) -> Outline:
    """Return a mixture whose tokens go to the experts of their own data group alone, each of which has all.

    A data group has the tokens of as many ranks that follow each other, front and back of sequences where a
    layer has them so. Weights are one tensor, of which each group has a replica or a gathered copy; their
    gradients are sums over groups. ProblemError if it has no experts.

    >>> from umm.program.presets import chain
    >>> sizes = {"hidden": 2, "ffn": 2, "tokens": 4, "experts": 2, "top_k": 1}
    >>> two = in_data_groups(chain("moe", routing="choices:0-1-1-1", **sizes), 2, 2)
    >>> [x.experts for x in two.tensors if x.name in ("R", "W1")]
    [(0, 2, 4), (0, 1, 2, 2, 4)]
    """
    before = _routing(outline, "data groups of experts are")
    if groups == 1:
        return outline
    of_group = -(-before.tokens // ranks) * (ranks // groups)
    shared = shared_rule(outline.default_layouts.get(outline.tensors[0].name, ""), ranks)
    zigzag = (ranks, read_form(shared).sequences) if shared else (0, 0)
    after = replace(before, data=groups, data_tokens=of_group, zigzag=zigzag)
    return _rerouted(outline, after, outline.tensors, outline.statements)


def _routing(outline: Outline, what: str) -> Routing:
    """Return the routing of a mixture; ProblemError if it has no experts."""
    texts = routings(outline.statements)
    if len(texts) != 1:
        raise ProblemError(f"{what} of a mixture, not of {outline.name}; leave them out")
    return Routing.parse(texts.pop())


def _rerouted(
    outline: Outline, after: Routing, tensors: tuple[Shape, ...], statements: tuple[Statement, ...]
) -> Outline:
    """Return a mixture of these tensors and statements whose rows go by another routing."""
    edges, text = tuple(after.edges.tolist()), str(after)

    def sized(x: Shape) -> Shape:
        return replace(x, experts=edges) if x.experts and x.role == "work" else x

    rerouted = tuple(x.rerouted(text) for x in statements)
    return replace(outline, tensors=tuple(map(sized, tensors)), statements=rerouted)
