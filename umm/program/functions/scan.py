"""A recurrence over tokens with a state for each head, and its gradients: Mamba-2 and gated delta nets.

Of each head of values a state S, key columns by value columns, decays and takes up each token of its
sequence in turn::

    S ← exp(decay) ∘ S        u = rate · (v − delta · kᵀS)        S ← S + k·uᵀ        o = Sᵀq

A decay is of a head (Mamba-2, gated delta net), or of each of its key columns (Kimi delta attention); or one
for all tokens is multiplied by their rates (Mamba-1, whose heads have one column). Several heads of values
may share one head of queries and keys.

In signatures values and results are ``rc``, queries and keys ``rg``, decays ``rh`` or ``1h``, rates ``rp``,
states ``kc``: the key columns of each sequence one below the other.

Source: Dao & Gu (2024), Transformers are SSMs, section 2; Yang et al. (2024), Gated delta networks, equation
10; Kimi Team (2025), Kimi Linear, equation 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from umm.interval import Interval
from umm.program.functions.forms import sigmoid
from umm.program.functions.signature import Array, Function, Parameter, Place, Spans

STORED = 64
"""Tokens whose states exist at once in the gradients; earlier ones are computed again from every 64th."""


class States(NamedTuple):
    """How tokens, heads and columns of a scan belong together."""

    key: int  # columns of a head of queries and keys, rows of a state
    value: int  # columns of a head of values
    share: int  # heads of values that share a head of queries and keys
    tokens: int  # tokens of a sequence
    delta: bool  # whether what the state has for a key is taken off its values first
    decays: int  # decays of a head: 1, or one for each key column
    rated: bool = False  # whether they are of all tokens, and multiplied by the rate of each

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of functions of a scan, whose names say whether decays are rated."""
        return {x: int(getattr(self, x)) for x in self._fields if x != "rated"}

    def heads(self, cols: Interval) -> Interval:
        """Return the heads that some columns of values are of, those that are cut too."""
        return Interval(cols.start // self.value, -(-cols.stop // self.value))

    def shared(self, heads: Interval) -> Interval:
        """Return the heads of keys of some heads of values."""
        return Interval(heads.start // self.share, -(-heads.stop // self.share))

    def columns(self, heads: Interval) -> dict[str, Interval]:
        """Return the columns of some heads, by the letter of a signature.

        >>> States(4, 8, 2, 16, True, 1).columns(Interval(1, 3))["g"]
        Interval(start=0, stop=8)
        """
        shared = self.shared(heads)
        by_head = {"c": self.value, "h": self.decays, "p": 1}
        widths = {"g": (shared, self.key)} | {x: (heads, width) for x, width in by_head.items()}
        return {x: Interval(span.start * width, span.stop * width) for x, (span, width) in widths.items()}

    def rows(self, tokens: Interval) -> Interval:
        """Return the rows of the states of the sequences that some tokens are of."""
        first, last = tokens.start // self.tokens, (tokens.stop - 1) // self.tokens + 1
        return Interval(first * self.key, last * self.key)

    def parts(self, rows: Interval) -> Iterator[Interval]:
        """Yield some tokens as whole sequences together, and parts of one alone.

        >>> [*States(4, 8, 1, 4, True, 1).parts(Interval(2, 13))]
        [Interval(start=2, stop=4), Interval(start=4, stop=12), Interval(start=12, stop=13)]
        """
        first, last = -(-rows.start // self.tokens) * self.tokens, rows.stop // self.tokens * self.tokens
        if first > last:  # inside a sequence
            yield rows
            return
        for span in (Interval(rows.start, first), Interval(first, last), Interval(last, rows.stop)):
            if span.size:
                yield span

    def flop(self, tokens: int, heads: int) -> int:
        """Return the operations of the recurrence: two products with a state, and one more for a delta."""
        return 2 * (3 if self.delta else 2) * self.key * self.value * tokens * heads


class _Scanned(NamedTuple):
    """Operands cut to heads: tokens, then heads, then columns."""

    states: States
    q: Array | None
    k: Array
    v: Array
    slope: Array
    decay: Array
    rate: Array
    group: Any

    @classmethod
    def read(
        cls, q: Array | None, reads: Sequence[Array], at: Place, values: int, parameters: Mapping[str, Any],
        rated: bool,
    ) -> "_Scanned":  # fmt: skip
        """Return the operands; ``values`` is the number of that of values, after that of keys."""
        states = states_of(parameters)
        k, v, decay, rate = reads
        heads = states.heads(at.spans[values][1])
        first = at.spans[values - 1][1].start // states.key
        group = np.arange(heads.start, heads.stop) // states.share - first

        def cut(x: Array, width: int) -> Array:
            return x.reshape(len(x), -1, width)

        queries = None if q is None else cut(q, states.key)[:, group]
        slope, rates = cut(decay, states.decays), rate[:, :, None]
        left = np.exp(slope * rates if rated else slope)[:, :, :, None]
        keys, wide = cut(k, states.key)[:, group], cut(v, states.value)
        return cls(states, queries, keys, wide, slope, left, rates, group)

    def spans(self, rows: Interval) -> Iterator[tuple[slice, slice]]:
        """Yield the tokens of each sequence, and the rows of its state."""
        tokens, key = self.states.tokens, self.states.key
        first = rows.start // tokens
        for number in range(first, (rows.stop - 1) // tokens + 1):
            start, stop = max(rows.start, number * tokens), min(rows.stop, (number + 1) * tokens)
            place = (number - first) * key
            yield slice(start - rows.start, stop - rows.start), slice(place, place + key)

    def side_by_side(self, state: Array) -> Array:
        """Return states by heads as a matrix."""
        return state.swapaxes(0, 1).reshape(self.states.key, -1)

    def first(self, before: Array | None, place: slice) -> Array:
        """Return the states that a sequence starts with: zero if there are none."""
        if before is not None:
            return before[place].reshape(self.states.key, -1, self.states.value).swapaxes(0, 1)
        return np.zeros_like(self.v, shape=(self.v.shape[1], self.states.key, self.states.value))

    def step(self, state: Array, t: int) -> tuple[Array, Array, Array, Array]:
        """Return the decayed state, the values it lacks for a token, the values added, and the new state."""
        faded = self.decay[t] * state
        lacks = self.v[t] - _product(self.k[t], faded) if self.states.delta else self.v[t]
        added = self.rate[t] * lacks
        return faded, lacks, added, faded + self.k[t][:, :, None] * added[:, None, :]


def _product(x: Array, state: Array) -> Array:
    """Return xᵀS of each head."""
    result: Array = (x[:, None, :] @ state)[:, 0]
    return result


def scan(q: Array, *reads: Array, at: Place, rated: bool = False, **parameters: Any) -> Array:
    """Return the products of queries with states that have taken up all tokens until theirs.

    Args:
        reads: Keys, values, decays and rates; then the states before the first token, zero if not given.
        rated: As of :class:`States`.
        parameters: As :class:`States`.
    """
    scanned, result = _Scanned.read(q, reads[:4], at, 3, parameters, rated), np.empty_like(reads[1])
    assert scanned.q is not None
    out = result.reshape(scanned.v.shape)
    for tokens, place in scanned.spans(at.spans[0][0]):
        state = scanned.first(reads[4] if reads[4:] else None, place)
        for t in range(tokens.start, tokens.stop):
            *_, state = scanned.step(state, t)
            out[t] = _product(scanned.q[t], state)
    return result


def scan_state(*reads: Array, at: Place, rated: bool = False, **parameters: Any) -> Array:
    """Return the states after the last token of each sequence; see :func:`scan`."""
    scanned, parts = _Scanned.read(None, reads[:4], at, 2, parameters, rated), []
    for tokens, place in scanned.spans(at.spans[1][0]):
        state = scanned.first(reads[4] if reads[4:] else None, place)
        for t in range(tokens.start, tokens.stop):
            *_, state = scanned.step(state, t)
        parts.append(scanned.side_by_side(state))
    return np.concatenate(parts)


def _gradients(
    q: Array, *reads: Array, at: Place, result: str, has_state: bool, has_later: bool, rated: bool,
    **parameters: Any,
) -> Array:  # fmt: skip
    """Return the gradient by one operand, given that by the result and perhaps by the states after it."""
    # q: Queries. reads: keys, values, decays, rates and the result's gradient; then the states before, if
    # any, and the gradient by those after, if any. result: letters of the operand in a signature, queries
    # being `q`. has_state: whether the states before are given. has_later: whether the gradient by the states
    # after is given. rated: as of `States`. parameters: as `States`.
    scanned = _Scanned.read(q, reads[:4], at, 3, parameters, rated)
    assert scanned.q is not None
    do, more = reads[4].reshape(scanned.v.shape), [*reads[5:]]
    before = more.pop(0) if has_state else None
    later = more.pop(0) if has_later else None
    made: dict[str, Array] = {
        "q": np.zeros_like(scanned.q), "k": np.zeros_like(scanned.k), "v": np.zeros_like(scanned.v),
        "decay": np.zeros_like(scanned.k), "rate": np.zeros_like(scanned.rate),
    }  # fmt: skip
    states: list[Array] = []
    for tokens, place in scanned.spans(at.spans[1][0]):
        grad = scanned.first(later, place)
        for t, (_, faded, lacks, added, after) in _backwards(scanned, tokens, before, place):
            k, rate = scanned.k[t], scanned.rate[t]
            grad = grad + scanned.q[t][:, :, None] * do[t][:, None, :]
            made["q"][t] = (after @ do[t][:, :, None])[:, :, 0]
            made["k"][t] = (grad @ added[:, :, None])[:, :, 0]
            by_added = _product(k, grad)
            made["v"][t] = rate * by_added
            made["rate"][t] = (by_added * lacks).sum(axis=1, keepdims=True)
            if scanned.states.delta:
                made["k"][t] -= (faded @ made["v"][t][:, :, None])[:, :, 0]
                grad = grad - k[:, :, None] * made["v"][t][:, None, :]
            made["decay"][t] = (grad * faded).sum(axis=2)
            grad = scanned.decay[t] * grad
        states.append(scanned.side_by_side(grad))
    if result == "state":
        return np.concatenate(states)
    if scanned.states.decays == 1:
        made["decay"] = made["decay"].sum(axis=2, keepdims=True)
    if rated:
        made["rate"] += (made["decay"] * scanned.slope).sum(axis=2, keepdims=True)
        made["decay"] = (made["decay"] * scanned.rate).sum(axis=0, keepdims=True)
    total = made[result]
    if result in "qk":
        # Heads of values that share one of keys add up.
        groups = np.zeros_like(total, shape=(len(total), q.shape[1] // scanned.states.key, total.shape[2]))
        for number, group in enumerate(scanned.group.tolist()):
            groups[:, group] += total[:, number]
        total = groups
    return total.reshape(len(total), -1)


def _backwards(
    scanned: _Scanned, tokens: slice, before: Array | None, place: slice
) -> Iterator[tuple[int, tuple[Array, Array, Array, Array, Array]]]:
    """Yield the tokens of a sequence, last first, with the state before each and the results of its step."""
    kept = [scanned.first(before, place)]
    starts = range(tokens.start, tokens.stop, STORED)
    for start in starts[:-1]:
        state = kept[-1]
        for t in range(start, start + STORED):
            *_, state = scanned.step(state, t)
        kept.append(state)
    for start, state in zip(reversed(starts), reversed(kept), strict=True):
        steps = []
        for t in range(start, min(start + STORED, tokens.stop)):
            step = scanned.step(state, t)
            steps.append((t, (state, *step)))
            state = step[-1]
        yield from reversed(steps)


def states_of(parameters: Mapping[str, Any]) -> States:
    """Return the states that a function's parameters describe."""
    given: dict[str, Any] = {x: int(parameters[x]) for x in States._fields if x in parameters}
    return States(**given)


def _fits(operands: Sequence[str]) -> Callable[[Spans, Mapping[str, Any]], str | None]:
    """Return a check that refuses slices that do not belong together."""
    values = operands.index("rc")

    def refuses(spans: Spans, parameters: Mapping[str, Any]) -> str | None:
        states = states_of(parameters)
        columns = states.columns(states.heads(spans[values][1]))
        tokens = spans[values][0]
        for letters, (rows, cols) in zip(operands, spans, strict=True):
            if cols != columns[letters[1]]:
                return f"needs columns {columns[letters[1]].start}:{columns[letters[1]].stop} of {letters}"
            if letters[0] == "k" and rows != states.rows(tokens):
                return f"needs the states of the sequences of tokens {tokens.start}:{tokens.stop}"
        return None

    return refuses


def head_norm(x: Array, head: int) -> Array:
    """Return each head's columns over the root of the sum of their squares."""
    cut = x.reshape(len(x), -1, head)
    return (cut / _length(cut)).reshape(x.shape)


def head_norm_grad(x: Array, dy: Array, head: int) -> Array:
    """Return the gradient of :func:`head_norm`."""
    cut, grad = (y.reshape(len(y), -1, head) for y in (x, dy))
    length = _length(cut)
    unit = cut / length
    result: Array = (grad - unit * (unit * grad).sum(axis=2, keepdims=True)) / length
    return result.reshape(x.shape)


def _length(cut: Array) -> Array:
    # 1e-6 as in flash-linear-attention's l2norm.
    length: Array = np.sqrt((cut * cut).sum(axis=2, keepdims=True) + cut.dtype.type(1e-6))
    return length


def _softplus(x: Array) -> Array:
    result: Array = np.logaddexp(x, np.zeros_like(x))
    return result


_WHOLE = Parameter(whole=True, least=1)
_PARAMETERS = dict.fromkeys(("key", "value", "share", "tokens", "decays"), _WHOLE) | {
    "delta": Parameter(whole=True)
}
RATED = "rated_scan"  # how the names of functions of scans begin whose decays are multiplied by rates
_HEAD: dict[str, Any] = {"parameters": {"head": _WHOLE}, "column_unit": "head"}
GRADIENTS = {"dq": "q", "dk": "k", "dv": "v", "dd": "decay", "dr": "rate", "ds": "state"}
"""The operand that each gradient is by."""
_LETTERS = {"q": "rg", "k": "rg", "v": "rc", "rate": "rp", "state": "kc"}


def _functions() -> Iterator[Function]:
    """Yield the functions: from nothing, or from the states before; gradients also from those after."""

    def made(name: str, signature: str, form: Callable[..., Array]) -> Function:
        reads, _, result = signature.partition("->")
        return Function(
            name, signature, form, _PARAMETERS, indexed=True, misfit=_fits((result, *reads.split(",")))
        )

    for (ending, state), rated in product((("", ""), ("_from", ",kc")), (False, True)):
        decays = "1h" if rated else "rh"
        reads, scans = f"rg,rc,{decays},rp", RATED if rated else "scan"
        yield made(f"{scans}{ending}", f"rg,{reads}{state}->rc", partial(scan, rated=rated))
        yield made(f"{scans}_state{ending}", f"{reads}{state}->kc", partial(scan_state, rated=rated))
        for (then, later), (name, by) in product((("", ""), ("_until", ",kc")), GRADIENTS.items()):
            form = partial(_gradients, result=by, has_state=bool(state), has_later=bool(later), rated=rated)
            result = decays if by == "decay" else _LETTERS[by]
            yield made(f"{scans}_{name}{ending}{then}", f"rg,{reads},rc{state}{later}->{result}", form)


FUNCTIONS = (
    *_functions(),
    Function("head_norm", "rc->rc", head_norm, **_HEAD),
    Function("head_norm_grad", "rc,rc->rc", head_norm_grad, **_HEAD),
    Function("sigmoid", "rc->rc", sigmoid),
    Function("sigmoid_grad", "rc,rc->rc", lambda x, dy: dy * sigmoid(x) * (1.0 - sigmoid(x))),
    Function("softplus", "rc->rc", _softplus),
    Function("softplus_grad", "rc,rc->rc", lambda x, dy: dy * sigmoid(x)),
    Function("decay", "rc,1c->rc", lambda x, a: -np.exp(a) * _softplus(x)),
    Function("decay_grad", "rc,rc,1c->rc", lambda x, dy, a: -np.exp(a) * sigmoid(x) * dy),
)
"""What kernels of a scan compute, one result each, and the passes before and after it."""
