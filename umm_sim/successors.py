"""The dependency graph: successors of every action, how many it waits for, and whose engine it needs."""

from dataclasses import dataclass

import numpy as np

from umm.arrays import group_of_row, neighbours_within, offsets_of
from umm.schedules.schedule import Schedule


@dataclass(frozen=True)
class Successors:
    """Dependencies turned round, lane order included.

    A lane runs one action at a time in row order, which is the same as every action waiting for the one
    before it on its lane. So there are no lanes here, only counts.
    """

    first: list[int]  # the actions that wait for none
    waiting: list[int]  # how many actions each one waits for
    offsets: list[int]  # where each action's successors start in `successors`, and the end
    successors: list[int]  # the actions that wait for an action


def successors_of(schedule: Schedule) -> Successors:
    """Return the successors of every action of a schedule."""
    count = len(schedule)
    before = schedule.after
    then = group_of_row(schedule.after_offsets)
    # What comes earlier on one's own lane is implied by the lane's order; barriers have no lane.
    lane = schedule.lane[then]
    other = (schedule.lane[before] != lane) | (lane < 0)
    earlier, later = neighbours_within(schedule.lane)
    before = np.concatenate((before[other], earlier))
    then = np.concatenate((then[other], later))
    order = before.argsort(kind="stable")
    offsets = offsets_of(np.bincount(before, minlength=count))
    actions = np.arange(count).astype(object)  # one int each, however often it is somebody's successor
    successors = actions[then[order]].tolist()
    waiting = np.bincount(then, minlength=count)
    first = (waiting == 0).nonzero()[0]
    return Successors(first.tolist(), waiting.tolist(), offsets.tolist(), successors)
