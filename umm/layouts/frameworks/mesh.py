"""A mesh of ranks whose axes cut rows, cut columns or replicate: each rank's part, and the way back.

DTensor and JAX both speak so. An axis may also cut in strides: of ``split`` chunks it cuts each for itself.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from umm.arrays import Ints
from umm.layouts.frameworks.held import Held, dealt, digits, factorizations, held_by, strided, whole

MAX_SEARCHED_RANKS = 64  # of more ranks than these not every mesh is tried


class Parts(NamedTuple):
    """The cuts of a matrix and the rank of each place: with a shape, a layout."""

    row_edges: Ints  # where each tile row starts, and the end
    col_edges: Ints  # the same for columns
    process_grid: tuple[int, int]  # rows and columns of the process grid
    places: Ints  # the rank at each place, shape (replicas, *process_grid)


class Laid(Protocol):
    """A layout's cuts and places, as the frameworks' words need them."""

    shape: tuple[int, int]
    row_edges: Ints
    col_edges: Ints
    process_grid: tuple[int, int]
    places: Ints


class Cut(NamedTuple):
    """An axis's cut: of a dimension, in one go or in strides."""

    dim: int  # 0 for rows, 1 for columns
    split: int = 1  # chunks of which each is cut for itself; 1 for one cut of all


Use = Cut | None  # What an axis is used for; None replicates.


class Meshed(NamedTuple):
    """A mesh and the uses of its axes."""

    ranks: Ints  # the rank at each place of the mesh, in the mesh's shape
    uses: tuple[Use, ...]  # Use of each axis. Those of one dimension apply one after the other.

    @property
    def is_sorted(self) -> bool:
        """Whether ranks rise along every axis, as in a group of torch, which sorts them."""
        return all(bool((np.diff(self.ranks, axis=axis) > 0).all()) for axis in range(self.ranks.ndim))


def parts_of(shape: tuple[int, int], meshed: Meshed) -> Parts:
    """Return how a mesh cuts a matrix of a shape and which rank has which place.

    >>> parts = parts_of((10, 4), Meshed(np.arange(4).reshape(2, 2), (Cut(0), Cut(0))))
    >>> parts.row_edges.tolist()  # halves of 5 first, and each of them in 3 and 2
    [0, 3, 5, 8, 10]
    """
    axes = [[i for i, use in enumerate(meshed.uses) if use and use.dim == dim] for dim in (0, 1)]
    copies = [i for i, use in enumerate(meshed.uses) if use is None]
    edges, orders = [], []
    for dim, size in enumerate(shape):
        cuts = [(meshed.ranks.shape[axis], use.split) for axis in axes[dim] if (use := meshed.uses[axis])]
        cut, order = dealt(held_along(size, cuts))
        edges.append(cut)
        orders.append(order)
    places = meshed.ranks.transpose([*copies, *axes[0], *axes[1]])
    grid = len(orders[0]), len(orders[1])
    places = places.reshape(-1, *grid)[:, orders[0]][:, :, orders[1]]
    return Parts(edges[0], edges[1], grid, places)


def held_along(size: int, cuts: Sequence[tuple[int, int]]) -> Held:
    """Return each place's ranges of a dimension that is cut again and again, the last cut fastest.

    Args:
        cuts: In how many parts, and in how many strides, one after the other.
    """
    ranges: Held = (whole(size),)
    for parts, split in cuts:
        ranges = tuple(strided(spans, i, parts, split) for spans in ranges for i in range(parts))
    return ranges


def holdings(parts: Parts | Laid) -> list[tuple[int, object, object]]:
    """Return each rank's replica and its ranges of rows and of columns."""
    rows, cols = parts.process_grid
    sides = held_by(parts.row_edges, rows), held_by(parts.col_edges, cols)
    result: list[tuple[int, object, object]] = [(0, (), ())] * parts.places.size
    for (replica, i, j), rank in np.ndenumerate(parts.places):
        result[int(rank)] = replica, sides[0][i], sides[1][j]
    return result


def meshed(layout: Laid) -> Meshed | None:
    """Return a mesh that gives every rank the same part as a layout; None if there is none."""
    # Ranks are counted along it where that is possible.
    wanted = holdings(layout)
    return next((x for x in _candidates(layout) if holdings(parts_of(layout.shape, x)) == wanted), None)


def on_mesh(layout: Laid, ranks: Ints) -> Iterator[Meshed]:
    """Yield uses of a given mesh's axes by which ranks hold the same parts as in a layout."""
    wanted, most = holdings(layout), _most_spans(layout)
    replicas = len(layout.places)
    for dims in product((None, 0, 1), repeat=ranks.ndim):
        if prod(n for n, dim in zip(ranks.shape, dims, strict=True) if dim is None) != replicas:
            continue
        if any(n == 1 and dim is not None for n, dim in zip(ranks.shape, dims, strict=True)):
            continue
        for uses in _in_all_orders(ranks.shape, dims, most):
            candidate = Meshed(ranks, uses)
            if holdings(parts_of(layout.shape, candidate)) == wanted:
                yield candidate


def axes_in_order(shape: Sequence[int], order: Sequence[int], dim: int, more: int = 1) -> dict[int, Use]:
    """Return the uses of axes that cut a dimension in an order, the first one outermost.

    An axis that comes before another of the mesh but cuts after it cuts what that one makes, in strides.

    Args:
        dim: Which dimension they cut.
        more: Strides beyond these of the innermost.

    >>> axes_in_order((2, 4), [1, 0], 0)
    {1: Cut(dim=0, split=1), 0: Cut(dim=0, split=4)}
    """
    uses: dict[int, Use] = {}
    for place, axis in enumerate(order):
        split = prod(shape[outer] for outer in order[:place] if outer > axis)
        uses[axis] = Cut(dim, split * (more if place == len(order) - 1 else 1))
    return uses


def _in_all_orders(
    shape: Sequence[int], dims: Sequence[int | None], most: tuple[int, int]
) -> Iterator[tuple[Use, ...]]:
    axes = [[i for i, dim in enumerate(dims) if dim == cut] for cut in (0, 1)]
    choices = [
        [
            axes_in_order(shape, order, dim, more)
            for order in permutations(axes[dim])
            for more in dict.fromkeys((1, most[dim]))
        ]
        for dim in (0, 1)
    ]
    for rows, cols in product(*choices):
        uses = rows | cols
        yield tuple(uses.get(axis) for axis in range(len(shape)))


def _most_spans(layout: Laid) -> tuple[int, int]:
    """Return the most ranges that a place holds of rows and of columns."""
    rows, cols = layout.process_grid
    sides = held_by(layout.row_edges, rows), held_by(layout.col_edges, cols)
    return max(map(len, sides[0])), max(map(len, sides[1]))


def _candidates(layout: Laid) -> Iterator[Meshed]:
    """Yield candidate meshes for a layout, the plainest first."""
    counted = counted_mesh(layout.places)
    if counted is not None:
        # Along the mesh that ranks are counted along; uneven sizes may be cut elsewhere.
        along: dict[int, Use] = {}
        for dim, more in zip((0, 1), _most_spans(layout), strict=True):
            along |= axes_in_order(counted.shape, counted.order[dim], dim, more)
        shape = counted.shape or (1,)
        numbers = np.arange(layout.places.size, dtype=np.int64).reshape(shape)
        yield Meshed(numbers, tuple(along.get(axis) for axis in range(len(shape))))
    cuts = [cuts_of(layout, dim) for dim in (0, 1)]
    if cuts[0] is not None and cuts[1] is not None:
        copies = (len(layout.places),) if len(layout.places) > 1 else ()
        sizes = [n for n, _ in (*cuts[0], *cuts[1])]
        uses = [Cut(dim, split) for dim in (0, 1) for _, split in cuts[dim] or ()]
        yield Meshed(layout.places.reshape(*copies, *sizes), (*(None for _ in copies), *uses))
    ranks = np.arange(layout.places.size, dtype=np.int64)
    if ranks.size <= MAX_SEARCHED_RANKS:
        for shape in factorizations(ranks.size, 3):
            yield from on_mesh(layout, ranks.reshape(shape))


class Counted(NamedTuple):
    """The mesh along which ranks are counted."""

    shape: tuple[int, ...]
    # The axes that cut rows, and those that cut columns, the outermost first.
    order: tuple[list[int], list[int]]


def counted_mesh(places: Ints) -> Counted | None:
    """Return the mesh along which ranks are counted that have these places; None if there is none.

    >>> counted_mesh(np.arange(8).reshape(2, 4, 1).transpose(1, 0, 2))
    Counted(shape=(2, 4), order=([0], []))
    """
    axes: list[tuple[int, int, int, int]] = []  # stride, length, what it is used for, its turn
    for use, offsets in enumerate((places[:, 0, 0], places[0, :, 0], places[0, 0, :])):
        counts = digits((offsets - places[0, 0, 0]).tolist())
        if counts is None:
            return None
        axes += [(stride, length, use, turn) for turn, (length, stride) in enumerate(counts)]
    axes.sort(reverse=True)
    shape = tuple(length for _, length, *_ in axes)
    if [stride for stride, *_ in axes] != [prod(shape[i + 1 :]) for i in range(len(shape))]:
        return None

    def order(use: int) -> list[int]:
        return sorted((i for i, x in enumerate(axes) if x[2] == use), key=lambda i: axes[i][3])

    # Replicas are counted along the axes that replicate in the order of the mesh.
    ranks = np.arange(places.size).reshape(shape).transpose(sorted(order(0)) + order(1) + order(2))
    return (
        Counted(shape, (order(1), order(2))) if np.array_equal(ranks.reshape(places.shape), places) else None
    )


def cuts_of(layout: Laid, dim: int) -> list[tuple[int, int]] | None:
    """Return in how many parts, and in how many strides, a dimension is cut again and again."""
    size, places = layout.shape[dim], layout.process_grid[dim]
    ranges = held_by((layout.row_edges, layout.col_edges)[dim], places)
    more = max(map(len, ranges))
    for factors in factorizations(places, 6 if places <= MAX_SEARCHED_RANKS else 3):
        for split in dict.fromkeys((1, more)):
            cuts = [(n, split if i == len(factors) - 1 else 1) for i, n in enumerate(factors)]
            if held_along(size, cuts) == ranges:
                return cuts
    return None
