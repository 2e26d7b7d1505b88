"""Each function on ragged arrays equals a loop over the groups."""

import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm.arrays import (
    group_of_row,
    in_c,
    neighbours_within,
    numbered_within,
    offsets_of,
    rows_of_groups,
    summed_before,
)
from umm.errors import UmmError

SIZES = st.lists(st.integers(0, 4), max_size=6)
GROUPS = st.lists(st.integers(-2, 3), max_size=12)


def ints(values):
    return np.array(values, dtype=np.int64)


@given(SIZES, st.data())
def test_offsets_say_which_rows_each_group_has(sizes, data):
    offsets = offsets_of(sizes)
    rows = [list(range(sum(sizes[:g]), sum(sizes[: g + 1]))) for g in range(len(sizes))]
    assert group_of_row(offsets).tolist() == [g for g, of_group in enumerate(rows) for _ in of_group]
    asked = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=5)) if sizes else []
    assert rows_of_groups(offsets, ints(asked)).tolist() == [row for g in asked for row in rows[g]]


@given(GROUPS, st.data())
def test_rows_are_numbered_and_summed_within_their_group_in_row_order(groups, data):
    values = data.draw(st.lists(st.integers(0, 9), min_size=len(groups), max_size=len(groups)))
    seen, total, numbers, sums = Counter(), Counter(), [], []
    for group, value in zip(groups, values, strict=True):
        numbers.append(seen[group])
        sums.append(total[group])
        seen[group] += 1
        total[group] += value
    assert numbered_within(ints(groups)).tolist() == numbers
    assert summed_before(ints(groups), ints(values)).tolist() == sums


@given(GROUPS)
def test_neighbours_are_the_rows_with_none_of_their_group_between(groups):
    expected = [
        (i, j)
        for j, group in enumerate(groups)
        for i in range(j)
        if group >= 0 and groups[i] == group and group not in groups[i + 1 : j]
    ]
    earlier, later = neighbours_within(ints(groups))
    assert sorted(zip(earlier.tolist(), later.tolist(), strict=True)) == sorted(expected)


def test_a_function_in_c_runs_unless_it_is_missing_or_its_source_is_newer(tmp_path, monkeypatch):
    """A module of Python stands for the compiled one: probed.c beside it is its source."""
    (tmp_path / "probed.py").write_text("def seven():\n    return 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert in_c("probed", "seven")() == 7
    source = tmp_path / "probed.c"
    source.touch()
    os.utime(source, (1, 1))
    assert in_c("probed", "seven")() == 7
    os.utime(source, None)
    os.utime(tmp_path / "probed.py", (1, 1))
    with pytest.raises(UmmError, match=r"probed.c is newer .* run python -m umm_sim.build"):
        in_c("probed", "seven")
    with pytest.raises(UmmError, match=r"not compiled .* run python -m umm_sim.build"):
        in_c("not_compiled", "seven")
