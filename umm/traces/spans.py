"""When each action of a schedule ran, and arithmetic on spans of time."""

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import numpy as np

from umm.arrays import Floats, Ints
from umm.schedules.schedule import Schedule

Times = Literal["predicted", "measured", "meaningless"]
"""What an executor's times are; meaningless: of one process in place of all ranks."""
TIMES: tuple[Times, ...] = get_args(Times)


@dataclass(frozen=True, eq=False)
class Spans:
    """When each action started and finished.

    Attributes:
        schedule: What was performed.
        source: Name of the executor: sim, numpy, mpi, cuda, nvshmem or another that is installed.
        start: Start of each action in seconds after the run's start; of a transfer, latency included.
        end: Finish of each action.
        times: Whether these are predicted, measured or meaningless, as the executor says.
    """

    schedule: Schedule
    source: str
    start: Floats
    end: Floats
    _: KW_ONLY
    times: Times = "measured"

    @property
    def makespan_s(self) -> float:
        """The last finish, in seconds."""
        return float(self.end.max(initial=0.0))


def time_by_classes(
    start: Floats, end: Floats, group: Ints, of_class: Ints, groups: int, classes: int, horizon: float
) -> Floats:
    """Return how long each group spends in every combination of classes.

    Args:
        start: Start of each span in seconds, at least 0.
        end: End of each span, at most the horizon.
        group: Group of each span, such as its rank or a link.
        of_class: Class of each span.
        groups: Number of groups.
        classes: Number of classes.
        horizon: The time looked at, from 0, in seconds.

    Returns:
        Seconds, shape (groups, 2**classes): column c is the time during which exactly the classes whose bit
        is set in c have at least one span in flight. Rows add up to the horizon.

    >>> start, end = np.array([0.0, 1.0]), np.array([2.0, 4.0])
    >>> time_by_classes(start, end, np.array([0, 0]), np.array([0, 1]), groups=1, classes=2, horizon=5.0)
    array([[1., 1., 2., 1.]])
    """
    both_ends = np.arange(groups).repeat(2)
    when = np.concatenate((start, end, np.tile((0.0, horizon), groups)))
    who = np.concatenate((group, group, both_ends))
    order = np.lexsort((when, who))
    when, who = when[order], who[order]
    code = np.zeros(len(when), dtype=np.int64)
    for bit in range(classes):
        mine = (of_class == bit).astype(np.int64)
        change = np.concatenate((mine, -mine, np.zeros(2 * groups, dtype=np.int64)))[order]
        code += (np.cumsum(change) > 0).astype(np.int64) << bit
    lasts = np.where(who[1:] == who[:-1], np.diff(when), 0.0)
    cells = who[:-1] * 2**classes + code[:-1]
    seconds = np.bincount(cells, weights=lasts, minlength=groups * 2**classes)
    return seconds.astype(np.float64).reshape(groups, 2**classes)


def busy_time(start: Floats, end: Floats, group: Ints, groups: int, horizon: float) -> Floats:
    """Return for each group the seconds during which at least one of its spans is in flight."""
    one_class = np.zeros(len(start), dtype=np.int64)
    return time_by_classes(start, end, group, one_class, groups, 1, horizon)[:, 1]
