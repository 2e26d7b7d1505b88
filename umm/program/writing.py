"""Tensors and statements of a preset as they are written, with their layouts by place."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from umm.program.outline import Outline, Shape
from umm.program.statements import Statement, of_kind, renamed
from umm.program.statements.maps import Map
from umm.program.statements.multiply import Multiply, products

# Where a tensor lies by the layouts megatron (Shoeybi et al. 2019, section 3), sequence (Korthikanti et al.
# 2022, section 4.2.2) and data, which cuts tokens alone. Weights are cut by columns, then by rows.
PLACES = {
    "tokens": ("row@p", "row", "row"),
    "inner": ("col", "col", "row"),
    "scores": ("col", "col", "row"),
    "statistics": ("row@p", "row", "row"),
    "first weight": ("col", "col", "row@p"),
    "second weight": ("row", "row", "row@p"),
    "scale": ("row@p", "row@p", "row@p"),
    "cache": ("row@p", "row", "row"),  # of latent vectors, which all heads read
}
SHORT = ("scale", "tokens")
"""Places of a weight and its product that every rank has whole, where they are few columns."""
SCHEMES = ("megatron", "sequence", "data")
# SUMMA2.5 (Tesseract), section 3.1: activations on dq×q ranks, weights on q×q in each of d layers; section
# 3.2.2: sums of rows are all-reduced on each row of ranks.
LAYERED = {
    "tokens": "2d:dqxq",
    "inner": "2d:dqxq",
    "scores": "2d:dqxq",
    "statistics": "row@q:interleaved",
    "first weight": "2d:qxq@d",
    "second weight": "2d:qxq@d",
}


@dataclass
class Writing:
    """Tensors and statements of a preset, in the order they are said."""

    tokens: int  # rows of all activations
    dtype: str  # type of all tensors
    dropout: float = 0.0  # share of the activations between the multiplies of an MLP that are dropped
    context: int = 0  # earlier tokens of each sequence, whose keys and values are kept; 0 if there are none
    gated: bool = True  # whether a layer's MLP has a gate
    # The rule, the seed and the capacity by which tokens go to experts.
    routing: tuple[str, int, float] = ("uniform", 0, 0.0)
    decode: bool = False  # whether weights of one operand lie side by side, as serving engines keep them
    cached: str = ""  # type of the cache; that of all tensors if empty, and then prompts write none
    trains: bool = False  # whether gradients follow
    shapes: dict[str, Shape] = field(default_factory=dict, init=False)
    places: dict[str, str] = field(default_factory=dict, init=False)
    statements: list[Statement] = field(default_factory=list, init=False)
    weights: list[str] = field(default_factory=list, init=False)
    # The layout of tokens that balances a causal mask, where there is one.
    front_and_back: str = field(default="", init=False)
    _forward: tuple[str, ...] = field(default=(), init=False)
    _first_backward: int | None = field(default=None, init=False)

    def tensor(self, name: str, rows: int, cols: int, place: str, role: str = "work", head: int = 0) -> str:
        """Add a tensor, perhaps with columns by heads of keys or values; return its name."""
        self.shapes[name] = Shape(name, rows, cols, self.dtype, role, head=head)
        self.places[name] = place
        return name

    def gradient(self, name: str, role: str = "work") -> str:
        """Add a tensor like another, in the same place: dX for X; return its name."""
        like = self.shapes[name]
        return self.tensor(f"d{name}", like.rows, like.cols, self.places[name], role, like.head)

    def weight(self, name: str, rows: int, cols: int, place: str, head: int = 0) -> str:
        """Add a weight."""
        self.weights.append(name)
        return self.tensor(name, rows, cols, place, "input", head)

    def cache(
        self, name: str, sequences: int, cols: int, place: str, head: int = 0, context: int = 0
    ) -> None:
        """Add the cache of sequences' earlier tokens: of so many, or of all."""
        context = context or self.context
        self.tensor(name, context * sequences, cols, place, "input", head)
        dtype = self.cached or self.dtype
        self.shapes[name] = replace(self.shapes[name], context=context, dtype=dtype)

    def balance(self, sequences: int) -> None:
        """Lay out tokens front and back of their sequences, so that a causal mask gives ranks equal work."""
        self.front_and_back = "zigzag" if sequences == 1 else f"zigzag:{sequences}"

    def keep(self, *names: str) -> None:
        """Write tensors of a prompt to the cache, all by one kernel; none if no type of it is asked for."""
        for name in names if self.cached and not self.decode else ():
            like, out = self.shapes[name], f"{name}.cache"
            self.tensor(out, like.rows, like.cols, self.places[name], head=like.head)
            self.shapes[out] = replace(self.shapes[out], dtype=self.cached)
            beside = "" if name == names[0] else f"{names[0]}.cache"
            self.statements.append(Map(out, "cast", (name,), beside=beside))

    def apart(self, x: str, y: str) -> "Writing":
        """Return writing of the same tokens that knows two tensors of this, for :meth:`join`."""
        w = replace(self)
        for name in (x, y):
            w.shapes[name], w.places[name] = self.shapes[name], self.places[name]
        return w

    def join(self, w: "Writing", mark: str, names: Mapping[str, str]) -> None:
        """Move the statements of another writing to this one's.

        Args:
            mark: Begins the names of its tensors here.
            names: Names here of those that both have.
        """
        called = {x: names.get(x, f"{mark}{x}") for x in w.shapes}
        self.statements += [renamed(x, called) for x in w.statements]
        self.weights += [called[x] for x in w.weights if called[x] not in self.weights]
        for name, shape in w.shapes.items():
            self.shapes.setdefault(called[name], replace(shape, name=called[name]))
            self.places.setdefault(called[name], w.places[name])
        w.statements.clear()

    def inner(self, name: str, cols: int, head: int = 0) -> str:
        """Add an activation between two multiplies of a part."""
        return self.tensor(name, self.tokens, cols, "inner", head=head)

    def like(self, name: str, other: str) -> str:
        """Add an activation with the columns of another; return its name."""
        return self.inner(name, self.shapes[other].cols, self.shapes[other].head)

    def multiply(self, out: str, a: str, b: str, *trans: str, **more: Any) -> None:
        """Add a multiply; of a decoded token, beside those right before it of the same a."""
        for before in products(self.statements[-1:]) if self.decode else ():
            if (before.a, before.trans) == (a, trans):
                cols = before.besides + self.shapes[before.out].cols
                more |= {"beside": before.beside or before.out, "besides": cols}
        self.statements.append(Multiply(out, a, b, trans, **more))

    def project(
        self, name: str, x: str, cols: int, weight: str, head: int = 0,
        places: tuple[str, str] = ("first weight", "inner"),
    ) -> None:  # fmt: skip
        """Add a tensor of so many columns as x times a weight of its own; see :data:`SHORT` on places."""
        self.weight(weight, self.shapes[x].cols, cols, places[0], head)
        self.multiply(self.tensor(name, self.tokens, cols, places[1], head=head), x, weight)

    def wrote(self, name: str) -> bool:
        """Return whether a statement so far writes a tensor."""
        return any(name in x.outs for x in self.statements)

    def weight_gradient(self, weight: str, x: str, dy: str) -> None:
        """Add the gradient of x·weight by the weight."""
        self.multiply(self.gradient(weight, "output"), x, dy, "a")

    def input_gradient(self, weight: str, x: str, dy: str) -> None:
        """Add the gradient of x·weight by x, to those by x that have been written."""
        dx = f"d{x}" if f"d{x}" in self.shapes else self.gradient(x)
        self.multiply(dx, dy, weight, "b", beta=float(self.wrote(dx)))

    def gradients(self, weight: str, x: str, dy: str) -> None:
        """Add the gradients of x·weight by both factors."""
        self.weight_gradient(weight, x, dy)
        self.input_gradient(weight, x, dy)

    def activation_gradients(self, dy: str, x: str, gated: str = "") -> None:
        """Add the gradients of gelu(x), or of silu(x) * gated."""
        if gated:
            self.fused_map(self.gradient(gated), "silu_mul", x, dy)
            self.fused_map(self.gradient(x), "silu_mul_grad", x, gated, dy)
        else:
            self.fused_map(self.gradient(x), "gelu_grad", x, dy)

    def scale_gradient(self, scale: str, x: str, dy: str) -> None:
        """Add the gradient by the scales of the columns of x."""
        product = self.like(f"{dy}.{scale}", x)
        self.map(product, "mul", dy, x)
        self.fused_map(self.gradient(scale, "output"), "col_sum", product)

    def map(self, out: str, fn: str, *reads: str, **parameters: Any) -> None:
        """Add a map, a pass over memory; of a decoded token, beside one before it that does the same."""
        made = Map(out, fn, reads, parameters)
        for before in of_kind(Map, self.statements[-1:]) if self.decode else ():
            if (fn, made.parameters) == (before.fn, before.parameters) and before.out not in reads:
                made = replace(made, beside=before.out)
        self.statements.append(made)

    def bias(self, out: str, name: str) -> None:
        """Add a bias to a product, in the kernel that multiplies where one rank computes it."""
        like = self.shapes[out]
        self.weight(name, 1, like.cols, "scale", like.head)
        self.statements.append(Map(out, "bias", (out, name), fused=(out,)))

    def bias_grad(self, name: str, dout: str) -> None:
        """Add the gradient by a bias."""
        self.map(self.gradient(name, "output"), "col_sum", dout)

    def fused_map(self, out: str, fn: str, *reads: str, **parameters: float) -> None:
        """Add a map that goes on in the pass of the map before it, where it reads that one's tensors."""
        # The first of a decoded token's layer goes on in the last pass of the layer before.
        in_pass = [x for y in self.statements[-1:] if y.passes for x in (*y.outs, *y.reads)]
        if self.decode and not self.statements:  # the layer before ends in a map that writes what it gives
            in_pass = ["X"]
        fused = tuple(x for x in reads if x in in_pass)
        self.statements.append(Map(out, fn, reads, parameters, fused))

    def drop(self, name: str) -> None:
        """Add dropout in place, of an activation or of its gradient: the same mask."""
        if self.dropout:
            self.fused_map(name, "dropout", name, rate=self.dropout, seed=0)

    def backward(self) -> None:
        """Mark the start of the backward part."""
        self._first_backward, self._forward = len(self.statements), tuple(self.shapes)

    def kept(self, places: Collection[str]) -> tuple[str, ...]:
        """Return the tensors of the forward part in some places that the backward part reads."""
        later = [] if self._first_backward is None else self.statements[self._first_backward :]
        read = {x for statement in later for x in statement.reads}
        return tuple(x for x in self._forward if x in read and self.places[x] in places)

    def outline(self, name: str, more: Mapping[str, Mapping[str, str]]) -> Outline:
        """Return the outline of all statements written so far.

        Args:
            more: Layouts by name that come first, with a text for each place.
        """
        kept = self.kept(("tokens", "inner", "scores", "statistics"))
        layouts = {
            scheme: {x: PLACES[place][number] for x, place in self.places.items()}
            for number, scheme in enumerate(SCHEMES)
        }
        if self.front_and_back:
            by_tokens = {"first weight", "second weight", "scale"}
            layouts["context"] = {
                x: "row@p" if place in by_tokens else self.front_and_back for x, place in self.places.items()
            }
        first = {key: {x: by[place] for x, place in self.places.items()} for key, by in more.items()}
        return Outline(
            name, tuple(self.shapes.values()), tuple(self.statements), kept, first | layouts,
            tuple(self.weights),
        )  # fmt: skip
