"""The policies, which order the actions of a schedule, and the lowering of one multiply by one of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from umm.machines import Machine
from umm.plans.movement.choice import COLLECTIVES, by_collectives, meant, node_count
from umm.plans.multiply.direct import direct
from umm.plans.multiply.oplist import OpList, op_list
from umm.plans.multiply.options import COMPLETE, COMPLETING, LAYOUTS, PANELS, Options, known
from umm.plans.option import check_names
from umm.program.problem import Problem, largest_matrix
from umm.schedules.schedule import Schedule

if TYPE_CHECKING:  # steps and what finds them are imported where they are asked for
    from umm.plans.multiply.steps.graph import Graph
    from umm.plans.multiply.steps.ir import IR, Limits, Steps

Method = Callable[["Graph", "Limits"], tuple["Steps", float | None]]
"""Returns steps, and the largest share by which they may cost more than the optimum if that is known."""


@dataclass(frozen=True)
class Policy:
    """What orders the actions of a schedule.

    Attributes:
        lower: Returns the schedule of a problem on a machine, with one matrix stationary.
        method: How the steps of a rank are found, for a policy that lowers to IR: an action then waits for
            the whole of its rank's step before.
        searches: Whether its method looks for the best steps and says how far from them it may have
            ended; that may take seconds a rank.
        closed_form: Whether the closed-form bounds of lanes, links and pools hold: ops run in list order,
            transfers are dealt out to lanes in turn, a pool has a fixed number of slots. Any other policy
            is bounded by its gemms and its tiles alone.
    """

    lower: Callable[[Problem, Machine, str, Options], Schedule]
    method: Method | None = None
    searches: bool = False
    closed_form: bool = False


def lower_to_ir(ops: OpList, machine: Machine, options: Options, policy: str) -> "IR":
    """Return the IR of an op list; ranks whose graphs are equal are lowered once.

    Args:
        ops: The ops of all ranks.
        machine: What costs are for.
        options: Its limits are what a step may hold: ``max_gemms`` gemms, and ``prefetch`` +
            ``max_accumulates`` communications.
        policy: One of :func:`ir_policies`.

    Source: Brock & Golin (2025), section 4.3.
    """
    from umm.plans.multiply.steps.graph import graphs
    from umm.plans.multiply.steps.ir import IR, Limits

    limits = Limits.of(options)
    method = POLICIES[policy].method
    assert method is not None
    known: dict[object, tuple[Steps, float | None]] = {}
    found = []
    of_ranks = graphs(ops, machine, options)
    for graph in of_ranks:
        shape = graph.shape
        if shape not in known:
            known[shape] = method(graph, limits)
        found.append(known[shape])
    gaps = [gap for _, gap in found if gap is not None]
    return IR(ops, of_ranks, [steps for steps, _ in found], limits, max(gaps) if gaps else None)


def in_steps(problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
    """Return the schedule of a problem in the steps that the policy's method finds."""
    from umm.plans.multiply.steps.lower import stepwise

    ops = op_list(problem, stationary, offset=options.offset)
    ir = lower_to_ir(ops, machine, options, options.policy)
    schedule = stepwise(ir, machine, options)
    if ir.gap is None:
        return schedule
    return replace(schedule, options={**schedule.options, "gap": ir.gap})


def _greedy(graph: "Graph", limits: "Limits") -> "tuple[Steps, float | None]":
    from umm.plans.multiply.steps.greedy import greedy

    return greedy(graph, limits), None


def _cost_greedy(graph: "Graph", limits: "Limits") -> "tuple[Steps, float | None]":
    from umm.plans.multiply.steps.greedy import cost_greedy

    return cost_greedy(graph, limits), None


def _searched(graph: "Graph", limits: "Limits") -> "tuple[Steps, float | None]":
    from umm.plans.multiply.steps.exhaustive import exhaustive

    solution = exhaustive(graph, limits)
    return solution.steps, solution.gap


POLICIES: dict[str, Policy] = {
    "direct": Policy(direct, closed_form=True),
    "greedy": Policy(in_steps, _greedy),
    "cost-greedy": Policy(in_steps, _cost_greedy),
    "exhaustive": Policy(in_steps, _searched, searches=True),
}
"""Every policy by the name it is typed with."""


def ir_policies() -> list[str]:
    """Return the names of the policies that lower to IR."""
    return [name for name, policy in POLICIES.items() if policy.method]


def lowered(problem: Problem, machine: Machine, stationary: str = "auto", **options: Any) -> Schedule:
    """Return the schedule of a problem by the universal algorithm.

    Args:
        problem: What is multiplied, with its ranks.
        machine: A machine that has them.
        stationary: A, B, C or ``auto`` for the largest matrix.
        options: Fields of :class:`umm.plans.multiply.options.Options`.

    Raises:
        ScheduleError: for an unknown option or a value that means nothing.
        ProblemError: for an unknown stationary matrix.
    """
    try:
        chosen = _chosen(**options)
    except TypeError:  # of a value that cannot be a key, and means nothing either
        chosen = _made_out(options)
    if stationary == "auto":
        stationary = largest_matrix(problem)
    if chosen.movement == "two-level" and node_count(machine, problem.p) > 1:
        from umm.plans.multiply.two_level import two_level

        return two_level(problem, machine, stationary, chosen)
    if chosen.movement in COLLECTIVES:
        said = chosen.to_dict() | {"movement": meant(machine, problem.p, chosen.movement)}
        made = by_collectives(problem, machine, stationary, said["movement"], said)
        if made is not None:
            return made
    if chosen.movement == PANELS and chosen.final in (COMPLETE, *COMPLETING):
        from umm.executor import offered_name

        said = {**chosen.to_dict(), LAYOUTS: problem.layout_words}
        made = offered_name("scalapack").panels(problem, machine, stationary, said)
        return cast(Schedule, made)
    return POLICIES[chosen.policy].lower(problem, machine, stationary, chosen)


@lru_cache(maxsize=256, typed=True)
def _chosen(**options: Any) -> Options:
    return _made_out(options)


def _made_out(options: Mapping[str, Any]) -> Options:
    """Return the options, checked."""
    check_names(known(), options, "a schedule")
    return Options(**options)
