"""Functions that move rows to experts and back: rows packed, unpacked, weighted and added.

A rank that needs some rows of a routed tensor gets each of their tokens once. Those tokens, in order and
without gaps, are *packed*: row i of what is packed is the i-th different token of these rows, which are from
``first`` to ``last``, or several ranges in a text. Signatures have routed rows or packed rows as ``r``, what
they are read from as ``k``.
"""

from typing import Any

import numpy as np

from umm.arrays import Ints
from umm.errors import ProblemError
from umm.interval import Interval
from umm.numbers import parse_whole
from umm.program.functions.signature import Array, Function, Parameter, Place
from umm.program.routing import routing as _routing


class Text(Parameter):
    """A parameter that is a text: a routing, or where rows are cut."""

    def checked(self, value: Any, what: str) -> Any:
        """Return the text; ProblemError if it is not one."""
        if not isinstance(value, str) or not value.isprintable():
            raise ProblemError(f"{what} is not a text")
        return value


def pack_tokens(x: Array, routing: str, needed: str, at: Place) -> Array:
    """Return those rows of x that are among the different tokens of some routed rows."""
    tokens = _routing(routing).tokens_of_all(ranges(needed))[at.rows.start : at.rows.stop]
    result: Array = x[_like(tokens - _reads(at, 0).start, x)]
    return result


def repack_tokens(x: Array, routing: str, needed: str, outer: str, at: Place) -> Array:
    """Return those of the packed tokens of outer rows that are tokens of some of these."""
    known = _routing(routing)
    tokens = known.tokens_of_all(ranges(needed))[at.rows.start : at.rows.stop]
    place = np.searchsorted(known.tokens_of_all(ranges(outer)), tokens)
    result: Array = x[_like(place - _reads(at, 0).start, x)]
    return result


def expand_tokens(x: Array, routing: str, first: int, last: int, packed: int, at: Place) -> Array:
    """Return a row for each of some routed rows: that of its token."""
    result: Array = x[_like(_places(routing, first, last, packed, at), x)]
    return result


def pick_gates(x: Array, routing: str, first: int, last: int, packed: int, at: Place) -> Array:
    """Return for each of some routed rows the number that its token has for its expert."""
    expert = _routing(routing).expert_of[at.rows.start : at.rows.stop] - at.spans[1][1].start
    result: Array = x[_like(_places(routing, first, last, packed, at), x), _like(expert, x)][:, None]
    return result


def add_rows(x: Array, *weight: Array, routing: str, first: int, last: int, base: int, at: Place) -> Array:
    """Return for each token from first to last its routed rows added, each times its weight.

    Row ``base`` of the result is the first of these tokens that has a row in what is read.
    """
    known, rows = _routing(routing), _reads(at, 0)
    within = Interval(first, last)
    routed_rows = known.rows_for(rows, within)
    tokens = known.tokens_of(rows, within)[at.rows.start - base : at.rows.stop - base]
    mine = _like(routed_rows - rows.start, x)
    added = x[mine] * weight[0][mine] if weight else x[mine]
    return _summed(added, np.searchsorted(tokens, known.token_of[routed_rows]), at.rows.size)


def add_parts(x: Array, routing: str, sets: str, at: Place) -> Array:
    """Return each token's sums of several sets of rows, one set after another, added up."""
    known = _routing(routing)
    tokens = np.concatenate([known.tokens_of_all(ranges(rows), at.rows) for rows in sets.split(",")])
    return _summed(x, tokens - at.rows.start, at.rows.size)


def add_packed(
    x: Array, routing: str, sets: str, first: int, last: int, outer: str, base: int, at: Place
) -> Array:
    """Return the sums of several sets of rows added up, for those tokens alone that have some.

    Row ``base`` of the result is the first token from first to last of the outer rows.
    """
    known, within = _routing(routing), Interval(first, last)
    tokens = np.concatenate([known.tokens_of_all(ranges(rows), within) for rows in sets.split(",")])
    every = known.tokens_of_all(ranges(outer), within)
    summed = _summed(x, np.searchsorted(every, tokens), len(every))
    return summed[at.rows.start - base : at.rows.stop - base]


def pick_rows(x: Array, routing: str, first: int, last: int, base: int, at: Place) -> Array:
    """Return those of some routed rows whose tokens are from first to last."""
    rows = _reads(at, 0)
    routed_rows = _routing(routing).rows_for(rows, Interval(first, last))
    result: Array = x[_like(routed_rows[at.rows.start - base : at.rows.stop - base] - rows.start, x)]
    return result


def spread_gates(x: Array, routing: str, sets: str, at: Place) -> Array:
    """Return tokens by experts: the number of each picked row in the column of its expert, else 0."""
    known = _routing(routing)
    every = (rows for text in sets.split(",") for rows in ranges(text))
    routed_rows = np.concatenate([known.rows_for(rows, at.rows) for rows in every])
    column = known.expert_of[routed_rows] - at.cols.start
    inside = (column >= 0) & (column < at.cols.size)
    result = np.zeros_like(x, shape=(at.rows.size, at.cols.size))
    place = _like(known.token_of[routed_rows][inside] - at.rows.start, x), _like(column[inside], x)
    result[place] = x[_like(np.flatnonzero(inside), x), 0]
    return result


def routed_softmax(x: Array, routing: str, at: Place) -> Array:
    """Return exp(x) as shares over the experts of each token, 0 for the others.

    Source: Jiang et al. (2024), Mixtral of experts, section 2.1.
    """
    known = _routing(routing)
    chosen = known.choices[at.rows.start : at.rows.stop]
    place = _like(np.repeat(np.arange(len(chosen)), known.top_k), x), _like(chosen.reshape(-1), x)
    scores = np.full_like(x, -np.inf)
    scores[place] = x[place]
    share = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Array = share / share.sum(axis=1, keepdims=True)
    return result


def ranges(rows: str) -> tuple[Interval, ...]:
    """Return the ranges of a set of routed rows, as text; several sets are joined by commas.

    >>> ranges("0-3+5-8")
    (Interval(start=0, stop=3), Interval(start=5, stop=8))
    """
    return tuple(Interval(*map(parse_whole, span.split("-"))) for span in rows.split("+"))


def _reads(at: Place, number: int) -> Interval:
    rows: Interval = at.spans[1 + number][0]
    return rows


def _places(text: str, first: int, last: int, packed: int, at: Place) -> Ints:
    """Return the row of the input that each routed row needs."""
    known = _routing(text)
    token = known.token_of[at.rows.start : at.rows.stop]
    if packed:
        token = np.searchsorted(known.tokens_of(Interval(first, last)), token)
    return token - _reads(at, 0).start


def _like(index: Ints, x: Array) -> Any:
    """Return an index for an array of any library that follows NumPy's protocols."""
    return index if isinstance(x, np.ndarray) else np.asarray(index, like=x)


def _summed(x: Array, place: Ints, rows: int) -> Array:
    """Return so many rows, to each of which those of x that belong there are added, in their order."""
    result = np.zeros_like(x, shape=(rows, x.shape[1]))
    np.add.at(result, _like(place, x), x)
    return result


_WHOLE = Parameter(whole=True)
_OF = {"routing": Text(), "first": _WHOLE, "last": _WHOLE}
_PACKED, _BASE = {"packed": Parameter(0, whole=True)}, {"base": _WHOLE}
_NEEDED, _SETS, _OUTER = ({"routing": Text(), name: Text()} for name in ("needed", "sets", "outer"))

FUNCTIONS = (
    Function("pack_tokens", "kc->rc", pack_tokens, _NEEDED, indexed=True),
    Function("expand_tokens", "kc->rc", expand_tokens, _OF | _PACKED, indexed=True),
    Function("pick_gates", "kg->r1", pick_gates, _OF | _PACKED, indexed=True),
    Function("add_rows", "kc->rc", add_rows, _OF | _BASE, indexed=True),
    Function("add_weighted_rows", "kc,k1->rc", add_rows, _OF | _BASE, indexed=True),
    Function("add_parts", "kc->rc", add_parts, _SETS, indexed=True),
    Function("repack_tokens", "kc->rc", repack_tokens, _NEEDED | _OUTER, indexed=True),
    Function("add_packed", "kc->rc", add_packed, _OF | _SETS | _OUTER | _BASE, indexed=True),
    Function("add_copy", "rc,kc->rc", lambda x, y: x + y),
    Function("pick_rows", "kc->rc", pick_rows, _OF | _BASE, indexed=True),
    Function("spread_gates", "k1->rc", spread_gates, _SETS, indexed=True),
    Function("routed_softmax", "rc->rc", routed_softmax, {"routing": Text()}, indexed=True, column_unit=0),
)
"""What statements on experts are made of."""
