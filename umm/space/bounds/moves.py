"""Bounds of moving given operands and of summing replicas."""

from collections.abc import Sequence

import numpy as np

from umm.arrays import Floats, Ints, distinct
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE
from umm.plans.collectives.collective import able
from umm.plans.collectives.library import KERNELS, LIBRARY, least, refuses
from umm.plans.collectives.rings import nodes_of
from umm.plans.multiply.options import Options
from umm.plans.redistribution.fastest import moves
from umm.plans.redistribution.pieces import routes
from umm.program.problem import MATRICES, Problem
from umm.schedules.bound import ROUNDING
from umm.space.bounds.transfers import least_slowdown, link_times
from umm.space.points import MultiplyPoints


def summed_seconds(layout: Layout, problem: Problem, machine: Machine, options: Options) -> float:
    """Return a lower bound of an all-reduce or a reduce-scatter of the replicas of C.

    To be summed among N ranks, or N nodes, each element has to be added to another's at least N − 1 times:
    each but one gives what it has. To be everywhere it has to come back N − 1 times: gossip in one-way
    messages takes 2N − 2. They share the first links of all routes between the N; and a rank adds on as many
    lanes as it has, and one more between nodes. Before that a rank starts the collective.
    """
    p, itemsize = problem.p, problem.itemsize("C")
    filled = (layout.tile_elements > 0).reshape(layout.grid_shape())
    owners, group_of = np.unique(layout.owners[:, filled].T, axis=0, return_inverse=True)
    payload = layout.tile_elements[layout.tile_elements > 0] * itemsize
    means = machine.means.get(COLLECTIVE)
    sizes = (means or machine).message_sizes
    moved = np.bincount(group_of.reshape(-1), payload) * least_slowdown(sizes, int(payload.max()))
    if means:
        moved /= means.efficiency
    adds = moved if means else moved / machine.accumulate_efficiency
    overhead = means.overhead_s if means else 0.0
    comes_back = options.final == "all-reduce"
    lanes = options.max_accumulates + (machine.fabric.near > 1)
    links, seconds, starts = link_times(machine, p), 0.0, machine.collective_start_s
    if not any(refuses(machine, ranks, p) for ranks in owners.tolist()):
        # A switch that adds puts less on a port than what moves, and partners have lanes of their own.
        known = [least(machine, options.final, ranks, p) for ranks in owners.tolist()]
        charges, waits = min(known)[0], min(wait for _, wait in known)
        ours = set(able(options.final, machine, owners.tolist(), p)).difference((LIBRARY, *KERNELS))
        starts = min(starts, waits) if ours else waits  # our own ways do not wait for the library's start
        moved = adds = np.bincount(group_of.reshape(-1), payload) * min(charges, 1.0)
        lanes, overhead = owners.shape[1], 0.0
    for ranks, nbytes, added in zip(owners.tolist(), moved.tolist(), adds.tolist(), strict=True):
        pairs = np.array([(src, dst) for src in ranks for dst in ranks if src != dst]).T
        latency = float(links.latency[tuple(pairs)].min()) + overhead
        inverse = float(links.inverse[tuple(pairs)].min())
        busiest = added * (1 - 1 / len(ranks)) * inverse / lanes
        for blocks in ([[rank] for rank in ranks], nodes_of(machine, ranks, p)):
            width = _width(machine, blocks, p)
            if width:
                busiest = max(busiest, (len(blocks) - 1) * (added + nbytes * comes_back) / width)
        seconds = max(seconds, latency * (1 + comes_back), latency + busiest)
    return seconds + starts


def _width(machine: Machine, blocks: Sequence[Sequence[int]], total: int) -> float:
    """Return the bytes/s of the first links of all routes from each block of ranks to the others together."""
    ranks = np.concatenate([np.asarray(block) for block in blocks])
    block = np.arange(len(blocks)).repeat([len(block) for block in blocks])
    between = routes(machine, total)[np.ix_(ranks, ranks)][block[:, None] != block, 0]
    return float(sum(machine.link_bandwidth[distinct(between)]))


def least_moving(points: MultiplyPoints, machine: Machine) -> tuple[Floats, Floats]:
    """Return lower bounds of the seconds that moving takes at each point of a space, and of the bytes.

    A rank gets what it lacks once, over the last links of its routes. What is given elsewhere is held beside
    what is multiplied. Both arrays have the axes of ``points.shape``.
    """
    seconds, memory = np.zeros(points.shape), np.zeros(points.shape)
    # The bytes/s of all links together that can be the last of a route to each rank.
    devices = [machine.device_of(rank, points.ranks) for rank in range(points.ranks)]
    into = np.full(points.ranks, np.inf)
    for rank, device in enumerate(devices):
        last = {machine.route(other, device)[-1] for r, other in enumerate(devices) if r != rank}
        into[rank] = machine.link_bandwidth[sorted(last)].sum() if last else np.inf
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
        # The first two axes of a space are options and the stationary matrix; those of A, B and C follow.
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
    """Return the elements that each rank lacks of its target, all replicas of the source complete.

    >>> row, col = (Layout.parse(text, (8, 8), ranks=4) for text in ("row", "col@2"))
    >>> lacking(row, col).tolist()
    [24, 24, 24, 24]
    """
    (_, row, col), (_, other_row, other_col) = source.place_of_rank, target.place_of_rank
    rows = _shared(source.row_edges, source.process_grid[0], target.row_edges, target.process_grid[0])
    cols = _shared(source.col_edges, source.process_grid[1], target.col_edges, target.process_grid[1])
    shared: Ints = rows[row, other_row] * cols[col, other_col]
    return target.elements_of_rank - shared


def _shared(edges: Ints, places: int, others: Ints, other_places: int) -> Ints:
    """Return how much of a dimension two places have both, each with the tiles dealt out to it in turn."""
    low = np.maximum(edges[:-1, None], others[None, :-1])
    high = np.minimum(edges[1:, None], others[None, 1:])
    shared = np.zeros((places, other_places), dtype=np.int64)
    # Tiles are dealt out to places in turn, so tile i is at place i modulo their number.
    turn = np.arange(len(edges) - 1)[:, None] % places, np.arange(len(others) - 1)[None] % other_places
    np.add.at(shared, turn, np.maximum(high - low, 0))
    return shared
