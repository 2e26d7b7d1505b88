"""The parts that presets are made of: each with its forward statements and its gradients.

A part is made with where it is written, the tensor that it reads, the one that it writes, and its sizes; see
:func:`umm.program.presets.chain`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from umm.program.models.priced import INDEX
from umm.program.norms import HeadNorm, Norm, WideNorm
from umm.program.statements.attention import Attention as Fused
from umm.program.statements.attention import AttentionGrad
from umm.program.statements.sparse import SparseAttention, SparseAttentionGrad
from umm.program.writing import SHORT, Writing

Sizes = Mapping[str, int]


class Part(Protocol):
    """A part of a layer, whose forward statements are written as it is made."""

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X, given that by Y."""


class Mlp:
    """Y = gelu(X·W1)·W2, or with a gate (silu(X·W1) * X·W3)·W2; added to Y if that is written already.

    Args:
        ffn: Columns between.
        mark: Of its names: its first weight is ``W`` and this and 1.
        bias: Whether its products have biases.

    Source: Shazeer (2020), GLU variants, equation 6.
    """

    def __init__(
        self, w: Writing, x: str, y: str, ffn: int, gated: bool = False, mark: str = "", bias: int = 0
    ) -> None:
        self.w, self.x, self.bias, self.gated = w, x, bias, gated
        self.second, self.active, hidden = f"W{mark}2", f"G{mark}", w.shapes[x].cols
        numbers = ("1", "3") if gated else ("1",)
        # The weights that multiply X, each with its product.
        self.first = {f"W{mark}{i}": f"H{mark}{i}" if gated else f"H{mark}" for i in numbers}
        for weight in self.first:
            w.weight(weight, hidden, ffn, "first weight")
        w.weight(self.second, ffn, hidden, "second weight")
        for weight, product in self.first.items():
            w.multiply(w.inner(product, ffn), x, weight)
        biased = zip(numbers, self.first.values(), strict=True) if bias else ()
        self.biases = {f"b{i}": product for i, product in biased}
        for name, product in self.biases.items():
            w.bias(product, name)
        w.map(w.inner(self.active, ffn), "silu_mul" if gated else "gelu", *self.first.values())
        w.drop(self.active)
        w.multiply(y, self.active, self.second, beta=float(w.wrote(y)))
        if bias:
            w.bias(y, "b2")

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w, grad = self.w, f"d{self.active}"
        w.gradients(self.second, self.active, dy)
        if self.bias and not self.gated:
            w.bias_grad("b2", dy)
        w.drop(grad)
        w.activation_gradients(grad, *self.first.values())
        for name, product in self.biases.items():
            w.bias_grad(name, f"d{product}")
        if self.bias and self.gated:
            w.bias_grad("b2", dy)
        for weight, product in self.first.items():
            w.weight_gradient(weight, self.x, f"d{product}")
        for weight, product in self.first.items():
            w.input_gradient(weight, self.x, f"d{product}")


class Attention:
    """Fused attention within each of some sequences; heads may share keys and values. No score is stored.

    Args:
        causal: Whether a token sees those up to itself alone, and positions are rotary; else it sees all.
    """

    def __init__(self, w: Writing, x: str, y: str, sizes: Sizes, causal: bool = True) -> None:
        self.w, self.x, self.sizes, self.causal = w, x, sizes, causal
        self.heads, kv_heads, hidden = sizes["heads"], sizes["kv_heads"], w.shapes[x].cols
        # Gemma 4's values are the keys before their norm and positions: one product is both.
        self.multiplied = "QK" if sizes["k_eq_v"] else "QKV"
        self.biases = self.multiplied if sizes["qkv_bias"] else ""
        self.normed = ("Q", "K") if sizes["qk_norm"] else ()
        self.norms: dict[str, HeadNorm | WideNorm] = {}
        self.index = Index.of(w, x, x, sizes)
        self.head = sizes["head_dim"] or hidden // self.heads
        self.value, self.length = sizes["value_dim"] or self.head, w.tokens // sizes["sequences"]
        wide = self.value * self.heads
        columns = (
            ("Q", self.head * self.heads, 0),
            ("K", self.head * kv_heads, self.head),
            ("V", self.value * kv_heads, self.value),
        )
        for name, cols, of_keys in columns:
            if name in self.multiplied:
                w.weight(f"W{name.lower()}", hidden, cols, "first weight", of_keys)
        w.weight("Wo", wide, hidden, "second weight")
        for name, cols, of_keys in columns:
            w.inner(name, cols, of_keys)
            if name in self.normed:
                w.inner(f"{name}0", cols, of_keys)
        # Of a decoded token one kernel multiplies all three, so the maps come after it.
        for outs in (("Q", "V", "K"),) if w.decode else ("Q", "K", "V"):
            self._operands(outs)
        self._attend(wide)
        self.gate = Gate(w, x, wide) if sizes["gate"] else None
        self.result = "Og" if self.gate else "O"
        w.multiply(y, self.result, "Wo")
        if sizes["out_bias"]:
            w.bias(y, "bo")

    def _operands(self, outs: Sequence[str]) -> None:
        """Write some of queries, keys and values: products, biases, norms and positions."""
        w = self.w
        for out in (y for y in outs if y in self.multiplied):
            w.multiply(self._product(out), self.x, f"W{out.lower()}")
        for out in (y for y in outs if y in self.biases):
            w.bias(self._product(out), f"b{out.lower()}")
        for out in (y for y in reversed(outs) if y in self.normed):
            how = (w, f"{out}0", out, f"g{out.lower()}")
            self.norms[out] = WideNorm(*how) if self.sizes["qk_norm"] == 2 else HeadNorm(*how, self.head)
        for out in reversed(outs):
            if out in self.norms:
                self.norms[out].finish()
            if self.causal and out != "V":
                turn = w.fused_map if out in self.norms else w.map  # as kernels of both do
                turn(out, "rope", out, head=self.head, positions=self.length, first=w.context)
            if out not in self.multiplied:
                w.map(out, "scale", self._product("K"), factor=1.0)

    def _product(self, name: str) -> str:
        """Return the product that becomes queries, keys or values: before a norm, if there is one."""
        return f"{name}0" if name in self.normed else name

    def _attend(self, wide: int) -> None:
        """Write O, and the logarithms L of the sums over keys, which the gradients need."""
        w, window, chunk = self.w, self.sizes["window"], self.sizes["chunk"]
        w.keep("K", "V", *(["Ik"] if self.index else []))
        if self.index:
            w.inner("O", wide)
            places = {"K": ("inner", self.head), "V": ("inner", self.value)}
            how = self._how()
            self.index.attend("O", "Q", places, {x: how[x] for x in ("head", "share", "value")})
            return
        for out, cols in (("O", wide), ("L", self.heads)):
            w.inner(out, cols)
        # Of a window, engines keep the tokens that the next one sees beside itself; of chunks its own.
        context = min(w.context, window - 1) if window else w.context
        context = context % chunk or chunk - 1 if 0 < chunk <= context else context
        cache = [f"{x}.cache" for x in "KV"] if context else []
        for name in cache:
            like = w.shapes[name[0]]
            w.cache(name, self.sizes["sequences"], like.cols, "inner", like.head, context)
        w.statements.append(Fused("O", "Q", "K", "V", "L", cache=tuple(cache), **self._how()))
        if self.causal and not cache:
            w.balance(self.sizes["sequences"])

    def _how(self) -> dict[str, Any]:
        chunk = self.sizes["chunk"]
        return {
            "head": self.head, "share": self.heads // self.sizes["kv_heads"],
            "sequences": self.sizes["sequences"], "causal": self.causal,
            "window": 0 if self.w.context else self.sizes["window"],
            "value": self.value if self.value != self.head else 0,
            "chunks": max(1, self.length // chunk) if chunk else 1,
        }  # fmt: skip

    def _attend_grad(self) -> None:
        """Write the gradients by Q, K and V, given that by O."""
        w = self.w
        if self.index:
            self.index.backward("dO")
            return
        dq, dk, dv = (w.gradient(x) for x in "QKV")
        w.statements.append(AttentionGrad(dq, dk, dv, "Q", "K", "V", "O", "L", "dO", **self._how()))

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w, products = self.w, {f"W{x.lower()}": f"d{self._product(x)}" for x in self.multiplied}
        w.gradients("Wo", self.result, dy)
        if self.sizes["out_bias"]:
            w.bias_grad("bo", dy)
        if self.gate:
            self.gate.backward()
        self._attend_grad()
        if self.causal:
            for out in ("dQ", "dK"):
                w.map(out, "rope_grad", out, head=self.head, positions=self.length)
        for out, norm in self.norms.items():
            norm.backward(f"d{out}", w.gradient(f"{out}0"))
        if "V" not in self.multiplied:
            w.map("dK0", "add", "dK0", "dV")
        for out in self.biases:
            w.bias_grad(f"b{out.lower()}", f"d{self._product(out)}")
        for weight, product in products.items():
            w.weight_gradient(weight, self.x, product)
        for weight, product in products.items():
            w.input_gradient(weight, self.x, product)
        if self.gate:
            w.gradients("Wz", self.x, "dZg")


class Index:
    """The indexer of sparse attention: queries, keys and weights of its scores.

    A decoded token's key is in the cache with those before it. Gradients by the indexer are of its own loss,
    which stops at what it reads.

    Source: DeepSeek-AI (2025), DeepSeek-V3.2, section 2.1.
    """

    def __init__(self, w: Writing, x: str, source: str, sizes: Sizes) -> None:
        heads, self.head, self.top = (sizes[name] for name in INDEX)
        self.w, self.sequences = w, sizes["sequences"]
        self.made = ("Iq", source, heads * self.head), ("Ik", x, self.head), ("Iw", x, heads)
        for name, read, cols in self.made:
            w.project(name, read, cols, f"W{name.lower()}", places=SHORT)

    @classmethod
    def of(cls, w: Writing, x: str, source: str, sizes: Sizes) -> "Index | None":
        """Return the indexer whose queries are made of a source; None if a token attends to all it sees."""
        return cls(w, x, source, sizes) if all(sizes[name] for name in INDEX) else None

    def attend(self, out: str, q: str, keys: Mapping[str, tuple[str, int]], how: Mapping[str, Any]) -> None:
        """Write attention to chosen keys.

        Args:
            keys: Keys, values (or none, if they are the keys), rotary columns: place and columns of a head.
        """
        w, names = self.w, {x: x for x in (*keys, "Ik")}
        if w.context:
            for name, (place, head) in {**keys, "Ik": ("cache", 0)}.items():
                names[name] = f"{name}.cache"
                w.cache(names[name], self.sequences, w.shapes[name].cols, place, head, w.context + 1)
        else:
            w.balance(self.sequences)
        k, *rest = keys
        rotary = (how["rotary"][0], names[how["rotary"][1]]) if how.get("rotary") else ()
        v = names[next((x for x in rest if not how.get("rotary") or x != how["rotary"][1]), k)]
        self.reads = q, names[k], v, "Iq", names["Ik"], "Iw"
        more = {"index": self.head, "top": self.top, "sequences": self.sequences, "rotary": rotary}
        self.how: dict[str, Any] = {**how, **more}
        w.statements.append(SparseAttention(out, *self.reads, **self.how))

    def backward(self, do: str) -> None:
        """Write the gradients by all that attention and the indexer read, and by the indexer's weights."""
        w, (q, k, v, *_) = self.w, self.reads
        dq, dk, diq, dik, diw = (w.gradient(x) for x in (q, k, "Iq", "Ik", "Iw"))
        dv = w.gradient(v) if v != k else ""
        turned = tuple(w.gradient(x) for x in self.how["rotary"])
        grad = SparseAttentionGrad(dq, *self.reads, do, dk, diq, dik, diw, dv, turned, **self.how)
        w.statements.append(grad)
        for name, read, _ in self.made:
            w.weight_gradient(f"W{name.lower()}", read, f"d{name}")


class Gate:
    """Og = O · sigmoid(X·Wz), as Qwen3-Next gates the result of attention."""

    def __init__(self, w: Writing, x: str, wide: int) -> None:
        self.w = w
        w.project("Zg", x, wide, "Wz")
        w.map(w.inner("Zo", wide), "sigmoid", "Zg")
        w.fused_map(w.inner("Og", wide), "mul", "O", "Zo")

    def backward(self) -> None:
        """Write the gradients by O and by Z, given that by Og."""
        w = self.w
        w.map(w.gradient("O"), "mul", "dOg", "Zo")
        w.fused_map(w.gradient("Zo"), "mul", "dOg", "O")
        w.fused_map(w.gradient("Zg"), "sigmoid_grad", "Zg", "dZo")


class LatentAttention:
    """Attention whose keys and values are made of one latent vector a token, as short as a head's or two.

    Queries come of a latent vector too, if it has columns. Positions are in columns of their own: those of
    keys are one head's, which all share. A decoded token attends to the latent vectors themselves: what would
    make keys of them multiplies the queries, and what would make values the result, so that the cache holds
    no head's keys.

    Source: DeepSeek-AI (2024), DeepSeek-V2, section 2.1 and appendix C.
    """

    def __init__(self, w: Writing, x: str, y: str, sizes: Sizes) -> None:
        self.w, self.x, self.heads, self.sequences = w, x, sizes["heads"], sizes["sequences"]
        of_queries, self.of_keys, self.rotary = (sizes[name] for name in ("q_rank", "kv_rank", "rope_dim"))
        hidden, self.length = w.shapes[x].cols, w.tokens // self.sequences
        self.head = sizes["head_dim"] or hidden // self.heads
        self.value = sizes["value_dim"] or self.head
        keys, self.wide = self.heads * self.head, self.heads * self.value
        vectors = {name: cols for name, cols in (("Cq", of_queries), ("Ck", self.of_keys)) if cols}
        self.latent = {**vectors, "Kr": self.rotary}
        for name, cols in self.latent.items():
            w.project(name, x, cols, f"W{name.lower()}", places=SHORT)
        self.norms = [Norm(w, name, f"N{name[1]}", f"g{name[1]}") for name in vectors]
        if not w.decode:
            w.map("Kr", "rope", "Kr", **self._turn())
        source = "Nq" if of_queries else x
        self.made = {"Q": source, "Qr": source}
        for out, cols in (("Q", keys), ("Qr", self.heads * self.rotary)):
            w.project(out, source, cols, f"W{out.lower()}")
        for out in ("Kr", "Qr") if w.decode else ("Qr",):  # of a decoded token one kernel turns both
            w.map(out, "rope", out, **self._turn(w.context))
        self.index = Index.of(w, x, source, sizes)
        w.weight("Wk", self.of_keys, keys, "first weight")
        w.weight("Wv", self.of_keys, self.wide, "first weight")
        w.weight("Wo", self.wide, hidden, "second weight")
        w.keep("Nk", "Kr", *(["Ik"] if self.index else []))
        # Chosen keys differ by query, so kernels gather latent vectors, as for a decoded token.
        (self._decoded if w.decode or self.index else self._attend)()
        self.gate = Gate(w, x, self.wide) if sizes["gate"] else None
        self.result = "Og" if self.gate else "O"
        w.multiply(y, self.result, "Wo")

    def _turn(self, first: int = 0) -> dict[str, int]:
        return {"head": self.rotary, "positions": self.length, "first": first}

    def _how(self) -> dict[str, Any]:
        value = self.value if self.value != self.head else 0
        return {"head": self.head, "sequences": self.sequences, "rotary": ("Qr", "Kr"), "value": value}

    def _attend(self) -> None:
        """Write O by keys and values of each head."""
        w = self.w
        for out, cols in (("K", self.heads * self.head), ("V", self.wide)):
            self.made[out] = "Nk"
            w.multiply(w.inner(out, cols), "Nk", f"W{out.lower()}")
        for out, cols in (("O", self.wide), ("L", self.heads)):
            w.inner(out, cols)
        w.statements.append(Fused("O", "Q", "K", "V", "L", **self._how()))
        w.balance(self.sequences)

    def _decoded(self) -> None:
        """Write O by the latent vectors, which all heads share as keys and as values."""
        w, wide = self.w, self.heads * self.of_keys
        heads = {"batch": self.heads, "batch_axes": (1, 1, 1)}
        w.multiply(w.inner("Qk", wide), "Q", "Wk", "b", **heads)
        how = self._how() | {
            "head": self.of_keys, "share": self.heads, "scaled": self.head + self.rotary, "value": 0,
        }  # fmt: skip
        if self.index:
            w.inner("Ov", wide)
            del how["sequences"]
            self.index.attend("Ov", "Qk", {"Nk": ("cache", 0), "Kr": ("cache", 0)}, how)
        else:
            for x in ("Nk", "Kr") if w.context else ():
                w.cache(f"{x}.cache", self.sequences, w.shapes[x].cols, "cache")
            for out, cols in (("Ov", wide), ("L", self.heads)):
                w.inner(out, cols)
            cache = ("Nk.cache", "Nk.cache", "Kr.cache") if w.context else ()
            w.statements.append(Fused("Ov", "Qk", "Nk", "Nk", "L", cache=cache, **how))
        w.multiply(w.inner("O", self.wide), "Ov", "Wv", **heads)

    def _attend_grad(self) -> None:
        """Write the gradients by Q, K, V and rotary columns, given that by O."""
        w = self.w
        d = {x: w.gradient(x) for x in ("Q", "K", "V", "Qr", "Kr")}
        grad = AttentionGrad(
            d["Q"], d["K"], d["V"], "Q", "K", "V", "O", "L", "dO", drotary=(d["Qr"], d["Kr"]), **self._how()
        )
        w.statements.append(grad)

    def _chosen_grad(self, index: Index) -> None:
        """Write the gradients by Q and the latent vectors, and by the weights of keys and values."""
        w, heads = self.w, {"batch": self.heads, "batch_axes": (1, 1, 1)}
        w.multiply(w.gradient("Wv", "output"), "Ov", "dO", "a", **heads)
        w.multiply(w.gradient("Ov"), "dO", "Wv", "b", **heads)
        index.backward("dOv")
        w.multiply(w.gradient("Wk", "output"), "dQk", "Q", "a", **heads)
        w.multiply(w.gradient("Q"), "dQk", "Wk", **heads)

    def backward(self, dy: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        w.gradients("Wo", self.result, dy)
        if self.gate:
            self.gate.backward()
        if self.index:
            self._chosen_grad(self.index)
        else:
            self._attend_grad()
        for out in ("dQr", "dKr"):
            w.map(out, "rope_grad", out, **self._turn())
        for out, latent in self.made.items():
            w.gradients(f"W{out.lower()}", latent, f"d{out}")
        for norm in self.norms:
            norm.backward(f"d{norm.out}", w.gradient(norm.x))
        for out in self.latent:
            w.gradients(f"W{out.lower()}", self.x, f"d{out}")
        if self.gate:
            w.gradients("Wz", self.x, "dZg")


class StoredAttention(Attention):
    """Attention whose scores S are a tensor, as before fused kernels.

    Its rows are tokens, those of one sequence after those of another, its columns the keys of one head beside
    those of another.
    """

    def _attend(self, wide: int) -> None:
        w = self.w
        w.tensor("S", w.tokens, self.heads * self.length, "scores")
        w.multiply("S", "Q", "K", "b", alpha=self.head**-0.5, **self._members())
        if self.causal:
            w.map("S", "masked_softmax", "S", queries=self.length, keys=self.length)
        else:
            w.map("S", "softmax", "S", keys=self.length)
        w.multiply(w.inner("O", wide), "S", "V", **self._members())

    def _attend_grad(self) -> None:
        w, scale = self.w, self.head**-0.5
        w.multiply(w.gradient("V"), "S", "dO", "a", **self._members(shared_out=True))
        w.multiply(w.gradient("S"), "dO", "V", "b", **self._members())
        w.map("dS", "softmax_grad", "S", "dS", keys=self.length)
        w.multiply(w.gradient("Q"), "dS", "K", alpha=scale, **self._members())
        w.multiply(w.gradient("K"), "dS", "Q", "a", alpha=scale, **self._members(shared_out=True))

    def _members(self, shared_out: bool = False) -> dict[str, Any]:
        """Return how heads lie in out, a and b: side by side; those of b share, or those of out."""
        share = self.heads // self.sizes["kv_heads"]
        groups = (share, 1, 1) if shared_out else (1, 1, share)
        return {
            "batch": self.heads, "batch_axes": (1, 1, 1), "groups": groups,
            "sequences": self.sizes["sequences"],
        }  # fmt: skip
