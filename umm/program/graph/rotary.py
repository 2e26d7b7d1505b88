"""Rotary positions in a graph: halves or neighbours among the columns of heads, turned by constant tables."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from umm.program.functions.signature import Array
from umm.program.graph.folds import COLS, ROWS, Atom, Dim, Value, length, merged
from umm.program.graph.nodes import Constant, Graph, Leaf, Node

BASES = (1e4, 5e5, 1e6, 1e5, 1.5e5, 1.6e5, 5e6, 8e6, 1e7)
"""Bases of published models: tables of bfloat16 are too coarse to compute one from."""
DEFAULT_BASE = 1e4
TOLERANCE, TOLERANCE_BY_POSITION = 1e-4, 3e-7  # of tables of float32, whose angles lose digits
COARSE = 4e-3  # of tables of bfloat16
SWAPPED = {"rotated": "rope_halves", "rotated_pairs": "rope"}
"""Functions that swap halves or neighbours, one of them negative, and those that they are a part of."""

Elements = Callable[[Any], Any]  # elements of a constant, from its source; None if unknown


class Term(NamedTuple):
    """A part of a sum: an array, its sign, and the constant that it is multiplied by."""

    node: Node
    positive: bool = True
    factor: Constant | None = None


def terms(node: Node, positive: bool = True) -> list[Term]:
    """Return a sum of arrays, each perhaps times a constant, as terms; anything else is one term."""
    match node.how.get("tree") if node.kind == "expr" else None:
        case ("neg", Leaf(node=x, lines="rc")):
            return terms(x, not positive)
        case (("+" | "-") as op, Leaf(node=x, lines="rc"), Leaf(node=y, lines="rc")):
            return terms(x, positive) + terms(y, positive == (op == "+"))
        case ("*", Leaf(node=x, lines="rc"), "const") | ("*", "const", Leaf(node=x, lines="rc")):
            if "constant" in node.how:
                return [Term(x, positive, node.how["constant"])]
    return [Term(node, positive)]


def joined(graph: Graph, parts: Sequence[Any], shape: Sequence[int], elements: Elements) -> Value | None:
    """Return two arrays beside each other as one array, if both are of the columns of one; else None.

    These are halves or neighbours that are turned by their positions or swapped on the way to that, and
    columns that are turned with the others as they are. Parts whose last dimension has length 1 are stacked.
    """
    if not all(isinstance(x, Value) for x in parts):
        return None
    stacked = all(x.dims and not x.dims[-1] for x in parts)
    if stacked:
        parts = [Value(x.node, x.dims[:-1]) for x in parts]
    if len(parts) != 2 or not parts[0].dims or parts[0].dims != parts[1].dims:
        return None if stacked or len(parts) != 2 else _beside_others(graph, parts, shape)
    one, other = (terms(x.node) for x in parts)
    pieces = [x.node for x in (*one, *other)]
    if any(x.kind != "slice" or x.reads[0] is not pieces[0].reads[0] for x in pieces):
        return _beside_others(graph, parts, shape)
    source, size = pieces[0].reads[0], 2 * length(parts[0].dims[-1])
    for name, swapped, place in (("rope_halves", "rotated", _half), ("rope", "rotated_pairs", _parity)):
        if any(place(x) is None for x in pieces) or (stacked and place is _half):
            continue
        if len(one) == len(other) == 1 and one[0].factor is other[0].factor is None:
            minus, places = (one[0].positive, other[0].positive), (place(one[0].node), place(other[0].node))
            if minus != (False, True) or places != (1, 0):
                return None
            tree: tuple[Any, ...] = (swapped, Leaf(source, "rc"))
        else:
            tables = _pairs_turned(one, other, place, elements)
            if tables is None:
                return None
            tree = _rope(graph, name, source, size, parts[0], tables, elements)
        # Neighbours are turned where they are; unless stacked, even columns come before odd ones.
        pairs, among = (Atom(COLS, 2, size // 2),), (Atom(COLS, 1, 2),)
        ends: tuple[Dim, ...] = (pairs, among) if stacked else ((*among, *pairs),)
        return _placed(
            graph, parts, shape, source, tree, ((Atom(COLS, 1, size),),) if place is _half else ends
        )
    return _beside_others(graph, parts, shape)


def turned(graph: Graph, one: Value, other: Value, elements: Elements) -> Value | None:
    """Return the sum of an array times cosines and its rotated halves times sines; else None."""
    both = terms(one.node), terms(other.node)
    for x, y, value in ((*both, other), (*both[::-1], one)):
        if len(x) != 1 or len(y) != 1 or not (x[0].positive and y[0].positive):
            continue
        cosines, sines = x[0].factor, y[0].factor
        tree: tuple[Any, ...] = y[0].node.how.get("tree") or ("",)
        if cosines is None or sines is None or tree[0] not in SWAPPED or tree[1].node is not x[0].node:
            continue
        source: Node = tree[1].node
        size = length(value.dims[-1])
        made = _rope(graph, SWAPPED[tree[0]], source, size, value, (cosines, sines), elements)
        node = graph.add("expr", *source.shape, source, tree=made)
        return Value(node, value.dims)
    return None


def _pairs_turned(
    one: Sequence[Term], other: Sequence[Term], place: Callable[[Node], int | None], elements: Elements
) -> tuple[Constant, Constant] | None:
    """Return cosines and sines of x cos - y sin and y cos + x sin, where x and y are at places 0 and 1."""
    if len(one) != 2 or len(other) != 2:
        return None
    first = {place(x.node): x for x in one}
    second = {place(x.node): x for x in other}
    if set(first) != {0, 1} or set(second) != {0, 1}:
        return None
    in_order = first[0], first[1], second[1], second[0]
    if [x.positive for x in in_order] != [True, False, True, True]:
        return None
    cosines, sines, *same = (x.factor for x in in_order if x.factor is not None)
    if len(same) != 2:
        return None
    for x, y in zip((cosines, sines), same, strict=True):
        if x.source is not y.source and not _equal(elements(x.source), elements(y.source)):
            return None
    return cosines, sines


def _equal(one: Any, other: Any) -> bool:
    known = one is not None and other is not None
    return known and np.array_equal(np.squeeze(np.asarray(one)), np.squeeze(np.asarray(other)))


def _half(node: Node) -> int | None:
    """Return whether a node is the first (0) or the second (1) half of the columns of heads."""
    how = node.how
    if (
        node.kind != "slice"
        or how["run"].axis != COLS
        or how["step"] != 1
        or 2 * how["count"] != how["run"].size
    ):
        return None
    place, rest = divmod(how["start"], how["count"])
    return None if rest else int(place)


def _parity(node: Node) -> int | None:
    """Return whether a node is the even (0) or the odd (1) columns of heads."""
    how = node.how
    if node.kind != "slice" or how["run"].axis != COLS or how["run"].stride != 1 or how["start"] > 1:
        return None
    alternate = how["step"] == 2 or how["run"].size == 2
    return int(how["start"]) if alternate and 2 * how["count"] == how["run"].size else None


def _beside_others(graph: Graph, parts: Sequence[Value], shape: Sequence[int]) -> Value | None:
    """Return heads whose first columns alone are turned."""
    tree: tuple[Any, ...] = parts[0].node.how.get("tree") or ("",)
    rest = parts[1].node
    if tree[0] not in SWAPPED.values() or parts[0].node.kind != "expr":
        return None
    rotary = tree[1].node
    if rotary.kind != "slice" or rest.kind != "slice" or rotary.reads[0] is not rest.reads[0]:
        return None
    run, count = rotary.how["run"], rotary.how["count"]
    alike = rest.how["run"] == run and run.axis == COLS and rotary.how["step"] == rest.how["step"] == 1
    if not alike or rotary.how["start"] != 0 or rest.how["start"] != count or tree[2] != count:
        return None
    if count + rest.how["count"] != run.size or parts[0].dims[-1] != (Atom(COLS, 1, count),):
        return None
    name, _, _, positions, base, first, _ = tree
    made = (name, Leaf(rotary.reads[0], "rc"), run.size, positions, base, first, count)
    return _placed(graph, parts, shape, rotary.reads[0], made, ((Atom(COLS, 1, run.size),),))


def _placed(
    graph: Graph, parts: Sequence[Value], shape: Sequence[int], source: Node, tree: tuple[Any, ...],
    ends: tuple[tuple[Atom, ...], ...],
) -> Value | None:  # fmt: skip
    """Return an expression of the array that parts are of, with these as its last dimensions."""
    wide, size = length(parts[0].dims[-1]), prod(map(length, ends))
    # The outer dimensions of a part, whose columns are as many more as the array's.
    dims = tuple(
        tuple(y._replace(stride=y.stride * size // wide) if y.axis == COLS else y for y in x)
        for x in parts[0].dims[:-1]
    )
    x = Value(source, (*dims, *ends))
    if x.shape != tuple(shape):
        return None
    node = graph.add("expr", *source.shape, source, tree=tree, parts=tuple(parts))
    return Value(node, x.dims)


def _rope(
    graph: Graph, name: str, source: Node, size: int, x: Value, tables: Sequence[Constant], elements: Elements
) -> tuple[Any, ...]:
    """Return the tree of an array turned by positions."""
    rows = [y for runs in x.dims for y in merged(runs) if y.axis == ROWS]
    positions = min(rows, key=lambda y: y.stride).size if rows else 1
    cosines, sines = (_table(y, elements, positions) for y in tables)
    result = None
    if cosines is None or sines is None:
        graph.leave_out("rotary positions that were not computed, taken as of base 10,000")
    else:
        result = fitted(*(_by_pair(y, size, name) for y in (cosines, sines)))
        if result is None:
            graph.leave_out("rotary positions of no single base, taken as of base 10,000")
    base, first = result or (DEFAULT_BASE, 0)
    return name, Leaf(source, "rc"), size, positions, base, first, 0


def _table(constant: Constant, elements: Elements, positions: int) -> Array | None:
    """Return a constant as rows of positions; None if it is unknown, or differs between sequences."""
    known = elements(constant.source)
    if known is None:
        return None
    table = np.asarray(known, dtype=np.float64)
    table = table.reshape([x for x in table.shape[:-1] if x > 1] + [table.shape[-1]])
    if table.ndim == 1:
        table = table[None]
    if table.ndim > 2:
        table = table.reshape(-1, *table.shape[-2:])
        if (table != table[:1]).any():
            return None
        table = table[0]
    return table if len(table) == positions else None


def _by_pair(table: Array, size: int, name: str) -> Array:
    """Return a table's column for each pair; none if the two of a pair differ."""
    if table.shape[1] == size // 2:
        return table
    if table.shape[1] != size:
        return table[:, :0]
    halves, pair = ((2, -1), 1) if name == "rope_halves" else ((-1, 2), 2)
    one, other = np.moveaxis(table.reshape(len(table), *halves), pair, 0)
    return one if (one == other).all() else table[:, :0]


def fitted(cosines: Array, sines: Array) -> tuple[float, int] | None:
    """Return the base and the first position of tables by position and pair of columns; None if none fits.

    >>> angle = np.arange(3, 11)[:, None] * 500000.0 ** (-np.arange(0, 8, 2) / 8)
    >>> fitted(np.cos(angle), np.sin(angle))
    (500000.0, 3)
    >>> fitted(np.cos(angle / 2), np.sin(angle / 2))
    """
    count = cosines.shape[1]
    if not count or sines.shape != cosines.shape:
        return None
    bases = list(BASES)
    if len(cosines) > 1 and count > 1:  # from one row to the next each column turns by its frequency
        turn = np.arctan2(
            sines[1] * cosines[0] - cosines[1] * sines[0], cosines[1] * cosines[0] + sines[1] * sines[0]
        )
        if turn[1] > 0:
            base = float(turn[1] ** -count)
            bases = [*bases, *(float(f"{base:.{digits}g}") for digits in (2, 4, 6)), base]
    fits: list[tuple[float, float, int]] = []
    last = float(np.arctan2(sines[0, -1], cosines[0, -1]))
    for base in bases:
        frequencies = base ** (-np.arange(count) / count)
        first = round(last / frequencies[-1])
        angle = (first + np.arange(len(cosines)))[:, None] * frequencies
        error = max(np.abs(np.cos(angle) - cosines).max(), np.abs(np.sin(angle) - sines).max())
        tolerance = TOLERANCE + TOLERANCE_BY_POSITION * (first + len(cosines))
        if first >= 0 and error <= (max(tolerance, COARSE) if base in BASES else tolerance):
            fits.append((float(error), base, first))
    # The roundest base that fits about as well as any.
    least = min(fits, default=(0.0, 0.0, 0))[0]
    return next(((base, first) for error, base, first in fits if error <= 2 * least + 1e-9), None)
