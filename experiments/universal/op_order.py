"""How far direct execution is from the best known for its ops: local search on the simulated makespan.

The step model looks at one rank at a time; here every rank's order counts, with contention, because what is
minimised is whatever the ``makespan`` callable says of the whole schedule. A bound that holds for every order
turns the result into a number: no order beats the best found by more than the gap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from umm import cost
from umm.arrays import Ints
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.machines.fabric import narrowest
from umm.plans.multiply.direct import lower
from umm.plans.multiply.operands import updates
from umm.plans.multiply.oplist import OFFSETS, OpList, op_list
from umm.plans.multiply.options import Options
from umm.policies.graph import graphs
from umm.policies.policy import step_policies
from umm.policies.stepwise import stepwise
from umm.program.problem import Problem, largest_matrix
from umm.schedules.bound import ROUNDING
from umm.schedules.schedule import Schedule
from umm.schedules.table.resources import platform
from umm.space.bounds.closed_form import replica_seconds

Makespan = Callable[[Schedule], float]


@dataclass(frozen=True)
class Ordered:
    """The best schedule of some ops that was found."""

    schedule: Schedule  # direct execution in the best order, or the IR policy that beats it
    makespan_s: float  # its makespan in seconds
    direct_s: float  # makespan of direct execution in the order of the op list
    order_s: float  # makespan of direct execution in the best order found
    bound_s: float  # no order and no policy takes less
    tried: int  # schedules that were simulated

    @property
    def gap(self) -> float:
        """Share of direct execution's makespan that any schedule saves at most."""
        return max(0.0, 1.0 - self.bound_s / self.direct_s)

    @property
    def saving(self) -> float:
        """Share of direct execution's makespan that the schedule found saves."""
        return 1.0 - self.makespan_s / self.direct_s

    def __str__(self) -> str:
        return (
            f"direct {self.direct_s * 1e3:.4g} ms; best of {self.tried} schedules "
            f"{self.makespan_s * 1e3:.4g} ms ({self.saving:.1%} less); "
            f"no schedule is below {self.bound_s * 1e3:.4g} ms ({self.gap:.1%} less)"
        )


def best_order(
    problem: Problem,
    machine: Machine | str,
    makespan: Makespan,
    *,
    stationary: str = "auto",
    options: Options | None = None,
    policies: Sequence[str] | None = None,
    moves: int = 300,
    seed: int = 0,
) -> Ordered:
    """Return the best schedule found for the ops of a problem, and a bound for any.

    The IR policies' schedules are tried as they are. Direct execution starts from the best of: the op list
    with every iteration offset, and the orders in which the IR policies multiply. Then ranks' orders are
    changed one move at a time: an op to another place, two ops exchanged, a list turned. A move is kept if
    the makespan of the whole schedule is not longer. At the bound it ends.

    Args:
        problem: The multiply; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its machine file.
        stationary: A, B, C or ``auto`` for the largest matrix.
        policies: IR policies to try, all if None; exhaustive may take seconds a rank.

    >>> from umm.executor import executor
    >>> problem = Problem(m=8192, n=49152, k=12288, a="col", b="col", c="col")
    >>> print(best_order(problem, "pvc-12", executor("sim").makespan, moves=10))
    direct 38.3 ms; best of 10 schedules 38.3 ms (0.0% less); no schedule is below 38.3 ms (0.0% less)
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    problem = problem.on(machine.default_ranks)
    options = options or Options()
    if stationary == "auto":
        stationary = largest_matrix(problem)
    initial = op_list(problem, stationary, offset=options.offset)
    direct_s = makespan(lower(initial, machine, options))
    # The bound holds for every order, so it is found once, for whatever the moves make of the list.
    bound = order_bound(initial, machine, options)
    best, least, tried = initial, direct_s, 1
    lowered_best: tuple[float, Schedule] | None = None
    for ops, lowered in _starts(problem, machine, stationary, options, policies or list(step_policies())):
        seconds = makespan(lower(ops, machine, options))
        tried += 1
        if seconds < least:
            best, least = ops, seconds
        if lowered is not None:
            seconds = makespan(lowered)
            tried += 1
            if lowered_best is None or seconds < lowered_best[0]:
                lowered_best = seconds, lowered
    # A rank's ops are adjacent in the list: moves permute inside its slice and leave ownership alone.
    random = Random(seed)
    order = np.arange(len(best))
    starts = best.rank.searchsorted(np.arange(problem.p + 1)).tolist()
    movable = [r for r in range(problem.p) if starts[r + 1] - starts[r] > 1]
    for _ in range(moves if movable else 0):
        if least <= bound * (1 + 1e-9):
            break
        rank = random.choice(movable)
        moved = order.copy()
        moved[starts[rank] : starts[rank + 1]] = _move(order[starts[rank] : starts[rank + 1]], random)
        seconds = makespan(lower(_taken(best, moved), machine, options))
        tried += 1
        # Equal makespans are accepted too: many moves change nothing, and plateaus have to be crossed.
        if seconds <= least:
            order, least = moved, seconds
    ordered = lower(_taken(best, order), machine, options)
    # A policy's own schedule may beat all direct orders, but its steps cannot be permuted as ops can.
    seconds, schedule = least, ordered
    if lowered_best is not None and lowered_best[0] < least:
        seconds, schedule = lowered_best
    return Ordered(schedule, seconds, direct_s, least, min(bound, seconds), tried)


def _starts(
    problem: Problem, machine: Machine, stationary: str, options: Options, policies: Sequence[str]
) -> Iterator[tuple[OpList, Schedule | None]]:
    """Yield orders worth starting from: every offset's, and those of IR policies with their own schedules."""
    for offset in OFFSETS:
        if offset != options.offset:
            yield op_list(problem, stationary, offset=offset), None
    ops = op_list(problem, stationary, offset=options.offset)
    for policy in policies:
        ir = step_policies()[policy].ir(ops, machine, options)
        order = [
            graph.first + i
            for graph, steps in zip(ir.graphs, ir.steps, strict=True)
            for step in steps
            for i in step.gemms
        ]
        yield (
            _taken(ops, np.array(order, dtype=np.int64)),
            stepwise(ir, machine, replace(options, policy=policy)),
        )


def _taken(ops: OpList, order: Ints) -> OpList:
    """Return the op list in another order within each rank."""
    return replace(
        ops,
        m_segment=ops.m_segment[order],
        n_segment=ops.n_segment[order],
        k_segment=ops.k_segment[order],
    )


def _move(order: Ints, random: Random) -> Ints:
    """Return one rank's order with one change."""
    items = order.tolist()
    kind, i, j = random.randrange(3), random.randrange(len(items)), random.randrange(len(items))
    if kind == 0:
        items.insert(j, items.pop(i))
    elif kind == 1:
        items[i], items[j] = items[j], items[i]
    else:
        items = items[i:] + items[:i]
    return np.array(items, dtype=np.int64)


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
    least = cost.multiply_seconds(
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
            # The shortest gemm that reads a tile is the least work that has to follow its arrival.
            took[x] = cross(data.source, graph.rank, data.nbytes, min(seconds[i] for i in graph.readers[x]))
        accumulates = []
        for update in graph.updates:
            if update is None or update.target == graph.rank:
                accumulates.append(0.0)
            else:
                accumulates.append(cross(graph.rank, update.target, update.nbytes, 0.0))
        if not seconds:
            continue
        # Some op is the first: the rank waits for all its operands, so the
        # cheapest op to wait for is a safe head.
        head = min(max((took[x] for x in needs), default=0.0) for needs in graph.needs)
        tail = min(accumulates)
        if alone:
            longest = max(longest, head + compute + tail)
        gets = sum(took.values()) / machine.copy_engines
        longest = max(longest, gets + min(seconds) + tail if took else 0.0)
    # Links that nothing crosses still have infinite latencies here, so they are left out.
    busy = nbytes > 0
    with_ends = latency + nbytes / links.bandwidth + follows
    longest = max(longest, float(engine.max()), float(with_ends[busy].max(initial=0.0)))
    return (longest + replica_seconds(problem.layout("C"), problem, machine, options)) * ROUNDING
