"""The policies that lower to IR: greedy, cost greedy and exhaustive, each a way from a graph to steps."""

from collections.abc import Callable
from dataclasses import replace

from umm.algorithms.universal.oplist import OpList, op_list
from umm.algorithms.universal.options import Options
from umm.algorithms.universal.steps.exhaustive import exhaustive as search
from umm.algorithms.universal.steps.graph import Graph, graphs
from umm.algorithms.universal.steps.greedy import cost_greedy, greedy
from umm.algorithms.universal.steps.ir import IR, Limits, Steps
from umm.algorithms.universal.steps.lower import stepwise
from umm.machines import Machine
from umm.problem import Problem
from umm.schedules.table import Schedule

Method = Callable[[Graph, Limits], tuple[Steps, float | None]]
"""Returns steps, and the largest share by which they may cost more than the optimum if that is known."""


def _searched(graph: Graph, limits: Limits) -> tuple[Steps, float | None]:
    solution = search(graph, limits)
    return solution.steps, solution.gap


METHODS: dict[str, Method] = {
    "greedy": lambda graph, limits: (greedy(graph, limits), None),
    "cost-greedy": lambda graph, limits: (cost_greedy(graph, limits), None),
    "exhaustive": _searched,
}


def lower_to_ir(ops: OpList, machine: Machine, options: Options, policy: str) -> IR:
    """Return the IR of an op list; ranks whose graphs are equal are lowered once.

    Args:
        ops: The ops of all ranks.
        machine: What costs are for.
        options: Its limits are what a step may hold: ``max_gemms`` gemms, and ``prefetch`` +
            ``max_accumulates`` communications.
        policy: ``greedy``, ``cost-greedy`` or ``exhaustive``.

    Source: Brock & Golin (2025), section 4.3.
    """
    limits = Limits.of(options)
    known: dict[object, tuple[Steps, float | None]] = {}
    found = []
    of_ranks = graphs(ops, machine, options)
    for graph in of_ranks:
        shape = graph.shape
        if shape not in known:
            known[shape] = METHODS[policy](graph, limits)
        found.append(known[shape])
    gaps = [gap for _, gap in found if gap is not None]
    return IR(ops, of_ranks, [steps for steps, _ in found], limits, max(gaps) if gaps else None)


def ir_policy(policy: str) -> Callable[[Problem, Machine, str, Options], Schedule]:
    """Return the function from a problem to a schedule by this policy."""

    def lowered(problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
        ops = op_list(problem, stationary, offset=options.offset)
        ir = lower_to_ir(ops, machine, options, policy)
        schedule = stepwise(ir, machine, options)
        if ir.gap is None:
            return schedule
        return replace(schedule, options={**schedule.options, "gap": ir.gap})

    return lowered
