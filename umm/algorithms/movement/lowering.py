"""One multiply by collectives as a schedule: gather what is lacking, multiply, sum."""

from collections.abc import Mapping
from typing import Any

from umm.algorithms.movement.choice import chosen
from umm.algorithms.movement.gathers import Copies, Operand
from umm.algorithms.movement.multiply import Products, gather_operands, multiply_blocks
from umm.errors import ScheduleError
from umm.machines import Machine
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.writer.assembly import without_collector
from umm.schedules.writer.builder import Builder

COMPLETING = ("complete", "all-reduce", "broadcast")
"""The values of ``final`` that leave every replica of C complete, as collectives do."""


def by_collectives(
    problem: Problem, machine: Machine, stationary: str, movement: str, options: Mapping[str, Any]
) -> Schedule:
    """Return the schedule of a multiply whose operands are gathered and whose products are summed.

    Args:
        problem: What is multiplied.
        machine: Where.
        stationary: A, B or C.
        movement: ``gathered`` or ``chunks``.
        options: All choices of the schedule as plain values.

    Raises:
        ScheduleError: for layouts with several tiles a rank, sums that others own than those who add to
            them, or an ending that leaves fewer replicas of C complete.
    """
    if options["final"] not in COMPLETING:
        raise ScheduleError(
            f"movement {movement} completes every replica of C, not {options['final']}; leave final out"
        )
    how = chosen(problem, machine, stationary, movement).how
    if how is None:
        raise ScheduleError(
            f"movement {movement} cannot multiply A {problem.a}, B {problem.b}, C {problem.c} with "
            f"{stationary} in place: it needs one tile a rank, and sums owned by those who add; choose flat"
        )
    build = Builder(stationary, problem, machine, options=options)
    names = {x: Operand(x, x) for x in MATRICES}
    with without_collector():
        operands = gather_operands(build, how, names, Copies())
        multiply_blocks(build, how, names, operands, Products({}), alpha=1.0, beta=0.0, first=True, last=True)
        return build.schedule()
