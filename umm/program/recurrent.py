"""Mixers of tokens without scores as parts of presets: recurrences and short convolutions, with gradients.

The convolution before a recurrence is left out: it is as long as the pass of its activation,
which stands for both.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from umm.program.statements.convolution import Convolution, ConvolutionGrad
from umm.program.statements.scan import Scan, ScanGrad
from umm.program.writing import Writing


class Sizes(NamedTuple):
    """Sizes of a recurrent mixer."""

    heads: int  # heads of values, each with a state
    groups: int  # heads of queries and keys
    key: int  # columns of one, rows of a state
    value: int  # columns of a head of values
    delta: bool  # whether it is a gated delta net; else it is Mamba-2, or Mamba-1 with a rank
    # Columns between the two matrices of decays for each key column, as in Kimi delta attention, or of
    # Mamba-1's rates; 0 where a head has one decay.
    rank: int


class Recurrence:
    """Y = gated(scan(X·Wq, X·Wk, X·Wv))·Wo, with decays and rates made of X.

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes.
        hidden: Columns of both.
        sizes: Heads, groups and columns of the recurrence.
        sequences: Equal parts that the tokens are of.

    Source: Dao & Gu (2024), Transformers are SSMs, section 7.1; Yang et al. (2024), Gated delta networks,
    section 3.4; modeling_qwen3_next.py and modeling_nemotron_h.py of huggingface/transformers.
    """

    def __init__(self, w: Writing, x: str, y: str, hidden: int, sizes: Sizes, sequences: int) -> None:
        self.w, self.x, self.y, self.sizes = w, x, y, sizes
        keys, values = sizes.groups * sizes.key, sizes.heads * sizes.value
        decays = sizes.heads * (sizes.key if sizes.rank else 1)
        w.front_and_back = "row"  # no mask to balance
        self.values, self.made = values, list[tuple[str, str]]()
        for name in ("Q0", "K0"):
            self._project(name, x, keys, sizes.key)
        for name in ("V0", "Zg"):
            self._project(name, x, values, sizes.value)
        source = x
        if sizes.rank:
            source = "Fd"
            w.weight("Wf", hidden, sizes.rank, "scale")
            w.multiply(w.tensor("Fd", w.tokens, sizes.rank, "tokens"), x, "Wf")
        self._project("A0", source, decays, decays // sizes.heads)
        if sizes.delta:
            self._project("B0", x, sizes.heads, 1)
        w.weight("Wo", values, hidden, "second weight")
        for name in ("bt", "al"):
            w.weight(name, 1, decays, "scale")
        w.weight("gn", 1, values, "scale")
        self._operands()
        self.how: dict[str, Any] = {
            "key": sizes.key, "value": sizes.value, "share": sizes.heads // sizes.groups,
            "sequences": sequences, "delta": sizes.delta,
        }  # fmt: skip
        self._wide("O")
        state = write_states(w, sequences, values, sizes)
        w.statements.append(Scan("O", "Q", "K", "V", "Dc", "Rt", "St", **self.how, state=state))
        if sizes.delta:  # G = silu(Z) · norm(O), head by head
            w.fused_map(self._wide("On"), "head_norm", "O", head=sizes.value)
            w.fused_map(self._wide("Op"), "mul_cols", "On", "gn")
            w.fused_map(self._wide("Og"), "silu_mul", "Zg", "Op")
        else:  # G = norm(silu(Z) · (O + skip · V)), group by group
            w.weight("sk", 1, values, "scale")
            w.map(self._wide("Ot"), "mul_cols", "V", "sk")
            w.fused_map(self._wide("Op"), "add", "Ot", "O")
            w.fused_map(self._wide("Om"), "silu_mul", "Zg", "Op")
            w.fused_map(self._wide("On"), "head_norm", "Om", head=values // sizes.groups)
            w.fused_map(self._wide("Og"), "mul_cols", "On", "gn")
        w.multiply(y, "Og", "Wo")

    def _project(self, name: str, x: str, cols: int, head: int) -> None:
        """Write a tensor as X times a weight of its name."""
        weight = f"W{name[0].lower()}"
        self.w.weight(weight, self.w.shapes[x].cols, cols, "first weight", head)
        self.w.multiply(self.w.inner(name, cols, head), x, weight)
        self.made.append((name, x))

    def _wide(self, name: str) -> str:
        """Add an activation as wide as the values; return its name."""
        return self.w.inner(name, self.values, self.sizes.value)

    def _operands(self) -> None:
        """Write queries, keys, values, decays and rates."""
        w, one = self.w, self.sizes
        for name in "QKV":
            like = w.shapes[f"{name}0"]
            normed = one.delta and name != "V"
            active = f"{name}1" if normed else name
            w.map(w.inner(active, like.cols, like.head), "silu", f"{name}0")
            if normed:
                w.fused_map(w.inner(name, like.cols, like.head), "head_norm", active, head=one.key)
        like = w.shapes["A0"]
        w.map(w.inner("Ad", like.cols, like.head), "bias", "A0", "bt")
        w.fused_map(w.inner("Dc", like.cols, like.head), "decay", "Ad", "al")
        w.fused_map(w.inner("Rt", one.heads, 1), *(("sigmoid", "B0") if one.delta else ("softplus", "Ad")))

    def _by_scale(self, scale: str, dy: str, x: str) -> None:
        """Write the gradient by the scales of the columns of x."""
        w = self.w
        product, like = f"{dy}.{scale}", w.shapes[x]
        w.map(w.inner(product, like.cols, like.head), "mul", dy, x)
        w.fused_map(w.gradient(scale, "output"), "col_sum", product)

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w, one = self.w, self.sizes
        w.gradients("Wo", "Og", dy)
        if one.delta:
            w.fused_map(w.gradient("Op"), "silu_mul", "Zg", "dOg")
            w.fused_map(w.gradient("Zg"), "silu_mul_grad", "Zg", "Op", "dOg")
            self._by_scale("gn", "dOp", "On")
            w.map(w.gradient("On"), "mul_cols", "dOp", "gn")
            w.fused_map(w.gradient("O"), "head_norm_grad", "O", "dOn", head=one.value)
            do = "dO"
        else:
            self._by_scale("gn", "dOg", "On")
            w.map(w.gradient("On"), "mul_cols", "dOg", "gn")
            w.fused_map(w.gradient("Om"), "head_norm_grad", "Om", "dOn", head=self.values // one.groups)
            w.fused_map(w.gradient("Op"), "silu_mul", "Zg", "dOm")
            w.fused_map(w.gradient("Zg"), "silu_mul_grad", "Zg", "Op", "dOm")
            self._by_scale("sk", "dOp", "V")
            do = "dOp"
        dq, dk, dv, dd, dr, ds = (w.gradient(x) for x in ("Q", "K", "V", "Dc", "Rt", "St"))
        w.statements.append(ScanGrad(dq, "Q", "K", "V", "Dc", "Rt", do, dk, dv, dd, dr, ds, **self.how))
        if not one.delta:
            w.map(w.gradient("Ot"), "mul_cols", "dOp", "sk")
            w.fused_map("dV", "add", "dV", "dOt")
        self._operands_backward()
        for number, (name, x) in enumerate(self.made):
            # A bias passes its gradient on.
            weight, grad = f"W{name[0].lower()}", "dAd" if name == "A0" else f"d{name}"
            w.multiply(w.gradient(weight, "output"), x, grad, "a")
            into = dx if x == self.x else w.gradient(x)
            w.multiply(into, grad, weight, "b", beta=float(number > 0 and x == self.x))
        if one.rank:
            w.gradients("Wf", self.x, "dFd", dx, beta=1.0)

    def _operands_backward(self) -> None:
        """Write the gradients by the products that queries, keys, values, decays and rates are made of."""
        w, one = self.w, self.sizes
        for name in "QKV":
            grad = f"d{name}"
            if one.delta and name != "V":
                w.map(w.gradient(f"{name}1"), "head_norm_grad", f"{name}1", grad, head=one.key)
                grad = f"d{name}1"
            w.fused_map(w.gradient(f"{name}0"), "silu_grad", f"{name}0", grad)
        self._by_scale("al", "dDc", "Dc")
        w.map(w.gradient("Ad"), "decay_grad", "Ad", "dDc", "al")
        if one.delta:
            w.map(w.gradient("B0"), "sigmoid_grad", "B0", "dRt")
        else:
            w.map(w.inner("dAd.Rt", one.heads, 1), "softplus_grad", "Ad", "dRt")
            w.fused_map("dAd", "add", "dAd", "dAd.Rt")
        w.fused_map(w.gradient("bt", "output"), "col_sum", "dAd")


class Selective:
    """Y = (silu(Z) ∘ (scan(V) + skip ∘ V))·Wo, with queries, keys and rates made of V: Mamba-1.

    Each column of V = silu(X·Wv) is a head. The weights of decays are those that kernels take, −exp(A_log).

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes.
        hidden: Columns of both.
        sizes: Columns as heads, elements of a column's state as keys, and the rank of rates.
        sequences: Equal parts that the tokens are of.

    Source: Gu & Dao (2023), Mamba, sections 3.2 and 3.4; modeling_mamba.py of huggingface/transformers.
    """

    def __init__(self, w: Writing, x: str, y: str, hidden: int, sizes: Sizes, sequences: int) -> None:
        self.w, self.x, inner = w, x, sizes.heads * sizes.value
        w.front_and_back = "row"  # no mask to balance
        for name in ("V0", "Zg"):
            w.weight(f"W{name[0].lower()}", hidden, inner, "first weight")
            w.multiply(w.inner(name, inner), x, f"W{name[0].lower()}")
        w.map(w.inner("V", inner), "silu", "V0")
        self.short = {"K": "Wk", "Q": "Wq", "Tr": "Wr"}
        for (name, weight), cols in zip(self.short.items(), (sizes.key, sizes.key, sizes.rank), strict=True):
            w.weight(weight, inner, cols, "second weight")
            w.multiply(w.tensor(name, w.tokens, cols, "tokens"), "V", weight)
        w.weight("Wf", sizes.rank, inner, "first weight")
        w.multiply(w.inner("D0", inner), "Tr", "Wf")
        w.weight("Wo", inner, hidden, "second weight")
        for name in ("bt", "sk"):
            w.weight(name, 1, inner, "scale")
        w.weight("al", 1, inner * sizes.key, "scale", sizes.key)
        w.map(w.inner("Ad", inner), "bias", "D0", "bt")
        w.fused_map(w.inner("Rt", inner), "softplus", "Ad")
        self.how: dict[str, Any] = {
            "key": sizes.key, "value": sizes.value, "share": sizes.heads, "sequences": sequences,
            "rated": True,
        }  # fmt: skip
        state = write_states(w, sequences, inner, sizes)
        w.statements.append(
            Scan(w.inner("O", inner), "Q", "K", "V", "al", "Rt", "St", **self.how, state=state)
        )
        w.map(w.inner("Ot", inner), "mul_cols", "V", "sk")
        w.fused_map(w.inner("Op", inner), "add", "Ot", "O")
        w.fused_map(w.inner("Og", inner), "silu_mul", "Zg", "Op")
        w.multiply(y, "Og", "Wo")

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        w.gradients("Wo", "Og", dy)
        w.fused_map(w.gradient("Op"), "silu_mul", "Zg", "dOg")
        w.fused_map(w.gradient("Zg"), "silu_mul_grad", "Zg", "Op", "dOg")
        w.map(w.inner("dOp.sk", w.shapes["V"].cols), "mul", "dOp", "V")
        w.fused_map(w.gradient("sk", "output"), "col_sum", "dOp.sk")
        dal = w.gradient("al", "output")
        dq, dk, dv, dr, ds = (w.gradient(x) for x in ("Q", "K", "V", "Rt", "St"))
        w.statements.append(ScanGrad(dq, "Q", "K", "V", "al", "Rt", "dOp", dk, dv, dal, dr, ds, **self.how))
        w.map(w.gradient("Ot"), "mul_cols", "dOp", "sk")
        w.fused_map("dV", "add", "dV", "dOt")
        w.map(w.gradient("Ad"), "softplus_grad", "Ad", "dRt")
        w.fused_map(w.gradient("bt", "output"), "col_sum", "dAd")
        w.gradients("Wf", "Tr", "dAd")  # a bias passes its gradient on
        for name, weight in self.short.items():
            w.gradients(weight, "V", f"d{name}", "dV", beta=1.0)
        w.map(w.gradient("V0"), "silu_grad", "V0", "dV")
        for number, name in enumerate(("V0", "Zg")):
            weight = f"W{name[0].lower()}"
            w.gradients(weight, self.x, f"d{name}", dx, beta=float(number > 0))


def write_states(w: Writing, sequences: int, values: int, sizes: Sizes) -> str:
    """Add states after all tokens, and those before of decoded ones; return the name of these, if any."""
    # In float32, as engines keep them beside activations of 16 bits.
    wide = "float64" if w.dtype == "float64" else "float32"
    states = {"St": "work"} | ({"St.cache": "input"} if w.context else {})
    for name, role in states.items():
        w.cache(name, sequences, values, "inner", sizes.value, sizes.key)
        w.shapes[name] = replace(w.shapes[name], dtype=wide, role=role)
    return "St.cache" if w.context else ""


class GatedConvolution:
    """Y = (C ∘ conv(B ∘ V))·Wo, with B, C and V made of X: the short convolutions of LFM2.

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes.
        hidden: Columns of all.
        taps: Tokens that a convolution sees.
        sequences: Equal parts that the tokens are of.

    Source: Liquid AI (2025), LFM2 technical report, section 2; modeling_lfm2.py of huggingface/transformers.
    """

    def __init__(self, w: Writing, x: str, y: str, hidden: int, taps: int, sequences: int) -> None:
        self.w, self.x, self.how = w, x, {"taps": taps, "sequences": sequences}
        w.front_and_back = "row"  # no mask to balance
        for name in ("Bc", "Cc", "Vc"):
            w.weight(f"W{name[0].lower()}", hidden, hidden, "first weight")
            w.multiply(w.inner(name, hidden), x, f"W{name[0].lower()}")
        w.weight("Wo", hidden, hidden, "second weight")
        w.weight("Wt", 1, hidden * taps, "scale", taps)
        w.map(w.inner("Bv", hidden), "mul", "Bc", "Vc")
        before = "Cs.cache" if w.context else ""
        if before:
            w.tensor(before, sequences, hidden * (taps - 1), "inner", "input", taps - 1)
        w.statements.append(Convolution(w.inner("Cv", hidden), "Bv", "Wt", before=before, **self.how))
        w.map(w.inner("Og", hidden), "mul", "Cc", "Cv")
        w.multiply(y, "Og", "Wo")

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        w.gradients("Wo", "Og", dy)
        w.map(w.gradient("Cc"), "mul", "dOg", "Cv")
        w.fused_map(w.gradient("Cv"), "mul", "dOg", "Cc")
        by_weights = w.gradient("Wt", "output")
        w.statements.append(ConvolutionGrad(w.gradient("Bv"), "Bv", "Wt", "dCv", by_weights, **self.how))
        w.map(w.gradient("Bc"), "mul", "dBv", "Vc")
        w.fused_map(w.gradient("Vc"), "mul", "dBv", "Bc")
        for number, name in enumerate(("Bc", "Cc", "Vc")):
            weight = f"W{name[0].lower()}"
            w.gradients(weight, self.x, f"d{name}", dx, beta=float(number > 0))


class Beside:
    """Y = first(X) + second(X): two mixers of the same tokens, the second's tensors named with an m before.

    Args:
        w: Where it is written.
        x: What both read.
        y: What it writes.
        first: Writes the one from a tensor to another.
        second: Writes the other.

    Source: Zuo et al. (2025), Falcon-H1, section 2.1.
    """

    def __init__(
        self, w: Writing, x: str, y: str, first: Callable[..., Any], second: Callable[..., Any]
    ) -> None:
        self.w, self.x = w, x
        like = w.shapes[y]
        w.tensor("Ym", like.rows, like.cols, w.places[y])
        self.first, self.inner = first(w, x, y), w.apart(x, "Ym")
        self.second = second(self.inner, x, "Ym")
        w.join(self.inner, "m", {x: x, "Ym": "Ym"})
        w.map(y, "add", y, "Ym")

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w, inner = self.w, self.inner
        self.first.backward(dy, dx)
        self.second.backward(inner.gradient("Ym"), inner.gradient(self.x))
        w.join(inner, "m", {self.x: self.x, "Ym": "Ym", "dYm": dy})
        w.map(dx, "add", dx, f"md{self.x}")
