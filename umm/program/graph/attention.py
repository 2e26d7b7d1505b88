"""Fused attention in a graph: products of queries and keys, their softmax, and the multiply with values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from umm.program.graph.folds import COLS, NONE, Value, dim, folded, length, merged
from umm.program.graph.nodes import Graph


class Scores(NamedTuple):
    """Products of queries and keys on their way to a softmax, and then to values."""

    q: Value  # queries: sequences, heads, tokens, columns
    k: Value  # keys, in the same order
    shape: tuple[int, ...]  # shape of the products
    scale: float = 1.0  # factor of the products
    mask: tuple[bool, int] = (False, 0)  # whether it is causal, and its window
    done: bool = False  # whether a softmax has been taken


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
        scale: Factor of the products; one over the root of the columns if None.
    """
    sequences, heads, tokens, head = q.shape
    q, k = _in_order(q, k)
    rotary = _in_order(*rotary) if rotary else ()
    if not all(map(_beside, (q, k, v, *rotary[:1]))) or v.shape[-1] != head:
        return None
    of_keys = k.node.cols // head
    usual = head + sum(x.shape[-1] for x in rotary[:1])
    over = max(1, round(scale**-2)) if scale else usual
    factor = 1.0 if scale is None else scale * over**0.5
    if abs(factor - 1) > 1e-6:  # what no whole number under a root is
        scaled = [graph.elements("*", x, factor, shape=x.shape) for x in (q, *rotary[:1])]
        q, *turned = [x for x in scaled if x is not None]
        rotary = (*turned, *rotary[1:])
    causal = causal and tokens > 1
    how: dict[str, Any] = {
        "scaled": over if over != usual else 0, "head": head, "share": heads // of_keys,
        "sequences": sequences, "causal": causal,
        "window": window if causal and 0 < window < k.shape[2] else 0,
    }  # fmt: skip
    made = graph.add("attention", *q.node.shape, *(x.node for x in (q, k, v, *rotary)), how=how)
    return Value(made, q.dims)


def _in_order(q: Value, k: Value) -> tuple[Value, Value]:
    """Return queries and keys whose columns are permuted alike as if they were not: products are the same."""
    runs = [[y[1:] for y in x.dims[-1]] for x in (q, k)]
    straight = dim(COLS, q.shape[-1])
    if runs[0] != runs[1] or any(y.axis != COLS for x in (q, k) for y in x.dims[-1]):
        return q, k
    step = 1
    for stride, size in sorted(runs[0]):
        if stride != step:
            return q, k
        step *= size
    return Value(q.node, (*q.dims[:-1], straight)), Value(k.node, (*k.dims[:-1], straight))


def _beside(x: Value) -> bool:
    """Whether rows are the tokens of one sequence after another, columns heads, each perhaps repeated."""
    sequences, heads, tokens, head = map(merged, x.dims)
    heads = heads[:-1] if heads and heads[-1].axis == NONE else heads
    placed = folded(x.node, (length(sequences), length(tokens)), (length(heads), length(head)))
    return (sequences, tokens, heads, head) == placed.dims


def visible(graph: Graph, mask: Any) -> tuple[bool, int]:
    """Return whether a mask is causal, and its window: how many keys the last query sees.

    Args:
        mask: Whether a query (next to last dimension) sees a key (last), or what is added to its score.
    """
    seen = np.asarray(mask).reshape(-1, *mask.shape[-2:])
    if seen.dtype != bool:
        added, seen = seen, seen > -1e4
        if (added[seen] != 0).any():
            graph.leave_out("a bias of scores")
    queries, keys = seen.shape[1:]
    causal, window = queries > 1 and not bool(seen[0, 0, -1]), int(seen[0, -1].sum())
    later = keys - queries
    usual = np.tri(queries, keys, later, bool) & ~np.tri(queries, keys, later - window, bool)
    if (seen != (usual if causal else True)).any():
        graph.leave_out("a mask that is no window of earlier keys")
    return causal, window
