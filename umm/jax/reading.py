"""A jaxpr, equation by equation, as nodes of :mod:`umm.program.graph`."""

import os
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from umm.program.graph.attention import Scores, attend, visible
from umm.program.graph.folds import NONE, Atom, Dim, Value, folded, permuted, reshaped
from umm.program.graph.nodes import Constant, Graph, Node, needs_input
from umm.program.graph.rotary import joined, turned

MAX_CONSTANT = 2**26  # elements of the largest constant that is computed, such as a mask of 8192 tokens
INLINED = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call",
           "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin")  # fmt: skip
FREE = ("convert_element_type", "copy", "copy_p", "reduce_precision", "sharding_constraint",
        "optimization_barrier", "name")  # fmt: skip
BINARY = {"add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "max": "maximum",
          "min": "minimum"}  # fmt: skip
UNARY = {"logistic": "sigmoid"} | {x: x for x in ("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh",
         "sin", "cos", "abs", "sign", "erf", "neg")}  # fmt: skip
REDUCED = {"reduce_sum": "sum", "reduce_max": "amax", "reduce_min": "amin"}


class Statistic(NamedTuple):
    """The maximum of scores over keys, or the sum of their exponentials, on its way into a softmax."""

    is_sum: bool


class Tokens:
    """Whole numbers that follow from an input, which choose rows of a table."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Exponentials(NamedTuple):
    """Exponentials of scores, on their way into a softmax."""

    scores: Scores


class Reader:
    """Reads equations of a jaxpr in order."""

    def __init__(self) -> None:
        self.graph, self.values = Graph(), dict[Any, Any]()
        self.counted: list[tuple[Node, int]] = []
        self.flop = self.scans = 0

    def leaf(self, variable: Any, kind: str, label: str) -> None:
        """Add an argument of the function."""
        shape, floating = variable.aval.shape, np.issubdtype(variable.aval.dtype, np.inexact)
        floating = floating or str(variable.aval.dtype) == "bfloat16"
        made = self.graph.leaf(kind, shape if floating else (*shape, 1))
        made.node.label = label
        self.values[variable] = made if floating else Tokens(made)

    def constant(self, variable: Any, value: Any) -> None:
        """Add a constant of the function."""
        self.values[variable] = _array(value)

    def value(self, variable: Any) -> Any:
        """Return the value of a variable, or of a literal."""
        return _array(variable.val) if hasattr(variable, "val") else self.values[variable]

    def read(self, jaxpr: Any) -> None:
        """Read all equations."""
        for equation in jaxpr.eqns:
            name, params = equation.primitive.name, equation.params
            values = [self.value(x) for x in equation.invars]
            if name in INLINED and (body := params.get("jaxpr") or params.get("call_jaxpr")) is not None:
                if name.startswith("custom") and not _of_jax(body):
                    self.graph.without_gradient["a function has its own custom_vjp or custom_jvp"] = None
                results = self._inlined(body, values)
            elif name == "scan":
                results = self._scanned(equation, values)
            elif all(isinstance(x, np.ndarray | Constant) for x in values):
                results = _computed(equation, values)
            elif name in FREE:
                results = [
                    x if _same_kind(x, y.aval.dtype) else None
                    for x, y in zip(values, equation.outvars, strict=False)
                ]
            else:
                result = self._result(equation, name, values, params)
                results = result if isinstance(result, list) else [result] * len(equation.outvars)
            for variable, result in zip(equation.outvars, results, strict=False):
                if result is None and type(variable).__name__ == "DropVar":
                    continue
                if result is None:
                    result = self._not_understood(equation, variable.aval.shape)
                self.values[variable] = result

    def _not_understood(self, equation: Any, shape: Sequence[int]) -> Value:
        """Return an array that an equation gives; those of products and scans have their flop counted."""
        name = equation.primitive.name
        flop = 0 if name == "scan" else flop_of(equation)
        self.flop += 0 if name == "dot_general" else flop
        return self.graph.not_understood(name, shape, flop)

    def _inlined(self, body: Any, values: Sequence[Any]) -> list[Any]:
        """Read a function that an equation calls, on these values."""
        jaxpr, constants = getattr(body, "jaxpr", body), getattr(body, "consts", ())
        for variable, value in zip(jaxpr.constvars, constants, strict=True):
            self.constant(variable, value)
        self.values |= dict(zip(jaxpr.invars, values, strict=True))
        self.read(jaxpr)
        return [self.value(x) for x in jaxpr.outvars]

    def _scanned(self, equation: Any, values: Sequence[Any]) -> list[Any]:
        """Read the steps of a scan one after another: layers, if it has weights for each."""
        params = equation.params
        constants, carried = params["num_consts"], params["num_carry"]
        fixed, stacked = values[:constants], values[constants + carried :]
        carry = list(values[constants:][:carried])
        self.scans += 1
        outside, scan = self.graph.block, self.scans
        for step in range(params["length"]):
            number = params["length"] - 1 - step if params["reverse"] else step
            self.graph.block = outside or f"scan{scan}.{step}"
            of_step = [self._item(x, number) for x in stacked]
            carry = self._inlined(params["jaxpr"], [*fixed, *carry, *of_step])[:carried]
        self.graph.block = outside
        return [*carry, *[None] * (len(equation.outvars) - carried)]

    def _item(self, x: Any, number: int) -> Any:
        """Return an item of a stacked array: of stacked weights a weight."""
        if isinstance(x, np.ndarray):
            return x[number]
        if isinstance(x, Value) and x.node.kind == "weight":
            made = self.graph.leaf("weight", x.shape[1:])
            made.node.label = x.node.label
            return made
        part = self.graph.sliced(x, 0, number, number + 1) if isinstance(x, Value) else None
        return part and Value(part.node, part.dims[1:])

    def _result(self, equation: Any, name: str, values: Sequence[Any], params: Any) -> Any:
        shape = equation.outvars[0].aval.shape
        if any(isinstance(x, Statistic | Scores | Exponentials) for x in values):
            return self._of_scores(equation, name, values)
        if any(isinstance(x, Tokens) for x in values) and name != "gather":
            integral = not np.issubdtype(equation.outvars[0].aval.dtype, np.inexact)
            live = any(isinstance(x, Value) for x in values)
            return next(x for x in values if isinstance(x, Tokens)) if integral and not live else None
        if name == "stop_gradient":
            return self.graph.stopped(values[0])
        if name == "add":
            one, other = values
            both = isinstance(one, Value) and isinstance(other, Value)
            if both and (made := turned(self.graph, one, other, _elements)):
                return made
        if name in BINARY:
            return self._elements(BINARY[name], values, shape)
        if name in UNARY:
            return self._elements(UNARY[name], values, shape)
        if name in REDUCED:
            return self.graph.of_rows(REDUCED[name], values[0], params["axes"], False)
        handler: Callable[..., Any] | None = getattr(self, f"_{name}", None)
        return handler(equation, *values) if handler else None

    def _elements(self, op: str, values: Sequence[Any], shape: Sequence[int]) -> Any:
        operands = [_operand(x) for x in values]
        if op == "maximum" and -inf in operands:
            return next(x for x in operands if isinstance(x, Value))
        operands = [Constant(()) if isinstance(x, float) and abs(x) == inf else x for x in operands]
        return self.graph.elements(op, *operands, shape=shape)

    def _integer_pow(self, equation: Any, x: Value) -> Any:
        return self.graph.elements("**", x, equation.params.get("y", 2), shape=x.shape)

    _square = _integer_pow

    def _select_n(self, equation: Any, which: Any, *cases: Any) -> Any:
        if isinstance(which, np.ndarray) and which.dtype == bool and (which.all() or not which.any()):
            return cases[int(which.any())]
        live = next((x for x in cases if isinstance(x, Value)), None)
        return live and self.graph.elements("+", live, Constant(()), shape=live.shape)

    def _is_finite(self, equation: Any, x: Value) -> Any:
        return np.ones(x.shape, bool)  # as in a logarithm of sums, whose maximum is finite

    def _erfc(self, equation: Any, x: Value) -> Any:
        turned = self.graph.elements("erf", x, shape=x.shape)
        return turned and self.graph.elements("-", 1.0, turned, shape=x.shape)

    # Views

    def _reshape(self, equation: Any, x: Value) -> Any:
        return reshaped(x, equation.outvars[0].aval.shape)

    _squeeze = _expand_dims = _reshape

    def _transpose(self, equation: Any, x: Value) -> Value:
        return permuted(x, equation.params["permutation"])

    def _broadcast_in_dim(self, equation: Any, x: Value, *_: Any) -> Value:
        shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
        dims: list[Dim] = [(Atom(NONE, 0, size),) if size > 1 else () for size in shape]
        for runs, place in zip(x.dims, places, strict=True):
            dims[place] = runs or (dims[place] if shape[place] > 1 and not x.node.width else ())
        return Value(x.node, tuple(dims))

    def _slice(self, equation: Any, x: Value) -> Any:
        params = equation.params
        strides = params["strides"] or (1,) * len(x.dims)
        result: Value | None = x
        for axis, bounds in enumerate(
            zip(params["start_indices"], params["limit_indices"], strides, strict=True)
        ):
            result = result and self.graph.sliced(result, axis, *bounds)
        return result

    def _split(self, equation: Any, x: Value) -> list[Any]:
        axis, sizes = equation.params["axis"], equation.params["sizes"]
        return [self.graph.sliced(x, axis, *y) for y in pairwise([0, *accumulate(sizes)])]

    def _concatenate(self, equation: Any, *parts: Any) -> Any:
        """Read halves that are turned by their positions."""
        shape = equation.outvars[0].aval.shape
        beside = equation.params["dimension"] == len(shape) - 1
        return joined(self.graph, parts, shape, _elements) if beside else None

    def _stack(self, equation: Any, *parts: Any) -> Any:
        """Read neighbours that are turned by their positions."""
        shape = equation.outvars[0].aval.shape
        if equation.params["axis"] != len(shape) - 1 or not all(isinstance(x, Value) for x in parts):
            return None
        return joined(self.graph, [Value(x.node, (*x.dims, ())) for x in parts], shape, _elements)

    def _gather(self, equation: Any, table: Any, tokens: Any) -> Any:
        """Take rows of a table, as an embedding does."""
        numbers, shape = equation.params["dimension_numbers"], equation.outvars[0].aval.shape
        if isinstance(table, Value) and tuple(equation.params["slice_sizes"][1:]) != table.shape[1:]:
            return None
        takes_rows = tuple(numbers.collapsed_slice_dims) == (0,) and isinstance(tokens, Tokens)
        if not (takes_rows and isinstance(table, Value) and len(table.dims) == 2):
            return None
        made = self.graph.add("embed", prod(shape[:-1]), shape[-1], table.node, tokens.value.node)
        return folded(made, shape[:-1], shape[-1:])

    # Products

    def _dot_general(self, equation: Any, a: Any, b: Any) -> Any:
        (of_a, of_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
        letters = iter("abcdefghijklmnopqrstuvwxyz")
        one, other = {}, {}
        for x, y in ((batch_a, batch_b), (of_a, of_b)):
            for i, j in zip(x, y, strict=True):
                one[i] = other[j] = next(letters)
        for dims, value in ((one, a), (other, b)):
            dims |= {i: next(letters) for i in range(len(value.shape)) if i not in dims}
        left, right = ("".join(dims[i] for i in sorted(dims)) for dims in (one, other))
        shared = "".join(one[i] for i in batch_a)
        out = shared + "".join(x for x in left if x not in right) + "".join(x for x in right if x not in left)
        flop = flop_of(equation)
        self.flop += flop
        for scores, values, of_scores, of_values in ((a, b, left, right), (b, a, right, left)):
            if isinstance(scores, Scores) and scores.done and isinstance(values, Value):
                return self._attended(scores, values, of_scores, of_values, out, flop)
        if not (isinstance(a, Value) and isinstance(b, Value)):
            return None
        lives = needs_input(a.node) and needs_input(b.node)
        if lives and len(shared) == 2 and len(out) == 4 and len(left) == len(right) == 4:
            order = [left.index(x) for x in out[:3]] + [next(i for i, x in enumerate(left) if x not in out)]
            of_keys = [right.index(x) for x in (*out[:2], out[3])]
            of_keys.append(next(i for i, x in enumerate(right) if x not in out))
            return Scores(permuted(a, order), permuted(b, of_keys), equation.outvars[0].aval.shape)
        if a.node is not b.node:
            a = self._refolded(a, left, right, out)
            b = self._refolded(b, right, left, out, second=True)
        made = self.graph.contract(a, b, left, right, out)
        if made is not None:
            self.counted.append((made.node, flop))
        return made

    def _refolded(self, x: Value, mine: str, other: str, out: str, second: bool = False) -> Value:
        """Return an argument that nothing has read with its letters as rows and columns of this multiply."""
        if x.node.kind not in ("weight", "input") or any(x.node in y.reads for y in self.graph.nodes):
            return x
        alike = [y for y, z in self.values.items() if isinstance(z, Value) and z.node is x.node]
        if any(self.values[y] is not x for y in alike):
            return x
        sizes = dict(zip(mine, x.shape, strict=True))
        shared = [y for y in mine if y in other and y in out]
        kept, summed = [y for y in out if y in mine and y not in other], sorted(set(mine) - set(out))
        summed = [y for y in (mine if not second else other) if y in summed]
        rows, cols = (summed, kept) if second else (kept, summed)
        if len(x.dims) != len(mine) or any(y.axis == NONE for runs in x.dims for y in runs):
            return x
        rows = [*shared, *rows]
        x.node.rows, x.node.cols = prod(sizes[y] for y in rows), prod(sizes[y] for y in cols)
        placed = folded(x.node, [sizes[y] for y in rows], [sizes[y] for y in cols])
        by_letter = dict(zip([*rows, *cols], placed.dims, strict=True))
        result = Value(x.node, tuple(by_letter[y] for y in mine))
        self.values |= dict.fromkeys(alike, result)
        return result

    # Attention

    def _attended(self, scores: Scores, v: Value, of_scores: str, of_values: str, out: str, flop: int) -> Any:
        """Return fused attention, its dimensions in the order of the multiply with values."""
        batch, heads, queries, keys = list(of_scores)
        columns = next(x for x in of_values if x not in of_scores)
        if keys not in of_values or queries in of_values:
            return None
        v = permuted(v, [of_values.index(x) for x in (batch, heads, keys, columns)])
        causal, window = scores.mask
        self.graph.label = "O"
        made = attend(self.graph, scores.q, scores.k, v, causal=causal, window=window, scale=scores.scale)
        self.graph.label = ""
        if made is None:
            return None
        self.counted.append((made.node, 2 * flop))
        return permuted(made, [(batch, heads, queries, columns).index(x) for x in out])

    def _of_scores(self, equation: Any, name: str, values: Sequence[Any]) -> Any:
        """Follow products of queries and keys to the multiply with values."""
        if name == "dot_general":
            return self._dot_general(equation, *values)
        exponentials = next((x for x in values if isinstance(x, Exponentials)), None)
        if exponentials is not None:
            if name == "reduce_sum" and _over_keys(equation, exponentials.scores):
                return Statistic(is_sum=True)
            if name == "div" and exponentials is values[0] and values[1] == Statistic(is_sum=True):
                return exponentials.scores._replace(done=True)
            return None
        of_scores = [x for x in values if isinstance(x, Scores)]
        if name == "stop_gradient" and of_scores:
            self.graph.without_gradient["scores of attention have no gradient"] = None
            return of_scores[0]
        if not of_scores:
            statistic = next(x for x in values if isinstance(x, Statistic))
            floor = name == "max" and all(x is statistic or np.all(x == -inf) for x in values)
            views = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "stop_gradient")
            return statistic if name in views or (floor and not statistic.is_sum) else None
        scores, *others = of_scores
        if others or scores.done or (name in ("div", "sub") and scores is not values[0]):
            return None
        if name == "reduce_max":
            return Statistic(is_sum=False) if _over_keys(equation, scores) else None
        if name == "exp":
            return Exponentials(scores)
        number = next((x.item() for x in values if isinstance(x, np.ndarray) and x.size == 1), None)
        if any(isinstance(x, Statistic) for x in values):
            return scores if name == "sub" and Statistic(is_sum=False) in values else None
        if name in ("mul", "div") and number is not None:
            return scores._replace(scale=scores.scale * (number if name == "mul" else 1 / number))
        if name == "select_n":
            which, fill = values[0], next(x for x in values[1:] if x is not scores)
            if not (isinstance(fill, np.ndarray) and fill.max() <= -1e4):
                return None
            return self._masked(scores, which, np.logical_not if scores is values[1] else np.asarray)
        if name in ("add", "sub") and number is None:
            other = next(x for x in values if x is not scores)
            return self._masked(scores, other, np.negative if name == "sub" else np.asarray)
        if name == "tanh":
            self.graph.leave_out("a cap of scores")
        return scores if name in ("add", "sub", "tanh") else None

    def _masked(self, scores: Scores, mask: Any, turned: Callable[[Any], Any]) -> Scores:
        """Return scores with a mask, or with an array that is added to them."""
        if isinstance(mask, np.ndarray):
            seen = visible(self.graph, turned(mask))
            return scores._replace(mask=seen) if seen[0] else scores
        if isinstance(mask, Constant):
            self.graph.leave_out("a mask that was not computed, taken as causal")
            return scores._replace(mask=(True, 0))
        self.graph.leave_out("a bias of scores")
        return scores


def _elements(source: Any) -> Any:
    """Return the elements of a constant, which is its own source; None if it was too large."""
    return source if isinstance(source, np.ndarray) else None


def _array(value: Any) -> Any:
    """Return a constant as an array of NumPy; keys of random numbers, which are none, by shape."""
    try:
        return np.asarray(value)
    except TypeError:
        return Constant(tuple(value.shape))


def _of_jax(body: Any) -> bool:
    """Whether a function is of JAX itself, whose gradients are the usual ones."""
    where = str(getattr(body, "jaxpr", body).debug_info.func_src_info)
    return "/jax/" in where.replace(os.sep, "/")


def _over_keys(equation: Any, scores: Scores) -> bool:
    return tuple(equation.params["axes"]) == (len(scores.shape) - 1,)


def _same_kind(x: Any, dtype: Any) -> bool:
    """Whether a cast keeps an array's fractions, which a cast to whole numbers cuts off."""
    integral = np.issubdtype(dtype, np.integer) or np.issubdtype(dtype, np.bool_)
    return not (integral and isinstance(x, Value | Scores | Exponentials))


def flop_of(equation: Any) -> int:
    """Return the flop of an equation that multiplies, or of a function that it calls; 0 of others."""
    inner = [x for y in equation.params.values() for x in (y if isinstance(y, (tuple, list)) else (y,))]
    bodies = [getattr(x, "jaxpr", x) for x in inner if hasattr(getattr(x, "jaxpr", x), "eqns")]
    if bodies:
        return max(sum(map(flop_of, x.eqns)) for x in bodies)
    out: int = prod(equation.outvars[0].aval.shape)
    if equation.primitive.name == "dot_general":
        summed = equation.params["dimension_numbers"][0][0]
        length: int = prod(equation.invars[0].aval.shape[i] for i in summed)
        return 2 * out * length
    if equation.primitive.name == "conv_general_dilated":
        window: int = prod(equation.invars[1].aval.shape[1:])
        return 2 * out * window
    return 0


def _operand(x: Any) -> Any:
    """Return a value as an elementwise operation takes it: an array, a number, or a constant."""
    if isinstance(x, np.ndarray):
        return float(x.item()) if x.size == 1 else Constant(x.shape, x)
    return x if isinstance(x, Value | Constant) else Constant(())


def _computed(equation: Any, values: Sequence[Any]) -> list[Any]:
    """Return the results of an equation on constants; broadcasts take no memory."""
    if equation.primitive.name == "broadcast_in_dim" and isinstance(values[0], np.ndarray):
        shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
        lengths = dict(zip(places, values[0].shape, strict=True))
        return [np.broadcast_to(values[0].reshape([lengths.get(i, 1) for i in range(len(shape))]), shape)]
    unknown = any(isinstance(x, Constant) for x in values)
    if unknown or sum(prod(x.aval.shape) for x in equation.outvars) > MAX_CONSTANT:
        return [Constant(x.aval.shape) for x in equation.outvars]
    results = equation.primitive.bind(*values, **equation.params)
    return [_array(x) for x in (results if equation.primitive.multiple_results else [results])]
