"""The rule that what is read of a temporary was written before, in row order, and is still there."""

from collections.abc import Callable

import numpy as np

from umm.arrays import Bools, Ints
from umm.schedules.table.kinds import ACCUMULATE, GEMM, REDUCE
from umm.schedules.table.table import Table

Refuse = Callable[[Bools, str], None]
_NEVER = np.iinfo(np.int64).max


def check_written(schedule: Table, refuse: Refuse) -> None:
    """Refuse an action that reads of a temporary what no row before it put there, or what is gone since."""
    bad = np.zeros(len(schedule), dtype=bool)
    bad[[action for action, _ in unwritten(schedule)]] = True
    refuse(bad, "reads of a temporary what no row before it has put there")


def unwritten(schedule: Table) -> list[tuple[int, int]]:
    """Return the actions, and which operand, that read or add to what no row before has put there.

    Mostly the last write to the slot before a read covers all of it. Else the read finds what was written
    during the stay of its buffer in the slot: by all rows since the slot was last written through another.
    """
    d, first, held = schedule.details, schedule.first_temporary, schedule.temporaries
    action, operand = np.nonzero(d.buffer >= first)
    number = d.buffer[action, operand].astype(np.int64) - first
    writes = operand == 0
    added = writes & (
        np.isin(schedule.kind[action], (ACCUMULATE, REDUCE))
        | ((schedule.kind == GEMM) & (d.beta != 0))[action]
    )
    # Within a row what is read comes before what is written; what is added to is read, then written.
    action, operand, number = (np.concatenate([x, x[added]]) for x in (action, operand, number))
    writes = np.concatenate([writes & ~added, np.ones(int(added.sum()), dtype=bool)])
    slots = max((len(pool) for pool in schedule.pools), default=0)
    place = held.slot[number] + held.rank[number] * slots
    order = np.lexsort((writes, action, place))
    action, operand, number, writes = action[order], operand[order], number[order], writes[order]
    last = np.maximum.accumulate(np.where(writes, np.arange(len(order)), -1))
    stays: Bools = (last >= 0) & (number[last] == number)
    rectangle = np.concatenate([d.rows[action, operand], d.cols[action, operand]], axis=1)
    covered = stays & _covers(rectangle[last], rectangle)
    gone = ~writes & ~stays
    asking = (~writes & stays & ~covered).nonzero()[0]
    if len(asking):
        written = writes.nonzero()[0]
        stay = np.cumsum(np.diff(number[written], prepend=-1) != 0)  # of each write; a slot's come together
        of_asking = stay[written.searchsorted(last[asking])]
        for one in np.unique(of_asking):
            of_stay = written[slice(*stay.searchsorted((one, one + 1)))]
            reads = asking[slice(*of_asking.searchsorted((one, one + 1)))]
            gone[reads] = _first_written(rectangle[of_stay], of_stay, rectangle[reads]) > reads
    found = gone.nonzero()[0]
    return sorted(zip(action[found].tolist(), operand[found].tolist(), strict=True))


def _covers(outer: Ints, inner: Ints) -> Bools:
    """Return whether rectangles (top, bottom, left, right) hold others."""
    starts, stops = [0, 2], [1, 3]
    within = (outer[:, starts] <= inner[:, starts]) & (inner[:, stops] <= outer[:, stops])
    return within[:, 0] & within[:, 1]


def _first_written(writes: Ints, when: Ints, reads: Ints) -> Ints:
    """Return since when each rectangle is written as a whole, `_NEVER` if it is not by all writes together.

    The edges of the writes cut rows and columns into cells that are each written as one. The direction with
    fewer cells is gone through strip by strip.

    Args:
        writes: Rectangles, shape (writes, 4): top, bottom, left, right.
        when: When each is written, ascending.
        reads: The rectangles asked for.
    """
    if len(np.unique(writes[:, :2])) > len(np.unique(writes[:, 2:])):
        writes, reads = writes[:, [2, 3, 0, 1]], reads[:, [2, 3, 0, 1]]
    edges = np.unique(writes[:, 2:])
    since = np.zeros(len(reads), dtype=np.int64)
    inside = (reads[:, 2] >= edges[0]) & (reads[:, 3] <= edges[-1])
    inside &= (reads[:, 0] >= writes[:, 0].min()) & (reads[:, 1] <= writes[:, 1].max())
    since[~inside] = _NEVER
    left, right = edges.searchsorted(writes[:, 2:]).T.tolist()
    first = edges.searchsorted(reads[:, 2], side="right") - 1
    stop = edges.searchsorted(reads[:, 3])
    strips = np.unique(writes[:, :2])
    for top, bottom in zip(strips[:-1].tolist(), strips[1:].tolist(), strict=True):
        cells = np.full(len(edges) - 1, _NEVER)
        for i in ((writes[:, 0] <= top) & (writes[:, 1] >= bottom)).nonzero()[0][::-1].tolist():
            cells[left[i] : right[i]] = when[i]
        for i in (inside & (reads[:, 0] < bottom) & (reads[:, 1] > top)).nonzero()[0].tolist():
            since[i] = max(since[i], cells[first[i] : stop[i]].max())
    return since
