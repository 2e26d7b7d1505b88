"""The reference executor: p virtual ranks in one process really move the tiles and multiply them."""

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError
from umm.executor import Operands
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import Times
from umm_hw.blocks import resolve
from umm_hw.float8 import widened
from umm_hw.numpy.random_order import RandomOrder
from umm_hw.numpy.transport import NumpyTransport
from umm_hw.performance import Performance, check_replica, operands_of
from umm_hw.steps import array_step

Array = NDArray[Any]
ORDERS = ("rows", "random")


class NumpyExecutor:
    """Performs schedules with NumPy, one action at a time.

    Args:
        order: ``rows`` performs the actions in row order. ``random`` picks any order that the dependencies
            allow, lanes aside, with start and finish of an action as separate events, to show that the
            dependencies alone make the schedule right.
        seed: Of the random order.
        replica: Replica that the results are gathered from; only the origin, 0, is complete unless the
            schedule completes the others. None stacks all replicas.
    """

    times: Times = "meaningless"
    saves = True
    on_host = True

    def __init__(self, order: str = "rows", seed: int = 0, replica: int | None = 0) -> None:
        if order not in ORDERS:
            raise InputError(f"order {order!r} is unknown; choose from {', '.join(ORDERS)}")
        self.order = order
        self.seed = seed
        self.replica = replica

    def available(self) -> str | None:
        """Return None: it runs wherever umm does."""
        return None

    def run(
        self, schedule: Schedule, operands: Operands | None = None, save: str | Path | None = None
    ) -> Trace:
        """Perform a schedule on real matrices.

        Args:
            schedule: What to perform.
            operands: A and B as whole arrays; uniform in [−1, 1) with a fixed seed if None.
            save: Folder of the checkpoint that operands and results become afterwards, if any.

        Returns:
            Wall-clock spans, and C as one array of the problem's ``c_dtype``.

        Raises:
            InputError: if the operands do not fit, NumPy lacks the type, or there is no such replica.
            ScheduleError: if an action uses memory that is not there.
        """
        check_replica(schedule, self.replica)
        first = NumpyTransport(schedule.ranks)
        ranks = [first.as_rank(rank) for rank in range(schedule.ranks)]
        performance = Performance(schedule, ranks, operands_of(schedule, operands))
        performance.load()
        performance.clear()
        works = list(resolve(schedule, performance.memory))
        actors = dict(enumerate(ranks))
        kinds = schedule.kind.tolist()
        steps = [array_step(kind, work, actors, _multiply) for kind, work in zip(kinds, works, strict=True)]
        if self.order == "random":
            events = RandomOrder(schedule, works, steps, ranks, performance.memory, self.seed)
            start, end = events.perform()
        else:
            start, end = np.zeros(len(steps)), np.zeros(len(steps))
            began = perf_counter()
            for i, step in enumerate(steps):
                start[i] = perf_counter() - began
                step()
                end[i] = perf_counter() - began
        results = performance.gather(self.replica)
        if save is not None:
            performance.write_parts(save, self.replica or 0)
            performance.commit(save, self.replica or 0)
        return Trace(schedule, "numpy", start, end, results, times=self.times)

    def makespan(self, schedule: Schedule) -> float:
        """Return the seconds a run with random operands takes."""
        return self.run(schedule).makespan_s

    def close(self, code: int = 0) -> None:
        """Do nothing: between runs it keeps nothing that would have to end."""


def _multiply(a: Array, b: Array, c: Array, alpha: float, beta: float) -> None:
    """Set C to α·AB + β·C by NumPy alone; half precision is multiplied in float32."""
    work_dtype = np.result_type(c.dtype, np.float32)
    product = np.matmul(widened(a), widened(b), dtype=work_dtype)
    if alpha != 1:
        product *= work_dtype.type(alpha)
    if beta != 0:
        product += c if beta == 1 else work_dtype.type(beta) * c.astype(work_dtype)
    np.copyto(c, product, casting="same_kind")
