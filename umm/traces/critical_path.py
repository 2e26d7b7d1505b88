"""The critical path of a trace: the chain of actions, each held up by the one before, that ends last."""

import numpy as np

from umm.arrays import Floats, Ints, neighbours_within
from umm.schedules.table.kinds import BARRIER
from umm.traces.spans import Spans


def lane_predecessors(lane: Ints) -> Ints:
    """Return for every action the one before it on its lane; −1 for the first, and for barriers."""
    before = np.full(len(lane), -1, dtype=np.int64)
    earlier, later = neighbours_within(lane)
    before[later] = earlier
    return before


def critical_path(spans: Spans) -> Ints:
    """Return the critical path as action numbers, first to last, without barriers.

    It is followed back from the last finish: an action was held up by whichever finished last of what it
    waits for and of what its lane did before it.
    """
    schedule, end = spans.schedule, spans.end
    if not len(schedule):
        return np.zeros(0, dtype=np.int64)
    on_lane = lane_predecessors(schedule.lane)
    path = [int(np.argmax(end))]
    while True:
        action = path[-1]
        # The lane first: of equally late ones it is what would have held the action up anyway.
        held_up = schedule.after_of(action)
        if on_lane[action] >= 0:
            held_up = np.concatenate((on_lane[action : action + 1], held_up))
        if not len(held_up):
            break
        path.append(int(held_up[np.argmax(end[held_up])]))
    found = np.array(path[::-1], dtype=np.int64)
    without_barriers: Ints = found[schedule.kind[found] != BARRIER]
    return without_barriers


def path_times(spans: Spans, path: Ints) -> tuple[Floats, float]:
    """Return the seconds each action of a critical path adds to it, and the seconds nothing of it runs.

    The second is 0 in a simulation; in a measured trace it is the time between what an action waited for
    and its start. Both together add up to the last finish.
    """
    end = spans.end[path]
    ready = np.concatenate(([0.0], end[:-1]))
    began = np.maximum(spans.start[path], ready)
    return end - began, float((began - ready).sum())
