"""Races found by comparing every pair of actions, by the words of the rule and by the bytes they touch."""

from collections import defaultdict
from dataclasses import replace
from itertools import combinations, groupby

import numpy as np

from umm.schedules.table.details import ACCUMULATE, GEMM, KINDS, LOCAL, REDUCE
from umm.schedules.table.table import Data
from umm_hw.blocks import place, resolve
from umm_hw.numpy.transport import NumpyTransport


def elements(block):
    """The elements of a block, each by rank, heap and byte offset."""
    item = block.dtype.itemsize
    return {
        (block.rank, block.heap, block.offset + (i * block.stride + j) * item)
        for i in range(block.rows)
        for j in range(block.cols)
    }


def conflicts(schedule):
    """Pairs (earlier, later) of actions on the same element, not both reading and not both accumulating."""
    first = NumpyTransport(schedule.ranks)
    memory = place(schedule, first)
    accesses = defaultdict(list)
    for action, work in enumerate(resolve(schedule, memory)):
        for block in work.reads:
            for element in elements(block):
                accesses[element].append((action, "reads"))
        if work.writes is not None:
            atomic = work.adds and schedule.kind[action] != GEMM
            for element in elements(work.writes):
                accesses[element].append((action, "adds" if atomic else "writes"))
    return {
        (x, y)
        for touched in accesses.values()
        for (x, how), (y, what) in combinations(touched, 2)
        if x != y and (how != what or how == "writes")
    }


def touches(schedule):
    """The accesses of each action: (action, how, buffer, rank and slot, rows, columns)."""
    details, buffers = schedule.details, schedule.buffers
    for action in range(len(schedule)):
        for operand in range(details.operands):
            buffer = int(details.buffer[action, operand])
            if buffer >= 0:
                adds = schedule.kind[action] in (ACCUMULATE, REDUCE)
                yield (
                    action,
                    "reads" if operand else "adds" if adds else "writes",
                    buffer,
                    (int(buffers.rank[buffer]), int(buffers.slot[buffer])),
                    *(range(*span[action, operand]) for span in (details.rows, details.cols)),
                )


def conflicts_by_rule(schedule):
    """Pairs (earlier, later) of actions on the same memory: of one buffer, or two buffers of one slot."""
    result = set()
    for one, other in combinations(touches(schedule), 2):
        (x, how, buffer, place_, *here), (y, what, same, other_place, *ranges) = one, other
        if buffer == same:
            met = all(set(a) & set(b) for a, b in zip(here, ranges, strict=True))
        else:
            met = place_ == other_place and place_[1] >= 0
        if met and x != y and (how != what or how == "writes"):
            result.add((x, y))
    return result


def unwritten_by_rule(schedule):
    """Actions that read or add to an element of a temporary that the rows before have not left there."""
    contents, result = defaultdict(set), set()  # by slot: the elements that hold something, with their buffer
    for action, touched in groupby(touches(schedule), key=lambda touch: touch[0]):
        keeps = schedule.kind[action] == GEMM and schedule.details.beta[action] != 0
        written = {}
        for _, how, buffer, slot, rows, cols in touched:
            if slot[1] < 0:
                continue
            piece = {(buffer, i, j) for i in rows for j in cols}
            if (how != "writes" or keeps) and not piece <= contents[slot]:
                result.add(action)
            if how != "reads":
                written[slot] = buffer, piece
        for slot, (buffer, piece) in written.items():
            contents[slot] = {x for x in contents[slot] if x[0] == buffer} | piece
    return result


def ancestors(schedule):
    """For each action the set of all it waits for, directly or not, as bits of an integer."""
    result = []
    for action in range(len(schedule)):
        bits = 0
        for before in schedule.after_of(action).tolist():
            bits |= result[before] | 1 << before
        result.append(bits)
    return result


def unordered(schedule, pairs):
    """Those of some pairs of actions that the dependencies leave in no order."""
    before = ancestors(schedule)
    return {(x, y) for x, y in pairs if not before[y] >> x & 1}


def without(schedule, action, dependency):
    """The schedule in which one action no longer waits for one other."""
    start, stop = schedule.after_offsets[action : action + 2]
    place_ = start + int(np.argmax(schedule.after[start:stop] == dependency))
    offsets = schedule.after_offsets.copy()
    offsets[action + 1 :] -= 1
    return replace(schedule, after=np.delete(schedule.after, place_), after_offsets=offsets)


def needed(schedule):
    """Every dependency that no other of its action implies, as (action, the one it waits for)."""
    before = ancestors(schedule)
    for action in range(len(schedule)):
        waits = schedule.after_of(action).tolist()
        for dependency in waits:
            if not any(before[other] >> dependency & 1 for other in waits):
                yield action, dependency


def after_more(schedule, pairs):
    """The schedule in which the later action of each pair waits for the earlier one too."""
    after = [set(schedule.after_of(action).tolist()) for action in range(len(schedule))]
    for earlier, later in pairs:
        after[later].add(earlier)
    return replace(
        schedule,
        after=np.array([x for waits in after for x in sorted(waits)], dtype=np.int64),
        after_offsets=np.cumsum([0, *map(len, after)]),
    )


def idle(schedule, action):
    """The schedule in which one action touches nothing."""
    kind, buffer = schedule.kind.copy(), schedule.details.buffer.copy()
    kind[action], buffer[action] = LOCAL, -1
    data = Data(replace(schedule.details, buffer=buffer), schedule.temporaries)
    return replace(schedule, kind=kind, make_data=lambda: data)


def without_waits(schedule, waiting_kind, awaited_kind):
    """The schedule in which no action of one kind waits for one of another kind."""
    waiting = schedule.waiting
    drop = (schedule.kind[waiting] == KINDS.index(waiting_kind)) & (
        schedule.kind[schedule.after] == KINDS.index(awaited_kind)
    )
    assert drop.any()
    counts = np.bincount(waiting[~drop], minlength=len(schedule))
    return replace(
        schedule, after=schedule.after[~drop], after_offsets=np.concatenate([[0], np.cumsum(counts)])
    )
