"""A lower bound of the makespan that holds for every order of an op list's ops, by any policy.

Nothing is assumed about when or how often a tile is got, only that each rank gets what it needs at least
once, multiplies all its ops and accumulates all its contributions.
"""

import numpy as np

from umm import cost
from umm.algorithms.universal.operands import updates
from umm.algorithms.universal.oplist import OpList
from umm.algorithms.universal.options import Options
from umm.algorithms.universal.steps.graph import graphs
from umm.machines import Machine
from umm.machines.fabric import narrowest
from umm.schedules.bound import ROUNDING
from umm.schedules.table.resources import platform
from umm.space.bounds.closed_form import replica_seconds


def order_bound(ops: OpList, machine: Machine, options: Options) -> float:
    """Return seconds that no order of the ops can beat.

    The longest of three kinds of resource, then the time replicas of C take to come together:

    - an engine: all its gemms, each that adds to C in place as if it found C in a cache; of a rank with the
      device to itself also the cheapest get it has to wait for before its first gemm, and the cheapest
      accumulate after its last;
    - a link: the bytes of all tiles that must cross it once and of all accumulates, after the shortest
      latency; if only gets cross it, the shortest gemm that reads one of them has to follow;
    - a rank's own gets: the two-machine flow shop of gets and gemms is at least its gets on the fastest
      ``copy_engines`` lanes plus the shortest gemm.
    """
    problem = ops.problem
    shared = platform(machine, problem.p, options.max_accumulates)
    links = shared.links
    of_ranks = graphs(ops, machine, options)
    devices = [machine.device_of(rank, problem.p) for rank in range(problem.p)]
    alone = len(set(devices)) == len(devices)
    engine = np.zeros(machine.device_count)
    nbytes = np.zeros(len(links.names))
    latency = np.full(len(links.names), np.inf)
    follows = np.full(len(links.names), np.inf)
    longest = 0.0

    def cross(src: int, dst: int, charged: int, then: float) -> float:
        """Charge a transfer to its links; return how long it takes alone."""
        route = list(shared.routes[src, dst])
        wait = float(links.latency[route].sum())
        nbytes[route] += charged
        latency[route] = np.minimum(latency[route], wait)
        follows[route] = np.minimum(follows[route], then)
        return wait + charged / float(links.bandwidth[narrowest(route, links.bandwidth)])

    (m, n, k), c_itemsize = ops.sizes, problem.itemsize("C")
    slotted = updates(problem.layouts[2], ops.rank, ops.tiles[2])[1]
    least = cost.gemm_seconds(
        machine,
        problem.dtype,
        m,
        n,
        k,
        c_itemsize,
        again=np.where(slotted, 0, m * n * c_itemsize),
        pace=cost.pace_of(machine, ops.rank, problem.p),
    )
    for graph in of_ranks:
        seconds = least[graph.first : graph.first + len(graph)].tolist()
        compute = sum(seconds)
        engine[devices[graph.rank]] += compute
        took = {}
        for x, data in enumerate(graph.data):
            if x in graph.own:
                continue
            took[x] = cross(data.source, graph.rank, data.nbytes, min(seconds[i] for i in graph.readers[x]))
        accumulates = []
        for update in graph.updates:
            if update is None or update.target == graph.rank:
                accumulates.append(0.0)
            else:
                accumulates.append(cross(graph.rank, update.target, update.nbytes, 0.0))
        if not seconds:
            continue
        head = min(max((took[x] for x in needs), default=0.0) for needs in graph.needs)
        tail = min(accumulates)
        if alone:
            longest = max(longest, head + compute + tail)
        gets = sum(took.values()) / machine.copy_engines
        longest = max(longest, gets + min(seconds) + tail if took else 0.0)
    busy = nbytes > 0
    with_ends = latency + nbytes / links.bandwidth + follows
    longest = max(longest, float(engine.max()), float(with_ends[busy].max(initial=0.0)))
    return (longest + replica_seconds(problem.layout("C"), problem, machine, options)) * ROUNDING
