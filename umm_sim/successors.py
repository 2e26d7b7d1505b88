"""What can start when: the successors of every action and how many it waits for itself."""

from dataclasses import dataclass

import numpy as np

from umm.schedules.table import Schedule


@dataclass(frozen=True)
class Graph:
    """Dependencies turned round, lane order included.

    A lane runs one action at a time in row order, which is the same as every action waiting for the one
    before it on its lane. So there are no lanes here, only counts.

    Attributes:
        waiting: How many actions each one waits for.
        offsets: Where each action's successors start in ``successors``, and the end.
        successors: The actions that wait for an action.
    """

    waiting: list[int]
    offsets: list[int]
    successors: list[int]


def graph(schedule: Schedule) -> Graph:
    """Return the successors of every action of a schedule."""
    count = len(schedule)
    before, starts = schedule.after, schedule.after_offsets
    then = np.arange(count).repeat(starts[1:] - starts[:-1])
    # What comes earlier on one's own lane is implied by the lane's order.
    other = schedule.lane[before] != schedule.lane[then]
    by_lane = schedule.lane.argsort(kind="stable")
    lane = schedule.lane[by_lane]
    chained = (lane[1:] == lane[:-1]) & (lane[1:] >= 0)
    before = np.concatenate((before[other], by_lane[:-1][chained]))
    then = np.concatenate((then[other], by_lane[1:][chained]))
    order = before.argsort(kind="stable")
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.bincount(before, minlength=count).cumsum(out=offsets[1:])
    return Graph(np.bincount(then, minlength=count).tolist(), offsets.tolist(), then[order].tolist())
