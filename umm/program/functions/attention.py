"""Fused attention in NumPy: scores block by block with an online softmax, never stored; and its gradients.

Rows of queries are tokens, those of one sequence after those of another; columns are heads side by side. A
query sees the keys of its own sequence, with ``causal`` those up to its own position alone; the last query of
a sequence stands at its last key, so fewer queries than keys are the last ones, as in decoding. Several query
heads may share one head of keys and values.

A head may have columns of rotary positions beside, whose keys all heads share; their products count to the
scores.

In signatures queries are ``rc``, keys ``kg``, results ``rv``, values ``kw``, one number a query and head
``rh``; rotary columns of queries ``rp`` and of keys ``ke``. Heads of values may be as wide as those of keys,
or not.

Source: Dao (2023), FlashAttention-2, algorithms 1 and 2; Milakov & Gimelshein (2018), online softmax;
DeepSeek-AI (2024), DeepSeek-V2, section 2.1.3, decoupled rotary positions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.interval import Interval
from umm.program.functions.signature import Array, Function, Parameter, Place, Spans

BLOCK = 128  # keys whose scores exist at once


class Heads(NamedTuple):
    """How queries, keys and their columns belong together."""

    head: int  # columns of a head
    share: int  # query heads that share a head of keys and values
    queries: int  # queries of a sequence
    keys: int  # keys of a sequence
    causal: bool  # whether a query sees no later key
    rotary: int = 0  # rotary columns that each head of queries has beside
    scaled: int = 0  # scores are divided by its root; 0 for all columns of a head
    alike: bool = False  # whether values are the keys, so that a kernel reads them once
    # Keys that a query sees at most, its own the last; 0 for all. Causal masks alone have one.
    window: int = 0
    value: int = 0  # columns of a head of values and results; 0 for as many as of keys

    @property
    def values(self) -> int:
        """Columns of a head of values and results."""
        return self.value or self.head

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of functions of attention."""
        names = ["head", "share", "queries", "keys", "causal"]
        names += [x for x in ("rotary", "scaled", "window", "value") if getattr(self, x)]
        return {x: int(getattr(self, x)) for x in names}

    @property
    def scale(self) -> float:
        """The factor of scores."""
        return float((self.scaled or self.head + self.rotary) ** -0.5)

    def flop(self, backward: bool) -> int:
        """Return the operations of a pair of a query and a key: two products, or five with the gradients."""
        scores = self.head + self.rotary
        useful = 2 * (scores + self.values)
        return 2 * useful + self.flop_again if backward else useful

    @property
    def flop_again(self) -> int:
        """The operations of a pair by which the gradients compute its score again."""
        return 2 * (self.head + self.rotary)

    def moved(self, queries: int, keys: int, count: int) -> int:
        """Return the elements of queries and their result, and of keys and values, that a kernel moves."""
        columns = self.head + (0 if self.alike else self.values)
        of_keys = keys * (-(-count // self.share) * columns + self.rotary)
        return queries * count * (self.head + self.values + self.rotary) + of_keys

    def of_keys(self, cols: Interval) -> Interval:
        """Return the columns of the keys that some columns of queries need."""
        width = self.head * self.share
        return Interval(cols.start // width * self.head, -(-cols.stop // width) * self.head)

    def of_rows(self, cols: Interval) -> Interval:
        """Return the columns of one number a head that some columns of queries have."""
        return Interval(cols.start // self.head, cols.stop // self.head)

    def of_rotary(self, cols: Interval) -> Interval:
        """Return the rotary columns of some columns of queries, whole heads."""
        heads = self.of_rows(cols)
        return Interval(heads.start * self.rotary, heads.stop * self.rotary)

    def of_result(self, cols: Interval) -> Interval:
        """Return the columns of the result of some columns of queries, or of values of those of keys.

        >>> Heads(64, 2, 8, 8, True, value=32).of_result(Interval(64, 192))
        Interval(start=32, stop=96)
        """
        heads = self.of_rows(cols)
        return Interval(heads.start * self.values, heads.stop * self.values)

    def seen(self, rows: Interval) -> Interval:
        """Return the keys from the first to the last that some queries see.

        >>> Heads(64, 1, 8, 8, True).seen(Interval(10, 12))
        Interval(start=8, stop=12)
        >>> Heads(64, 1, 8, 8, True, window=2).seen(Interval(14, 16))
        Interval(start=13, stop=16)
        """
        first, last = rows.start // self.queries, (rows.stop - 1) // self.queries
        start = first * self.keys
        if self.window:
            start += max(0, rows.start % self.queries + self.keys - self.queries - self.window + 1)
        stop = (last + 1) * self.keys
        if self.causal:
            stop -= self.queries - 1 - (rows.stop - 1) % self.queries
        return Interval(start, stop)

    def pairs(self, rows: Interval, keys: Interval) -> int:
        """Return how many pairs of a query and a key it sees there are, for one head.

        >>> Heads(64, 1, 8, 8, True).pairs(Interval(0, 16), Interval(0, 16)), 2 * (8 * 9 // 2)
        (72, 72)
        >>> Heads(64, 1, 8, 8, True, window=2).pairs(Interval(0, 8), Interval(0, 8)), 1 + 7 * 2
        (15, 15)
        """
        seen = sum(alike * _pairs(*part) for alike, part in self._parts(rows, keys))
        return seen - sum(alike * _pairs(*part) for alike, part in self._left_behind(rows, keys))

    def like(self, rows: Interval, keys: Interval) -> tuple[Interval, Interval]:
        """Return queries and keys of the first sequence with the same pairs and masks, where that can be.

        >>> Heads(64, 1, 64, 64, True).like(Interval(96, 104), Interval(64, 72))
        (Interval(start=8, stop=16), Interval(start=0, stop=8))
        """
        sequence = rows.start // self.queries
        within = Interval(sequence * self.queries, (sequence + 1) * self.queries)
        if self.keys != self.queries or within.intersect(rows) != rows or within.intersect(keys) != keys:
            return rows, keys
        ahead = rows.start - keys.start
        if not self.window:  # queries behind all keys, or without a mask, see all of them wherever they are
            ahead = min(ahead, keys.size) if self.causal else 0
        first = max(ahead, 0)
        return Interval(first, first + rows.size), Interval(first - ahead, first - ahead + keys.size)

    def masked(self, rows: Interval, keys: Interval) -> int:
        """Return how many of the queries the mask leaves some but not all of the keys of their sequence."""
        cut = sum(alike * _cut_rows(*part) for alike, part in self._parts(rows, keys))
        behind = sum(alike * _cut_rows(*part) for alike, part in self._left_behind(rows, keys))
        return min(rows.size, cut + behind)

    def _left_behind(self, rows: Interval, keys: Interval) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        """Yield, as :meth:`_parts` does, the keys before the window, which lags behind the causal mask."""
        if self.window:
            for alike, (first, queries, of_piece, step) in self._parts(rows, keys):
                yield alike, (first - self.window, queries, of_piece, step)

    def _parts(self, rows: Interval, keys: Interval) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        """Yield for each sequence the keys that its first and last query see, at most all, and how many."""
        # Each item is the number of whole sequences that are alike, and then three counts and a step. The
        # counts are of keys that the first query of the piece would see without a cut at either end, of
        # queries, and of keys. The step is 1 if each next query sees one more key, or 0.
        first = max(rows.start // self.queries, keys.start // self.keys)
        last = min(-(-rows.stop // self.queries), -(-keys.stop // self.keys))
        begin = max(first, -(-rows.start // self.queries), -(-keys.start // self.keys))
        alike = max(0, min(rows.stop // self.queries, keys.stop // self.keys, last) - begin)
        if alike:
            yield alike, (self.keys - self.queries + 1 if self.causal else self.keys, self.queries, self.keys,
                          int(self.causal))  # fmt: skip
        for sequence in (*range(first, begin), *range(begin + alike, last)):
            here = rows.intersect(Interval(sequence * self.queries, (sequence + 1) * self.queries))
            of_keys = keys.intersect(Interval(sequence * self.keys, (sequence + 1) * self.keys))
            if not here.size or not of_keys.size:
                continue
            if not self.causal:
                yield 1, (of_keys.size, here.size, of_keys.size, 0)
                continue
            position = here.start - sequence * self.queries + self.keys - self.queries
            seen = position + 1 - (of_keys.start - sequence * self.keys)
            yield 1, (seen, here.size, of_keys.size, 1)


def _pairs(first: int, queries: int, keys: int, step: int) -> int:
    """Return the sum over queries i of first + i · step, each at least 0 and at most all keys."""
    if not step:
        return queries * min(max(first, 0), keys)
    none = min(max(-first, 0), queries)  # queries that see nothing, and after them those that see all
    complete = min(max(queries - (keys - first), 0), queries - none)
    growing = queries - none - complete
    start = first + none
    return growing * start + growing * (growing - 1) // 2 + complete * keys


def _cut_rows(first: int, queries: int, keys: int, step: int) -> int:
    if not step:
        return 0
    none = min(max(-first + 1, 0), queries)
    complete = min(max(queries - (keys - first), 0), queries - none)
    return queries - none - complete


def heads_of(parameters: Mapping[str, Any]) -> Heads:
    """Return the heads that a function's parameters describe."""
    given: dict[str, Any] = {x: int(parameters[x]) for x in Heads._fields if x in parameters}
    return Heads(**given)


class Scored(NamedTuple):
    """The operands of scores."""

    heads: Heads  # heads of queries and keys
    q: Array  # queries
    k: Array  # keys
    rotary: Sequence[Array]  # rotary columns of both, or none
    at: Place  # where all of them lie

    @classmethod
    def read(
        cls, q: Array, k: Array, more: Sequence[Array], at: Place, parameters: Mapping[str, Any]
    ) -> tuple["Scored", Sequence[Array]]:
        """Return the operands of scores, and the operands that follow them."""
        heads = heads_of(parameters)
        count = 2 if heads.rotary else 0
        return cls(heads, q, k, more[:count], at), more[count:]

    def sides(self, cols: slice, keys: slice, place: slice) -> tuple[Array, Array]:
        """Return all columns of the queries and keys of a head."""
        q, k = self.q[:, cols], self.k[:, keys]
        if not self.rotary:
            return q, k
        turned, shared = self.rotary
        return np.concatenate([q, turned[:, self.turned(place)]], axis=1), np.concatenate([k, shared], axis=1)

    def turned(self, place: slice) -> slice:
        """Return the rotary columns of a head of queries."""
        return slice(place.start * self.heads.rotary, place.stop * self.heads.rotary)

    def of_result(self, cols: slice) -> slice:
        """Return the columns of a head of results by those of queries, or of values by those of keys."""
        number, wide = cols.start // self.heads.head, self.heads.values
        return slice(number * wide, number * wide + wide)

    def gradients(
        self, v: Array, do: Array, lse: Array, dot: Array
    ) -> Iterator[tuple[slice, slice, slice, slice, Array]]:
        """Yield by head and block its columns, those of its keys, place, the keys, scores' gradient."""
        for cols, keys, place in by_head(self.heads, self.at):
            q, k = self.sides(cols, keys, place)
            for span, seen in _blocks(self.heads, self.at):
                p = _shares(self.heads, q, k[span], lse[:, place], seen)
                ds = p * (do[:, self.of_result(cols)] @ v[span, self.of_result(keys)].T - dot[:, place])
                yield cols, keys, place, span, ds * q.dtype.type(self.heads.scale)


def attend(q: Array, k: Array, v: Array, *more: Array, at: Place, **parameters: Any) -> Array:
    """Return the attention of queries over some keys, continued from that over others.

    Args:
        more: Rotary columns of queries and keys, if there are; then the queries' results over other keys, and
            the logarithms of their sums; none at first.
        parameters: As :class:`Heads`.
    """
    scored, before = Scored.read(q, k, more, at, parameters)
    result = np.empty_like(q, shape=(len(q), q.shape[1] // scored.heads.head * scored.heads.values))
    for cols, keys, place in by_head(scored.heads, at):
        wide, of_values = scored.of_result(cols), scored.of_result(keys)
        mine = [before[0][:, wide], before[1][:, place]] if before else []
        sides = scored.sides(cols, keys, place)
        result[:, wide], _ = _online(scored.heads, *sides, v[:, of_values], mine, at)
    return result


def attend_lse(q: Array, k: Array, *more: Array, at: Place, **parameters: Any) -> Array:
    """Return the logarithm of each query's sum of exponentials of its scores, per head."""
    scored, before = Scored.read(q, k, more, at, parameters)
    result = np.empty_like(q, shape=(len(q), q.shape[1] // scored.heads.head))
    for cols, keys, place in by_head(scored.heads, at):
        mine = [np.zeros_like(q[:, :1]), before[0][:, place]] if before else []
        _, result[:, place] = _online(scored.heads, *scored.sides(cols, keys, place), None, mine, at)
    return result


def attend_merge(
    o: Array, lse: Array, more: Array, more_lse: Array, *, at: Place, **parameters: Any
) -> Array:
    """Return the attention of queries over two sets of keys, from that over each and the logarithms."""
    result, total = np.empty_like(o), np.logaddexp(lse, more_lse)
    safe = np.where(np.isneginf(total), 0, total)  # a query that sees no key of either
    width = heads_of(parameters).values
    for head in range(total.shape[1]):
        cols, place = slice(head * width, (head + 1) * width), slice(head, head + 1)
        one, other = (np.exp(x[:, place] - safe[:, place]) for x in (lse, more_lse))
        result[:, cols] = o[:, cols] * one + more[:, cols] * other
    return result


def attend_dot(o: Array, do: Array, *, at: Place, **parameters: Any) -> Array:
    """Return each query's product of its result and the gradient of it, per head."""
    product: Array = (o * do).reshape(len(o), -1, heads_of(parameters).values).sum(axis=2)
    return product


# The operands that gradients are by: queries, keys, and the rotary columns of each, of keys shared by heads.
OPERANDS: Mapping[str, Callable[[Scored], Array]] = {
    "q": lambda x: x.q,
    "k": lambda x: x.k,
    "qr": lambda x: x.rotary[0],
    "kr": lambda x: x.rotary[1],
}
# Where the gradient by scores of a head and some keys adds which product.
TERMS: Mapping[str, Callable[..., tuple[Any, Array]]] = {
    "q": lambda x, cols, keys, _, span, ds: (np.s_[:, cols], ds @ x.k[span, keys]),
    "k": lambda x, cols, keys, _, span, ds: ((span, keys), ds.T @ x.q[:, cols]),
    "qr": lambda x, _cols, _keys, place, span, ds: (np.s_[:, x.turned(place)], ds @ x.rotary[1][span]),
    "kr": lambda x, _cols, _keys, place, span, ds: (span, ds.T @ x.rotary[0][:, x.turned(place)]),
}


def _gradient(
    q: Array, k: Array, v: Array, do: Array, lse: Array, dot: Array, *more: Array, at: Place, by: str,
    **parameters: Any,
) -> Array:  # fmt: skip
    """Return the gradient by an operand that comes through some of the others, added to that through more."""
    scored, before = Scored.read(q, k, more, at, parameters)
    result = before[0].copy() if before else np.zeros_like(OPERANDS[by](scored))
    for block in scored.gradients(v, do, lse, dot):
        place, term = TERMS[by](scored, *block)
        result[place] += term
    return result


def attend_dv(q: Array, k: Array, do: Array, lse: Array, *more: Array, at: Place, **parameters: Any) -> Array:
    """Return the gradient by values that comes through some queries, added to that through others."""
    scored, before = Scored.read(q, k, more, at, parameters)
    wide = k.shape[1] // scored.heads.head * scored.heads.values
    result = before[0].copy() if before else np.zeros_like(k, shape=(len(k), wide))
    for cols, keys, place in by_head(scored.heads, at):
        of_queries, of_keys = scored.sides(cols, keys, place)
        for span, seen in _blocks(scored.heads, at):
            p = _shares(scored.heads, of_queries, of_keys[span], lse[:, place], seen)
            result[span, scored.of_result(keys)] += p.T @ do[:, scored.of_result(cols)]
    return result


def by_head(heads: Heads, at: Place) -> Iterator[tuple[slice, slice, slice]]:
    """Yield for each query head its columns, those of its keys, and of its one number, in the pieces."""
    (_, cols), (_, keys) = at.spans[1:3]
    for number in range(cols.start // heads.head, cols.stop // heads.head):
        left = number * heads.head - cols.start
        start = number // heads.share * heads.head - keys.start
        place = number - cols.start // heads.head
        yield slice(left, left + heads.head), slice(start, start + heads.head), slice(place, place + 1)


def seen_by(heads: Heads, rows: Interval, keys: Interval) -> NDArray[np.bool_]:
    """Return by query and key whether the mask leaves it."""
    query, key = np.arange(*rows)[:, None], np.arange(*keys)[None, :]
    position = query % heads.queries + heads.keys - heads.queries
    seen: NDArray[np.bool_] = query // heads.queries == key // heads.keys
    if heads.causal:
        seen &= key % heads.keys <= position
    if heads.window:
        seen &= key % heads.keys > position - heads.window
    return seen


def _blocks(heads: Heads, at: Place) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
    """Yield blocks of the keys that some query sees: which, and by query and key whether it is seen."""
    (rows, _), ((first, last), _) = at.spans[1:3]
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        seen = seen_by(heads, rows, Interval(start, stop))
        if seen.any():
            yield slice(start - first, stop - first), seen


def _scores(heads: Heads, q: Array, k: Array, seen: NDArray[np.bool_]) -> Array:
    scores: Array = q @ k.T * q.dtype.type(heads.scale)
    return np.where(np.asarray(seen, like=q), scores, scores.dtype.type(-np.inf))


def _shares(heads: Heads, q: Array, k: Array, lse: Array, seen: NDArray[np.bool_]) -> Array:
    """Return the softmax of the scores of some keys, given the logarithms of the sums over all keys."""
    return np.exp(_scores(heads, q, k, seen) - lse)


def _online(
    heads: Heads, q: Array, k: Array, v: Array | None, before: Sequence[Array], at: Place
) -> tuple[Array, Array]:
    """Return the mean of values weighted by exponentials of scores, and the logarithms of the weights' sums.

    The largest score so far is taken off before exponentials are, and what was summed is rescaled when a
    larger one comes. What was got before counts as one key whose score is the logarithm of its sum.
    """
    total = np.zeros_like(q[:, :1])
    most = np.full_like(total, -np.inf)
    result = np.zeros_like(q, shape=(len(q), heads.values))
    if before:
        result, most = before[0].copy(), before[1].copy()
        total = np.where(np.isneginf(most), total, 1)
    for span, seen in _blocks(heads, at):
        scores = _scores(heads, q, k[span], seen)
        larger = np.maximum(most, scores.max(axis=1, keepdims=True))
        safe = np.where(np.isneginf(larger), 0, larger)  # a query that has seen nothing yet
        weights, kept = np.exp(scores - safe), np.exp(most - safe)
        total = total * kept + weights.sum(axis=1, keepdims=True)
        if v is not None:
            result = result * kept + weights @ v[span]
        most = larger
    some = np.where(total > 0, total, 1)
    return result / some, np.where(total > 0, most + np.log(some), -np.inf)


def _fits(signature: str) -> Callable[[Spans, Mapping[str, Any]], str | None]:
    """Return a check that refuses slices that do not belong together."""
    reads, _, result = signature.partition("->")
    letters = [x[1] for x in (result, *reads.split(","))]

    def refuses(spans: Spans, parameters: Mapping[str, Any]) -> str | None:
        heads, cols = heads_of(parameters), spans[1][1]  # queries are read first, or results
        width = heads.head if letters[1] == "c" else heads.values
        if cols.start % width or cols.stop % width:
            return f"cuts columns within a head of {width}"
        first, last = cols.start // width * heads.head, cols.stop // width * heads.head
        queries, keys = Interval(first, last), heads.of_keys(Interval(first, last))
        wanted = {
            "c": queries, "v": heads.of_result(queries), "h": heads.of_rows(queries),
            "p": heads.of_rotary(queries), "g": keys, "w": heads.of_result(keys),
            "e": Interval(0, heads.rotary),
        }  # fmt: skip
        names = {"g": "the keys", "w": "the values", "p": "rotary positions", "e": "rotary positions"}
        for letter, (_, mine) in zip(letters, spans, strict=True):
            if mine != wanted[letter]:
                need = wanted[letter]
                return (
                    f"needs columns {need.start}:{need.stop} of {names.get(letter, 'each')} for these heads"
                )
        return None

    return refuses


_MANY, _NONE = Parameter(whole=True, least=1), Parameter(0, whole=True)
_PARAMETERS = {
    "head": _MANY, "share": Parameter(1, whole=True, least=1), "queries": _MANY, "keys": _MANY,
    "causal": Parameter(1, whole=True), "scaled": _NONE, "window": _NONE, "value": _NONE,
}  # fmt: skip
_PASS = "rc,kg,kw,rv,rh,rh"
_ROTARY = "rp,ke"
_OF: tuple[tuple[str, str, str, Callable[..., Array]], ...] = (  # name, reads, result, form
    ("attend", "rc,kg,kw", "rv", attend),
    ("attend_lse", "rc,kg", "rh", attend_lse),
    ("attend_dq", _PASS, "rc", partial(_gradient, by="q")),
    ("attend_dk", _PASS, "kg", partial(_gradient, by="k")),
    ("attend_dv", "rc,kg,rv,rh", "kw", attend_dv),
    ("attend_dqr", _PASS, "rp", partial(_gradient, by="qr")),
    ("attend_dkr", _PASS, "ke", partial(_gradient, by="kr")),
)
_BEFORE = {"attend": "rv,rh"}  # what a function that goes on reads beside, if it is not its result alone


def _functions() -> Iterator[Function]:
    """Yield the functions: each from nothing and going on, without and with rotary columns."""
    dot, merged = "rv,rv->rh", "rv,rh,rv,rh->rv"
    yield Function("attend_dot", dot, attend_dot, _PARAMETERS, indexed=True, misfit=_fits(dot))
    yield Function("attend_merge", merged, attend_merge, _PARAMETERS, indexed=True, misfit=_fits(merged))
    yield Function("attend_merge_lse", "rh,rh->rh", np.logaddexp)
    for name, reads, result, form in _OF:
        for rotary in (True,) if result in _ROTARY else (False, True):
            parameters = _PARAMETERS | ({"rotary": _MANY} if rotary else {})
            named, all_reads = (f"{name}_rotary", f"{reads},{_ROTARY}") if rotary else (name, reads)
            for ending, before in (("", ""), ("_more", f",{_BEFORE.get(name, result)}")):
                signature = f"{all_reads}{before}->{result}"
                yield Function(
                    named + ending, signature, form, parameters, indexed=True, misfit=_fits(signature)
                )


FUNCTIONS = tuple(_functions())
"""What the kernels of fused attention compute, one result each; ``_more`` goes on with what is there, and
``_rotary`` reads rotary columns beside."""
