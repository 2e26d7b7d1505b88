"""Sparse attention in NumPy: an indexer scores the keys, and a query attends to the best of them alone.

A key's score is the sum over index heads of weight · relu(index query · index key), one index key a token.
Of equal scores the earlier key comes first. Queries and keys are as in ``functions/attention.py``, with
a causal mask; index queries are ``rx``, their weights ``rz``, index keys ``ky``.

Source: DeepSeek-AI (2025), DeepSeek-V3.2, section 2.1.
"""

from typing import Any

import numpy as np

from umm.program.functions.attention import heads_of
from umm.program.functions.signature import Array, Function, Parameter, Place


def chosen(iq: Array, ik: Array, iw: Array, seen: Array, index: int, top: int) -> Array:
    """Return by query and key whether the key is among the best that the query sees.

    Args:
        iq: Index queries, heads side by side.
        ik: Index keys.
        iw: A weight for each index head.
        seen: By query and key whether the mask leaves it.
        index: Columns of an index head.
        top: Keys that a query attends to at most.
    """
    score = np.zeros_like(iq, shape=seen.shape)
    for head in range(iw.shape[1]):
        product = iq[:, head * index : (head + 1) * index] @ ik.T
        score = score + iw[:, head : head + 1] * np.maximum(product, 0)
    score = np.where(seen, score, -np.inf)
    best = np.argsort(-score, axis=1, kind="stable")[:, :top]
    result = np.zeros_like(seen)
    result[np.arange(len(seen))[:, None], best] = True
    kept: Array = np.logical_and(result, seen)
    return kept


def sparse_attend(
    q: Array, k: Array, v: Array, iq: Array, ik: Array, iw: Array, *rotary: Array, at: Place, index: int,
    top: int, **parameters: Any,
) -> Array:  # fmt: skip
    """Return the attention of queries over the keys that are chosen for each."""
    heads, (rows, cols), (span, of_keys) = heads_of(parameters), at.spans[1], at.spans[2]
    query, key = (np.arange(x.start, x.stop) for x in (rows, span))
    position = query % heads.queries + heads.keys - heads.queries
    seen = (query // heads.queries)[:, None] == key // heads.keys
    seen &= key % heads.keys <= position[:, None]
    kept = chosen(iq, ik, iw, np.asarray(seen, like=q), index, top)
    count = cols.size // heads.head
    result = np.empty_like(q, shape=(len(q), count * heads.values))
    for number in range(count):
        shared = (cols.start // heads.head + number) // heads.share - of_keys.start // heads.head
        mine_q = q[:, number * heads.head : (number + 1) * heads.head]
        mine_k = k[:, shared * heads.head : (shared + 1) * heads.head]
        scores = mine_q @ mine_k.T
        if rotary:
            turned = rotary[0][:, number * heads.rotary : (number + 1) * heads.rotary]
            scores = scores + turned @ rotary[1].T
        scores = np.where(kept, scores * q.dtype.type(heads.scale), -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        of_values = slice(shared * heads.values, (shared + 1) * heads.values)
        result[:, number * heads.values : (number + 1) * heads.values] = (
            weights / weights.sum(axis=1, keepdims=True) @ v[:, of_values]
        )
    return result


_WHOLE, _NONE = Parameter(whole=True, least=1), Parameter(0, whole=True)
_PARAMETERS = dict.fromkeys(
    ("head", "share", "queries", "keys", "causal", "index", "top"), _WHOLE
) | dict.fromkeys(("rotary", "scaled", "value", "window"), _NONE)
_READS = "rc,kg,kw,rx,ky,rz"
FUNCTIONS = tuple(
    Function(f"sparse_attend{ending}", f"{_READS}{more}->rv", sparse_attend, _PARAMETERS, indexed=True)
    for ending, more in (("", ""), ("_rotary", ",rp,ke"))
)
"""The kernel of sparse attention, without and with rotary columns beside."""
