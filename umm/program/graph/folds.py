"""Arrays of many dimensions as views of matrices: which rows and columns each dimension runs over.

A reshape, a transposition or a broadcast only changes the view, so it is free; the matrix stays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

ROWS, COLS, NONE = "r", "c", ""


class Atom(NamedTuple):
    """A run of indices of a matrix: so many, each a stride after the one before."""

    axis: str  # `r` of rows, `c` of columns, or empty where an array repeats itself
    stride: int  # rows or columns from one index to the next; 0 where it repeats itself
    size: int  # how many indices, at least 2


Dim = tuple[Atom, ...]  # a dimension: its runs, the slowest first; none if its length is 1


@dataclass(frozen=True)
class Value:
    """An array: a matrix that a node writes, and the runs of each dimension.

    >>> q = Value(None, (dim(ROWS, 16), dim(COLS, 64)))
    >>> heads = reshaped(q, (2, 8, 4, 16))
    >>> permuted(heads, (0, 2, 1, 3)).dims[1]
    (Atom(axis='c', stride=16, size=4),)
    """

    node: Any
    dims: tuple[Dim, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return tuple(length(x) for x in self.dims)


def dim(axis: str, size: int, stride: int = 1) -> Dim:
    """Return a dimension of one run."""
    return (Atom(axis, stride, size),) if size > 1 else ()


def length(runs: Iterable[Atom]) -> int:
    """Return the number of indices of a dimension."""
    return prod(x.size for x in runs)


def merged(runs: Iterable[Atom]) -> Dim:
    """Return runs with those joined that continue each other."""
    result: list[Atom] = []
    for x in runs:
        last = result[-1] if result else None
        if last is not None and last.axis == x.axis and last.stride == x.stride * x.size:
            result[-1] = Atom(x.axis, x.stride, last.size * x.size)
        else:
            result.append(x)
    return tuple(result)


def folded(node: Any, rows: Sequence[int], cols: Sequence[int]) -> Value:
    """Return an array whose first dimensions are a matrix's rows, the others its columns."""
    dims: list[Dim] = []
    for axis, sizes in ((ROWS, rows), (COLS, cols)):
        strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        dims += [dim(axis, size, stride) for size, stride in zip(sizes, strides, strict=True)]
    return Value(node, tuple(dims))


def permuted(value: Value, order: Sequence[int]) -> Value:
    """Return an array with its dimensions in another order."""
    return Value(value.node, tuple(value.dims[i] for i in order))


def expanded(value: Value, shape: Sequence[int]) -> Value:
    """Return an array broadcast to a shape: dimensions of length 1 repeat, new ones come first."""
    before = len(shape) - len(value.dims)
    dims = [()] * before + list(value.dims)
    repeated = [dim(NONE, n, 0) if not x and n > 1 else x for x, n in zip(dims, shape, strict=True)]
    return Value(value.node, tuple(repeated))


def reshaped(value: Value, shape: Sequence[int]) -> Value | None:
    """Return an array in another shape of as many elements; None if its runs cannot be cut so."""
    runs = list(merged(x for runs in value.dims for x in runs))
    dims: list[Dim] = []
    for size in shape:
        taken: list[Atom] = []
        while size > 1:
            if not runs:
                return None
            x = runs.pop(0)
            if size % x.size == 0:
                taken.append(x)
                size //= x.size
            elif x.size % size == 0:
                inner = x.size // size
                taken.append(Atom(x.axis, x.stride * inner, size))
                runs.insert(0, Atom(x.axis, x.stride, inner))
                size = 1
            else:
                return None
        dims.append(merged(taken))
    return None if runs else Value(value.node, tuple(dims))


def lines(value: Value, dims: Iterable[int]) -> tuple[list[int], list[int]] | None:
    """Return which of some dimensions run over rows and which over columns, the slowest first.

    None if one runs over both, or two run through each other. Dimensions of length 1 are in neither.
    """
    placed: dict[str, list[tuple[int, int, int]]] = {ROWS: [], COLS: []}
    for number in dims:
        runs = [x for x in merged(value.dims[number]) if x.axis != NONE]
        if not runs:
            continue
        if len(runs) > 1:
            return None
        placed[runs[0].axis].append((runs[0].stride, runs[0].size, number))
    result = []
    for axis in (ROWS, COLS):
        step = 1
        in_order = sorted(placed[axis])
        for stride, size, _ in in_order:
            if stride != step:
                return None
            step *= size
        result.append([number for *_, number in reversed(in_order)])
    return result[0], result[1]
