"""The rules a schedule must keep, so that every executor can rely on them."""

import numpy as np

from umm.arrays import Bools, Ints
from umm.errors import ScheduleError
from umm.schedules.rules.touches import Refuse, check_buffers, check_memory, check_pieces
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET, KINDS, LOCAL, REDUCE, TRANSFERS
from umm.schedules.table.table import Table

_NEVER = np.iinfo(np.int64).max


def unwritten(schedule: Table) -> list[tuple[int, int]]:
    """Return the actions, with the operand, that read or add to elements that no row before has written.

    Mostly the last write to the slot before a read covers all of it. Else the read finds what was written
    during the stay of its buffer in the slot: by all rows since the slot was last written through another.
    """
    d, first, temporaries = schedule.details, schedule.first_temporary, schedule.temporaries
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
    # Sort accesses by slot and then by time; a running maximum then gives the last write before each read. It
    # leaves nothing to search for the many reads that this write covers.
    slots = max((len(pool) for pool in schedule.pools), default=0)
    place = temporaries.slot[number] + temporaries.rank[number] * slots
    order = np.lexsort((writes, action, place))
    action, operand, number, writes = action[order], operand[order], number[order], writes[order]
    last = np.maximum.accumulate(np.where(writes, np.arange(len(order)), -1))
    stays: Bools = (last >= 0) & (number[last] == number)
    rectangle = np.concatenate([d.rows[action, operand], d.cols[action, operand]], axis=1)
    write = rectangle[last]
    covered = stays & (write[:, ::2] <= rectangle[:, ::2]).all(axis=1)
    covered &= (rectangle[:, 1::2] <= write[:, 1::2]).all(axis=1)
    gone = ~writes & ~stays
    asking = (~writes & stays & ~covered).nonzero()[0]
    if len(asking):
        written = writes.nonzero()[0]
        # Only the rest takes geometry: the stay of the buffer is the run of writes through the same buffer,
        # and the read must be covered by their union before it happens.
        stay = np.cumsum(np.diff(number[written], prepend=-1) != 0)  # of each write; a slot's come together
        of_asking = stay[written.searchsorted(last[asking])]
        for one in np.unique(of_asking):
            of_stay = written[slice(*stay.searchsorted((one, one + 1)))]
            reads = asking[slice(*of_asking.searchsorted((one, one + 1)))]
            gone[reads] = _first_written(rectangle[of_stay], of_stay, rectangle[reads]) > reads
    bad = gone.nonzero()[0]
    return sorted(zip(action[bad].tolist(), operand[bad].tolist(), strict=True))


def _first_written(writes: Ints, when: Ints, reads: Ints) -> Ints:
    """Return since when each rectangle is written as a whole, `_NEVER` if it is not by all writes together.

    The edges of the writes cut rows and columns into cells that are each written as one. The direction with
    fewer cells is gone through strip by strip.

    Args:
        writes: Rectangles, shape (writes, 4): top, bottom, left, right.
        when: When each is written, ascending.
    """
    # Both directions give the same answer; the loop is over strips, so fewer strips are faster.
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
        # Latest first, so that the earliest write of each cell is what stays.
        for i in ((writes[:, 0] <= top) & (writes[:, 1] >= bottom)).nonzero()[0][::-1].tolist():
            cells[left[i] : right[i]] = when[i]
        for i in (inside & (reads[:, 0] < bottom) & (reads[:, 1] > top)).nonzero()[0].tolist():
            since[i] = max(since[i], cells[first[i] : stop[i]].max())
    return since


AGES = 1e12  # seconds, some 30,000 years: no action takes longer


def check(schedule: Table) -> None:
    """Refuse a schedule whose actions break the rules of docs/reference/schedule.md.

    ScheduleError naming the first action that breaks one.
    """

    def refuse(bad: Bools, why: str) -> None:
        if bad.any():
            i = int(np.argmax(bad))
            raise ScheduleError(f"action {i} ({KINDS[schedule.kind[i]]} of rank {schedule.rank[i]}) {why}")

    # From numbers to meaning: later rules index by what earlier ones have checked.
    _check_order(schedule, refuse)
    _check_places(schedule, refuse)
    check_buffers(schedule)
    check_memory(schedule)
    check_pieces(schedule, refuse)
    # A temporary is read only after a row has written it, and before it is overwritten.
    bad = np.zeros(len(schedule), dtype=bool)
    bad[[action for action, _ in unwritten(schedule)]] = True
    refuse(bad, "reads of a temporary what no row before it has put there")


def _check_order(schedule: Table, refuse: Refuse) -> None:
    """Refuse kinds, dependencies, lanes and times that cannot be."""
    count = len(schedule)
    bad_kind = (schedule.kind < 0) | (schedule.kind >= len(KINDS))
    if bad_kind.any():
        i = int(np.argmax(bad_kind))
        raise ScheduleError(f"action {i} has kind {schedule.kind[i]}; there are kinds 0 … {len(KINDS) - 1}")
    bad_after = np.zeros(count, dtype=bool)
    bad_after[schedule.waiting[(schedule.after >= schedule.waiting) | (schedule.after < 0)]] = True
    refuse(bad_after, "waits for an action that does not come before it; every id in after must be smaller")
    barrier = schedule.kind == BARRIER
    refuse(
        ~barrier & ((schedule.rank < 0) | (schedule.rank >= schedule.ranks)), "has a rank that does not exist"
    )
    refuse(barrier & (schedule.rank != -1), "must have rank -1")
    refuse(barrier != (schedule.lane == -1), "must have lane -1 if it is a barrier, and a lane otherwise")
    refuse((schedule.lane < -1) | (schedule.lane >= len(schedule.lanes)), "has a lane that does not exist")
    if len(schedule.lanes):
        refuse(
            ~barrier & (schedule.lanes.rank[schedule.lane] != schedule.rank),
            "is on a lane that belongs to another rank",
        )
        refuse(
            (schedule.kind == GEMM) & (schedule.lanes.engine[schedule.lane] < 0),
            "is on a lane without an engine",
        )
    refuse(~(schedule.seconds >= 0) | (schedule.seconds > AGES), "has a duration that is not a time")
    refuse(barrier & (schedule.seconds != 0), "cannot take time")
    op, idle = schedule.details.op, np.isin(schedule.kind, (LOCAL, BARRIER))
    refuse((op < -1) | (idle & (op != -1)), "has an op that is not a number of one")
    if schedule.means_of is not None:
        refuse(
            (schedule.means_of < -1) | (schedule.means_of >= len(schedule.means)),
            "has a means that is not there",
        )
        refuse(
            (schedule.means_of >= 0) & ~np.isin(schedule.kind, TRANSFERS),
            "moves no bytes, so it has no means",
        )


def _check_places(schedule: Table, refuse: Refuse) -> None:
    """Refuse transfers between ranks that do not exist or that nothing joins."""
    transfer = np.isin(schedule.kind, TRANSFERS)
    low, high = np.minimum(schedule.src, schedule.dst), np.maximum(schedule.src, schedule.dst)
    refuse(
        transfer & ((low < 0) | (high >= schedule.ranks)), "moves bytes from or to a rank that does not exist"
    )
    refuse(~transfer & ((low != -1) | (high != -1)), "has a source or destination, but moves no bytes")
    refuse(schedule.nbytes < 0, "cannot move fewer than 0 bytes")
    refuse(~transfer & (schedule.nbytes != 0), "has bytes, but is not a transfer")
    refuse(schedule.nbytes.cumsum(dtype=np.float64) >= 2.0**63, "moves more bytes than 64 bits count, in all")
    get = schedule.kind == GET
    refuse(transfer & get & (schedule.rank != schedule.dst), "belongs to the rank where its bytes arrive")
    refuse(transfer & ~get & (schedule.rank != schedule.src), "belongs to the rank whose bytes travel")
    refuse(transfer & (schedule.src != schedule.dst) & (schedule.nbytes <= 0), "moves no bytes; leave it out")
    missing = {pair for pair in schedule.used_pairs() if not schedule.routes[pair]}
    if missing:
        src, dst = min(missing)
        raise ScheduleError(f"bytes travel from rank {src} to rank {dst}, but no route joins them")
    idle = np.isin(schedule.kind, (LOCAL, BARRIER))
    refuse(idle & (schedule.details.buffer >= 0).any(axis=1), "touches no data, so it has no slices")
