"""A graph of torch.export, operation by operation, as nodes of :mod:`umm.program.graph`."""

import operator
from collections.abc import Callable, Collection, Sequence
from math import inf, prod
from typing import Any

from umm.program.graph.attention import Scores, attend, visible
from umm.program.graph.folds import NONE, Atom, Value, expanded, folded, permuted, reshaped
from umm.program.graph.nodes import Constant, Graph, Node, needs_input
from umm.program.graph.rotary import joined, turned
from umm.program.routing import Routing
from umm.torch.values import (
    BIAS,
    Buffer,
    Joined,
    Route,
    ancestors,
    constants,
    flop_of,
    is_number,
    letters,
    router,
    shape_of,
    storage,
)

MASK_LENGTH = 16384
"""Tokens of the longest mask that is computed to see whether it is causal: a quarter of a gigabyte."""
FREE = (
    "alias", "clone", "contiguous", "to", "type_as", "_to_copy", "lift_fresh_copy",
    "_assert_tensor_metadata",
)  # fmt: skip
"""What neither moves nor changes elements where a model is evaluated; casts are of the pass they are in."""
OF_JOINED = ("cat", "expand", "linear", "matmul", "mm", "scaled_dot_product_attention", "view", "reshape")
"""Operations that are read where they have several arrays joined to one."""
BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "pow": "**",
    "maximum": "maximum",
    "minimum": "minimum",
}
UNARY = (
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "abs", "sign", "sigmoid", "silu",
    "relu", "erf", "neg", "softplus",
)  # fmt: skip
DROPOUT = ("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
SOFTMAX = ("softmax", "_softmax")
REDUCED = {"mean": "mean", "sum": "sum", "amax": "amax", "amin": "amin", "logsumexp": "logsumexp"}


class Reader:
    """Reads nodes of a torch graph in order.

    Args:
        constant: Computes the elements of a node that depends on no input's elements.
        block: Names the repeated part of the model that a node is in.
        inputs: Names of the module's arguments.
    """

    def __init__(
        self, constant: Callable[[Any], Any], block: Callable[[Any], str], inputs: Collection[str] = ()
    ) -> None:
        self.graph, self.values = Graph(), dict[Any, Any]()
        self.constant, self.block, self.inputs = constant, block, inputs
        self.attentions: dict[Any, tuple[bool, int]] = {}
        self.tokens: dict[Any, Value] = {}
        self.counted: list[tuple[Node, int]] = []
        self.gates: dict[Node, Node] = {}
        self.flop = 0

    def read(self, node: Any) -> None:
        """Read a call of a function."""
        self.graph.block, self.graph.label = self.block(node), ""
        shape, flop = shape_of(node), flop_of(node)
        self.flop += flop
        args = [self._arg(x) for x in node.args]
        kwargs = {x: self._arg(y) for x, y in node.kwargs.items()}
        if node.target is operator.getitem:
            self.values[node] = args[0][args[1]] if isinstance(args[0], (list, tuple)) else args[0]
            return
        name = str(node.target).removeprefix("aten.").split(".")[0]
        plain = name.rstrip("_") if not name.startswith("_") else name
        flat = [y for x in (*args, *kwargs.values()) for y in (x if isinstance(x, list) else [x])]
        live = [x for x in flat if isinstance(x, (Value, Route, Scores, Joined, Buffer))]
        if plain == "embedding":
            self.values[node] = self._embedding(node, *args[:2])
            return
        if not live:
            # A table is computed before a cast makes it coarse.
            exact = plain in FREE and is_number(node) and is_number(node.args[0])
            self.values[node] = args[0] if exact and isinstance(args[0], Constant) else constants(node)
            views = (*FREE, "view", "reshape", "flatten", "squeeze", "unsqueeze")
            if plain in views and node.args[0] in self.tokens:
                self.tokens[node] = self.tokens[node.args[0]]
            return
        in_place = plain != name and not isinstance(args[0], Buffer)
        if in_place:
            self._forget_aliases(node.args[0], name)
        handler = getattr(self, f"_{plain.lower()}", None)
        result = None
        if plain in FREE:
            result = args[0] if is_number(node) or isinstance(args[0], Route) else None
        elif plain in DROPOUT:
            result = [args[0], None] if plain.startswith("native") else args[0]
            if len(args) > 2 and args[1] and args[2]:
                self.graph.leave_out("dropout that is not switched off in evaluation")
        elif plain == "detach":
            result = self._detached(args[0])
        elif isinstance(live[0], Buffer) or isinstance(args[0], Buffer):
            result = self._of_buffer(plain, args, node)
        elif routes := [x for x in live if isinstance(x, Route)]:
            result = self._routed(plain, args, routes[0], shape)
        elif any(isinstance(x, Scores) for x in live):
            result = self._of_scores(plain, args, shape)
        elif plain in ("new_empty", "empty_like"):
            result = Buffer(shape, [])
        elif plain in ("new_ones", "new_zeros", "zeros_like", "ones_like", "full_like"):
            result = Constant(shape, node)
        elif isinstance(args[0], Joined) and plain not in OF_JOINED:
            result = None
        elif handler is not None:
            result = handler(*args, **kwargs, node=node)
        elif plain in BINARY:
            result = self._binary(plain, args, kwargs, shape)
        elif plain in UNARY:
            result = self.graph.elements(plain, *args, shape=shape) if len(args) == 1 else None
        elif plain == "rsub" and len(args) == 2:
            result = self._binary("sub", args[::-1], kwargs, shape)
        elif plain == "square":
            result = self.graph.elements("**", args[0], 2, shape=shape)
        elif plain == "masked_fill":
            result = self.graph.elements("+", args[0], Constant(()), shape=shape)
        elif plain in REDUCED:
            result = self._reduced(plain, args, kwargs)
        elif plain in SOFTMAX:
            result = self.graph.of_rows("softmax", args[0], [args[1]], True, same=True)
        elif plain in ("log_softmax", "_log_softmax"):
            over = self.graph.of_rows("logsumexp", args[0], [args[1]], True)
            result = over and self.graph.elements("-", args[0], over, shape=shape)
        if result is None:
            self.graph.unknown[name] = self.graph.unknown.get(name, 0) + flop
            value = node.meta.get("val")
            shapes = [tuple(x.shape) for x in value] if isinstance(value, (list, tuple)) else [shape]
            given = [self.graph.leaf("given", x) for x in shapes]
            result = given if isinstance(value, (list, tuple)) else given[0]
        elif flop and isinstance(result, Value):
            self.counted.append((result.node, flop))
        self.values[node] = result
        if in_place and isinstance(result, Value):
            self.values[node.args[0]] = result

    def _arg(self, x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [self._arg(y) for y in x]
        return self.values[x] if x.__class__.__name__ == "Node" else x

    def _forget_aliases(self, part: Any, name: str) -> None:
        """Count other views of an array that is changed in place as not understood."""
        memory = storage(part)
        for x, value in self.values.items():
            if x is not part and isinstance(value, Value) and memory and storage(x) == memory:
                self.values[x] = self.graph.not_understood(name, shape_of(x))

    def _detached(self, x: Any) -> Any:
        if isinstance(x, Value):
            return self.graph.stopped(x)
        if not isinstance(x, Constant):
            self.graph.without_gradient["scores or experts are detached"] = None
        return x

    # Views

    def _view(self, x: Any, *shape: Any, node: Any) -> Any:
        return reshaped(x, shape_of(node)) if isinstance(x, Value) else None

    _reshape = _flatten = _unflatten = _squeeze = _view_as = _reshape_as = _view

    def _unsqueeze(self, x: Value, axis: int, node: Any) -> Value:
        axis %= len(x.dims) + 1
        return Value(x.node, (*x.dims[:axis], (), *x.dims[axis:]))

    def _transpose(self, x: Value, one: int, other: int, node: Any) -> Value:
        order = list(range(len(x.dims)))
        order[one], order[other] = order[other], order[one]
        return permuted(x, order)

    _swapaxes = _swapdims = _transpose

    def _mt(self, x: Value, node: Any) -> Value:
        return self._transpose(x, -2, -1, node)

    def _t(self, x: Value, node: Any) -> Value:
        return permuted(x, range(len(x.dims))[::-1])

    _numpy_t = _t

    def _permute(self, x: Value, order: Sequence[int], node: Any) -> Value:
        return permuted(x, order)

    def _expand(self, x: Any, shape: Sequence[int], node: Any, **_: Any) -> Any:
        return expanded(x, shape_of(node)) if isinstance(x, Value) else x

    def _repeat_interleave(self, x: Value, times: int, axis: int, node: Any, **_: Any) -> Value | None:
        axis %= len(x.dims)
        return Value(x.node, (*x.dims[:axis], (*x.dims[axis], Atom(NONE, 0, times)), *x.dims[axis + 1 :]))

    def _slice(
        self, x: Any, axis: int = 0, start: Any = None, stop: Any = None, step: int = 1, *, node: Any
    ) -> Any:
        if not isinstance(x, Value):
            return None
        size = x.shape[axis]
        if 0 in shape_of(node):
            return Constant(shape_of(node))
        return self.graph.sliced(x, axis, start or 0, size if stop is None else min(stop, size), step)

    def _select(self, x: Value, axis: int, index: int, node: Any) -> Value | None:
        axis %= len(x.dims)
        index %= x.shape[axis]
        part = self.graph.sliced(x, axis, index, index + 1)
        return part and Value(part.node, (*part.dims[:axis], *part.dims[axis + 1 :]))

    def _split(self, x: Value, _: Any, axis: int = 0, *, node: Any) -> Any:
        starts, made = 0, list[Any]()
        for part in node.meta["val"]:
            made.append(self.graph.sliced(x, axis, starts, starts + int(part.shape[axis])))
            starts += int(part.shape[axis])
        return made if all(made) else None

    _chunk = _split_with_sizes = _split

    def _cat(self, parts: Sequence[Any], axis: int = 0, *, node: Any) -> Any:
        shape = shape_of(node)
        parts = [x for x in parts if 0 not in x.shape]
        if len(parts) == 1:
            return parts[0]
        if axis % len(shape) != len(shape) - 1:
            return self._below(parts, shape)
        if any(isinstance(x, Constant) for x in parts):
            return None
        return joined(self.graph, parts, shape, self.constant) or Joined(tuple(parts), shape)

    def _stack(self, parts: Sequence[Any], axis: int = 0, *, node: Any) -> Any:
        """Read neighbours that are turned by their positions."""
        shape = shape_of(node)
        if axis % len(shape) != len(shape) - 1 or not all(isinstance(x, Value) for x in parts):
            return None
        return joined(self.graph, [Value(x.node, (*x.dims, ())) for x in parts], shape, self.constant)

    def _below(self, parts: Sequence[Any], shape: Sequence[int]) -> Value | None:
        """Return rows with some put beside them, such as a token of a class, as a pass over them."""
        largest = max((x for x in parts if isinstance(x, Value)), key=lambda x: prod(x.shape), default=None)
        if largest is None or largest.node.cols != shape[-1]:
            return None
        self.graph.leave_out("rows put beside others")
        node = self.graph.add("rows", prod(shape[:-1]), shape[-1], largest.node)
        return folded(node, shape[:-1], shape[-1:])

    # Elements

    def _binary(self, plain: str, args: Sequence[Any], kwargs: Any, shape: Sequence[int]) -> Any:
        one, other = map(self._number, args[:2])
        if isinstance(one, Joined) or isinstance(other, Joined) or kwargs.keys() - {"alpha"}:
            return None
        if kwargs.get("alpha", 1) != 1:
            alpha, number = kwargs["alpha"], not isinstance(other, (Value, Constant))
            other = alpha * other if number else self.graph.elements("*", other, alpha, shape=other.shape)
        if isinstance(other, Constant) and other.source == BIAS:
            return one
        one, other = (Constant((), x) if isinstance(x, float) and abs(x) == inf else x for x in (one, other))
        if plain == "add" and isinstance(one, Value) and isinstance(other, Value):
            result = turned(self.graph, one, other, self.constant)
            if result is not None:
                return result
        return self.graph.elements(BINARY[plain], one, other, shape=shape)

    def _number(self, x: Any) -> Any:
        """Return a constant of one element as a number, if that is known; all else as it is."""
        known = self.constant(x.source) if isinstance(x, Constant) and x.source and not x.shape else None
        return x if known is None else float(known)

    def _gelu(self, x: Value, node: Any, approximate: str = "none") -> Any:
        return self.graph.elements("gelu_tanh" if approximate == "tanh" else "gelu", x, shape=x.shape)

    def _clamp(self, x: Any, low: Any = None, high: Any = None, *, node: Any, **_: Any) -> Any:
        for op, bound in (("maximum", low), ("minimum", high)):
            x = self.graph.elements(op, x, bound, shape=x.shape) if bound is not None and x else x
        return x

    def _where(self, condition: Any, x: Any, y: Any, node: Any) -> Any:
        live = next((z for z in (x, y) if isinstance(z, Value)), None)
        if live is not None and not needs_input(live.node) and isinstance(condition, Constant):
            # A bias of scores, masked.
            return Value(self.graph.add("weight", *live.node.shape, mask=condition), live.dims)
        return live and self.graph.elements("+", live, Constant(()), shape=shape_of(node))

    def _reduced(self, plain: str, args: Sequence[Any], kwargs: Any) -> Any:
        x, axes, keep = args[0], args[1] if len(args) > 1 else None, args[2] if len(args) > 2 else False
        keep = kwargs.get("keepdim", keep)
        axes = [axes] if isinstance(axes, int) else axes
        return self.graph.of_rows(REDUCED[plain], x, axes, keep) if axes and isinstance(x, Value) else None

    def _layer_norm(
        self, x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5,
        *_: Any, node: Any,
    ) -> Any:  # fmt: skip
        axes = range(len(x.dims) - len(shape), len(x.dims))
        return self._scaled(self.graph.of_rows("layer_norm", x, axes, True, eps, same=True), weight, bias)

    def _rms_norm(
        self, x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None, *, node: Any
    ) -> Any:
        axes = range(len(x.dims) - len(shape), len(x.dims))
        squares = self.graph.elements("**", x, 2, shape=x.shape)
        mean = squares and self.graph.of_rows("mean", squares, axes, True)
        if mean is None:
            return None
        if eps is None:
            eps = 2.0**-52 if str(node.meta["val"].dtype) == "torch.float64" else 2.0**-23
        over = self.graph.elements("+", mean, eps, shape=mean.shape)
        over = over and self.graph.elements("rsqrt", over, shape=mean.shape)
        return over and self._scaled(self.graph.elements("*", x, over, shape=x.shape), weight, None)

    def _scaled(self, x: Any, weight: Any, bias: Any) -> Any:
        for op, y in (("*", weight), ("+", bias)):
            x = self.graph.elements(op, x, y, shape=x.shape) if x and y is not None else x
        return x

    def _embedding(self, node: Any, table: Any, tokens: Any) -> Any:
        rows = shape_of(node)[:-1]
        tokens = self.tokens.get(getattr(tokens, "source", None), tokens)
        if not (isinstance(tokens, Value) and isinstance(table, Value)):
            # Of positions, which are the same for every input: a weight as it is, row by row.
            size = shape_of(node)[-1]
            return self.graph.leaf("weight", (*rows, size))
        made = self.graph.add("embed", prod(rows), table.node.cols, table.node, tokens.node)
        return folded(made, rows, [table.node.cols])

    # Products

    def _linear(self, x: Any, weight: Any, bias: Any = None, *, node: Any) -> Any:
        letters = "abcdefgh"[: len(x.shape) - 1] if isinstance(x, (Value, Joined)) else ""
        self.graph.label = self._label(node)
        if not isinstance(weight, Value) or not isinstance(x, Value):
            return None
        made = self.graph.contract(x, weight, f"{letters}k", "nk", f"{letters}n")
        return self._biased(made, bias)

    def _biased(self, made: Any, bias: Any) -> Any:
        if made is not None and isinstance(bias, Value):
            made.node.how["bias"] = bias
            self.graph.leave_out("biases, added as a multiply writes")
        return made

    def _label(self, node: Any) -> str:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = stack[-1][0].split(".") if stack else []
        names = [x for x in path[-1:] if not x.isdigit()]
        return f"{names[-1]}.out" if names else "H"

    def _addmm(self, bias: Any, a: Any, b: Any, *, node: Any, beta: float = 1, alpha: float = 1) -> Any:
        self.graph.label, shape = self._label(node), shape_of(node)
        made = self._matmul(a, b, node=node)
        if made is not None and alpha != 1:
            made = self.graph.elements("*", made, alpha, shape=shape)
        if beta == 0 or (beta == 1 and isinstance(bias, Value) and len(bias.shape) == 1):
            return self._biased(made, bias if beta else None)
        return made and self._binary("add", (made, bias), {"alpha": beta}, shape)

    _baddbmm = _addmm

    def _matmul(self, a: Any, b: Any, node: Any) -> Any:
        if not (isinstance(a, Value) and isinstance(b, Value)):
            return None
        one, other = len(a.dims), len(b.dims)
        if one < 2 or other < 2:
            return None
        if needs_input(a.node) and needs_input(b.node) and one == other == 4:
            return Scores(a, permuted(b, (0, 1, 3, 2)), shape_of(node))
        batch = "abcdefgh"[: max(one, other) - 2]
        left, right = batch[len(batch) - one + 2 :], batch[len(batch) - other + 2 :]
        return self.graph.contract(a, b, f"{left}mk", f"{right}kn", f"{batch}mn")

    _mm = _bmm = _matmul

    def _einsum(self, equation: str, operands: Sequence[Any], node: Any, **_: Any) -> Any:
        if len(operands) != 2 or not all(isinstance(x, Value) for x in operands):
            return None
        (of_a, of_b), out = letters(equation, [x.shape for x in operands])
        return self.graph.contract(operands[0], operands[1], of_a, of_b, out)

    def _conv2d(
        self, x: Any, weight: Any, bias: Any = None, stride: Any = (1, 1), padding: Any = (0, 0), *_: Any,
        node: Any,
    ) -> Any:  # fmt: skip
        """A convolution of patches beside each other is a multiply, of each patch's pixels."""
        kernel = weight.shape[2:]
        if tuple(stride) != tuple(kernel) or any(padding) or x.node.kind != "input":
            return None
        images, channels, high, wide = shape_of(node)
        pixels = self.graph.leaf("input", (images * high * wide, prod(weight.shape[1:])))
        lines = self.graph.leaf("weight", (prod(weight.shape[1:]), channels))
        lines.node.label = weight.node.label
        made = self.graph.contract(pixels, lines, "mk", "kn", "mn")
        self._biased(made, bias)
        placed = made and folded(made.node, (images, high, wide), (channels,))
        return placed and permuted(placed, (0, 3, 1, 2))

    def _cross_entropy_loss(self, x: Any, target: Any, *_: Any, node: Any, **__: Any) -> Any:
        total = self.graph.of_rows("logsumexp", x, [len(x.dims) - 1], False)
        self.graph.leave_out("the mean of a loss over tokens")
        return total

    # Attention

    def _scaled_dot_product_attention(
        self, q: Any, k: Any, v: Any, mask: Any = None, dropout: float = 0.0, is_causal: bool = False,
        *, node: Any, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        self.graph.label = "O"
        if dropout:
            self.graph.leave_out("dropout that is not switched off in evaluation")
        causal, window = self._mask(mask, k.shape[2]) if mask is not None else (is_causal, 0)
        if is_causal and q.shape[2] != k.shape[2]:  # torch aligns the first tokens, umm the last
            self.graph.leave_out("a mask that is no window of earlier keys")
        return self._attend(q, k, v, causal, window, scale)

    def _attend(self, q: Any, k: Any, v: Any, causal: bool, window: int, scale: float | None) -> Any:
        q, k = (x.joined() if isinstance(x, Buffer) else x for x in (q, k))
        rotary: tuple[Value, ...] = ()
        if isinstance(k, Joined) and isinstance(q, Value) and "parts" in q.node.how:
            q = Joined(q.node.how["parts"], q.shape)
        if isinstance(q, Joined) and isinstance(k, Joined) and len(q.parts) == len(k.parts) == 2:
            (q, of_q), (k, of_k) = q.parts, k.parts
            rotary = of_q, of_k
        if not all(isinstance(x, Value) for x in (q, k, v, *rotary)):
            return None
        if len(q.dims) != 4 or any(x.node.cols != x.shape[-1] for x in rotary[1:]):
            return None
        return attend(self.graph, q, k, v, rotary, causal=causal, window=window, scale=scale)

    def _mask(self, mask: Any, keys: int, hides: bool = False) -> tuple[bool, int]:
        """Return whether a mask of the keys that are seen, or hidden, is causal, and its window."""
        if isinstance(mask, Value):
            self.graph.leave_out("a bias of scores")
            mask = mask.node.how.get("mask")
        if not isinstance(mask, Constant):
            return False, 0
        if (mask.source, hides) not in self.attentions:
            seen = self.constant(mask.source) if keys <= MASK_LENGTH else None
            if seen is None:
                self.graph.leave_out("a mask that was not computed, taken as causal")
                return True, 0
            if any(x.op == "placeholder" and x.name in self.inputs for x in ancestors(mask.source)):
                self.graph.leave_out("a mask that inputs give, taken as of ones")
            seen = seen if str(seen.dtype) == "torch.bool" else seen.float()
            self.attentions[mask.source, hides] = visible(self.graph, ~seen if hides else seen)
        return self.attentions[mask.source, hides]

    def _of_scores(self, plain: str, args: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """Follow products of queries and keys to the multiply with values: engines run fused attention."""
        if plain == "cat":
            self.graph.leave_out("columns beside scores, as of sinks")
            x = next(x for x in args[0] if isinstance(x, Scores))
            return x if not x.done and shape[:-1] == x.shape[:-1] else None
        x, *beside = [y for y in args if isinstance(y, Scores)]
        others = [self._number(y) for y in args if not isinstance(y, Scores)]
        if plain == "matmul" and x is args[0] and x.done and isinstance(args[1], Value):
            causal, window = x.mask
            return self._attend(x.q, x.k, args[1], causal, window, x.scale)
        if plain in ("slice", "expand", "view", "reshape"):
            return x if shape[-2:] == (x.q.shape[2], x.k.shape[2]) else None
        if x.done or (beside and plain != "sub"):
            return None
        if plain in SOFTMAX and others[0] in (-1, len(x.shape) - 1):
            return x._replace(done=True)
        numbers = [y for y in others if isinstance(y, (int, float))]
        if plain in ("mul", "div") and numbers and (plain == "mul" or x is args[0]):
            return x._replace(scale=x.scale * (1 / numbers[0] if plain == "div" else numbers[0]))
        if plain == "add" and numbers:
            return x
        if plain in ("add", "masked_fill", "where") and not any(y > -1e4 for y in numbers):
            mask = self._mask(others[0], x.shape[-1], hides=plain != "add" and x is not args[1])
            return x._replace(mask=mask) if mask[0] else x
        if plain == "max":
            return [x, x]
        if plain == "tanh":
            self.graph.leave_out("a cap of scores")
        return x if plain in ("sub", "tanh") else None

    # Mixtures of experts

    def _topk(self, x: Any, count: int, *_: Any, node: Any, **__: Any) -> Any:
        logits = router(x)
        if logits is None:
            return None
        if len(x.dims) != 2:  # groups of experts, which narrow the choice
            return [Constant(shape_of(node))] * 2
        tokens = logits.node.rows
        logits.node.how["router"] = True
        routing = Routing(tokens, logits.node.cols, count)
        return [Route(routing, logits, True), Route(routing, logits)]

    def _routed(self, plain: str, args: Sequence[Any], route: Route, shape: tuple[int, ...]) -> Any:
        graph, routing = self.graph, route.routing
        if plain == "index" and isinstance(args[0], Value):
            x = args[0]
            if not needs_input(x.node):
                graph.leave_out("biases, added as a multiply writes")
                return Constant(shape, BIAS)
            if x.node.rows == routing.tokens:
                scores = route.scores.node
                p = graph.add("scores", routing.tokens, routing.experts, scores, routing=routing)
                node = graph.add("dispatch", routing.rows, x.node.cols, x.node, routing=routing)
                self.gates[scores] = graph.add("dispatch", routing.rows, 1, p, routing=routing, gates=True)
                return folded(node, shape[:1], shape[1:])
            return x  # rows back in the order of tokens
        if plain == "_grouped_mm" or plain == "grouped_mm":
            return self._grouped(args[0], args[1], routing)
        if plain == "mul" and isinstance(args[0], Value) and args[0].node.rows == routing.rows:
            args[0].node.how["gates"] = route
            return args[0]
        if plain in ("sort", "topk", "max"):
            return [route, route._replace(gates=False)]
        if plain == "gather":
            return Route(routing, route.scores, True)
        if plain in ("linear", "matmul", "mm", "addmm", "_scaled_dot_product_attention"):
            return None
        return route

    def _grouped(self, x: Any, weight: Any, routing: Routing) -> Any:
        if not (isinstance(x, Value) and isinstance(weight, Value)):
            return None
        experts, k, n = weight.shape
        first = x.node.kind == "dispatch"
        rows, cols = (experts * k, n) if first else (experts * n, k)
        of_experts = self.graph.leaf("weight", (rows, cols))
        of_experts.node.label = weight.node.label
        trans = () if first else ("b",)
        node = self.graph.add(
            "grouped", x.node.rows, n, x.node, of_experts.node, routing=routing, trans=trans
        )
        return folded(node, x.shape[:1], (n,))

    def _sum(self, x: Any, axes: Any = None, keep: bool = False, *, node: Any, **_: Any) -> Any:
        scaled = isinstance(x, Value) and "gates" in x.node.how and x.node.kind in ("grouped", "expr")
        if not scaled or len(x.dims) != 3 or axes not in (1, [1]):
            return self._reduced("sum", [x, axes, keep], {})
        route: Route = x.node.how["gates"]  # of experts' results that their gates have scaled
        gates, routing = self.gates.get(route.scores.node), route.routing
        if gates is None:
            return None
        made = self.graph.add("combine", routing.tokens, x.node.cols, x.node, gates, routing=routing)
        return folded(made, (routing.tokens,), (x.node.cols,))

    # Buffers that parts are copied into

    def _of_buffer(self, plain: str, args: Sequence[Any], node: Any) -> Any:
        buffer = args[0]
        if plain == "slice" and isinstance(buffer, Buffer):
            return Buffer(shape_of(node), buffer.parts)
        if plain == "copy" and isinstance(buffer, Buffer):
            buffer.parts.append(args[1])
            return args[1]
        if plain == "scaled_dot_product_attention":
            return self._scaled_dot_product_attention(*args, node=node)
        return None
