"""Races: actions that touch the same memory, but that ``after`` leaves in no order.

Two accesses conflict where they touch the same memory (rectangles of one buffer that meet, or two buffers in
one pool slot), unless both read or both add. Only accumulates and reduces add, atomically; a gemm with
β ≠ 0 and a map in place read and write. Owned tiles hold an operand or zeros before the run, a pool nothing.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from umm.arrays import Bools, Ints, group_of_row
from umm.errors import ScheduleError
from umm.interval import Interval
from umm.schedules.file.codec import slice_text
from umm.schedules.rules.invariants import unwritten
from umm.schedules.table.accesses import ADD, READ, WRITE, order_of
from umm.schedules.table.buffers import Slice
from umm.schedules.table.details import ACCUMULATE, KINDS, REDUCE
from umm.schedules.table.table import Table

MOST_ACTIONS = 100_000
_BLOCK = 8192  # actions whose followers are found together, a bit for each
_DOES = {READ: "reads", WRITE: "writes", ADD: "adds to"}


@dataclass(frozen=True)
class Race:
    """An access that is not ordered after one it conflicts with; ``str`` says it in words."""

    # The action that comes first in row order; None if a temporary is read or added to that nothing before
    # has written.
    earlier: int | None
    later: int  # the action that comes later
    operands: tuple[int, int]  # which operands they are, the earlier action's first, −1 if there is none
    schedule: Table = field(repr=False, compare=False)

    def __str__(self) -> str:
        who, does, what = self._access(self.later, self.operands[1])
        if self.earlier is None:
            does = "adds to" if does == "adds to" else "reads"  # a gemm with β ≠ 0 reads what it writes
            return f"{who} {does} {what}, which no action before has written"
        other, did, where = self._access(self.earlier, self.operands[0])
        return f"{who} {does} {what} while {other} {did} {'it' if where == what else where}"

    def _access(self, action: int, operand: int) -> tuple[str, str, str]:
        kind, rank = int(self.schedule.kind[action]), int(self.schedule.rank[action])
        return (
            f"action {action} ({KINDS[kind]} of rank {rank})",
            _DOES[int(_ways(self.schedule)[action, operand])],
            slice_text(self.schedule, action, operand),
        )


def races(schedule: Table) -> list[Race]:
    """Return the conflicting accesses that ``after`` alone, lanes aside, leaves in no order.

    Of accesses that a write between them covers, only those nearest to each other are listed: once these are
    ordered, so are the others. The list is empty if and only if no conflicting accesses can overlap.
    ScheduleError if there are more than 100,000 actions. Races are by the later action, then the earlier; for
    a pair of actions one.
    """
    if len(schedule) > MOST_ACTIONS:
        raise ScheduleError(
            f"races are looked for in at most {MOST_ACTIONS:,} actions; this schedule has {len(schedule):,}"
        )
    # Only the nearest conflicts are asked for: if these are in order, so is every other by way of them.
    earlier, later = _conflicts(schedule)
    racing = _unordered(schedule, earlier, later)
    pairs = zip(earlier[racing].tolist(), later[racing].tolist(), strict=True)
    result = [Race(*pair, _operands(schedule, *pair), schedule) for pair in pairs]
    result += [Race(None, action, (-1, operand), schedule) for action, operand in unwritten(schedule)]
    return sorted(result, key=lambda race: (race.later, -1 if race.earlier is None else race.earlier))


def _conflicts(schedule: Table) -> tuple[Ints, Ints]:
    """Return pairs of conflicting actions, earlier and later, each pair once."""
    d, buffers, first = schedule.details, schedule.buffers, schedule.first_temporary
    order = order_of(first, False)
    slots = int(buffers.slot.max(initial=-1)) + 1
    order.hold((first + buffers.rank * slots + buffers.slot)[first:].tolist())
    columns = (_ways(schedule)[:, 0], d.buffer, d.rows, d.cols)
    for way, *operands in zip(*(x.tolist() for x in columns), strict=True):
        pieces = tuple(
            Slice(buffer, 0, 0, Interval(*rows), Interval(*cols))
            for buffer, rows, cols in zip(*operands, strict=True)
            if buffer >= 0
        )
        order.add(0, False, way, pieces, ())
    rows, count = order.size()
    offsets, earlier = np.empty(rows + 1, dtype=np.int64), np.empty(count, dtype=np.int64)
    order.fill(offsets, earlier)
    return earlier, group_of_row(offsets)


def _operands(schedule: Table, earlier: int, later: int) -> tuple[int, int]:
    """Return the operands by which two actions conflict; of several, reads come first."""
    d, ways, buffers = schedule.details, _ways(schedule), schedule.buffers

    def conflict(of_one: int, of_other: int) -> bool:
        one, other = d.buffer[earlier, of_one], d.buffer[later, of_other]
        how = {int(ways[earlier, of_one]), int(ways[later, of_other])}
        if min(one, other) < 0 or how in ({READ}, {ADD}):
            return False
        if one != other:
            places = {(int(buffers.rank[x]), int(buffers.slot[x])) for x in (one, other)}
            return len(places) == 1 and buffers.slot[one] >= 0
        spans = ((x[earlier, of_one], x[later, of_other]) for x in (d.rows, d.cols))
        return all(x[0] < y[1] and y[0] < x[1] for x, y in spans)

    return next((x, y) for y in range(d.operands)[::-1] for x in range(d.operands)[::-1] if conflict(x, y))


def _ways(schedule: Table) -> Ints:
    """Return how each action accesses each operand, shape (actions, operands)."""
    ways = np.full((len(schedule), schedule.details.operands), READ)
    ways[:, 0] = np.where(np.isin(schedule.kind, (ACCUMULATE, REDUCE)), ADD, WRITE)
    return ways


def _unordered(schedule: Table, earlier: Ints, later: Ints) -> Bools:
    """Return for each pair whether the later action waits for the earlier neither itself nor through others.

    Most pairs are dependencies themselves. For the others, each action gets the set of those it follows, as
    the bits of an integer, some thousand at a time.
    """
    count = len(schedule)
    unordered = ~np.isin(later * count + earlier, schedule.waiting * count + schedule.after)
    asked = unordered.nonzero()[0]
    sources = np.unique(earlier[asked])
    flat = schedule.after.tolist()
    after = [flat[start:stop] for start, stop in pairwise(schedule.after_offsets.tolist())]
    # Integers as bit sets: one pass over all waits answers for a block of sources. All at once would take
    # actions × sources bits of memory.
    for start in range(0, len(sources), _BLOCK):
        block = sources[start : start + _BLOCK]
        bit = {source: 1 << i for i, source in enumerate(block.tolist())}
        # For each action the bits of itself and of all that it waits for, directly or not.
        reached: list[int] = []
        for action, waits in enumerate(after):
            bits = bit.get(action, 0)
            for before in waits:
                bits |= reached[before]
            reached.append(bits)
        inside = asked[(earlier[asked] >= block[0]) & (earlier[asked] <= block[-1])]
        for i in inside.tolist():
            unordered[i] = not reached[int(later[i])] & bit[int(earlier[i])]
    return unordered
