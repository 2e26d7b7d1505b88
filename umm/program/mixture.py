"""A mixture of experts as a part of presets: gate, dispatch, the experts' gated MLPs, combine; and gradients.

Experts' weights are stored alike, ``hidden`` rows and ``ffn`` columns for each expert; that of the second
multiply is read transposed. So one cut by experts and by columns of ``ffn`` serves all of them.
"""

from collections.abc import Mapping
from dataclasses import replace

from umm.program.experts import Combine, Dispatch, Grouped
from umm.program.outline import Outline
from umm.program.parts import Writing
from umm.program.routing import Routing

# Where a tensor lies if experts are cut over ranks (GShard, Lepikhin et al. 2020), if each expert's columns
# are (Megatron, Shoeybi et al. 2019), and if every rank has all experts and a share of the rows.
PLACES = {
    "tokens": ("row", "row", "row"),
    "scale": ("row@p", "row@p", "row@p"),
    "routed": ("experts", "row@p", "row"),
    "product": ("experts", "col", "row"),
    "inner": ("experts", "col", "row"),
    "weight": ("experts", "col", "row@p"),
}
SCHEMES = ("expert", "tensor", "whole")


class Mixture:
    """Y = the sum over a token's experts of its gate's share times (silu(X·W1) * X·W3)·W2ᵀ.

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes.
        hidden: Columns of both.
        ffn: Columns of an expert.
        routed: Which tokens go to which experts.

    Source: Jiang et al. (2024), Mixtral of experts, section 2.1.
    """

    def __init__(self, w: Writing, x: str, y: str, hidden: int, ffn: int, routed: Routing) -> None:
        self.w, self.x, self.routed, self.text = w, x, routed, str(routed)
        w.weight("Wg", hidden, routed.experts, "scale")
        for name in ("W1", "W3", "W2"):
            w.weight(name, routed.experts * hidden, ffn, "weight")
        w.multiply(w.tensor("L", w.tokens, routed.experts, "tokens"), x, "Wg")
        w.map(w.tensor("P", w.tokens, routed.experts, "tokens"), "routed_softmax", "L", routing=self.text)
        w.statements.append(Dispatch(self.rows("R", hidden, "routed"), x, self.text))
        w.statements.append(Dispatch(self.rows("S", 1, "routed"), "P", self.text, gates=True))
        for out, weight in (("H1", "W1"), ("H3", "W3")):
            w.statements.append(Grouped(self.rows(out, ffn, "inner"), "R", weight, self.text))
        w.epilogue(self.rows("G", ffn, "inner"), "silu_mul", "H1", "H3")
        w.statements.append(Grouped(self.rows("Z", hidden, "product"), "G", "W2", self.text, ("b",)))
        w.statements.append(Combine(y, "Z", self.text, "S"))

    def rows(self, name: str, cols: int, place: str) -> str:
        """Add a routed tensor; return its name."""
        return self.w.tensor(name, self.routed.rows, cols, place)

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights, by the gate's weight and by X."""
        w, add, hidden = self.w, self.w.statements.append, self.w.shapes[self.x].cols
        add(Dispatch(self.rows("D", hidden, "routed"), dy, self.text))
        w.map(w.gradient("S"), "row_dot", "D", "Z")
        w.map(self.rows("V", hidden, "routed"), "mul_rows", "D", "S")  # the gradient by Z
        add(Grouped(w.gradient("W2", "output"), "V", "G", self.text, ("a",)))
        add(Grouped(w.gradient("G"), "V", "W2", self.text))
        w.epilogue(w.gradient("H3"), "silu_mul", "H1", "dG")
        w.epilogue(w.gradient("H1"), "silu_mul_grad", "H1", "H3", "dG")
        for number, of in enumerate(("1", "3")):
            add(Grouped(w.gradient(f"W{of}", "output"), "R", f"dH{of}", self.text, ("a",)))
            if not number:  # the gradient by R, which has Z's layout: what is added over is cut alike
                self.rows("U", hidden, "product")
            add(Grouped("U", f"dH{of}", f"W{of}", self.text, ("b",), add=number > 0))
        add(Combine(dx, "U", self.text))
        add(Combine(w.gradient("P"), "dS", self.text, gates=True))
        w.map(w.gradient("L"), "softmax_grad", "P", "dP")
        w.multiply(w.gradient("Wg", "output"), self.x, "dL", "a")
        w.multiply(dx, "dL", "Wg", "b", beta=1.0)


def outline(w: Writing, name: str, routed: Routing) -> Outline:
    """Return what was written, with layouts by experts, within them, and with all of them everywhere."""
    edges = {x: tuple(routed.edges.tolist()) for x in ("routed", "product", "inner")}
    shapes = []
    for x in w.shapes.values():
        place, height = w.places[x.name], x.rows // routed.experts
        equal = tuple(expert * height for expert in range(routed.experts + 1))
        shapes.append(
            replace(x, experts=edges.get(place, equal if place == "weight" else ()), whole=place == "routed")
        )
    layouts: Mapping[str, Mapping[str, str]] = {
        scheme: {x: PLACES[place][number] for x, place in w.places.items()}
        for number, scheme in enumerate(SCHEMES)
    }
    return Outline(
        name,
        tuple(shapes),
        tuple(w.statements),
        w.kept(("tokens", "routed", "product", "inner")),
        layouts,
        tuple(w.weights),
    )
