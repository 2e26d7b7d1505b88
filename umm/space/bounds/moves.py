"""Bounds below what it takes to move operands from where a space says they are given."""

import numpy as np

from umm.algorithms.writing import moves
from umm.arrays import Floats, Ints
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.program.problem import MATRICES
from umm.schedules.bound import ROUNDING
from umm.space.points import MultiplyPoints


def least_moving(points: MultiplyPoints, machine: Machine) -> tuple[Floats, Floats]:
    """Return lower bounds of the seconds that moving takes at each point of a space, and of the bytes.

    A rank gets what it lacks once, over the last links of its routes. What is given elsewhere is held beside
    what is multiplied. Both arrays have the axes of ``points.shape``.
    """
    seconds, memory = np.zeros(points.shape), np.zeros(points.shape)
    into = _inward(machine, points.ranks)
    for i, (x, layouts) in enumerate(zip(MATRICES, points.choices, strict=True)):
        outside = points.given.get(x)
        if outside is None:
            continue
        itemsize = points.bare.itemsize(x)
        takes, holds = np.zeros(len(layouts)), np.zeros(len(layouts))
        for number, layout in enumerate(layouts):
            if layout == outside:
                continue
            source, target = (layout, outside) if x == "C" else (outside, layout)
            takes[number] = float((lacking(source, target) * itemsize / into).max()) * ROUNDING
            holds[number] = int(outside.elements_of_rank.min()) * itemsize
        axes = [1] * len(points.shape)
        axes[2 + i] = len(layouts)
        seconds += takes.reshape(axes)
        memory += holds.reshape(axes)
    return seconds, memory


def given_bytes(points: MultiplyPoints, point: int) -> Ints:
    """Return the bytes that each rank holds of operands that are given elsewhere at a point."""
    problem = points.program(point)
    return sum(
        (problem.tensors[MATRICES.index(x)].nbytes_of_rank for x in moves(problem)),
        start=np.zeros(problem.p, dtype=np.int64),
    )


def lacking(source: Layout, target: Layout) -> Ints:
    """Return the elements that each rank lacks of what it shall have, all replicas of the source complete.

    >>> row, col = (Layout.parse(text, (8, 8), ranks=4) for text in ("row", "col@2"))
    >>> lacking(row, col).tolist()
    [24, 24, 24, 24]
    """
    (_, row, col), (_, other_row, other_col) = source.place_of_rank, target.place_of_rank
    rows = _shared(source.row_edges, source.process_grid[0], target.row_edges, target.process_grid[0])
    cols = _shared(source.col_edges, source.process_grid[1], target.col_edges, target.process_grid[1])
    there: Ints = rows[row, other_row] * cols[col, other_col]
    return target.elements_of_rank - there


def _shared(edges: Ints, places: int, others: Ints, other_places: int) -> Ints:
    """Return how much of a dimension two places have both, each with the tiles dealt out to it in turn."""
    low = np.maximum(edges[:-1, None], others[None, :-1])
    high = np.minimum(edges[1:, None], others[None, 1:])
    shared = np.zeros((places, other_places), dtype=np.int64)
    turn = np.arange(len(edges) - 1)[:, None] % places, np.arange(len(others) - 1)[None] % other_places
    np.add.at(shared, turn, np.maximum(high - low, 0))
    return shared


def _inward(machine: Machine, ranks: int) -> Floats:
    """Return the bytes/s of all links together that can be the last of a route to each rank."""
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    found = []
    for rank, device in enumerate(devices):
        last = {machine.route(other, device)[-1] for r, other in enumerate(devices) if r != rank}
        found.append(machine.link_bandwidth[sorted(last)].sum() if last else np.inf)
    return np.array(found)
