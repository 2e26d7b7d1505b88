"""Slow ranks put into a real run: each action takes longer by its rank's factor."""

from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter, sleep

from umm.arrays import Floats
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import LOCAL

Step = Callable[[], object]
UNSURE = 100e-6  # seconds by which a sleep may be longer than asked; the last ones are waited for awake


def delayed(
    schedule: Schedule, steps: Mapping[int, Step], factors: Floats
) -> tuple[dict[int, Step], list[float]]:
    """Return the steps of one rank's rows as on a slow device.

    Compute is slowed by its rank's factor, local waits by the launch factor, and a transfer by the factor of
    the rank that its bytes leave, after a longer launch. The lane is held
    meanwhile, the core is not: what a device that is slow itself would do to the copies beside it is not
    imitated.

    Args:
        steps: The function of each row of this rank.
        factors: For gemm, link and launch the factor of each rank, shape (3, ranks), ≥ 1.

    Returns:
        The steps, and a list to which each adds the seconds that it has waited.
    """
    gemm, link, launch = factors.tolist()
    slowed: dict[int, Step] = {}
    waited: list[float] = []
    for row, step in steps.items():
        rank, src, dst = (int(x[row]) for x in (schedule.rank, schedule.src, schedule.dst))
        if src >= 0 and src != dst:
            before = (launch[rank] - 1) * float(schedule.seconds[row])
            slowed[row] = partial(_late, step, link[src], before, waited)
        else:
            factor = launch if schedule.kind[row] == LOCAL else gemm
            slowed[row] = partial(_late, step, factor[rank], 0.0, waited)
    return slowed, waited


def _late(step: Step, factor: float, before: float, waited: list[float]) -> None:
    """Perform a step that takes some times as long, after a wait in seconds."""
    wait(before)
    began = perf_counter()
    step()
    longer = (factor - 1) * (perf_counter() - began)
    wait(longer)
    waited.append(before + longer)


def wait(seconds: float) -> None:
    """Wait exactly so long: asleep at first, for the core may be another's meanwhile."""
    until = perf_counter() + seconds
    if seconds > UNSURE:
        sleep(seconds - UNSURE)
    while perf_counter() < until:
        sleep(0)
