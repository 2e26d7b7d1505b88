"""Functions written as an expression of their operands, such as ``silu(a) * b | rc,rc->rc``.

Compilers of frameworks fuse elementwise operations and reductions of rows into one kernel; an expression
is such a kernel. Operands are ``a``, ``b``, … in the order of the signature. Functions of rows take a
width: they work on each so many columns, and a mean is repeated over the columns it is of.
"""

import ast
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from umm.errors import ProblemError
from umm.program.functions import forms
from umm.program.functions.signature import Array, Function, Place

MARK = " | "  # between the expression and the signature
LETTERS = "abcdefghi"


def _by_width(form: Callable[[Array], Array]) -> Callable[[Array, float], Array]:
    """Return a function of rows that works on each so many columns, broadcast back over them."""

    def applied(x: Array, width: float) -> Array:
        rows, cols = x.shape
        grouped = x.reshape(rows, cols // int(width), int(width))
        return np.broadcast_to(form(grouped), grouped.shape).reshape(rows, cols)

    return applied


def _gelu_tanh_slope(x: Array) -> Array:
    inner: Array = np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))
    return 0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner**2) * 0.7978845608028654 * (1.0 + 0.134145 * x**2)


def _softmax(x: Array) -> Array:
    share: Array = np.exp(x - x.max(axis=2, keepdims=True))
    total: Array = share.sum(axis=2, keepdims=True)
    return share / total


def _layer_norm(x: Array, width: float, epsilon: float) -> Array:
    bare = x - ROWS["mean"](x, width)
    result: Array = bare / np.sqrt(ROWS["mean"](bare * bare, width) + epsilon)
    return result


def _lse(x: Array) -> Array:
    most = x.max(axis=2, keepdims=True)
    result: Array = most + np.log(np.exp(x - most).sum(axis=2, keepdims=True))
    return result


ROWS: Mapping[str, Callable[..., Array]] = {
    "mean": _by_width(lambda x: x.mean(axis=2, keepdims=True)),
    "sum": _by_width(lambda x: x.sum(axis=2, keepdims=True)),
    "amax": _by_width(lambda x: x.max(axis=2, keepdims=True)),
    "amin": _by_width(lambda x: x.min(axis=2, keepdims=True)),
    "logsumexp": _by_width(_lse),
    "softmax": _by_width(_softmax),
    "layer_norm": _layer_norm,
}
"""Functions of rows: the array, then a width in columns."""
ELEMENTS: Mapping[str, Callable[..., Array]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "sign": np.sign,
    "sigmoid": forms.sigmoid,
    "silu": lambda x: x * forms.sigmoid(x),
    "gelu": lambda x: x * forms.normal_cdf(x),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "erf": lambda x: 2.0 * forms.normal_cdf(x * 1.4142135623730951) - 1.0,
    "gelu_tanh_slope": _gelu_tanh_slope,
    "gelu_slope": lambda x: forms.gelu_grad(x, np.ones_like(x)),
    "step": lambda x: np.where(x > 0, 1.0, 0.0),
    "relu": lambda x: np.maximum(x, 0.0),
    "softplus": lambda x: np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "stop": lambda x: x,
}
"""Functions of elements; ``stop`` has no gradient."""
ROTARY: Mapping[str, tuple[Callable[..., Array], float]] = {
    "rope": (forms.rope, 1.0),
    "rope_grad": (forms.rope, -1.0),
    "rope_halves": (forms.rope_halves, 1.0),
    "rope_halves_grad": (forms.rope_halves, -1.0),
}
"""Rotary positions: the array, columns of a head, positions, then base, first position and columns turned."""
_OPERATORS: Mapping[type, Callable[..., Array]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}


@cache
def expression(name: str) -> Function:
    """Return the function that a name with an expression is.

    ProblemError if the text is no expression of its operands.

    >>> import numpy as np
    >>> f = expression("relu(a) * b | rc,1c->rc")
    >>> f(np.array([[-1.0, 2.0]]), np.array([[3.0, 4.0]]), rows=(0, 1), cols=(0, 2), shape=(1, 2)).tolist()
    [[0.0, 8.0]]
    """
    text, _, signature = name.rpartition(MARK)
    reads, arrow, out = signature.partition("->")
    operands = reads.split(",") if reads else []
    if not (text and arrow and out in ("rc", "1c", "r1")) or len(operands) > len(LETTERS):
        raise ProblemError(f"{name!r} is not an expression with a signature; write it like a * b | rc,1c->rc")
    if any(x not in ("rc", "1c", "r1", "11") for x in operands):
        raise ProblemError(f"operands of {name!r} are not rc, 1c, r1 or 11")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ProblemError(f"{text!r} is not an expression; write it like silu(a) * b") from None
    widths = _checked(tree, LETTERS[: len(operands)], text)

    def form(*arrays: Array, at: Place) -> Array:
        shape = at.rows.size, at.cols.size
        values = {x: np.broadcast_to(y, shape) for x, y in zip(LETTERS, arrays, strict=False)}
        result = np.broadcast_to(_value(tree, values, at), shape)
        if out == "1c":  # the gradient by what every row shares
            summed: Array = result.sum(axis=0, keepdims=True)
            return summed
        return result[:, :1] if out == "r1" else result

    # A row function needs all columns of a group on one rank; one over the whole row, the whole row.
    unit = 1 if not widths else 0 if out == "r1" else max(widths)
    return Function(
        name,
        signature,
        form,
        indexed=True,
        column_unit=unit,
        refuses=lambda shape, _: (
            f"its width {max(widths)} does not divide {shape[1]} columns"
            if widths and shape[1] % max(widths)
            else None
        ),
    )


def _checked(tree: ast.expr, letters: str, text: str) -> list[int]:
    """Return the widths of row functions; refuse all but arithmetic on the operands."""
    widths = list[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in letters or name in ROWS or name in ELEMENTS:
                continue
            # `const` is an operand that a framework computes once, such as a mask; it is not kept.
            case ast.Name(id=name) if name in ROTARY or name == "const":
                continue
            case ast.Constant(value=int() | float()) | ast.Load() | ast.operator() | ast.unaryop():
                continue
            case ast.BinOp() | ast.UnaryOp(op=ast.USub()):
                continue
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
                name in ROWS or name in ELEMENTS or name in ROTARY
            ):
                if name not in ELEMENTS:
                    match args[1:2]:
                        case [ast.Constant(value=int(width))] if width > 0:
                            widths.append(width)
                        case _:
                            raise ProblemError(f"{name} in {text!r} needs a width, such as {name}(a, 128)")
                continue
        raise ProblemError(
            f"{text!r} is not arithmetic on {', '.join(letters)}; "
            f"functions are {', '.join((*ROWS, *ELEMENTS, 'rope'))}"
        )
    return widths


def _value(tree: ast.expr, values: Mapping[str, Array], at: Place) -> Any:
    match tree:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.Name():
            raise ProblemError(
                "this pass reads what its framework computes once, such as a mask, which is not kept; "
                "it can be simulated, not executed"
            )
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values, at)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values, at), _value(right, values, at))
        case ast.Call(func=ast.Name(id=name), args=args):
            given = [_value(x, values, at) for x in args]
            if name in ROTARY:
                x, head, positions, *more = given
                base, first, turned = more or (10000.0, 0, 0)
                form, turn = ROTARY[name]
                return form(x, int(head), base, int(positions), int(first), at, turn, int(turned))
            return (ROWS.get(name) or ELEMENTS[name])(*given)
    raise AssertionError(tree)
