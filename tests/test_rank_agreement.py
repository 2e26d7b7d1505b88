"""Whether predictions put points in the measured order: tau-b by counting, the winner's regret."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm.comparison import kendall_tau, rank_agreement
from umm.errors import InputError


def test_rank_agreement_counts_pairs_in_the_same_order():
    """Of the pairs of 4 points one is in the wrong order: (5 - 1) / 6. The winner took 2 s, not 1."""
    result = rank_agreement([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 4.0])
    assert result.tau == pytest.approx(4 / 6)
    assert (result.regret, result.points) == (1.0, 4)


def test_the_right_winner_is_not_regretted():
    assert rank_agreement([1.0, 3.0, 2.0], [5.0, 6.0, 7.0]).regret == 0


def test_points_that_all_take_the_same_have_no_order():
    assert math.isnan(rank_agreement([1.0, 1.0], [1.0, 2.0]).tau)


def test_unpaired_times_are_refused():
    with pytest.raises(InputError, match="2 predicted and 1 measured times cannot be compared"):
        rank_agreement([1.0, 2.0], [1.0])
    with pytest.raises(InputError, match="at least one"):
        rank_agreement([], [])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_kendalls_tau_is_what_counting_every_pair_gives(points):
    """tau-b by its definition, ties among them."""
    x, y = (np.array(values, dtype=float) for values in zip(*points, strict=True))
    signs = [
        (np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in itertools.combinations(range(len(x)), 2)
    ]
    agree = sum(a * b for a, b in signs)
    untied = math.prod(sum(s[i] != 0 for s in signs) for i in (0, 1))
    tau = kendall_tau(x, y)
    assert math.isnan(tau) if untied == 0 else tau == pytest.approx(agree / math.sqrt(untied))
