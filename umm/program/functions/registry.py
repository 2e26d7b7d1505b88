"""All functions by name, and how to add one."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from umm.errors import ProblemError
from umm.program.functions import attention, convolution, experts, forms, scan, sparse
from umm.program.functions.expressions import MARK, expression
from umm.program.functions.signature import Function, Parameter, Shape

FUNCTIONS: dict[str, Function] = {}  # all functions by name
MOST_OPERANDS = 10  # of a function: its result and what it reads


def register(function: Function) -> Function:
    """Add a function, so that maps can name it; every process that performs the map must do so.

    ProblemError if the name is taken, the signature is not one, or it reads more than a map can.
    """
    if function.name in FUNCTIONS:
        raise ProblemError(f"a function {function.name} is there already; choose another name")
    if not all(len(x) == 2 and x[0] in "rk1" and x[1] in "cghpevwxyz1" for x in function.operands):
        raise ProblemError(
            f"{function.signature!r} of {function.name} is not a signature; write it like rc,1c->rc"
        )
    if len(function.operands) > MOST_OPERANDS:
        raise ProblemError(
            f"{function.name} reads {len(function.operands) - 1} operands; "
            f"a map reads at most {MOST_OPERANDS - 1}"
        )
    FUNCTIONS[function.name] = function
    return function


def function(name: str) -> Function:
    """Return the function of this name, or that of an expression; see :mod:`.expressions`.

    ProblemError listing those there are.
    """
    if MARK in name:
        return expression(name)
    if name not in FUNCTIONS:
        plain = sorted(name for name, function in FUNCTIONS.items() if function.is_map)
        raise ProblemError(f"function {name!r} is unknown; choose from {', '.join(plain)}")
    return FUNCTIONS[name]


def _divides(rows: str, cols: str) -> Callable[[Shape, Mapping[str, Any]], str | None]:
    """Return a check that refuses members of so many rows, and so many columns, that do not fit; 0 is all."""

    def refuses(shape: Shape, parameters: Mapping[str, Any]) -> str | None:
        for name, size, lines in ((rows, shape[0], "rows"), (cols, shape[1], "columns")):
            if parameters.get(name) and size % parameters[name]:
                return f"{name} = {parameters[name]} does not divide its {lines}"
        return None

    return refuses


_FACTOR, _EPSILON = Parameter(), Parameter(1e-5, least=0.0)
_NORM = {"columns": Parameter(whole=True, least=1), "epsilon": _EPSILON}
_MEMBER = Parameter(0, whole=True)
_BY_HEAD: dict[str, Any] = {
    "parameters": {"head": Parameter(whole=True, least=1), "epsilon": _EPSILON}, "column_unit": "head",
}  # fmt: skip
_SOFTMAX: dict[str, Any] = {"column_unit": "keys", "refuses": _divides("queries", "keys")}
_DROPOUT = {"rate": Parameter(least=0.0, below=1.0), "seed": Parameter(whole=True)}
_ROPE: dict[str, Any] = {
    "parameters": {
        "head": Parameter(whole=True, least=2, multiple=2),
        "base": Parameter(10000.0, least=1.0),
        "positions": _MEMBER,
        "first": _MEMBER,
    },
    "indexed": True,
    "refuses": _divides("positions", "head"),
}
_ROPE_HALVES: dict[str, Any] = _ROPE | {
    "parameters": _ROPE["parameters"] | {"turned": Parameter(0, whole=True, multiple=2)},
    "column_unit": "head",
}

for _function in (
    Function("zero", "->rc", forms.zero, indexed=True),
    Function("cast", "rc->rc", lambda x: x),
    Function("scale", "rc->rc", lambda x, factor: x * factor, {"factor": _FACTOR}),
    Function("add", "rc,rc->rc", lambda x, y, factor: x + factor * y, {"factor": Parameter(1.0)}),
    Function("mul", "rc,rc->rc", lambda x, y: x * y),
    Function("bias", "rc,1c->rc", lambda x, b: x + b),
    Function("mul_cols", "rc,1c->rc", lambda x, g: x * g),
    Function("mul_rows", "rc,r1->rc", lambda x, s: x * s),
    Function("relu", "rc->rc", lambda x: np.maximum(x, 0.0)),
    Function("relu_grad", "rc,rc->rc", lambda x, dy: np.where(x > 0, dy, 0.0)),
    Function("gelu", "rc->rc", lambda x: x * forms.normal_cdf(x)),
    Function("gelu_grad", "rc,rc->rc", forms.gelu_grad),
    Function("silu", "rc->rc", lambda x: x * forms.sigmoid(x)),
    Function("silu_grad", "rc,rc->rc", forms.silu_grad),
    Function("silu_mul", "rc,rc->rc", lambda x, y: x * forms.sigmoid(x) * y),
    Function("silu_mul_grad", "rc,rc,rc->rc", lambda x, y, dz: forms.silu_grad(x, dz * y)),
    Function("rms_norm", "rc,1c->rc", forms.rms_norm, {"epsilon": _EPSILON}, column_unit=0),
    Function("rms_norm_grad", "rc,rc,1c->rc", forms.rms_norm_grad, {"epsilon": _EPSILON}, column_unit=0),
    Function(
        "rms_norm_grad_add",
        "rc,rc,1c,rc->rc",
        lambda dy, x, scale, more, epsilon: forms.rms_norm_grad(dy, x, scale, epsilon) + more,
        {"epsilon": _EPSILON},
        column_unit=0,
    ),
    Function("rms_scale_grad", "rc,rc->1c", forms.rms_scale_grad, {"epsilon": _EPSILON}, column_unit=0),
    Function("head_rms_norm", "rc,1c->rc", forms.head_rms_norm, **_BY_HEAD),
    Function("head_rms_norm_grad", "rc,rc,1c->rc", forms.head_rms_norm_grad, **_BY_HEAD),
    Function("head_rms_scale_grad", "rc,rc->1c", forms.head_rms_scale_grad, **_BY_HEAD),
    Function("embed", "kc,r1->rc", forms.embed, indexed=True, inner="k", looks_up=True),
    Function("embed_grad", "kc,k1->rc", forms.embed_grad, indexed=True, inner="k"),
    Function("dropout", "rc->rc", forms.dropout, _DROPOUT, indexed=True),
    Function("row_sum", "rc->r1", lambda x: x.sum(axis=1, keepdims=True)),
    Function("row_sum_squares", "rc->r1", lambda x: (x * x).sum(axis=1, keepdims=True)),
    Function("row_dot", "rc,rc->r1", lambda x, y: (x * y).sum(axis=1, keepdims=True)),
    Function("row_max", "rc->r1", lambda x: x.max(axis=1, keepdims=True), column_unit=0),
    Function("col_sum", "rc->1c", lambda x: x.sum(axis=0, keepdims=True)),
    Function("rstd", "r1,r1->r1", forms.rstd, _NORM),
    Function("rms_rstd", "r1->r1", forms.rms_rstd, _NORM),
    Function("centre", "rc,r1->rc", forms.centre, indexed=True),
    Function("normalise", "rc,r1,r1->rc", forms.normalise, {"epsilon": _EPSILON}, indexed=True),
    Function("norm_grad", "rc,rc,r1->rc", forms.norm_grad, indexed=True),
    Function("softmax", "rc->rc", forms.softmax, {"keys": _MEMBER}, **_SOFTMAX),
    Function("softmax_grad", "rc,rc->rc", forms.softmax_grad, {"keys": _MEMBER}, **_SOFTMAX),
    Function(
        "masked_softmax",
        "rc->rc",
        forms.masked_softmax,
        {"queries": _MEMBER, "keys": _MEMBER},
        indexed=True,
        **_SOFTMAX,
    ),
    Function("rope", "rc->rc", forms.rope, column_unit=2, **_ROPE),
    Function("rope_grad", "rc->rc", partial(forms.rope, turn=-1.0), column_unit=2, **_ROPE),
    Function("rope_halves", "rc->rc", forms.rope_halves, **_ROPE_HALVES),
    Function("rope_halves_grad", "rc->rc", partial(forms.rope_halves, turn=-1.0), **_ROPE_HALVES),
    *attention.FUNCTIONS,
    *convolution.FUNCTIONS,
    *experts.FUNCTIONS,
    *scan.FUNCTIONS,
    *sparse.FUNCTIONS,
):
    register(_function)
