"""From a problem and a machine to a schedule, by the name of a policy."""

from collections.abc import Callable

from umm.algorithms.universal.direct import direct
from umm.algorithms.universal.oplist import largest_matrix
from umm.algorithms.universal.options import Options
from umm.algorithms.universal.policies import METHODS, ir_policy
from umm.errors import ScheduleError
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.problem import Problem
from umm.schedules.table import Schedule

POLICIES: dict[str, Callable[[Problem, Machine, str, Options], Schedule]] = {
    "direct": direct,
    **{name: ir_policy(name) for name in METHODS},
}


def schedule(
    problem: Problem,
    machine: Machine | str,
    *,
    stationary: str = "auto",
    policy: str = "direct",
    prefetch: int = 2,
    max_gemms: int = 2,
    max_accumulates: int = 2,
    offset: str = "index",
    granularity: str = "tile",
    reuse: bool = True,
    final: str = "reduce",
) -> Schedule:
    """Return the schedule of a problem on a machine.

    Args:
        problem: What is multiplied; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its topology file.
        stationary: A, B, C or ``auto`` for the largest matrix.
        policy: ``direct``, or one that lowers to IR: ``greedy``, ``cost-greedy``, ``exhaustive``.
        prefetch: Ops ahead whose tiles are fetched, ≥ 0.
        max_gemms: Gemms in flight, ≥ 1.
        max_accumulates: Accumulates in flight, ≥ 1.
        offset: Iteration offset: ``none``, ``index`` or ``rotate``.
        granularity: A get moves the whole ``tile`` or the ``slice`` its op needs.
        reuse: The next op that needs the same range does not get it again.
        final: ``reduce`` completes a replicated C in its origin, ``broadcast`` in every replica.

    Raises:
        ScheduleError: for an unknown policy or an option out of range.
        ProblemError: for an unknown stationary matrix.
        MachineError: for an unknown machine, too many ranks, or a dtype without a peak.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    problem = problem.on(machine.default_ranks)
    machine.check_ranks(problem.p)
    if policy not in POLICIES:
        raise ScheduleError(f"policy {policy!r} is unknown; choose from {', '.join(POLICIES)}")
    options = Options(policy, prefetch, max_gemms, max_accumulates, offset, granularity, reuse, final)
    if stationary == "auto":
        stationary = largest_matrix(problem)
    return POLICIES[policy](problem, machine, stationary, options)
