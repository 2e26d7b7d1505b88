"""Derivatives of expressions, as expressions: reverse mode on their trees."""

import ast
from collections.abc import Callable, Mapping

from umm.errors import ProblemError

_SLOPES: Mapping[str, str] = {
    "exp": "exp({u})",
    "expm1": "exp({u})",
    "log": "1 / {u}",
    "log1p": "1 / (1 + {u})",
    "sqrt": "0.5 * rsqrt({u})",
    "rsqrt": "-0.5 * rsqrt({u}) ** 3",
    "tanh": "1 - tanh({u}) ** 2",
    "sin": "cos({u})",
    "cos": "-sin({u})",
    "abs": "sign({u})",
    "sign": "0",
    "sigmoid": "sigmoid({u}) * (1 - sigmoid({u}))",
    "silu": "sigmoid({u}) * (1 + {u} * (1 - sigmoid({u})))",
    "gelu": "gelu_slope({u})",
    "gelu_tanh": "gelu_tanh_slope({u})",
    "relu": "step({u})",
    "softplus": "sigmoid({u})",
    "erf": "1.1283791670955126 * exp(-({u} ** 2))",
}
"""Of functions of one element."""
_ROWS: Mapping[str, str] = {
    "mean": "mean({g}, {w})",
    "sum": "sum({g}, {w})",
    "logsumexp": "sum({g}, {w}) * softmax({u}, {w})",
    "softmax": "softmax({u}, {w}) * ({g} - sum({g} * softmax({u}, {w}), {w}))",
    # Elements that tie share the gradient evenly, as in torch.amax and JAX.
    "amax": "sum({g}, {w}) * (1 - step({v} - {u})) / sum(1 - step({v} - {u}), {w})",
    "amin": "sum({g}, {w}) * (1 - step({u} - {v})) / sum(1 - step({u} - {v}), {w})",
    "layer_norm": "({g} - mean({g}, {w}) - {v} * mean({g} * {v}, {w}))"
    " * rsqrt(mean(({u} - mean({u}, {w})) ** 2, {w}) + {e})",
    "rope": "rope_grad({g}, {more})",
    "rope_halves": "rope_halves_grad({g}, {more})",
}
"""Of functions of rows: ``g`` is the gradient by their value ``v``, ``u`` their operand, ``w`` the width."""


def derivative(text: str, operand: str, gradient: str) -> str:
    """Return the gradient of an expression by an operand; empty if it does not depend on it.

    >>> derivative("silu(a) * b", "b", "c")
    'c * silu(a)'
    >>> derivative("a * rsqrt(mean(a ** 2, 8) + 1e-05)", "a", "b").count("mean")
    3
    """
    terms: list[str] = []
    _walk(_Softmax().visit(ast.parse(text, mode="eval").body), operand, gradient, terms)
    return " + ".join(terms)


class _Softmax(ast.NodeTransformer):
    """Read a softmax that is written out as one, so that its maximum, whose gradients cancel, has none."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Return softmax(u, w) for exp(u - amax(u, w)) / sum(exp(u - amax(u, w)), w)."""
        self.generic_visit(node)
        match node:
            case ast.BinOp(
                left=ast.Call(
                    func=ast.Name(id="exp"),
                    args=[
                        ast.BinOp(
                            left=x,
                            op=ast.Sub(),
                            right=ast.Call(
                                func=ast.Name(id="amax"), args=[y, ast.Constant(value=int(width))]
                            ),
                        )
                    ],
                ) as shares,
                op=ast.Div(),
                right=ast.Call(func=ast.Name(id="sum"), args=[terms, ast.Constant(value=int(over))]),
            ) if width == over and ast.dump(x) == ast.dump(y) and ast.dump(shares) == ast.dump(terms):
                call = f"softmax({ast.unparse(x)}, {width})"
                return ast.parse(call, mode="eval").body
        return node


def _walk(tree: ast.expr, operand: str, g: str, terms: list[str]) -> None:
    """Add the gradients by an operand of a subtree, given that by the subtree's value."""
    match tree:
        case ast.Name(id=name):
            if name == operand:
                terms.append(g)
        case ast.UnaryOp(operand=x):
            _walk(x, operand, f"(-{_in(g)})", terms)
        case ast.BinOp(left=x, op=op, right=y):
            u, v = (f"({ast.unparse(z)})" if isinstance(z, ast.BinOp) else ast.unparse(z) for z in (x, y))
            by_left, by_right = _OPERATORS[type(op)](_in(g), u, v)
            _walk(x, operand, by_left, terms)
            _walk(y, operand, by_right, terms)
        case ast.Call(func=ast.Name(id="stop")):
            pass
        case ast.Call(func=ast.Name(id=name), args=[x, y]) if name in ("maximum", "minimum"):
            u, v = (f"({ast.unparse(z)})" for z in (x, y))
            above, below = f"step({u} - {v})", f"step({v} - {u})"
            above, below = (above, below) if name == "maximum" else (below, above)
            _walk(x, operand, f"{_in(g)} * {above}", terms)
            _walk(y, operand, f"{_in(g)} * {below}", terms)
        case ast.Call(func=ast.Name(id=name), args=[x, *more]) if name in _SLOPES or name in _ROWS:
            if not any(isinstance(z, ast.Name) and z.id == operand for z in ast.walk(x)):
                return
            u, w = f"({ast.unparse(x)})", [ast.unparse(z) for z in more]
            if name in _SLOPES:
                _walk(x, operand, f"{_in(g)} * ({_SLOPES[name].format(u=u)})", terms)
            else:
                e = w[1] if w[1:] else ""
                formula = _ROWS[name].format(
                    u=u, g=_in(g), v=ast.unparse(tree), w=w[0], e=e, more=", ".join(w)
                )
                _walk(x, operand, formula, terms)
        case ast.Call():
            raise ProblemError(f"{ast.unparse(tree)} has no derivative here; leave out --backward")


_OPERATORS: Mapping[type, Callable[[str, str, str], tuple[str, str]]] = {
    ast.Add: lambda g, u, v: (g, g),
    ast.Sub: lambda g, u, v: (g, f"(-{g})"),
    ast.Mult: lambda g, u, v: (f"{g} * {v}", f"{g} * {u}"),
    ast.Div: lambda g, u, v: (f"{g} / {v}", f"-({g} * {u} / {v} ** 2)"),
    ast.Pow: lambda g, u, v: (f"{g} * ({v} * {u} ** ({v} - 1))", f"{g} * ({u} ** {v} * log({u}))"),
}


def _in(text: str) -> str:
    """Return an expression in brackets if it is a sum or a quotient."""
    return text if text.isalnum() else f"({text})"
