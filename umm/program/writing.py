"""Tensors and statements of a preset as they are written, with their layouts by place."""

from collections.abc import Collection, Mapping
from dataclasses import replace
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


class Writing:
    """Tensors and statements of a preset, in the order they are said.

    Args:
        tokens: Rows of all activations.
        dtype: Type of all tensors.
        dropout: Share of the activations between the multiplies of an MLP that are dropped.
        context: Earlier tokens of each sequence, whose keys and values are kept; 0 if there are none.
        gated: Whether a layer's MLP has a gate.
        routing: The rule, the seed and the capacity by which tokens go to experts.
        decode: Whether weights of one operand lie side by side, as serving engines keep them.
        cached: Type of the cache; that of all tensors if empty, and then prompts write none.
    """

    def __init__(
        self, tokens: int, dtype: str, dropout: float = 0.0, context: int = 0, gated: bool = True,
        routing: tuple[str, int, float] = ("uniform", 0, 0.0), decode: bool = False, cached: str = "",
    ) -> None:  # fmt: skip
        self.tokens, self.dtype, self.dropout = tokens, dtype, dropout
        self.decode, self.cached = decode, cached
        self.context, self.gated, self.routing = context, gated, routing
        self.shapes: dict[str, Shape] = {}
        self.places: dict[str, str] = {}
        self.statements: list[Statement] = []
        self.weights: list[str] = []
        self._forward: tuple[str, ...] = ()
        self._first_backward: int | None = None
        self.trains = False  # whether gradients follow
        self.front_and_back = ""  # the layout of tokens that balances a causal mask, where there is one

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
        w = Writing(
            self.tokens, self.dtype, self.dropout, self.context, self.gated, self.routing, self.decode,
            self.cached,
        )  # fmt: skip
        w.trains = self.trains
        for name in (x, y):
            w.shapes[name], w.places[name] = self.shapes[name], self.places[name]
        return w

    def join(self, w: "Writing", mark: str, names: Mapping[str, str]) -> None:
        """Move the statements of another writing to this one's.

        Args:
            w: The other, emptied of its statements.
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

    def multiply(self, out: str, a: str, b: str, *trans: str, **more: Any) -> None:
        """Add a multiply; of a decoded token, beside those right before it of the same a."""
        for before in products(self.statements[-1:]) if self.decode else ():
            if (before.a, before.trans) == (a, trans):
                cols = before.besides + self.shapes[before.out].cols
                more |= {"beside": before.beside or before.out, "besides": cols}
        self.statements.append(Multiply(out, a, b, trans, **more))

    def gradients(self, weight: str, x: str, dy: str, dx: str = "", beta: float = 0.0) -> None:
        """Add the gradients of x·weight by both factors: that by x into dx, added to if beta is 1."""
        self.multiply(self.gradient(weight, "output"), x, dy, "a")
        self.multiply(dx or self.gradient(x), dy, weight, "b", beta=beta)

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
            name: What it is called.
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
