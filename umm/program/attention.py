"""Fused attention as statements: forward, and the gradients, with no scores stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from umm.errors import ProblemError
from umm.files import shown, whole_number
from umm.program.functions.attention import Heads
from umm.program.multiply import Tensors, Values
from umm.program.tensors import LARGEST

Array = NDArray[np.float64]
WAYS = ("auto", "gather", "ring")
"""How keys and values reach queries at other ranks; auto is the fastest by simulation."""


@dataclass(frozen=True)
class Attention:
    """out = softmax(q · kᵀ / √head) · v within each sequence and head, no scores stored.

    Rows are tokens, those of one sequence after those of another; columns are heads side by side. The last
    query of a sequence stands at its last key.

    Attributes:
        out: What is written, like q.
        q: Queries.
        k: Keys; v has their shape.
        v: Values.
        lse: Where the logarithm of each query's sum of exponentials is written, a column a head.
        head: Columns of a head.
        share: Query heads that share a head of keys and values.
        sequences: Equal parts of the rows that attend to themselves alone.
        causal: Whether a query sees no later key.
        cache: Keys and values of earlier tokens, which every query sees: two tensors, or none.
        way: One of :data:`WAYS`.

    >>> print(Attention("O", "Q", "K", "V", "L", head=64, share=4))
    O = attention(Q, K, V)
    """

    kind: ClassVar[str] = "attention"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "cache")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "lse")
    out: str
    q: str
    k: str
    v: str
    lse: str
    head: int
    share: int = 1
    sequences: int = 1
    causal: bool = True
    cache: tuple[str, ...] = ()
    way: str = "auto"

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        object.__setattr__(self, "cache", tuple(self.cache))
        if len(self.cache) not in (0, 2):
            raise ProblemError(f"cache = {shown(self.cache)} of {self} is not one of keys and one of values")
        _check_numbers(self)

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out, self.lse)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.q, self.k, self.v, *self.cache)

    def heads(self, tensors: Tensors, k: str | None = None) -> Heads:
        """Return how queries and keys belong together; ``k`` if not those of this pass but the cache's.

        >>> from umm.layouts.layout import Layout
        >>> from umm.program.tensors import Tensor
        >>> of = {x: Tensor(x, Layout.parse("row", (16, 64), 1), "float32") for x in "OQKV"}
        >>> Attention("O", "Q", "K", "V", "L", head=32, sequences=2).heads(of)
        Heads(head=32, share=1, queries=8, keys=8, causal=True)
        """
        rows, keys = (tensors[x].shape[0] // self.sequences for x in (self.q, k or self.k))
        return Heads(self.head, self.share, rows, keys, self.causal and k in (None, self.k))

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        _check_shapes(self, tensors, (self.q, self.out), (self.k, self.v), self.lse)
        if self.cache:
            _check_shapes(self, tensors, (self.q,), self.cache, "")
        clash = set(self.outs) & set(self.reads)
        if clash:
            raise ProblemError(f"it reads {clash.pop()} while it writes it; write to another tensor")

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: 4 times the columns of a head for each visible pair."""
        return 4 * self.head * _pairs(self, tensors)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return what it writes, by plain attention that stores the scores."""
        out = np.zeros(tensors[self.q].shape)
        lse = np.zeros((len(out), out.shape[1] // self.head))
        for rows, cols, number, scores, _, v in _members(self, values, tensors):
            most = scores.max(axis=1, keepdims=True)
            weights = np.exp(scores - most)
            total = weights.sum(axis=1, keepdims=True)
            out[rows, cols] = weights / total @ v
            lse[rows, number] = (most + np.log(total))[:, 0]
        return dict(zip(self.outs, (out, lse), strict=True))

    def __str__(self) -> str:
        return f"{self.out} = attention({', '.join(self.reads)}){_said(self)}"


@dataclass(frozen=True)
class AttentionGrad:
    """The gradients of :class:`Attention` by queries, keys and values; scores are computed again.

    Attributes:
        out: The gradient by queries.
        dk: The gradient by keys.
        dv: The gradient by values.
        q: Queries.
        k: Keys.
        v: Values.
        o: What attention gave.
        lse: The logarithms of its sums.
        do: The gradient by what it gave.
        head: As of :class:`Attention`, and so are share, sequences, causal and way.
    """

    kind: ClassVar[str] = "attention_grad"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "o", "lse", "do")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "dk", "dv")
    out: str
    dk: str
    dv: str
    q: str
    k: str
    v: str
    o: str
    lse: str
    do: str
    head: int
    share: int = 1
    sequences: int = 1
    causal: bool = True
    way: str = "auto"

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        _check_numbers(self)

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out, self.dk, self.dv)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.q, self.k, self.v, self.o, self.lse, self.do)

    def heads(self, tensors: Tensors) -> Heads:
        """Return how queries and keys belong together."""
        rows, keys = (tensors[x].shape[0] // self.sequences for x in (self.q, self.k))
        return Heads(self.head, self.share, rows, keys, self.causal)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        alike = (self.q, self.o, self.do, self.out), (self.k, self.v, self.dk, self.dv)
        _check_shapes(self, tensors, *alike, self.lse)
        clash = set(self.outs) & set(self.reads)
        if clash or len(set(self.outs)) < 3:
            raise ProblemError("its three results must be three tensors that it does not read")

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: five products where attention has two."""
        return 10 * self.head * _pairs(self, tensors)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return what it writes, by plain attention that stores the scores."""
        dq, dk, dv = (np.zeros(tensors[x].shape) for x in self.outs)
        scale = self.head**-0.5
        for rows, cols, number, scores, keys, v in _members(self, values, tensors):
            there, of_keys = keys
            p = np.exp(scores - values[self.lse][rows, number : number + 1])
            do, o = values[self.do][rows, cols], values[self.o][rows, cols]
            ds = p * (do @ v.T - (do * o).sum(axis=1, keepdims=True)) * scale
            dq[rows, cols] = ds @ values[self.k][there, of_keys]
            dk[there, of_keys] += ds.T @ values[self.q][rows, cols]
            dv[there, of_keys] += p.T @ do
        return dict(zip(self.outs, (dq, dk, dv), strict=True))

    def __str__(self) -> str:
        return f"{', '.join(self.outs)} = attention_grad({', '.join(self.reads)}){_said(self)}"


Fused = Attention | AttentionGrad


def _said(statement: Fused) -> str:
    words = [] if statement.causal else ["every key seen"]
    words += [] if statement.sequences == 1 else [f"{statement.sequences} sequences"]
    words += [] if statement.way == "auto" else [statement.way]
    return f" ({', '.join(words)})" if words else ""


def _check_numbers(statement: Fused) -> None:
    for name in ("head", "share", "sequences"):
        whole_number(getattr(statement, name), f"{name} of {statement.out}", 1, 2**31)
    if not isinstance(statement.causal, bool):
        raise ProblemError(f"causal = {shown(statement.causal)} of {statement.out} is not true or false")
    if statement.way not in WAYS:
        raise ProblemError(
            f"way {shown(statement.way)} of {statement.out} is unknown; choose from {', '.join(WAYS)}"
        )


def _check_shapes(
    statement: Fused, tensors: Tensors, queries: tuple[str, ...], keys: tuple[str, ...], lse: str
) -> None:
    """Refuse tensors that are not queries, keys, and one number a query and head, of one type."""
    first = tensors[queries[0]]
    (rows, cols), head = first.shape, statement.head
    if cols % (head * statement.share):
        raise ProblemError(
            f"{cols} columns of {queries[0]} are not heads of {head} that share keys by {statement.share}"
        )
    wanted = dict.fromkeys(queries, (rows, cols)) | ({lse: (rows, cols // head)} if lse else {})
    wanted |= dict.fromkeys(keys, (tensors[keys[0]].shape[0], cols // statement.share))
    for name, shape in wanted.items():
        if tensors[name].shape != shape:
            got = "x".join(map(str, tensors[name].shape))
            raise ProblemError(f"{name} is {got}; it must be {shape[0]}x{shape[1]} beside {queries[0]}")
        if tensors[name].dtype != first.dtype:
            raise ProblemError(
                f"{name} is {tensors[name].dtype} and {queries[0]} {first.dtype}; make them one type"
            )
        if shape[0] % statement.sequences:
            raise ProblemError(f"{shape[0]} rows of {name} are not {statement.sequences} equal sequences")
    if statement.causal and tensors[keys[0]].shape[0] < rows and keys[0] == statement.k:
        raise ProblemError(
            f"{rows} queries of {queries[0]} have fewer keys, so some would see none; leave out causal"
        )
    flop = statement.flop(tensors) if lse or queries[0] == statement.q else 0
    if flop >= LARGEST:
        raise ProblemError(f"some 2^{flop.bit_length() - 1} flop are too many; they must stay below 2^60")


def _pairs(statement: Fused, tensors: Tensors) -> int:
    """Return the pairs of a query and a key it sees, of all heads."""
    heads = statement.heads(tensors)
    queries, keys = heads.queries, heads.keys
    seen = queries * keys - (queries * (queries - 1) // 2 if statement.causal else 0)
    if isinstance(statement, Attention) and statement.cache:
        seen += queries * (tensors[statement.cache[0]].shape[0] // statement.sequences)
    return seen * statement.sequences * (tensors[statement.q].shape[1] // statement.head)


def _members(
    statement: Fused, values: Values, tensors: Tensors
) -> Iterator[tuple[slice, slice, int, Array, tuple[slice, slice], Array]]:
    """Yield for each sequence and head its rows, columns and number, scores, where its keys lie, values."""
    heads = statement.heads(tensors)
    cache = statement.cache if isinstance(statement, Attention) else ()
    earlier = tensors[cache[0]].shape[0] // statement.sequences if cache else 0
    q, k, v = (values[x] for x in (statement.q, statement.k, statement.v))
    position = np.arange(heads.queries)[:, None] + heads.keys - heads.queries
    for sequence in range(statement.sequences):
        rows = slice(sequence * heads.queries, (sequence + 1) * heads.queries)
        there = slice(sequence * heads.keys, (sequence + 1) * heads.keys)
        before = slice(sequence * earlier, (sequence + 1) * earlier)
        for number in range(q.shape[1] // heads.head):
            cols = slice(number * heads.head, (number + 1) * heads.head)
            mine = slice(number // heads.share * heads.head, (number // heads.share + 1) * heads.head)
            scores = q[rows, cols] @ k[there, mine].T * heads.head**-0.5
            if heads.causal:
                scores[np.arange(heads.keys)[None, :] > position] = -np.inf
            of_values = v[there, mine]
            if cache:
                of_cache = q[rows, cols] @ values[cache[0]][before, mine].T * heads.head**-0.5
                scores = np.concatenate([of_cache, scores], axis=1)
                of_values = np.concatenate([values[cache[1]][before, mine], of_values])
            yield rows, cols, number, scores, (there, mine), of_values
