"""Fused attention as statements: forward, and the gradients, with no scores stored."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from umm.dtypes import is_float8
from umm.errors import ProblemError
from umm.files import shown, whole_number
from umm.interval import Interval
from umm.program.functions.attention import Heads
from umm.program.statements.base import Array, Shapes, Shares, Statement, Tensors, Values
from umm.units import counted

WAYS = ("auto", "gather", "ring")
"""How keys and values reach queries at other ranks; auto is the fastest by simulation."""


class Fused(Statement):
    """Fused attention, or its gradient: fields and sizes that both have."""

    attends: ClassVar[bool] = True
    gives_queries: ClassVar[bool] = False  # whether what it writes first is as wide as the queries
    q: str
    k: str
    v: str
    head: int
    share: int
    sequences: int
    causal: bool
    way: str
    rotary: tuple[str, ...]
    scaled: int
    window: int
    value: int
    chunks: int
    cache: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads, keys that are values too once."""
        return tuple(dict.fromkeys(super().reads))

    def check_numbers(self) -> None:
        """Refuse numbers that cannot be, whatever the tensors are."""
        for name in ("head", "share", "sequences", "chunks"):
            whole_number(getattr(self, name), f"{name} of {self.out}", 1, 2**31)
        for name in ("scaled", "window", "value"):
            whole_number(getattr(self, name), f"{name} of {self.out}", 0, 2**31)
        if self.window and (not self.causal or self.cache):
            raise ProblemError(
                f"window {self.window} of {self.out} needs a causal mask and no cache; give the cache "
                "the keys inside the window alone"
            )
        if len(self.rotary) not in (0, 2):
            raise ProblemError(
                f"rotary = {shown(self.rotary)} of {self.out} is not one of queries and one of keys"
            )
        if not isinstance(self.causal, bool):
            raise ProblemError(f"causal = {shown(self.causal)} of {self.out} is not true or false")
        if self.way not in WAYS:
            raise ProblemError(
                f"way {shown(self.way)} of {self.out} is unknown; choose from {', '.join(WAYS)}"
            )

    @property
    def parts(self) -> int:
        """Equal parts of the rows whose tokens see each other alone: chunks of all sequences."""
        return self.sequences * self.chunks

    @property
    def of_all_heads(self) -> tuple[str, ...]:
        """The rotary columns of keys."""
        return self.rotary[1:]

    def heads(self, tensors: Tensors, k: str | None = None) -> Heads:
        """Return how queries and keys belong together; ``k`` if not those of this pass but the cache's.

        >>> from umm.layouts.layout import Layout
        >>> from umm.program.tensors import Tensor
        >>> tensors = {x: Tensor(x, Layout.parse("row", (16, 64), 1), "float32") for x in "OQKV"}
        >>> Attention("O", "Q", "K", "V", "L", head=32, sequences=2).heads(tensors)
        Heads(head=32, share=1, queries=8, keys=8, causal=True, rotary=0, scaled=0, alike=False, window=0, value=0)
        """  # noqa: E501
        k = k or self.k
        rows, keys = (tensors[x].shape[0] // self.parts for x in (self.q, k))
        rotary = tensors[self.rotary[1]].shape[1] if self.rotary else 0
        causal = self.causal and k == self.k
        alike, window = self.k == self.v, self.window if causal else 0
        value = self.value if self.value != self.head else 0
        return Heads(self.head, self.share, rows, keys, causal, rotary, self.scaled, alike, window, value)

    def _pairs(self, tensors: Tensors) -> int:
        """Return the pairs of a query and a key it sees, of all heads."""
        heads = self.heads(tensors)
        seen = heads.pairs(Interval(0, heads.queries), Interval(0, heads.keys))
        if self.cache:
            seen += heads.queries * (tensors[self.cache[0]].shape[0] // self.parts)
        return seen * self.parts * (tensors[self.q].shape[1] // self.head)


@dataclass(frozen=True)
class Attention(Fused):
    """out = softmax(q · kᵀ / √columns) · v within each sequence and head, no scores stored.

    Rows are tokens, those of one sequence after those of another; columns are heads side by side. The last
    query of a sequence stands at its last key. What is written is like q, or as wide as heads of values are.

    >>> print(Attention("O", "Q", "K", "V", "L", head=64, share=4))
    O = attention(Q, K, V)
    """

    kind: ClassVar[str] = "attention"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "cache", "rotary")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "lse")
    q: str  # queries
    k: str  # keys
    v: str  # values, like keys, or in heads of another width
    lse: str  # where the logarithm of each query's sum of exponentials is written, a column a head
    head: int  # columns of a head
    share: int = 1  # query heads that share a head of keys and values
    sequences: int = 1  # equal parts of the rows that attend to themselves alone
    causal: bool = True  # whether a query sees no later key
    # Keys and values of earlier tokens, which every query sees: two tensors, or none; and their rotary
    # columns, if there are such. They may have 8 bits.
    cache: tuple[str, ...] = ()
    way: str = "auto"  # one of `WAYS`
    # Rotary columns of queries, head by head, and of keys, which all heads share: two tensors whose products
    # count to the scores, or none.
    rotary: tuple[str, ...] = ()
    scaled: int = 0  # scores are divided by its root; 0 for all columns of a head
    window: int = 0  # keys that a query sees at most, its own the last, with `causal`; 0 for all before it
    value: int = 0  # columns of a head of values and of the result; 0 for as many as of keys
    chunks: int = 1  # equal parts of each sequence that attend to themselves alone

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        for name in ("cache", "rotary"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self.check_numbers()
        if len(self.cache) not in (0, 3 if self.rotary else 2):
            beside = ", and one of their rotary columns" if self.rotary else ""
            raise ProblemError(
                f"cache = {shown(self.cache)} of {self} is not one of keys and one of values{beside}"
            )

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        _check_shapes(self, tensors, (self.q,), (self.k,), self.lse, self.rotary, (self.out,), (self.v,))
        if self.cache:
            turned = (*self.rotary[:1], *self.cache[2:])
            _check_shapes(self, tensors, (self.q,), self.cache[:1], "", turned, values=self.cache[1:2])
            if len({tensors[x].dtype for x in self.cache}) > 1:
                raise ProblemError(f"{' and '.join(self.cache)} differ in type; make them one type")
        self.check_apart()

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return queries, results and logarithms, one number a query and head; and keys with values."""
        keys = (self.v, *self.cache[:2], *(self.rotary[1:] if self.k == self.v else ()))
        pairs = [(self.out, self.q), (self.out, self.lse), *((self.k, x) for x in keys)]
        pairs += [(self.q, x) for x in self.rotary[:1]]
        return pairs + list(zip(self.rotary[1:], self.cache[2:], strict=False))

    def units(self, shapes: Shapes) -> dict[str, int]:
        """Return the columns of a head, or its rotary ones."""
        turned = (*self.rotary, *self.cache[2:])
        width = shapes[self.rotary[1]][1] if turned else 0
        wide = dict.fromkeys((self.out, self.v, *self.cache[1:2]), self.value or self.head)
        return {x: width if x in turned else wide.get(x, self.head) for x in (self.out, *self.reads)}

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: 4 times the columns of a head for each visible pair.

        Rotary columns, of the scores alone, count twice.
        """
        return self.heads(tensors).flop(backward=False) * self._pairs(tensors)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs, by plain attention that stores the scores."""
        out, lse = (np.zeros(tensors[x].shape) for x in self.outs)
        wide = self.heads(tensors).values
        for rows, _, number, scores, _, v, _ in _members(self, values, tensors):
            most = scores.max(axis=1, keepdims=True)
            weights = np.exp(scores - most)
            total = weights.sum(axis=1, keepdims=True)
            out[rows, number * wide : (number + 1) * wide] = weights / total @ v
            lse[rows, number] = (most + np.log(total))[:, 0]
        return dict(zip(self.outs, (out, lse), strict=True))

    def __str__(self) -> str:
        return f"{self.out} = attention({', '.join(self.reads)}){_said(self)}"


@dataclass(frozen=True)
class AttentionGrad(Fused):
    """The gradients of :class:`Attention` by queries, keys and values; scores are computed again.

    What is written first is the gradient by queries.
    """

    kind: ClassVar[str] = "attention_grad"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "o", "lse", "do", "rotary")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "dk", "dv", "drotary")
    gives_queries: ClassVar[bool] = True
    dk: str  # the gradient by keys
    dv: str  # the gradient by values
    q: str  # queries
    k: str  # keys
    v: str  # values
    o: str  # what attention gave
    lse: str  # the logarithms of its sums
    do: str  # the gradient by what it gave
    # As of `Attention`, and so are share, sequences, causal, way, rotary, scaled, window, value and chunks.
    head: int
    share: int = 1
    sequences: int = 1
    causal: bool = True
    way: str = "auto"
    rotary: tuple[str, ...] = ()
    # The gradients by the rotary columns of queries and of keys, if there are such.
    drotary: tuple[str, ...] = ()
    scaled: int = 0
    window: int = 0
    value: int = 0
    chunks: int = 1

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        for name in ("rotary", "drotary"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self.check_numbers()
        if len(self.drotary) != len(self.rotary):
            raise ProblemError(
                f"drotary = {shown(self.drotary)} of {self} is not a gradient by each of rotary"
            )

    @property
    def of_all_heads(self) -> tuple[str, ...]:
        """The rotary columns of keys, and the gradient by them."""
        return (*self.rotary[1:], *self.drotary[1:])

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        alike = (self.q, self.out), (self.k, self.dk), self.lse, self.rotary
        _check_shapes(self, tensors, *alike, (self.o, self.do), (self.v, self.dv))
        heads = self.heads(tensors)
        if 0 < heads.window <= heads.keys - heads.queries:
            raise ProblemError(
                f"a window of {heads.window} leaves some of {heads.keys} keys to no query; their gradients "
                "would be undefined, so give as many queries as keys"
            )
        for name, like in zip(self.drotary, self.rotary, strict=True):
            if (tensors[name].shape, tensors[name].dtype) != (tensors[like].shape, tensors[like].dtype):
                raise ProblemError(f"{name} has not the shape and type of {like}, by which it is a gradient")
        self.check_apart()

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: five products where attention has two."""
        return self.heads(tensors).flop(backward=True) * self._pairs(tensors)

    def useful_flop(self, tensors: Tensors, seen: Shares) -> int:
        """Return its flop without the one product that computes the scores of the forward part again."""
        return self.flop(tensors) - self.heads(tensors).flop_again * self._pairs(tensors)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs, by plain attention that stores the scores."""
        dq, dk, dv, *turned = (np.zeros(tensors[x].shape) for x in self.outs)
        scale, wide = self.heads(tensors).scale, self.heads(tensors).values
        for rows, cols, number, scores, keys, v, turned_cols in _members(self, values, tensors):
            key_rows, of_keys = keys
            result, shared = (slice(x * wide, (x + 1) * wide) for x in (number, of_keys.start // self.head))
            p = np.exp(scores - values[self.lse][rows, number : number + 1])
            do, o = values[self.do][rows, result], values[self.o][rows, result]
            ds = p * (do @ v.T - (do * o).sum(axis=1, keepdims=True)) * scale
            dq[rows, cols] = ds @ values[self.k][key_rows, of_keys]
            dk[key_rows, of_keys] += ds.T @ values[self.q][rows, cols]
            dv[key_rows, shared] += p.T @ do
            if self.rotary:
                turned[0][rows, turned_cols] = ds @ values[self.rotary[1]][key_rows]
                turned[1][key_rows] += ds.T @ values[self.rotary[0]][rows, turned_cols]
        return dict(zip(self.outs, (dq, dk, dv, *turned), strict=True))

    def __str__(self) -> str:
        return f"{', '.join(self.outs)} = attention_grad({', '.join(self.reads)}){_said(self)}"


def _said(statement: Fused) -> str:
    words = [] if statement.causal else ["every key seen"]
    words += [f"window {statement.window}"] if statement.window else []
    words += [] if statement.sequences == 1 else [f"{statement.sequences} sequences"]
    words += [] if statement.chunks == 1 else [f"{statement.chunks} chunks each"]
    words += [] if statement.way == "auto" else [statement.way]
    return f" ({', '.join(words)})" if words else ""


def _check_shapes(
    statement: Fused, tensors: Tensors, queries: tuple[str, ...], keys: tuple[str, ...], lse: str,
    rotary: tuple[str, ...] = (), results: tuple[str, ...] = (), values: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Refuse tensors that are not queries, keys, values, and one number a query and head, of one type."""
    first = tensors[queries[0]]
    (rows, cols), head = first.shape, statement.head
    if cols % (head * statement.share):
        raise ProblemError(
            f"{cols} columns of {queries[0]} are not heads of {head} that share keys by {statement.share}"
        )
    wanted = dict.fromkeys(queries, (rows, cols)) | ({lse: (rows, cols // head)} if lse else {})
    wanted |= dict.fromkeys(keys, (tensors[keys[0]].shape[0], cols // statement.share))
    wide = cols // head * (statement.value or head)
    wanted |= dict.fromkeys(results, (rows, wide))
    for name in values:
        wanted.setdefault(name, (tensors[keys[0]].shape[0], wide // statement.share))
    if rotary:
        turned, width = rotary[0], tensors[rotary[1]].shape[1]
        wanted |= {turned: (rows, cols // head * width), rotary[1]: (tensors[keys[0]].shape[0], width)}
    statement.check_sizes(wanted, tensors, queries[0])
    for name, shape in wanted.items():
        in_8_bits = is_float8(tensors[name].dtype) and name in statement.cache
        if tensors[name].dtype != first.dtype and not in_8_bits:
            raise ProblemError(
                f"{name} is {tensors[name].dtype} and {queries[0]} {first.dtype}; make them one type"
            )
        if shape[0] % statement.parts:
            chunks = f" of {statement.chunks} chunks" if statement.chunks > 1 else ""
            raise ProblemError(
                f"{shape[0]} rows of {name} are not {statement.sequences} equal sequences{chunks}"
            )
    if statement.causal and tensors[keys[0]].shape[0] < rows and keys[0] == statement.k:
        raise ProblemError(
            f"{rows} queries of {queries[0]} have fewer keys, so some would see none; leave out causal"
        )
    statement.check_flop(tensors)


def _members(
    statement: Fused, values: Values, tensors: Tensors
) -> Iterator[tuple[slice, slice, int, Array, tuple[slice, slice], Array, slice]]:
    """Yield for each sequence and head its rows, columns and number, scores, where its keys lie, values."""
    # Last come the columns of its queries' rotary columns, none if there are no such.
    heads, cache = statement.heads(tensors), statement.cache
    earlier = tensors[cache[0]].shape[0] // statement.parts if cache else 0
    q, k, v = (values[x] for x in (statement.q, statement.k, statement.v))
    position = np.arange(heads.queries)[:, None] + heads.keys - heads.queries
    for sequence in range(statement.parts):
        rows = slice(sequence * heads.queries, (sequence + 1) * heads.queries)
        key_rows = slice(sequence * heads.keys, (sequence + 1) * heads.keys)
        before = slice(sequence * earlier, (sequence + 1) * earlier)
        for number in range(q.shape[1] // heads.head):
            cols = slice(number * heads.head, (number + 1) * heads.head)
            mine, of_values = (
                slice(number // heads.share * width, (number // heads.share + 1) * width)
                for width in (heads.head, heads.values)
            )
            turned_cols = slice(number * heads.rotary, (number + 1) * heads.rotary)
            mine_q, mine_k = q[rows, cols], k[key_rows, mine]
            if statement.rotary:
                turned = values[statement.rotary[0]][rows, turned_cols]
                mine_q = np.concatenate([mine_q, turned], axis=1)
                mine_k = np.concatenate([mine_k, values[statement.rotary[1]][key_rows]], axis=1)
            scores = mine_q @ mine_k.T * heads.scale
            if heads.causal:
                scores[np.arange(heads.keys)[None, :] > position] = -np.inf
            if heads.window:
                scores[np.arange(heads.keys)[None, :] <= position - heads.window] = -np.inf
            mine_v = v[key_rows, of_values]
            if cache:
                earlier_k = [values[cache[0]][before, mine], *(values[x][before] for x in cache[2:])]
                of_cache = mine_q @ np.concatenate(earlier_k, axis=1).T * heads.scale
                scores = np.concatenate([of_cache, scores], axis=1)
                mine_v = np.concatenate([values[cache[1]][before, of_values], mine_v])
            yield rows, cols, number, scores, (key_rows, mine), mine_v, turned_cols


def attending(statement: Statement, way: str) -> Statement:
    """Return a statement whose keys reach queries in a way, if it is fused attention or its gradient."""
    return replace(statement, way=way) if isinstance(statement, Attention | AttentionGrad) else statement


def attentions(statements: Iterable[object]) -> list[Attention]:
    """Return the fused attention among some statements, forward."""
    return [x for x in statements if isinstance(x, Attention)]


def sequences_in_words(statements: Iterable[object], rows: Mapping[str, int]) -> str:
    """Return how many sequences attention splits tokens into; nothing without attention over them.

    >>> sequences_in_words([Attention("O", "Q", "K", "V", "L", head=64, sequences=4)], {"Q": 8192})
    '8192 tokens in 4 sequences of 2048 each; another --sequences may change the best layouts'
    """
    for x in attentions(statements):
        if not x.cache:
            each = f" of {rows[x.q] // x.sequences} each" if x.sequences > 1 else ""
            return (
                f"{rows[x.q]} tokens in {counted(x.sequences, 'sequence')}{each}; another --sequences may "
                "change the best layouts"
            )
    return ""
