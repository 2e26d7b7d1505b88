"""Gradients of a chain by rules for its statements: by weights and inputs, given those by results."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from umm.errors import ProblemError
from umm.program.functions.expressions import LETTERS, MARK
from umm.program.graph.derivatives import derivative
from umm.program.outline import Outline
from umm.program.statements import Statement, of_kind, renamed
from umm.program.statements.attention import Attention, AttentionGrad
from umm.program.statements.combine import Combine
from umm.program.statements.dispatch import Dispatch
from umm.program.statements.grouped import Grouped
from umm.program.statements.maps import Map
from umm.program.statements.multiply import Multiply

_TRANSPOSED: Mapping[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {
    (): (("b",), ("a",)),
    ("b",): ((), ("a",)),
    ("a",): (("b",), ()),
    ("a", "b"): (("a", "b"), ("a", "b")),
}
"""Of a product, which operands are read transposed in the gradients by a and by b."""
_PLAIN = {"gelu": "gelu_grad", "relu": "relu_grad", "silu": "silu_grad"}


def with_gradients(outline: Outline) -> Outline:
    """Return a forward chain with its backward part: dY for each result goes in, gradients come out.

    A gradient has the layout of its tensor. Gradients by rows of a table are those of its tokens; by tokens
    there are none. ProblemError in one line, for a statement that has no rule.

    >>> from umm.program.presets import chain
    >>> mlp = chain("mlp", hidden=8, ffn=16, tokens=4)
    >>> str(with_gradients(mlp)).partition("Y = G·W2; ")[2]
    'dW2 = Gᵀ·dY; dG = dY·W2ᵀ; dH = gelu_grad(H, dG); dW1 = Xᵀ·dH; dX = dH·W1ᵀ'
    """
    return _Backward(outline).outline()


class _Backward:
    """The backward part of a chain as it is written."""

    def __init__(self, outline: Outline) -> None:
        self.forward = outline
        self.shapes = {x.name: x for x in outline.tensors}
        self.statements: list[Statement] = []
        self.parts: dict[str, list[str]] = {}  # tensors that add up to the gradient of each tensor
        self.added: set[str] = set()  # gradients that a multiply may add to, for nothing else reads them yet
        self.like: dict[str, str] = {}
        self.joint: list[Grouped] = []
        # Whole numbers that choose rows have no gradient.
        self.fixed = {x.reads[1] for x in of_kind(Map, outline.statements) if x.fn == "embed"}

    def outline(self) -> Outline:
        """Return the chain with both parts."""
        for x in self.forward.tensors:
            if x.role == "output":
                self.parts[x.name] = [self._tensor(x.name, "input")]
        for statement in reversed(self.forward.statements):
            name = "map_rule" if statement.kind == "map" else statement.kind
            rule: Callable[[Any, str], None] | None = getattr(self, f"_{name}", None)
            if rule is None:
                raise ProblemError(f"{statement} has no gradient here; leave out --backward")
            if statement.kind == "grouped":  # whose gradients come with the first of its kernel
                rule(statement, "")
            elif (gradient := self._gradient(statement.out)) is not None:
                rule(statement, gradient)
        for name in (x.name for x in self.forward.tensors if x.role == "input" and x.name in self.parts):
            gradient = self._gradient(name)
            if gradient is None:
                continue
            if self.like[gradient] != name or self.shapes[gradient].role == "input":
                copied = self._tensor(name)
                self._map(copied, "cast", gradient)
                gradient = copied
            wanted = f"d{name}"
            if gradient != wanted:  # a part has the name
                swapped = {gradient: wanted, wanted: gradient}
                self.statements = [renamed(x, swapped) for x in self.statements]
                self.shapes |= {y: replace(self.shapes[x], name=y) for x, y in swapped.items()}
            self.shapes[wanted] = replace(self.shapes[wanted], role="output")
        forward = {x.name for x in self.forward.tensors if x.role != "input"}
        read = {y for x in self.statements for y in x.reads}
        ends = {x.name for x in self.forward.tensors if x.role == "input"} - set(self.forward.weights)
        kept = [x for x in self.shapes if x in read and (x in forward or x in ends)]
        layouts = {
            name: {**texts, **{x: texts[y] for x, y in self.like.items() if y in texts}}
            for name, texts in self.forward.layouts.items()
        }
        return replace(
            self.forward,
            tensors=tuple(self.shapes.values()),
            statements=(*self.forward.statements, *self.statements),
            kept=tuple(kept),
            layouts=layouts,
        )

    def _tensor(self, of_tensor: str, role: str = "work") -> str:
        """Add a gradient, or a part of one, like the tensor it is by."""
        name, number = f"d{of_tensor}", 1
        while name in self.shapes:
            number += 1
            name = f"d{of_tensor}.{number}"
        self.shapes[name] = replace(self.shapes[of_tensor], name=name, role=role)
        self.like[name] = of_tensor
        return name

    def _gradient(self, name: str) -> str | None:
        """Return the tensor that holds a gradient, its parts added up; None if nothing depends on it."""
        parts = self.parts.get(name, [])
        while len(parts) > 1:
            one, other = parts[:2]
            out = one if one in self.added else self._tensor(name)
            self._map(out, "add", one, other)
            parts[:2] = [out]
        self.added -= set(parts)
        return parts[0] if parts else None

    def _map(self, out: str, fn: str, *reads: str, **parameters: Any) -> None:
        before = self.statements[-1:]
        in_pass = {x for y in before if y.passes for x in (*y.outs, *y.reads)}
        fused = tuple(dict.fromkeys(x for x in reads if x in in_pass))
        self.statements.append(Map(out, fn, reads, parameters, fused))

    def _part(self, name: str, tensor: str = "") -> str:
        """Add a part of the gradient by a tensor, a new one if none is given; return its name."""
        part = tensor or self._tensor(name)
        self.parts.setdefault(name, []).append(part)
        return part

    # Rules: each writes the gradients by what a statement reads, given that by what it writes

    def _multiply(self, x: Multiply, gradient: str) -> None:
        by_a, by_b = _TRANSPOSED[x.trans]
        (of_out, of_a, of_b), (shares, share_a, share_b) = x.batch_axes, x.groups
        alike: dict[str, Any] = {"alpha": x.alpha, "batch": x.batch, "sequences": x.sequences}
        left = (gradient, x.b) if "a" not in x.trans else (x.b, gradient)
        right = (x.a, gradient) if "b" not in x.trans else (gradient, x.a)
        sides = {gradient: (of_out, shares), x.a: (of_a, share_a), x.b: (of_b, share_b)}
        for name, reads, trans in ((x.b, right, by_b), (x.a, left, by_a)):
            if name in self.fixed:
                continue
            axes, groups = zip(sides[name], *(sides[y] for y in reads), strict=True)
            out = next((y for y in self.parts.get(name, []) if y in self.added), None)
            how = alike | {"batch_axes": axes, "groups": groups, "beta": float(out is not None)}
            if out is None:
                out = self._part(name)
                self.added.add(out)
            self.statements.append(Multiply(out, *reads, trans, **how))

    def _attention(self, x: Attention, gradient: str) -> None:
        if x.cache:
            raise ProblemError(f"{x} reads a cache, so it has no gradient; leave out --backward")
        outs = [self._part(y) for y in (x.q, x.k, x.v, *x.rotary)]
        how: dict[str, Any] = {
            y: getattr(x, y) for y in ("head", "share", "sequences", "causal", "scaled", "window")
        }
        how |= {"rotary": x.rotary, "drotary": tuple(outs[3:])}
        dq, dk, dv = outs[:3]
        self.statements.append(AttentionGrad(dq, dk, dv, x.q, x.k, x.v, x.out, x.lse, gradient, **how))

    def _dispatch(self, x: Dispatch, gradient: str) -> None:
        self.statements.append(Combine(self._part(x.x), gradient, x.routing, gates=x.gates))

    def _combine(self, x: Combine, gradient: str) -> None:
        rows = self._tensor(x.x)
        self.statements.append(Dispatch(rows, gradient, x.routing, again=True))
        if not x.scale:
            self._part(x.x, rows)
            return
        products = (
            y for y in of_kind(Grouped, self.forward.statements) if y.out == x.x and y.trans == ("b",)
        )
        made = next(products, None)
        if made is None:
            gates, scaled = self._part(x.scale), self._part(x.x)
            self._map(gates, "row_dot", x.x, rows)
            self._map(scaled, "mul_rows", rows, x.scale)
            return
        # A gate's gradient is that of the last multiply's operand times this, so nothing reads its product.
        by_a, gates, scaled = self._part(made.a), self._part(x.scale), self._tensor(made.a)
        self.statements.append(Grouped(by_a, rows, made.b, x.routing))
        self._map(gates, "row_dot", made.a, by_a)
        self._map(scaled, "mul_rows", made.a, x.scale)
        self.statements.append(Grouped(self._part(made.b), rows, scaled, x.routing, ("a",)))
        self._map(by_a, "mul_rows", by_a, x.scale)

    def _grouped(self, x: Grouped, _: str) -> None:
        if x.beside:  # comes with the first of its kernel
            self.joint.insert(0, x)
            return
        members, self.joint = [x, *self.joint], []
        gradients = [(y, z) for y in members if (z := self._gradient(y.out)) is not None]
        beside = ""
        for member, gradient in gradients:
            weight = self._part(member.b)
            pair = (gradient, member.a) if member.trans else (member.a, gradient)
            self.statements.append(Grouped(weight, *pair, member.routing, ("a",), beside=beside))
            beside = weight
        out = next((y for y in self.parts.get(x.a, []) if y in self.added), "")
        beside = ""
        for member, gradient in gradients:
            add = bool(out)
            if not out:
                out = self._part(x.a)
                self.added.add(out)
            trans = () if member.trans else ("b",)
            how: dict[str, Any] = {"add": add, "beside": beside}
            self.statements.append(Grouped(out, gradient, member.b, member.routing, trans, **how))
            beside = out

    def _map_rule(self, x: Map, gradient: str) -> None:
        how: Mapping[str, Any] = x.parameters
        match x.fn:
            case "add" if how["factor"] == 1.0:
                for name in x.reads:
                    self._part(name, gradient)
            case "cast":
                self._part(x.reads[0], gradient)
            case "bias":
                self._part(x.reads[0], gradient)
                self._of(x.reads[1], "col_sum", gradient)
            case "mul":
                for name, other in (x.reads, x.reads[::-1]):
                    self._of(name, "mul", other, gradient)
            case "gelu" | "relu" | "silu":
                self._of(x.reads[0], _PLAIN[x.fn], x.reads[0], gradient)
            case "silu_mul":
                self._of(x.reads[1], "silu_mul", x.reads[0], gradient)
                self._of(x.reads[0], "silu_mul_grad", *x.reads, gradient)
            case "rms_norm":
                name, scale = x.reads
                more = self.parts.pop(name, [])
                self.parts[name] = more[1:]
                fn = "rms_norm_grad_add" if more else "rms_norm_grad"
                self._of(name, fn, gradient, name, scale, *more[:1], **how)
                self._of(scale, "rms_scale_grad", gradient, name, **how)
            case "rope" | "rope_halves":
                self._of(x.reads[0], f"{x.fn}_grad", gradient, **how)
            case "embed":
                self._of(x.reads[0], "embed_grad", gradient, x.reads[1])
            case "routed_softmax":
                self._of(x.reads[0], "softmax_grad", x.out, gradient)
            case _ if MARK in x.fn:
                self._expression(x, gradient)
            case _:
                raise ProblemError(f"{x} has no gradient here; leave out --backward")

    def _of(self, name: str, fn: str, *reads: str, **parameters: Any) -> None:
        """Write a part of the gradient by a tensor."""
        if name not in self.fixed:
            self._map(self._part(name), fn, *reads, **parameters)

    def _expression(self, x: Map, gradient: str) -> None:
        """Write the gradients of an expression by each of its operands."""
        text, _, signature = x.fn.rpartition(MARK)
        kinds, _, out_kind = signature.partition("->")
        lines = [*kinds.split(","), out_kind]
        if len(x.reads) >= len(LETTERS):
            raise ProblemError(
                f"{x.out} is computed of too many tensors for a gradient; leave out --backward"
            )
        cols = max(self.shapes[y].cols for y in (*x.reads, x.out))
        by_out = LETTERS[len(x.reads)]
        if out_kind == "r1" and cols > 1:  # one of many equal columns
            by_out = f"{by_out} / {cols}"
        for letter, name, kind in zip(LETTERS, x.reads, lines, strict=False):
            text_of = "" if name in self.fixed else derivative(text, letter, by_out)
            if not text_of:
                continue
            if kind == "11":
                raise ProblemError(f"{name} is one number, which has no gradient here; leave out --backward")
            if kind == "r1" and cols > 1:
                text_of = f"sum({text_of}, {cols})"
            if text_of == LETTERS[len(x.reads)] and kind == out_kind:
                self._part(name, gradient)
                continue
            used = [i for i, y in enumerate(LETTERS[: len(lines)]) if re.search(rf"\b{y}\b", text_of)]
            letters = {LETTERS[i]: y for i, y in zip(used, LETTERS, strict=False)}
            formula = "".join(letters.get(y, y) for y in re.split(r"\b", text_of))
            reads = [(*x.reads, gradient)[i] for i in used]
            fn = f"{formula}{MARK}{','.join(lines[i] for i in used)}->{kind}"
            self._of(name, fn, *reads)
