"""From a problem and a machine to a schedule, by the name of a policy."""

from typing import Any

from umm.algorithms.universal.oplist import largest_matrix
from umm.algorithms.universal.options import Options, check_names, showing_options
from umm.algorithms.universal.policies import POLICIES
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.problem import Problem
from umm.schedules.schedule import Schedule


@showing_options
def schedule(
    problem: Problem, machine: Machine | str, *, stationary: str = "auto", **options: Any
) -> Schedule:
    """Return the schedule of a problem on a machine.

    Args:
        problem: What is multiplied; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its topology file.
        stationary: A, B, C or ``auto`` for the largest matrix.
        options: Fields of :class:`umm.algorithms.universal.options.Options`, such as ``prefetch=1``; the
            rest are as there.

    Raises:
        ScheduleError: for an option that there is none of or a value that means nothing.
        ProblemError: for an unknown stationary matrix.
        MachineError: for an unknown machine, too many ranks, or a dtype without a peak.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    problem = problem.on(machine.default_ranks)
    machine.check_ranks(problem.p)
    check_names(options)
    chosen = Options(**options)
    if stationary == "auto":
        stationary = largest_matrix(problem)
    return POLICIES[chosen.policy].lower(problem, machine, stationary, chosen)
