"""What another replication factor of one operand would save, and the memory it would cost."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from umm.errors import LayoutError
from umm.machines import Machine
from umm.problem import MATRICES, Problem
from umm.schedules.bound import schedule_bound
from umm.schedules.schedule import Schedule
from umm.units import format_bytes

# No advice is given where finding it would take longer than an answer should: above this many actions, of
# the schedule itself or of all neighbours simulated.
MOST_ACTIONS = 20_000
# Smaller savings than this are not worth a change.
LEAST_SAVING = 0.01


@dataclass(frozen=True)
class Advice:
    """One operand's replication factor that makes a problem faster.

    Attributes:
        matrix: A, B or C.
        replicas: The replication factor it should have.
        problem: The problem with it.
        saving: Share of the makespan that goes away.
        extra_bytes: What the fullest rank holds more; negative if it holds less.
    """

    matrix: str
    replicas: int
    problem: Problem
    saving: float
    extra_bytes: int

    def __str__(self) -> str:
        more = "more" if self.extra_bytes >= 0 else "less"
        return (
            f"{self.matrix}@{self.replicas} would save {100 * self.saving:.0f} % "
            f"for {format_bytes(abs(self.extra_bytes))} {more}"
        )


def advise(
    schedule: Schedule,
    machine: Machine,
    lower: Callable[[Problem], Schedule],
    makespan: Callable[[Schedule], float],
) -> Advice | None:
    """Return the best change of one operand's replication factor.

    Neighbours are simulated from the lowest bound up, until no bound left can beat what was found.

    Args:
        schedule: What the advice is about.
        machine: Where it runs; what does not fit its memory is not advised.
        lower: Makes the schedule of a neighbouring problem, with the same other choices.
        makespan: Predicts the seconds of a schedule.

    Returns:
        The fastest neighbour, the smaller one of equally fast ones; None if none saves a percent, or if there
        are too many actions to try neighbours in a second.

    >>> import umm
    >>> from umm.executor import executor
    >>> slow = umm.Problem(m=8192, n=49152, k=12288, a="row", b="row", c="row", ranks=12)
    >>> pvc = umm.machine("pvc-12")
    >>> print(advise(umm.schedule(slow, pvc), pvc, lambda p: umm.schedule(p, pvc), executor("sim").makespan))
    B@12 would save 32 % for 1.4 GiB more
    """
    if len(schedule) > MOST_ACTIONS:
        return None
    now, held = makespan(schedule), int(schedule.memory_bytes.max())
    options = list(_feasible(schedule.problem, machine, lower))
    best: tuple[float, int] = (now * (1 - LEAST_SAVING), 0)
    advice = None
    left = MOST_ACTIONS
    for bound, _, other, matrix, replicas in sorted(options, key=lambda option: option[:2]):
        if bound > best[0]:
            break
        left -= len(other)
        if left < 0:
            return None
        found = (makespan(other), int(other.memory_bytes.max()))
        if found < best:
            best = found
            advice = Advice(matrix, replicas, other.problem, 1 - found[0] / now, found[1] - held)
    return advice


def _feasible(
    problem: Problem, machine: Machine, lower: Callable[[Problem], Schedule]
) -> Iterator[tuple[float, int, Schedule, str, int]]:
    """Yield the neighbours that fit the memory: bound in seconds, number, schedule, operand, factor."""
    each = -(-problem.p // machine.device_count)
    for number, (matrix, replicas, neighbour) in enumerate(neighbours(problem)):
        schedule = lower(neighbour)
        if int(schedule.memory_bytes.max()) * each <= machine.memory:
            yield schedule_bound(schedule), number, schedule, matrix, replicas


def neighbours(problem: Problem) -> Iterator[tuple[str, int, Problem]]:
    """Yield the problems that differ in one operand's replication factor, with the operand and the factor.

    A layout that names its process grid fits one factor only and has no neighbours.
    """
    for matrix, layout in zip(MATRICES, problem.layouts, strict=True):
        partition, _, replicated = str(layout).partition("@")
        order = replicated.partition(":")[2]
        for replicas in range(1, problem.p + 1):
            if problem.p % replicas or replicas == layout.replicas:
                continue
            text = f"{partition}@{replicas}" + (f":{order}" if order else "")
            changed: dict[str, Any] = {matrix.lower(): text}
            try:
                yield matrix, replicas, replace(problem, **changed)
            except LayoutError:
                continue
