"""Fused attention in a graph: products of queries and keys, their softmax, and the multiply with values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from umm.program.graph.folds import COLS, Value, length, merged
from umm.program.graph.nodes import Constant, Graph


class Scores(NamedTuple):
    """Products of queries and keys on their way to a softmax, and then to values."""

    q: Value  # queries: sequences, heads, tokens, columns
    k: Value  # keys, in the same order
    scale: float  # factor of the products
    mask: Constant | None  # a mask that is added
    done: bool  # whether a softmax has been taken
    shape: tuple[int, ...]  # shape of the products


def attend(
    graph: Graph, q: Value, k: Value, v: Value, rotary: Sequence[Value] = (), *,
    causal: bool = False, window: int = 0, scale: float | None = None,
) -> Value | None:  # fmt: skip
    """Return fused attention; None if rows and columns are not tokens and heads side by side.

    Args:
        q: Queries: sequences, heads, tokens, columns.
        k: Keys, in the same order; heads may repeat.
        v: Values, as keys.
        rotary: Rotary columns of queries, and of keys, if they are arrays of their own.
        causal: Whether a query sees no later key.
        window: Keys that the last query sees.
        scale: Factor of the products; the root of the columns if None.
    """
    sequences, heads, tokens, head = q.shape
    of_keys = length(x for x in merged(k.dims[1]) if x.axis == COLS)
    for x in (q, k, v, *rotary[:1]):
        cols = merged(x.dims[-1])
        if x.node.cols > 1 and (len(cols) != 1 or cols[0].axis != COLS or cols[0].stride != 1):
            return None
    if v.shape[-1] != head or heads % of_keys:
        return None
    over = round(scale**-2) if scale else 0
    usual = head + sum(x.shape[-1] for x in rotary[:1])
    causal = causal and tokens > 1
    how: dict[str, Any] = {
        "scaled": over if over != usual else 0, "head": head, "share": heads // of_keys,
        "sequences": sequences, "causal": causal,
        "window": window if causal and 0 < window < k.shape[2] else 0,
    }  # fmt: skip
    made = graph.add("attention", *q.node.shape, *(x.node for x in (q, k, v, *rotary)), how=how)
    return Value(made, q.dims)


def visible(seen: Any) -> tuple[bool, int]:
    """Return whether a mask is causal, and its window: how many keys the last query sees.

    Args:
        seen: Whether a query (next to last dimension) sees a key (last), an array of any library.
    """
    seen = seen.reshape(-1, *seen.shape[-2:])[0]
    return seen.shape[0] > 1 and not bool(seen[0, -1]), int(seen[-1].sum())
