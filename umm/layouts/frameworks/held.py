"""The ranges of one dimension that each place holds; from there to the edges of tiles, and back."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

import numpy as np

from umm.arrays import Ints

Spans = tuple[tuple[int, int], ...]
"""Ranges of indices, half-open, ascending, none empty and none touching the next."""
Held = tuple[Spans, ...]  # what each place holds


def whole(size: int) -> Spans:
    """Return all of a dimension."""
    return ((0, size),) if size else ()


def chunk(spans: Spans, number: int, parts: int) -> Spans:
    """Return one of the parts that torch.chunk makes of some indices: all as long as the first but the last.

    >>> chunk(((0, 3), (5, 7)), 1, 2)
    ((5, 7),)
    """
    length = -(-sum(stop - start for start, stop in spans) // parts)
    return between(spans, number * length, (number + 1) * length)


def between(spans: Iterable[tuple[int, int]], first: int, last: int) -> Spans:
    """Return some of the indices in ranges, by number: counted as if these followed each other."""
    ranges, before = [], 0
    for start, stop in spans:
        begin, end = max(first - before, 0), min(last - before, stop - start)
        if begin < end:
            ranges.append((start + begin, start + end))
        before += stop - start
    return tuple(ranges)


def strided(spans: Spans, number: int, parts: int, split: int) -> Spans:
    """Return one of the parts where each of ``split`` chunks is cut for itself, as ``_StridedShard`` does.

    >>> strided(whole(9), 0, 4, 2)  # of 0…4 and of 5…8 the first quarter
    ((0, 2), (5, 6))
    """
    pieces = [chunk(chunk(spans, i, split), number, parts) for i in range(split)]
    return merged(span for piece in pieces for span in piece)


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return ranges with those that touch or overlap made one."""
    ranges: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if start < stop:
            if ranges and start <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], stop))
            else:
                ranges.append((start, stop))
    return tuple(ranges)


def held_by(edges: Ints, places: int) -> Held:
    """Return the ranges of each place, where parts are dealt out to places in turn.

    >>> held_by(np.array([0, 2, 4, 6, 7]), 2)
    (((0, 2), (4, 6)), ((2, 4), (6, 7)))
    """
    cuts = edges.tolist()
    parts = list(pairwise(cuts))
    return tuple(merged(parts[place::places]) for place in range(places))


def dealt(ranges: Held) -> tuple[Ints, list[int]]:
    """Return edges of parts that, dealt out in turn, give places these ranges, and the order of the places.

    Empty parts stand where a place has nothing in its turn.

    >>> edges, order = dealt((((4, 6),), ((0, 4),)))
    >>> edges.tolist(), order
    ([0, 4, 6], [1, 0])
    """
    ends = [spans[-1][1] if spans else 0 for spans in ranges]
    edges = np.maximum.accumulate([0, *ends])
    if held_by(edges, len(ranges)) == ranges:  # one range for each place, in order
        return edges, list(range(len(ranges)))
    parts = sorted((start, stop, place) for place, spans in enumerate(ranges) for start, stop in spans)
    order = list(dict.fromkeys([place for *_, place in parts] + list(range(len(ranges)))))
    turn, cuts = {place: number for number, place in enumerate(order)}, [0]
    for start, stop, place in parts:
        while (len(cuts) - 1) % len(ranges) != turn[place]:
            cuts.append(start)
        cuts.append(stop)
    return np.array(cuts, dtype=np.int64), order


def factorizations(number: int, most: int) -> list[tuple[int, ...]]:
    """Return the ways to write a number as an ordered product of numbers above 1, the shortest first.

    >>> factorizations(8, 3), factorizations(8, 1)
    ([(8,), (2, 4), (4, 2), (2, 2, 2)], [(8,)])
    """

    def every(n: int, left: int) -> list[tuple[int, ...]]:
        if n == 1:
            return [()]
        if left == 1:
            return [(n,)]
        return [(d, *rest) for d in range(2, n + 1) if n % d == 0 for rest in every(n // d, left - 1)]

    return sorted(every(number, most), key=lambda factors: (len(factors), factors))


def digits(offsets: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return lengths and strides, the last fastest, that count out some numbers from 0; None if none do.

    >>> digits([0, 1, 4, 5]), digits([0, 2, 1])
    ([(2, 4), (2, 1)], None)
    """
    result: list[tuple[int, int]] = []
    numbers = list(offsets)
    while len(numbers) > 1:
        count, stride = len(numbers), numbers[1] - numbers[0]
        fit = [
            length
            for length in range(2, count + 1)
            if count % length == 0 and numbers[:length] == [i * stride for i in range(length)]
        ]
        if not fit:
            return None
        result.insert(0, (fit[-1], stride))
        numbers = numbers[:: fit[-1]]
    made = np.zeros(1, dtype=np.int64)
    for length, stride in result:
        made = np.add.outer(made, np.arange(length) * stride).reshape(-1)
    same = prod(length for length, _ in result) == len(offsets) and made.tolist() == list(offsets)
    return result if same else None
