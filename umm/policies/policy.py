"""Policies that lower to the IR: each is a method that finds the steps of a rank."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from umm.machines import Machine
from umm.plans.multiply.oplist import OpList, op_list
from umm.plans.multiply.options import Options
from umm.plans.multiply.policies import find_policy, policy_names
from umm.policies.graph import Graph, graphs
from umm.policies.ir import IR, Limits, Steps
from umm.policies.stepwise import stepwise
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule

Method = Callable[[Graph, Limits], tuple[Steps, float | None]]
"""Returns steps, and the largest share by which they may cost more than the optimum if that is known."""


@dataclass(frozen=True)
class StepPolicy:
    """Policy of steps: an action waits for all of its rank's step before."""

    method: Method  # finds the steps of a rank
    searches: bool = False  # whether it searches for the best steps, which may take seconds a rank
    closed_form: ClassVar[bool] = False

    def ir(self, ops: OpList, machine: Machine, options: Options) -> IR:
        """Return the IR of an op list; ranks whose graphs are equal are lowered once.

        Args:
            options: Limit a step: ``max_gemms`` gemms, and ``prefetch`` + ``max_accumulates`` transfers.

        Source: Brock & Golin (2025), section 4.3.
        """
        limits = Limits.of(options)
        by_shape: dict[object, tuple[Steps, float | None]] = {}
        lowered = []
        rank_graphs = graphs(ops, machine, options)
        for graph in rank_graphs:
            shape = graph.shape
            if shape not in by_shape:
                by_shape[shape] = self.method(graph, limits)
            lowered.append(by_shape[shape])
        gaps = [gap for _, gap in lowered if gap is not None]
        return IR(ops, rank_graphs, [steps for steps, _ in lowered], limits, max(gaps) if gaps else None)

    def lower(self, problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
        """Return the schedule of a problem in the steps that the method finds."""
        ir = self.ir(op_list(problem, stationary, offset=options.offset), machine, options)
        schedule = stepwise(ir, machine, options)
        if ir.gap is None:
            return schedule
        return replace(schedule, options={**schedule.options, "gap": ir.gap})


def step_policies() -> dict[str, StepPolicy]:
    """Return the policies that lower to the IR, by name."""
    policies = {name: find_policy(name) for name in policy_names()}
    return {name: policy for name, policy in policies.items() if isinstance(policy, StepPolicy)}
