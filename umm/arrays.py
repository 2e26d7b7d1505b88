"""Rows in groups of unequal size, without a loop over the groups.

Two forms say which row is in which group. *Offsets*: the groups lie one after another in one flat array,
group g is ``flat[offsets[g] : offsets[g + 1]]``, and the last offset is the length. *Group numbers*: one
for each row, in any order, where the rows of a group may lie apart.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def offsets_of(sizes: ArrayLike) -> Ints:
    """Return where groups of these sizes start when they follow each other, and where the last one ends.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    sizes.cumsum(out=offsets[1:])
    return offsets


def group_of_row(offsets: Ints) -> Ints:
    """Return the group number of every row, from the offsets.

    >>> group_of_row(np.array([0, 2, 2, 5])).tolist()
    [0, 0, 2, 2, 2]
    """
    return np.arange(len(offsets) - 1).repeat(offsets[1:] - offsets[:-1])


def rows_of_groups(offsets: Ints, groups: Ints) -> Ints:
    """Return the rows of the groups asked for, one group after another; a group may be asked for twice.

    >>> rows_of_groups(np.array([0, 2, 2, 5]), np.array([2, 0, 0])).tolist()
    [2, 3, 4, 0, 1, 0, 1]
    """
    start = offsets[groups]
    size = offsets[groups + 1] - start
    rows: Ints = np.arange(size.sum()) + (start - (size.cumsum() - size)).repeat(size)
    return rows


def summed_before(group: Ints, values: Ints) -> Ints:
    """Return for every row the sum of the values of earlier rows of its group.

    >>> summed_before(np.array([7, 3, 7, 7]), np.array([10, 20, 30, 40])).tolist()
    [0, 0, 10, 40]
    """
    order = group.argsort(kind="stable")
    by_group, value = group[order], values[order]
    before = value.cumsum() - value
    found = np.empty(len(group), dtype=np.int64)
    found[order] = before - before[by_group.searchsorted(by_group)]
    return found


def numbered_within(group: Ints) -> Ints:
    """Return every row's number within its group: how many earlier rows are in it.

    >>> numbered_within(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = group.argsort(kind="stable")
    by_group = group[order]
    number = np.empty(len(group), dtype=np.int64)
    number[order] = np.arange(len(group)) - by_group.searchsorted(by_group)
    return number


def neighbours_within(group: Ints) -> tuple[Ints, Ints]:
    """Return every pair of rows that follow each other in one group: the earlier rows, the later ones.

    Rows of a negative group are in none. Pairs come by group, then by row.

    >>> [rows.tolist() for rows in neighbours_within(np.array([7, -1, 3, 7, -1, 3, 7]))]
    [[2, 0, 3], [5, 3, 6]]
    """
    order = group.argsort(kind="stable")
    by_group = group[order]
    same = (by_group[1:] == by_group[:-1]) & (by_group[1:] >= 0)
    return order[:-1][same], order[1:][same]
