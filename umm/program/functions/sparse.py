"""Sparse attention in NumPy: an indexer scores the keys, and a query attends to the best of them alone.

A key's score is the sum over index heads of weight · relu(index query · index key), one index key a token.
Of equal scores the earlier key comes first. Queries and keys are as in ``functions/attention.py``, with
a causal mask; index queries are ``rx``, their weights ``rz``, index keys ``ky``.

The choice has no slope. Queries, keys and values have gradients through the chosen keys; the indexer has
those of a loss of its own: the divergence of the softmax of its scores from the mean of all heads' weights,
over the chosen keys, added up over queries. Heads add up to it, so each piece has the part of its heads.

Source: DeepSeek-AI (2025), DeepSeek-V3.2, section 2.1, equations 1 and 4.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from umm.program.functions.attention import OPERANDS, TERMS, Scored, by_head, seen_by
from umm.program.functions.signature import Array, Function, Parameter, Place


def _products(iq: Array, ik: Array, index: int) -> Iterator[Array]:
    """Yield relu(index query · index key) of each index head."""
    for start in range(0, iq.shape[1], index):
        yield np.maximum(iq[:, start : start + index] @ ik.T, 0)


def chosen(score: Array, seen: Array, top: int) -> Array:
    """Return by query and key whether the key is among the best that the query sees."""
    best = np.argsort(-np.where(seen, score, -np.inf), axis=1, kind="stable")[:, :top]
    result = np.zeros_like(seen)
    result[np.arange(len(seen))[:, None], best] = True
    kept: Array = np.logical_and(result, seen)
    return kept


def _softmax(scores: Array, kept: Array) -> Array:
    """Return the softmax of each row over its chosen keys."""
    weights = np.where(kept, scores, -np.inf)
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    result: Array = weights / weights.sum(axis=1, keepdims=True)
    return result


class _Chosen:
    """The operands, which keys each query attends to, and by which weights."""

    def __init__(
        self, reads: Sequence[Array], rotary: Sequence[Array], at: Place, parameters: Mapping[str, Any]
    ):
        q, k, self.v, self.iq, self.ik, self.iw = reads
        self.scored, _ = Scored.read(q, k, rotary, at, parameters)
        seen = seen_by(self.scored.heads, at.spans[1][0], at.spans[2][0])
        self.products = [*_products(self.iq, self.ik, int(parameters["index"]))]
        self.score = np.zeros_like(q, shape=seen.shape)
        for head, product in enumerate(self.products):
            self.score = self.score + self.iw[:, head : head + 1] * product
        self.kept = chosen(self.score, np.asarray(seen, like=q), int(parameters["top"]))

    def members(self) -> Iterator[tuple[slice, slice, slice, Array]]:
        """Yield for each query head its columns, those of its keys, its place, and its weights."""
        heads = self.scored.heads
        for cols, keys, place in by_head(heads, self.scored.at):
            q, k = self.scored.sides(cols, keys, place)
            yield cols, keys, place, _softmax(q @ k.T * q.dtype.type(heads.scale), self.kept)


def sparse_attend(*reads: Array, at: Place, **parameters: Any) -> Array:
    """Return the attention of queries over the keys that are chosen for each."""
    some = _Chosen(reads[:6], reads[6:], at, parameters)
    q, heads = some.scored.q, some.scored.heads
    result = np.empty_like(q, shape=(len(q), q.shape[1] // heads.head * heads.values))
    for cols, keys, _, weights in some.members():
        result[:, some.scored.of_result(cols)] = weights @ some.v[:, some.scored.of_result(keys)]
    return result


def _gradients(*reads: Array, at: Place, result: str, count: int, **parameters: Any) -> Array:
    """Return the gradient by one operand through the heads of a piece."""
    # reads: queries, keys, values, index queries, keys and weights, the result's gradient, rotary columns.
    # result: the operand: q, k, v, qr, kr, or iq, ik, iw of the indexer's own loss. count: heads of queries
    # in all. parameters: as of `sparse_attend`.
    some = _Chosen(reads[:6], reads[7:], at, parameters)
    if result in ("iq", "ik", "iw"):
        return _indexer_gradient(some, result, count, int(parameters["index"]))
    scored, v, do = some.scored, some.v, reads[6]
    made = np.zeros_like(v if result == "v" else OPERANDS[result](scored))
    for cols, keys, place, weights in some.members():
        grad, of_values = do[:, scored.of_result(cols)], scored.of_result(keys)
        if result == "v":
            made[:, of_values] += weights.T @ grad
            continue
        slope = grad @ v[:, of_values].T
        ds = weights * (slope - (weights * slope).sum(axis=1, keepdims=True))
        ds = ds * grad.dtype.type(scored.heads.scale)
        where, term = TERMS[result](scored, cols, keys, place, slice(None), ds)
        made[where] += term
    return made


def _indexer_gradient(some: _Chosen, result: str, count: int, index: int) -> Array:
    """Return the part that some heads have of a gradient by the indexer's loss."""
    weights = [x for *_, x in some.members()]
    by_score = np.where(some.kept, _softmax(some.score, some.kept) * len(weights) - sum(weights), 0) / count
    by_score = by_score.astype(some.iq.dtype)
    if result == "iw":
        return np.stack([(by_score * x).sum(axis=1) for x in some.products], axis=1)
    parts = []
    for head, product in enumerate(some.products):
        by_product = np.where(product > 0, by_score * some.iw[:, head : head + 1], 0)
        query = some.iq[:, head * index : (head + 1) * index]
        parts.append(by_product @ some.ik if result == "iq" else by_product.T @ query)
    return np.concatenate(parts, axis=1) if result == "iq" else np.asarray(sum(parts))


_WHOLE, _NONE = Parameter(whole=True, least=1), Parameter(0, whole=True)
_PARAMETERS = dict.fromkeys(
    ("head", "share", "queries", "keys", "causal", "index", "top"), _WHOLE
) | dict.fromkeys(("rotary", "scaled", "value", "window"), _NONE)
_READS, _ROTARY = "rc,kg,kw,rx,ky,rz", ",rp,ke"
GRADIENTS = {
    "q": "rc", "k": "kg", "v": "kw", "iq": "rx", "ik": "ky", "iw": "rz", "qr": "rp", "kr": "ke",
}  # fmt: skip
"""The operand that each gradient is by, and its letters."""


def _functions() -> Iterator[Function]:
    """Yield the kernel of sparse attention and its gradients, without and with rotary columns beside."""

    def made(name: str, signature: str, form: Callable[..., Array], **more: Parameter) -> Function:
        return Function(name, signature, form, _PARAMETERS | more, indexed=True)

    for ending, more in (("", ""), ("_rotary", _ROTARY)):
        yield made(f"sparse_attend{ending}", f"{_READS}{more}->rv", sparse_attend)
        for by, letters in GRADIENTS.items():
            if more or letters not in _ROTARY:
                form = partial(_gradients, result=by)
                yield made(f"sparse_d{by}{ending}", f"{_READS},rv{more}->{letters}", form, count=_WHOLE)


FUNCTIONS = tuple(_functions())  # what the kernels of sparse attention compute, one result each
