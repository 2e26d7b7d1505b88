"""Which rank has which place of which replica: ranks counted along a mesh whose axes each do one thing.

Places are kept as an array of ranks of shape (replicas, grid rows, grid columns); each rank is in it once.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from umm.arrays import Ints
from umm.errors import LayoutError

ORDERS = ("blocked", "interleaved")
"""How replicas share the ranks: each a block of consecutive ones, or every c-th."""
REPLICATE, ROWS, COLUMNS = USES = "-rc"  # what an axis of a mesh of ranks is used for, as a letter


def on_mesh(mesh: Sequence[int], axes: str) -> Ints:
    """Return the places of ranks that are counted along a mesh, its last axis fastest.

    Args:
        mesh: Length of each axis.
        axes: What each axis is used for: ``r`` cuts rows, ``c`` cuts columns, ``-`` replicates. Axes of one
            use count together, the last fastest.

    >>> on_mesh((2, 2, 2), "-rc").tolist()  # two replicas, each on four consecutive ranks
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    >>> on_mesh((2, 2, 2), "r-c").tolist()  # the middle axis replicates
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """
    by_use = [axis for use in USES for axis in range(len(mesh)) if axes[axis] == use]
    ranks = np.arange(prod(mesh), dtype=np.int64).reshape(mesh)
    return ranks.transpose(by_use).reshape(mesh_sizes(mesh, axes))


def mesh_sizes(mesh: Sequence[int], axes: str) -> tuple[int, int, int]:
    """Return the replicas, grid rows and grid columns that the axes of a mesh make.

    >>> mesh_sizes((2, 3, 5), "r-r")
    (3, 10, 1)
    """
    sizes = [prod(size for size, use in zip(mesh, axes, strict=True) if use == each) for each in USES]
    return sizes[0], sizes[1], sizes[2]


def arranged(
    process_grid: tuple[int, int], replicas: int = 1, order: str = "blocked", colmajor: bool = False
) -> Ints:
    """Return the places of replicas in one of the usual orders; LayoutError for another order.

    Args:
        process_grid: Rows and columns of the process grid of one replica.
        order: ``blocked`` (a replica has consecutive ranks) or ``interleaved`` (every c-th).
        colmajor: Whether ranks go down the columns of a process grid rather than along its rows.

    >>> arranged((2, 2), 2, "interleaved").tolist(), arranged((2, 2), colmajor=True).tolist()
    ([[[0, 2], [4, 6]], [[1, 3], [5, 7]]], [[[0, 2], [1, 3]]])
    """
    if order not in ORDERS:
        raise LayoutError(f"replicas cannot be ordered {order!r}; choose {' or '.join(ORDERS)}")
    grid = COLUMNS + ROWS if colmajor else ROWS + COLUMNS
    axes = grid + REPLICATE if order == "interleaved" else REPLICATE + grid
    size = {REPLICATE: replicas, ROWS: process_grid[0], COLUMNS: process_grid[1]}
    return on_mesh([size[use] for use in axes], axes)


def usual(places: Ints) -> tuple[str, bool] | None:
    """Return the order and whether it is column-major for which :func:`arranged` gives these places.

    >>> usual(arranged((2, 3), 2, "interleaved")), usual(on_mesh((2, 2, 2), "r-c"))
    (('interleaved', False), None)
    """
    replicas, *grid = places.shape
    for colmajor in (False, True):
        for order in ORDERS:
            if np.array_equal(places, arranged((grid[0], grid[1]), replicas, order, colmajor)):
                return order, colmajor
    return None


def listed(ranks: ArrayLike, replicas: int, process_grid: tuple[int, int]) -> Ints:
    """Return places from their ranks: replica after replica, each along the rows of its process grid.

    LayoutError if these are not the ranks from 0 on, each once.
    """
    places = np.array(ranks, dtype=np.int64).reshape(-1)
    count = replicas * process_grid[0] * process_grid[1]
    if not np.array_equal(np.sort(places), np.arange(count)):
        shown = "-".join(map(str, places[:8].tolist())) + ("-…" if len(places) > 8 else "")
        raise LayoutError(
            f"ranks {shown} cannot have the places of {replicas} x {process_grid[0]} x {process_grid[1]}; "
            f"list each of 0 to {count - 1} once"
        )
    return places.reshape(replicas, *process_grid)


def replication_factors(ranks: int) -> list[int]:
    """Return the replication factors that so many ranks allow: their divisors.

    >>> replication_factors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [c for c in range(1, ranks + 1) if ranks % c == 0]


def check_replicas(ranks: int, replicas: int) -> None:
    """Refuse replicas that cannot all have equally many ranks.

    LayoutError with the replication factors that would work.
    """
    if ranks < 1 or replicas < 1 or ranks % replicas:
        choices = ", ".join(map(str, replication_factors(ranks)))
        raise LayoutError(f"{ranks} ranks cannot hold {replicas} equal replicas; choose from {choices}")
