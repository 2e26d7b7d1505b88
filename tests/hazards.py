"""Races found by reading: pairs of actions on the same memory that nothing orders."""

from collections import defaultdict
from dataclasses import replace
from itertools import combinations

import numpy as np

from umm.schedules.kinds import GEMM
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


def ancestors(schedule):
    """For each action the set of all it waits for, directly or not, as bits of an integer."""
    found = []
    for action in range(len(schedule)):
        bits = 0
        for before in schedule.after_of(action).tolist():
            bits |= found[before] | 1 << before
        found.append(bits)
    return found


def races(schedule, pairs):
    """Those of the conflicting pairs that the dependencies leave in no order."""
    before = ancestors(schedule)
    return {(x, y) for x, y in pairs if not before[y] >> x & 1}


def without(schedule, action, dependency):
    """The schedule in which one action no longer waits for one other."""
    start, stop = schedule.after_offsets[action : action + 2]
    place_ = start + int(np.argmax(schedule.after[start:stop] == dependency))
    offsets = schedule.after_offsets.copy()
    offsets[action + 1 :] -= 1
    return replace(schedule, after=np.delete(schedule.after, place_), after_offsets=offsets)
