"""Who prices a space: one multiply in closed form, several statements by tables."""

from collections.abc import Callable

from umm.executor import executor
from umm.machines import Machine
from umm.space.bounds.closed_form import Bounds
from umm.space.points import MultiplyPoints
from umm.space.pricing.assignments import AssignmentPricer
from umm.space.pricing.multiplies import MultiplyPricer
from umm.space.pricing.pricer import Makespan, Pricer
from umm.space.space import Space


def pricer_of(
    space: Space,
    machine: Machine,
    makespan: Makespan | None = None,
    progress: Callable[[int, int], None] | None = None,
    bounds: Bounds | None = None,
) -> Pricer:
    """Return who prices the points of a space on a machine.

    Args:
        space: What may be chosen; without ranks it gets the machine's own number.
        machine: Where.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``.
        progress: Called with 0 and the number of points before they are priced, which may take a while.
        bounds: Of a multiply's points, where they are known.

    Raises:
        EndedEarlyError: on Ctrl-C while a multiply's points are bounded, with the bounds so far.
        MachineError: for more ranks than the machine has.
    """
    points = space.on(machine.default_ranks).points()
    machine.check_ranks(points.ranks)
    if progress:
        progress(0, points.count)
    simulate = makespan or executor("sim").makespan
    if isinstance(points, MultiplyPoints):
        return MultiplyPricer(points, machine, simulate, bounds)
    return AssignmentPricer(points, machine, simulate, space.state)
