"""One multiply by collectives as a schedule: gather what is lacking, multiply, sum."""

from collections.abc import Mapping
from typing import Any

from umm.algorithms.movement.choice import chosen, in_words
from umm.algorithms.movement.gathers import Copies, Operand
from umm.algorithms.movement.multiply import Products, gather_operands, multiply_blocks
from umm.machines import Machine
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.writer.assembly import without_collector
from umm.schedules.writer.builder import Builder

COMPLETING = ("complete", "all-reduce", "broadcast")
"""The values of ``final`` that leave every replica of C complete, as collectives do."""


def by_collectives(
    problem: Problem, machine: Machine, stationary: str, movement: str, options: Mapping[str, Any]
) -> Schedule | None:
    """Return the schedule of a multiply whose operands are gathered and whose products are summed.

    Args:
        problem: What is multiplied.
        machine: Where.
        stationary: A, B or C.
        movement: ``gathered`` or ``chunks``.
        options: All choices of the schedule as plain values.

    Returns:
        None where collectives do not fit: several tiles a rank, sums that others own than those who add to
        them, or an ending that leaves fewer replicas of C complete.
    """
    how = chosen(problem, machine, stationary, movement).how
    if how is None or options["final"] not in COMPLETING:
        return None
    said = in_words(how, machine, dict(zip(MATRICES, MATRICES, strict=True)))
    build = Builder(stationary, problem, machine, options={**options, "moved_by": said})
    names = {x: Operand(x, x) for x in MATRICES}
    with without_collector():
        operands = gather_operands(build, how, names, Copies())
        multiply_blocks(build, how, names, operands, Products({}), alpha=1.0, beta=0.0, first=True, last=True)
        return build.schedule()
