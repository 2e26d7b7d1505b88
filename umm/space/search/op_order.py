"""How far direct execution is from the best known for its ops: local search on the simulated makespan.

The step model looks at one rank at a time; here every rank's order counts, with contention, because what is
minimised is whatever the ``makespan`` callable says of the whole schedule. A bound that holds for every order
turns the result into a number: no order beats the best found by more than the gap.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from umm.arrays import Ints
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.multiply.direct import lower
from umm.plans.multiply.oplist import OFFSETS, OpList, op_list
from umm.plans.multiply.options import Options
from umm.policies.policy import step_policies
from umm.policies.stepwise import stepwise
from umm.program.problem import Problem, largest_matrix
from umm.schedules.schedule import Schedule
from umm.space.bounds.closed_form import order_bound

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
