"""The rule that what is read of a temporary was written before, in row order, and is still there."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile

import numpy as np

from umm.arrays import Bools, Ints
from umm.schedules.details import Details
from umm.schedules.kinds import ACCUMULATE, GEMM, REDUCE
from umm.schedules.table import Table

Refuse = Callable[[Bools, str], None]


def check_written(schedule: Table, refuse: Refuse) -> None:
    """Refuse an action that reads of a temporary what no row before it put there, or what is gone since."""
    bad = np.zeros(len(schedule), dtype=bool)
    bad[[action for action, _ in unwritten(schedule)]] = True
    refuse(bad, "reads of a temporary what no row before it has put there")


def unwritten(schedule: Table) -> list[tuple[int, int]]:
    """Return the actions, and which operand, that read or add to what no row before has put there.

    Mostly the last write to the slot before a read is one row that covers all of it; only reads of which
    that is not so are looked at one by one.
    """
    d, first = schedule.details, schedule.first_temporary
    held = schedule.temporaries
    if not len(held):
        return []
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
    reads = ~writes
    place = held.slot + held.rank * (int(held.slot.max()) + 1)
    order = np.lexsort((writes, action, place[number]))
    action, operand, number, reads = action[order], operand[order], number[order], reads[order]
    group = place[number]
    position = np.arange(len(order))
    last = np.maximum.accumulate(np.where(~reads, position, -1))
    starts = np.maximum.accumulate(np.where(np.diff(group, prepend=-1) != 0, position, 0))
    known = last >= starts
    before = np.maximum(last, 0)
    covered = known & (number[before] == number)
    for span in (d.rows, d.cols):
        now, then = span[action, operand], span[action[before], operand[before]]
        covered &= (then[:, 0] <= now[:, 0]) & (now[:, 1] <= then[:, 1])
    found = []
    for i in np.nonzero(reads & ~covered)[0].tolist():
        earlier = (j for j in range(i - 1, int(starts[i]) - 1, -1) if not reads[j])
        since = takewhile(partial(_of_buffer, number, int(number[i])), earlier)
        read = int(action[i]), int(operand[i])
        if not _filled(d, read, ((int(action[j]), int(operand[j])) for j in since)):
            found.append(read)
    return sorted(found)


def _of_buffer(number: Ints, buffer: int, access: int) -> bool:
    """Return whether an access is to a buffer."""
    return bool(number[access] == buffer)


def _filled(d: Details, read: tuple[int, int], writes: Iterable[tuple[int, int]]) -> bool:
    """Return whether writes to a buffer, each an action and its operand, cover together what is read."""
    (top, bottom), (left, right) = d.rows[read].tolist(), d.cols[read].tolist()
    there = np.zeros((bottom - top, right - left), dtype=bool)
    for write in writes:
        rows, cols = np.maximum(d.rows[write] - top, 0), np.maximum(d.cols[write] - left, 0)
        there[slice(*rows.tolist()), slice(*cols.tolist())] = True
        if there.all():
            return True
    return False
