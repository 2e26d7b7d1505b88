"""The pace of a core: what is measured beside it, and which repeats count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm_hw.cores.pace import OWN_CORE, Pace, Paced, Reading, at_pace, fastest, together, undisturbed

shares = st.floats(0.1, 1.0)
repeats = st.lists(st.builds(Paced, st.floats(1e-3, 1.0), st.floats(1e-3, 2e-3), shares), min_size=1)


def test_a_run_at_half_the_pace_is_told_as_the_undisturbed_core_would_take_it():
    found = [Paced(0.1, 1e-3), Paced(0.2, 2e-3), Paced(0.15, 1.5e-3)]
    assert at_pace(found, 1e-3) == pytest.approx([0.1, 0.1, 0.1])


def test_several_ranks_are_as_slow_as_the_slowest():
    quick, slow = Reading(1e-3, 1.0), Reading(3e-3, 0.6)
    assert together(0.5, [(quick, quick), (quick, slow)]) == Paced(0.5, 2e-3, 0.6)


@given(repeats)
def test_what_counts_had_its_core_or_most_of_it(found):
    """All repeats that had theirs count; where they are less than a quarter, those that had most do."""
    kept = undisturbed(found)
    own = [one for one in found if one.share >= OWN_CORE]
    assert len(kept) == max(len(own), -(-len(found) // 4))
    left = sorted(one.share for one in found)[: len(found) - len(kept)]
    assert not left or left[-1] <= min(one.share for one in kept)


def test_the_best_pace_is_not_that_of_one_lucky_reading():
    """One reading in a hundred at half the time is luck; one in ten is not."""
    assert fastest([Paced(1.0, 1e-3)] * 99 + [Paced(1.0, 0.5e-3)]) == 1e-3
    assert fastest([Paced(1.0, 1e-3)] * 90 + [Paced(1.0, 0.5e-3)] * 10) == 0.5e-3


def test_a_reading_is_of_the_multiply_and_of_this_thread():
    reading = Pace().reading()
    assert 0 < reading.seconds < 1
    assert 0 < reading.share < 1.1
