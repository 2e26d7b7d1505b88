"""A lower bound of the time in which a collective sums replicas, whichever way it goes."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from umm.algorithms.collectives.grids import nodes_of
from umm.algorithms.collectives.library import least, refuses
from umm.algorithms.universal.options import Options
from umm.arrays import Ints
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.program.problem import Problem
from umm.schedules.writer.builder import COLLECTIVE
from umm.space.bounds.transfers import least_slowdown, link_times


def summed_seconds(layout: Layout, problem: Problem, machine: Machine, options: Options) -> float:
    """Return a lower bound of an all-reduce or a reduce-scatter of the replicas of C.

    To be summed among N ranks, or N nodes, each element has to be added to another's at least N − 1 times
    (each but one gives what it has), and to be everywhere it has to come back N − 1 times: gossip in one-way
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
    links, found, starts = link_times(machine, p), 0.0, machine.collective_start_s
    if not any(refuses(machine, ranks, p) for ranks in owners.tolist()):
        # A switch that adds puts less on a port than what moves, and partners have lanes of their own.
        known = [least(machine, options.final, ranks, p) for ranks in owners.tolist()]
        charges, starts = min(known)[0], min(wait for _, wait in known)
        moved = adds = np.bincount(group_of.reshape(-1), payload) * min(charges, 1.0)
        lanes, overhead = owners.shape[1], 0.0
    for ranks, once, added in zip(owners.tolist(), moved.tolist(), adds.tolist(), strict=True):
        pairs = np.array([(src, dst) for src in ranks for dst in ranks if src != dst]).T
        latency = float(links.latency[tuple(pairs)].min()) + overhead
        inverse = float(links.inverse[tuple(pairs)].min())
        busiest = added * (1 - 1 / len(ranks)) * inverse / lanes
        for blocks in ([[rank] for rank in ranks], nodes_of(machine, ranks, p)):
            width = _width(machine, blocks, p)
            if width:
                busiest = max(busiest, (len(blocks) - 1) * (added + once * comes_back) / width)
        found = max(found, latency * (1 + comes_back), latency + busiest)
    return found + starts


def _width(machine: Machine, blocks: Sequence[Sequence[int]], total: int) -> float:
    """Return the bytes/s of the first links of all routes from each block of ranks to the others together."""
    ranks = np.concatenate([np.asarray(block) for block in blocks])
    block = np.arange(len(blocks)).repeat([len(block) for block in blocks])
    between = _first_links(machine, total)[np.ix_(ranks, ranks)][block[:, None] != block]
    return float(sum(machine.link_bandwidth[np.unique(between)]))


@lru_cache(maxsize=16)
def _first_links(machine: Machine, total: int) -> Ints:
    """Return the first link of the route from each rank (row) to each (column)."""
    devices = [machine.device_of(rank, total) for rank in range(total)]
    first = [machine.route(src, dst)[0] for src in devices for dst in devices]
    return np.array(first, dtype=np.int64).reshape(total, total)
