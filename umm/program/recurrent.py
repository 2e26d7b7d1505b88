"""Mixers of tokens without scores as parts of presets: recurrences and short convolutions, with gradients.

The convolution before a recurrence is left out: it is as long as the pass of its activation,
which stands for both.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from umm.program.models.priced import SCAN
from umm.program.statements.convolution import Convolution, ConvolutionGrad
from umm.program.statements.scan import Scan, ScanGrad
from umm.program.writing import SHORT, Writing


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

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> "Sizes":
        """Return those of a chain's sizes."""
        heads, groups, key, value, delta, rank = (sizes[x] for x in SCAN)
        return cls(heads, groups, key, value, bool(delta), rank)


class Recurrence:
    """Y = gated(scan(X·Wq, X·Wk, X·Wv))·Wo, with decays and rates made of X.

    Source: Dao & Gu (2024), Transformers are SSMs, section 7.1; Yang et al. (2024), Gated delta networks,
    section 3.4; modeling_qwen3_next.py and modeling_nemotron_h.py of huggingface/transformers.
    """

    def __init__(self, w: Writing, x: str, y: str, sizes: Mapping[str, int]) -> None:
        self.w, self.x, self.one = w, x, Sizes.of(sizes)
        one, hidden = self.one, w.shapes[x].cols
        keys, self.values = one.groups * one.key, one.heads * one.value
        decays = one.heads * (one.key if one.rank else 1)
        w.front_and_back = "row"  # no mask to balance
        # What is made of X, or of a few columns that are, with the weight of each.
        self.made = {"Q0": x, "K0": x, "V0": x, "Zg": x, "A0": "Fd" if one.rank else x}
        for name in ("Q0", "K0"):
            w.project(name, x, keys, _weight(name), one.key)
        for name in ("V0", "Zg"):
            w.project(name, x, self.values, _weight(name), one.value)
        if one.rank:
            w.project("Fd", x, one.rank, "Wf", places=SHORT)
        w.project("A0", self.made["A0"], decays, "Wa", decays // one.heads)
        if one.delta:
            self.made["B0"] = x
            w.project("B0", x, one.heads, "Wb", 1)
        w.weight("Wo", self.values, hidden, "second weight")
        for name in ("bt", "al"):
            w.weight(name, 1, decays, "scale")
        w.weight("gn", 1, self.values, "scale")
        self._operands()
        self.how: dict[str, Any] = {
            "key": one.key, "value": one.value, "share": one.heads // one.groups,
            "sequences": sizes["sequences"], "delta": one.delta,
        }  # fmt: skip
        self._wide("O")
        state = write_states(w, sizes["sequences"], self.values, one)
        w.statements.append(Scan("O", "Q", "K", "V", "Dc", "Rt", "St", **self.how, state=state))
        if one.delta:  # G = silu(Z) · norm(O), head by head
            w.fused_map(self._wide("On"), "head_norm", "O", head=one.value)
            w.fused_map(self._wide("Op"), "mul_cols", "On", "gn")
            w.fused_map(self._wide("Og"), "silu_mul", "Zg", "Op")
        else:  # G = norm(silu(Z) · (O + skip · V)), group by group
            w.weight("sk", 1, self.values, "scale")
            w.map(self._wide("Ot"), "mul_cols", "V", "sk")
            w.fused_map(self._wide("Op"), "add", "Ot", "O")
            w.fused_map(self._wide("Om"), "silu_mul", "Zg", "Op")
            w.fused_map(self._wide("On"), "head_norm", "Om", head=self.values // one.groups)
            w.fused_map(self._wide("Og"), "mul_cols", "On", "gn")
        w.multiply(y, "Og", "Wo")

    def _wide(self, name: str) -> str:
        """Add an activation as wide as the values; return its name."""
        return self.w.inner(name, self.values, self.one.value)

    def _operands(self) -> None:
        """Write queries, keys, values, decays and rates."""
        w, one = self.w, self.one
        for name in "QKV":
            normed = one.delta and name != "V"
            active = f"{name}1" if normed else name
            w.map(w.like(active, f"{name}0"), "silu", f"{name}0")
            if normed:
                w.fused_map(w.like(name, f"{name}0"), "head_norm", active, head=one.key)
        w.map(w.like("Ad", "A0"), "bias", "A0", "bt")
        w.fused_map(w.like("Dc", "A0"), "decay", "Ad", "al")
        w.fused_map(w.inner("Rt", one.heads, 1), *(("sigmoid", "B0") if one.delta else ("softplus", "Ad")))

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w, one = self.w, self.one
        w.gradients("Wo", "Og", dy)
        if one.delta:
            w.activation_gradients("dOg", "Zg", "Op")
            w.scale_gradient("gn", "On", "dOp")
            w.map(w.gradient("On"), "mul_cols", "dOp", "gn")
            w.fused_map(w.gradient("O"), "head_norm_grad", "O", "dOn", head=one.value)
            do = "dO"
        else:
            w.scale_gradient("gn", "On", "dOg")
            w.map(w.gradient("On"), "mul_cols", "dOg", "gn")
            w.fused_map(w.gradient("Om"), "head_norm_grad", "Om", "dOn", head=self.values // one.groups)
            w.activation_gradients("dOm", "Zg", "Op")
            w.scale_gradient("sk", "V", "dOp")
            do = "dOp"
        dq, dk, dv, dd, dr, ds = (w.gradient(x) for x in ("Q", "K", "V", "Dc", "Rt", "St"))
        w.statements.append(ScanGrad(dq, "Q", "K", "V", "Dc", "Rt", do, dk, dv, dd, dr, ds, **self.how))
        if not one.delta:
            w.map(w.gradient("Ot"), "mul_cols", "dOp", "sk")
            w.fused_map("dV", "add", "dV", "dOt")
        self._operands_backward()
        for name, x in self.made.items():  # a bias passes its gradient on
            w.gradients(_weight(name), x, "dAd" if name == "A0" else f"d{name}")
        if one.rank:
            w.gradients("Wf", self.x, "dFd")

    def _operands_backward(self) -> None:
        """Write the gradients by the products that queries, keys, values, decays and rates are made of."""
        w, one = self.w, self.one
        for name in "QKV":
            grad = f"d{name}"
            if one.delta and name != "V":
                w.map(w.gradient(f"{name}1"), "head_norm_grad", f"{name}1", grad, head=one.key)
                grad = f"d{name}1"
            w.fused_map(w.gradient(f"{name}0"), "silu_grad", f"{name}0", grad)
        w.scale_gradient("al", "Dc", "dDc")
        w.map(w.gradient("Ad"), "decay_grad", "Ad", "dDc", "al")
        if one.delta:
            w.map(w.gradient("B0"), "sigmoid_grad", "B0", "dRt")
        else:
            w.map(w.inner("dAd.Rt", one.heads, 1), "softplus_grad", "Ad", "dRt")
            w.fused_map("dAd", "add", "dAd", "dAd.Rt")
        w.fused_map(w.gradient("bt", "output"), "col_sum", "dAd")


def _weight(name: str) -> str:
    return f"W{name[0].lower()}"


_OF_VALUES = {"K": "Wk", "Q": "Wq", "Tr": "Wr"}  # what Mamba-1 makes of values, with the weight of each


class Selective:
    """Y = (silu(Z) ∘ (scan(V) + skip ∘ V))·Wo, with queries, keys and rates made of V: Mamba-1.

    Each column of V = silu(X·Wv) is a head. The weights of decays are those that kernels take, −exp(A_log).

    Source: Gu & Dao (2023), Mamba, sections 3.2 and 3.4; modeling_mamba.py of huggingface/transformers.
    """

    def __init__(self, w: Writing, x: str, y: str, sizes: Mapping[str, int]) -> None:
        one, sequences = Sizes.of(sizes), sizes["sequences"]
        self.w, self.x, inner = w, x, one.heads * one.value
        w.front_and_back = "row"  # no mask to balance
        for name in ("V0", "Zg"):
            w.project(name, x, inner, _weight(name))
        w.map(w.inner("V", inner), "silu", "V0")
        for (name, weight), cols in zip(_OF_VALUES.items(), (one.key, one.key, one.rank), strict=True):
            w.project(name, "V", cols, weight, places=("second weight", "tokens"))
        w.project("D0", "Tr", inner, "Wf")
        w.weight("Wo", inner, w.shapes[x].cols, "second weight")
        for name in ("bt", "sk"):
            w.weight(name, 1, inner, "scale")
        w.weight("al", 1, inner * one.key, "scale", one.key)
        w.map(w.inner("Ad", inner), "bias", "D0", "bt")
        w.fused_map(w.inner("Rt", inner), "softplus", "Ad")
        self.how: dict[str, Any] = {
            "key": one.key, "value": one.value, "share": one.heads, "sequences": sequences, "rated": True,
        }  # fmt: skip
        state = write_states(w, sequences, inner, one)
        w.statements.append(
            Scan(w.inner("O", inner), "Q", "K", "V", "al", "Rt", "St", **self.how, state=state)
        )
        w.map(w.inner("Ot", inner), "mul_cols", "V", "sk")
        w.fused_map(w.inner("Op", inner), "add", "Ot", "O")
        w.fused_map(w.inner("Og", inner), "silu_mul", "Zg", "Op")
        w.multiply(y, "Og", "Wo")

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        w.gradients("Wo", "Og", dy)
        w.activation_gradients("dOg", "Zg", "Op")
        w.scale_gradient("sk", "V", "dOp")
        dal = w.gradient("al", "output")
        dq, dk, dv, dr, ds = (w.gradient(x) for x in ("Q", "K", "V", "Rt", "St"))
        w.statements.append(ScanGrad(dq, "Q", "K", "V", "al", "Rt", "dOp", dk, dv, dal, dr, ds, **self.how))
        w.map(w.gradient("Ot"), "mul_cols", "dOp", "sk")
        w.fused_map("dV", "add", "dV", "dOt")
        w.map(w.gradient("Ad"), "softplus_grad", "Ad", "dRt")
        w.fused_map(w.gradient("bt", "output"), "col_sum", "dAd")
        w.gradients("Wf", "Tr", "dAd")  # a bias passes its gradient on
        for name, weight in _OF_VALUES.items():
            w.gradients(weight, "V", f"d{name}")
        w.map(w.gradient("V0"), "silu_grad", "V0", "dV")
        for name in ("V0", "Zg"):
            w.gradients(_weight(name), self.x, f"d{name}")


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

    Source: Liquid AI (2025), LFM2 technical report, section 2; modeling_lfm2.py of huggingface/transformers.
    """

    MADE = ("Bc", "Cc", "Vc")

    def __init__(self, w: Writing, x: str, y: str, sizes: Mapping[str, int]) -> None:
        taps, sequences, hidden = sizes["taps"], sizes["sequences"], w.shapes[x].cols
        self.w, self.x, self.how = w, x, {"taps": taps, "sequences": sequences}
        w.front_and_back = "row"  # no mask to balance
        for name in self.MADE:
            w.project(name, x, hidden, _weight(name))
        w.weight("Wo", hidden, hidden, "second weight")
        w.weight("Wt", 1, hidden * taps, "scale", taps)
        w.map(w.inner("Bv", hidden), "mul", "Bc", "Vc")
        before = "Cs.cache" if w.context else ""
        if before:
            w.tensor(before, sequences, hidden * (taps - 1), "inner", "input", taps - 1)
        w.statements.append(Convolution(w.inner("Cv", hidden), "Bv", "Wt", before=before, **self.how))
        w.map(w.inner("Og", hidden), "mul", "Cc", "Cv")
        w.multiply(y, "Og", "Wo")

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        w.gradients("Wo", "Og", dy)
        w.map(w.gradient("Cc"), "mul", "dOg", "Cv")
        w.fused_map(w.gradient("Cv"), "mul", "dOg", "Cc")
        by_weights = w.gradient("Wt", "output")
        w.statements.append(ConvolutionGrad(w.gradient("Bv"), "Bv", "Wt", "dCv", by_weights, **self.how))
        w.map(w.gradient("Bc"), "mul", "dBv", "Vc")
        w.fused_map(w.gradient("Vc"), "mul", "dBv", "Bc")
        for name in self.MADE:
            w.gradients(_weight(name), self.x, f"d{name}")


class Beside:
    """Y = first(X) + second(X): two mixers of the same tokens, the second's tensors named with an m before.

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

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w, inner, dx = self.w, self.inner, f"d{self.x}"
        self.first.backward(dy)
        inner.gradient(self.x)
        self.second.backward(inner.gradient("Ym"))
        w.join(inner, "m", {self.x: self.x, "Ym": "Ym", "dYm": dy})
        w.map(dx, "add", dx, f"m{dx}")
