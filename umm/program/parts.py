"""The parts that presets are made of: each with its forward statements and its gradients."""

from collections.abc import Mapping
from typing import Any, Protocol

from umm.program.norms import HeadNorm, Norm, WideNorm
from umm.program.statements.attention import Attention as Fused
from umm.program.statements.attention import AttentionGrad
from umm.program.statements.sparse import SparseAttention, SparseAttentionGrad
from umm.program.writing import Writing


class Part(Protocol):
    """A part of a layer, whose forward statements are written as it is made."""

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""


class Mlp:
    """Y = gelu(X·W1)·W2, or with a gate (silu(X·W1) * X·W3)·W2.

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes, or adds to.
        hidden: Columns of both.
        ffn: Columns between.
        gated: Whether it has a gate.
        mark: Of its names: its first weight is ``W`` and this and 1.
        add: Whether it adds to y, and its gradient to that by x.
        bias: Whether its products have biases.

    Source: Shazeer (2020), GLU variants, equation 6.
    """

    def __init__(
        self, w: Writing, x: str, y: str, hidden: int, ffn: int, gated: bool = False, mark: str = "",
        add: bool = False, bias: int = 0,
    ) -> None:  # fmt: skip
        self.w, self.x, self.add, self.bias, self.gated = w, x, add, bias, gated
        self.second, self.active = f"W{mark}2", f"G{mark}"
        numbers = ("1", "3") if gated else ("1",)
        # The weights that multiply X, each with its product.
        self.first = {f"W{mark}{i}": f"H{mark}{i}" if gated else f"H{mark}" for i in numbers}
        for weight in self.first:
            w.weight(weight, hidden, ffn, "first weight")
        w.weight(self.second, ffn, hidden, "second weight")
        for weight, product in self.first.items():
            w.multiply(w.inner(product, ffn), x, weight)
        self.biases = {f"b{i}": product for i, product in zip(numbers, self.first.values(), strict=True)}
        for name, product in self.biases.items() if bias else ():
            w.bias(product, name)
        w.map(w.inner(self.active, ffn), "silu_mul" if gated else "gelu", *self.first.values())
        w.drop(self.active)
        w.multiply(y, self.active, self.second, beta=float(add))
        if bias:
            w.bias(y, "b2")

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w, grad = self.w, f"d{self.active}"
        w.gradients(self.second, self.active, dy)
        if self.bias and not self.gated:
            w.bias_grad("b2", dy)
        w.drop(grad)
        if self.gated:
            h1, h3 = self.first.values()
            w.fused_map(w.gradient(h3), "silu_mul", h1, grad)
            w.fused_map(w.gradient(h1), "silu_mul_grad", h1, h3, grad)
        else:
            (h,) = self.first.values()
            w.fused_map(w.gradient(h), "gelu_grad", h, grad)
        for name, product in self.biases.items() if self.bias else ():
            w.bias_grad(name, f"d{product}")
        if self.bias and self.gated:
            w.bias_grad("b2", dy)
        for weight, product in self.first.items():
            w.multiply(w.gradient(weight, "output"), self.x, f"d{product}", "a")
        for number, (weight, product) in enumerate(self.first.items()):
            w.multiply(dx, f"d{product}", weight, "b", beta=float(self.add or number > 0))


class Attention:
    """Fused attention within each of some sequences; heads may share keys and values. No score is stored.

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes.
        hidden: Columns of both.
        heads: Heads of queries.
        kv_heads: Heads of keys and values.
        sequences: Equal parts that the tokens are of.
        head: Columns of a head; 0 for as many as make up hidden.
        causal: Whether a token sees those up to itself alone, and positions are rotary; else it sees all.
        window: Tokens that one sees at most, itself the last; 0 for all before it.
        value: Columns of a head of values; 0 for as many as of keys.
        chunk: Tokens of the chunks within which tokens see each other; 0 for a whole sequence.
        gate: Whether a sigmoid of X·Wz multiplies the result.
        index: Heads, columns of one and chosen keys of an indexer; none if a token attends to all it sees.
        qk_norm: 1 where queries and keys are normalised head by head, 2 where over all heads; else 0.
        qkv_bias: Whether queries, keys and values have biases.
        out_bias: Whether the result has one.
    """

    def __init__(
        self, w: Writing, x: str, y: str, hidden: int, heads: int, kv_heads: int, sequences: int = 1,
        head: int = 0, causal: bool = True, window: int = 0, value: int = 0, chunk: int = 0,
        gate: int = 0, index: tuple[int, int, int] | None = None, qk_norm: int = 0, qkv_bias: int = 0,
        out_bias: int = 0,
    ) -> None:  # fmt: skip
        self.window, self.chunk = window, chunk
        self.biases = ("Q", "K", "V") if qkv_bias else ()
        self.out_bias, self.normed = out_bias, ("Q", "K") if qk_norm else ()
        self.norms: dict[str, HeadNorm | WideNorm] = {}
        self.index = Index(w, x, x, *index) if index else None
        self.w, self.x, self.heads, self.share = w, x, heads, heads // kv_heads
        self.head, self.sequences, self.causal = head or hidden // heads, sequences, causal
        self.value, self.length = value or self.head, w.tokens // sequences
        wide = self.value * heads
        sizes = (
            ("q", self.head * heads, 0),
            ("k", self.head * kv_heads, self.head),
            ("v", self.value * kv_heads, self.value),
        )
        for name, cols, of_keys in sizes:
            w.weight(f"W{name}", hidden, cols, "first weight", of_keys)
        w.weight("Wo", wide, hidden, "second weight")
        for name, cols, of_keys in sizes:
            w.inner(name.upper(), cols, of_keys)
            if name.upper() in self.normed:
                w.inner(f"{name.upper()}0", cols, of_keys)
        # Of a decoded token one kernel multiplies all three, so the maps come after it.
        for outs in (("Q", "V", "K"),) if w.decode else ("Q", "K", "V"):
            for out in outs:
                w.multiply(self._product(out), x, f"W{out.lower()}")
            for out in outs if qkv_bias else ():
                w.bias(self._product(out), f"b{out.lower()}")
            for out in (y for y in reversed(outs) if y in self.normed):
                how = (w, f"{out}0", out, f"g{out.lower()}")
                self.norms[out] = WideNorm(*how) if qk_norm == 2 else HeadNorm(*how, self.head)
            for out in reversed(outs):
                if out in self.norms:
                    self.norms[out].finish()
                if causal and out != "V":
                    turn = w.fused_map if out in self.norms else w.map  # as kernels of both do
                    turn(out, "rope", out, head=self.head, positions=self.length, first=w.context)
        self._attend(wide)
        self.gate = Gate(w, x, hidden, wide) if gate else None
        w.multiply(y, "Og" if gate else "O", "Wo")
        if out_bias:
            w.bias(y, "bo")

    def _product(self, name: str) -> str:
        """Return the product that becomes queries, keys or values: before a norm, if there is one."""
        return f"{name}0" if name in self.normed else name

    def _attend(self, hidden: int) -> None:
        """Write O, and the logarithms L of the sums over keys, which the gradients need."""
        w = self.w
        w.keep("K", "V", *(["Ik"] if self.index else []))
        if self.index:
            w.inner("O", hidden)
            places = {"K": ("inner", self.head), "V": ("inner", self.value)}
            how = {"head": self.head, "share": self.share, "value": self._how()["value"]}
            self.index.attend("O", "Q", places, self.sequences, how)
            return
        for out, cols in (("O", hidden), ("L", self.heads)):
            w.inner(out, cols)
        # Of a window, engines keep the tokens that the next one sees beside itself; of chunks its own.
        context = min(w.context, self.window - 1) if self.window else w.context
        context = context % self.chunk or self.chunk - 1 if 0 < self.chunk <= context else context
        cache = [f"{x}.cache" for x in "KV"] if context else []
        for name in cache:
            like = w.shapes[name[0]]
            w.cache(name, self.sequences, like.cols, "inner", like.head, context)
        w.statements.append(Fused("O", "Q", "K", "V", "L", cache=tuple(cache), **self._how()))
        if self.causal and not cache:
            w.front_and_back = "zigzag" if self.sequences == 1 else f"zigzag:{self.sequences}"

    def _how(self) -> dict[str, Any]:
        return {
            "head": self.head, "share": self.share, "sequences": self.sequences, "causal": self.causal,
            "window": 0 if self.w.context else self.window,
            "value": self.value if self.value != self.head else 0,
            "chunks": max(1, self.length // self.chunk) if self.chunk else 1,
        }  # fmt: skip

    def _attend_grad(self) -> None:
        """Write the gradients by Q, K and V, given that by O."""
        w = self.w
        if self.index:
            self.index.backward("dO")
            return
        dq, dk, dv = (w.gradient(x) for x in "QKV")
        w.statements.append(AttentionGrad(dq, dk, dv, "Q", "K", "V", "O", "L", "dO", **self._how()))

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        result = "Og" if self.gate else "O"
        w.gradients("Wo", result, dy)
        if self.out_bias:
            w.bias_grad("bo", dy)
        if self.gate:
            self.gate.backward()
        self._attend_grad()
        if self.causal:
            for out in ("dQ", "dK"):
                w.map(out, "rope_grad", out, head=self.head, positions=self.length)
        for out, norm in self.norms.items():
            norm.backward(f"d{out}", w.gradient(f"{out}0"))
        for out in self.biases:
            w.bias_grad(f"b{out.lower()}", f"d{self._product(out)}")
        for out in "QKV":
            w.multiply(w.gradient(f"W{out.lower()}", "output"), self.x, f"d{self._product(out)}", "a")
        for number, out in enumerate("QKV"):
            w.multiply(dx, f"d{self._product(out)}", f"W{out.lower()}", "b", beta=float(number > 0))
        if self.gate:
            self.gate.add_to(dx)


class Index:
    """The indexer of sparse attention: queries, keys and weights of its scores.

    A decoded token's key is in the cache with those before it. Gradients by the indexer are of its own loss,
    which stops at what it reads.

    Source: DeepSeek-AI (2025), DeepSeek-V3.2, section 2.1.
    """

    def __init__(self, w: Writing, x: str, source: str, heads: int, head: int, top: int) -> None:
        self.w, self.head, self.top = w, head, top
        self.made = ("Iq", source, heads * head), ("Ik", x, head), ("Iw", x, heads)
        for name, read, cols in self.made:
            w.weight(f"W{name.lower()}", w.shapes[read].cols, cols, "scale")
            w.multiply(w.tensor(name, w.tokens, cols, "tokens"), read, f"W{name.lower()}")

    def attend(
        self, out: str, q: str, keys: Mapping[str, tuple[str, int]], sequences: int, how: Mapping[str, Any]
    ) -> None:
        """Write attention to chosen keys.

        Args:
            keys: Keys, values (or none, if they are the keys), rotary columns: place and columns of a head.
            sequences: Equal parts that the tokens are of.
        """
        w, names = self.w, {x: x for x in (*keys, "Ik")}
        if w.context:
            for name, (place, head) in {**keys, "Ik": ("cache", 0)}.items():
                names[name] = f"{name}.cache"
                w.cache(names[name], sequences, w.shapes[name].cols, place, head, w.context + 1)
        if not w.context:
            w.front_and_back = "zigzag" if sequences == 1 else f"zigzag:{sequences}"
        k, *rest = keys
        rotary = (how["rotary"][0], names[how["rotary"][1]]) if how.get("rotary") else ()
        v = names[next((x for x in rest if not how.get("rotary") or x != how["rotary"][1]), k)]
        self.reads = q, names[k], v, "Iq", names["Ik"], "Iw"
        self.how = {**how, "index": self.head, "top": self.top, "sequences": sequences, "rotary": rotary}
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
            w.multiply(w.gradient(f"W{name.lower()}", "output"), read, f"d{name}", "a")


class Gate:
    """Og = O · sigmoid(X·Wz), as Qwen3-Next gates the result of attention."""

    def __init__(self, w: Writing, x: str, hidden: int, wide: int) -> None:
        self.w, self.x = w, x
        w.weight("Wz", hidden, wide, "first weight")
        w.multiply(w.inner("Zg", wide), x, "Wz")
        w.map(w.inner("Zo", wide), "sigmoid", "Zg")
        w.fused_map(w.inner("Og", wide), "mul", "O", "Zo")

    def backward(self) -> None:
        """Write the gradients by O and by Z, given that by Og."""
        w = self.w
        w.map(w.gradient("O"), "mul", "dOg", "Zo")
        w.fused_map(w.gradient("Zo"), "mul", "dOg", "O")
        w.fused_map(w.gradient("Zg"), "sigmoid_grad", "Zg", "dZo")

    def add_to(self, dx: str) -> None:
        """Write the gradient by the weight, and add that by X to dX."""
        w = self.w
        w.gradients("Wz", self.x, "dZg", dx, beta=1.0)


class LatentAttention:
    """Attention whose keys and values are made of one latent vector a token, as short as a head's or two.

    Queries come of a latent vector too. Positions are in columns of their own: those of keys are one head's,
    which all share. A decoded token attends to the latent vectors themselves: what would make keys of them
    multiplies the queries, and what would make values the result, so that the cache holds no head's keys.

    Args:
        w: Where it is written.
        x: What it reads.
        y: What it writes.
        hidden: Columns of both.
        heads: Heads of queries, keys and values.
        sequences: Equal parts that the tokens are of.
        head: Columns of a head without those of positions.
        latents: Columns of the latent vector of queries, of that of keys and values, and of positions;
            without the first, queries are made of X.
        value: Columns of a head of values; 0 for as many as of keys.
        gate: Whether a sigmoid of X·Wz multiplies the result.
        index: Heads, columns of one and chosen keys of an indexer; none if a token attends to all it sees.

    Source: DeepSeek-AI (2024), DeepSeek-V2, section 2.1 and appendix C.
    """

    def __init__(
        self, w: Writing, x: str, y: str, hidden: int, heads: int, sequences: int, head: int,
        latents: tuple[int, int, int], value: int = 0, gate: int = 0,
        index: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        self.w, self.x, self.heads, self.head, self.sequences = w, x, heads, head, sequences
        of_queries, of_keys, self.rotary = latents
        self.of_keys, self.wide, self.length = of_keys, heads * head, w.tokens // sequences
        self.value = value or head
        vectors = {name: cols for name, cols in (("Cq", of_queries), ("Ck", of_keys)) if cols}
        self.latent = {**vectors, "Kr": self.rotary}
        for name, cols in self.latent.items():
            w.weight(f"W{name.lower()}", hidden, cols, "scale")
            w.multiply(w.tensor(name, w.tokens, cols, "tokens"), x, f"W{name.lower()}")
        self.norms = [Norm(w, name, f"N{name[1]}", f"g{name[1]}", cols) for name, cols in vectors.items()]
        if not w.decode:
            w.map("Kr", "rope", "Kr", **self._turn())
        source = "Nq" if of_queries else x
        self.made = [("Q", source, self.wide), ("Qr", source, heads * self.rotary)]
        for out, latent, cols in self.made:
            w.weight(f"W{out.lower()}", w.shapes[latent].cols, cols, "first weight")
            w.multiply(w.inner(out, cols), latent, f"W{out.lower()}")
        for out in ("Kr", "Qr") if w.decode else ("Qr",):  # of a decoded token one kernel turns both
            w.map(out, "rope", out, **self._turn(w.context))
        self.index = Index(w, x, source, *index) if index else None
        wide = heads * self.value
        w.weight("Wk", of_keys, self.wide, "first weight")
        w.weight("Wv", of_keys, wide, "first weight")
        w.weight("Wo", wide, hidden, "second weight")
        w.keep("Nk", "Kr", *(["Ik"] if self.index else []))
        # Chosen keys differ by query, so kernels gather latent vectors, as for a decoded token.
        (self._decoded if w.decode or self.index else self._attend)()
        self.gate = Gate(w, x, hidden, wide) if gate else None
        w.multiply(y, "Og" if gate else "O", "Wo")

    def _turn(self, first: int = 0) -> dict[str, int]:
        return {"head": self.rotary, "positions": self.length, "first": first}

    def _how(self) -> dict[str, Any]:
        return {
            "head": self.head, "sequences": self.sequences, "rotary": ("Qr", "Kr"),
            "value": self.value if self.value != self.head else 0,
        }  # fmt: skip

    def _attend(self) -> None:
        """Write O by keys and values of each head."""
        w, wide = self.w, self.heads * self.value
        for out, cols in (("K", self.wide), ("V", wide)):
            self.made.append((out, "Nk", cols))
            w.multiply(w.inner(out, cols), "Nk", f"W{out.lower()}")
        for out, cols in (("O", wide), ("L", self.heads)):
            w.inner(out, cols)
        w.statements.append(Fused("O", "Q", "K", "V", "L", **self._how()))
        w.front_and_back = "zigzag" if self.sequences == 1 else f"zigzag:{self.sequences}"

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
            places = {"Nk": ("cache", 0), "Kr": ("cache", 0)}
            self.index.attend("Ov", "Qk", places, self.sequences, how)
        else:
            for x in ("Nk", "Kr") if w.context else ():
                w.cache(f"{x}.cache", self.sequences, w.shapes[x].cols, "cache")
            for out, cols in (("Ov", wide), ("L", self.heads)):
                w.inner(out, cols)
            cache = ("Nk.cache", "Nk.cache", "Kr.cache") if w.context else ()
            w.statements.append(Fused("Ov", "Qk", "Nk", "Nk", "L", cache=cache, **how))
        w.multiply(w.inner("O", self.heads * self.value), "Ov", "Wv", **heads)

    def _chosen_grad(self, index: Index) -> None:
        """Write the gradients by Q and the latent vectors, and by the weights of keys and values."""
        w, heads = self.w, {"batch": self.heads, "batch_axes": (1, 1, 1)}
        w.multiply(w.gradient("Wv", "output"), "Ov", "dO", "a", **heads)
        w.multiply(w.gradient("Ov"), "dO", "Wv", "b", **heads)
        index.backward("dOv")
        w.multiply(w.gradient("Wk", "output"), "dQk", "Q", "a", **heads)
        w.multiply(w.gradient("Q"), "dQk", "Wk", **heads)

    def backward(self, dy: str, dx: str) -> None:
        """Write the gradients by the weights and by X."""
        w = self.w
        result = "Og" if self.gate else "O"
        w.gradients("Wo", result, dy)
        if self.gate:
            self.gate.backward()
        written = set[str]()
        if self.index:
            self._chosen_grad(self.index)
            written.add("Nk")
        else:
            d = {x: w.gradient(x) for x in ("Q", "K", "V", "Qr", "Kr")}
            grad = AttentionGrad(
                d["Q"], d["K"], d["V"], "Q", "K", "V", "O", "L", "dO",
                drotary=(d["Qr"], d["Kr"]), **self._how(),
            )  # fmt: skip
            w.statements.append(grad)
        for out in ("dQr", "dKr"):
            w.map(out, "rope_grad", out, **self._turn())
        for out, latent, _ in self.made:
            w.multiply(w.gradient(f"W{out.lower()}", "output"), latent, f"d{out}", "a")
            into = dx if latent == self.x else f"d{latent}"
            if latent not in written and latent != self.x:
                w.gradient(latent)
            w.multiply(into, f"d{out}", f"W{out.lower()}", "b", beta=float(latent in written))
            written.add(latent)
        for norm in self.norms:
            norm.backward(f"d{norm.out}", w.gradient(norm.x))
        for number, out in enumerate(self.latent):
            w.multiply(w.gradient(f"W{out.lower()}", "output"), self.x, f"d{out}", "a")
            beta = float(number > 0 or self.x in written)
            w.multiply(dx, f"d{out}", f"W{out.lower()}", "b", beta=beta)
        if self.gate:
            self.gate.add_to(dx)


class StoredAttention(Attention):
    """Attention whose scores S are a tensor, as before fused kernels.

    Its rows are tokens, those of one sequence after those of another, its columns the keys of one head beside
    those of another.
    """

    def _attend(self, hidden: int) -> None:
        w = self.w
        w.tensor("S", w.tokens, self.heads * self.length, "scores")
        w.multiply("S", "Q", "K", "b", alpha=self.head**-0.5, **self._members())
        if self.causal:
            w.map("S", "masked_softmax", "S", queries=self.length, keys=self.length)
        else:
            w.map("S", "softmax", "S", keys=self.length)
        w.multiply(w.inner("O", hidden), "S", "V", **self._members())

    def _attend_grad(self) -> None:
        w, scale = self.w, self.head**-0.5
        w.multiply(w.gradient("V"), "S", "dO", "a", **self._members(shared_out=True))
        w.multiply(w.gradient("S"), "dO", "V", "b", **self._members())
        w.map("dS", "softmax_grad", "S", "dS", keys=self.length)
        w.multiply(w.gradient("Q"), "dS", "K", alpha=scale, **self._members())
        w.multiply(w.gradient("K"), "dS", "Q", "a", alpha=scale, **self._members(shared_out=True))

    def _members(self, shared_out: bool = False) -> dict[str, Any]:
        """Return how heads lie in out, a and b: side by side; those of b share, or those of out."""
        groups = (self.share, 1, 1) if shared_out else (1, 1, self.share)
        return {
            "batch": self.heads, "batch_axes": (1, 1, 1), "groups": groups, "sequences": self.sequences,
        }  # fmt: skip
