"""The pace of a core: its measurement, and which repeats count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm_hw.cores.pace import (
    OWN_CORE,
    SLACK,
    Pace,
    Paced,
    Reading,
    fastest,
    seconds,
    slowest,
    together,
    undisturbed,
    usual,
)

shares = st.floats(0.1, 1.0)
repeats = st.lists(st.builds(Paced, st.floats(1e-3, 1.0), st.floats(1e-3, 2e-3), shares), min_size=1)


def test_a_run_at_half_the_pace_does_not_count():
    result = [Paced(0.1, 1e-3), Paced(0.2, 2e-3), Paced(0.126, 1.05e-3)]
    assert seconds(result, 1e-3, 1e-3) == pytest.approx([0.1, 0.12])


def test_what_all_ranks_do_takes_as_long_as_on_the_slowest_core():
    """One core is a tenth slower: of its peer's multiply, 0.1 s, a tenth more counts."""
    assert slowest([Paced(0.1, 1e-3), Paced(0.11, 1.1e-3, share=0.97)]) == [
        Paced(pytest.approx(0.11), 1.1e-3, 0.97),
        Paced(0.11, 1.1e-3, 0.97),
    ]


@given(repeats, st.floats(1e-3, 2e-3), st.floats(1e-3, 2e-3))
def test_the_usual_pace_is_among_those_that_count(runs, best, pace):
    """And times measured at it count as they are."""
    readings = [one.reading for one in undisturbed(runs, best)]
    assert min(readings) <= usual(runs, best) <= max(readings)
    assert seconds([Paced(0.1, pace)], best, pace) == pytest.approx([0.1])


def test_several_ranks_are_as_slow_as_the_slowest():
    quick, slow, disturbed = Reading(1e-3, 1.0), Reading(3e-3, 0.6), Reading(0.4, 1.0)
    assert together(0.5, [(quick, disturbed, quick), (quick, disturbed, slow)]) == Paced(0.5, 2e-3, 0.6)


def test_a_run_in_which_another_program_computed_does_not_count():
    """The readings before and after it had their core; of its own 0.4 s it had half."""
    quick, disturbed = Reading(1e-3, 1.0), Reading(0.4, 0.5)
    assert together(0.5, [(quick, disturbed, quick)]).share == 0.5


@given(repeats, st.floats(1e-3, 2e-3))
def test_what_counts_had_its_core_at_its_best_or_was_least_disturbed(runs, best):
    """All such repeats count; where they are less than a quarter, those that had most of the fastest core."""
    kept = undisturbed(runs, best)
    quiet = [one for one in runs if one.share >= OWN_CORE and one.reading <= SLACK * best]
    least = -(-len(runs) // 4)
    assert len(kept) == max(len(quiet), least)
    if len(quiet) < least:
        slowed = sorted(one.reading / one.share for one in runs)
        assert [one.reading / one.share for one in kept] == slowed[:least]


def test_the_best_pace_is_not_that_of_one_lucky_reading():
    """One reading in a hundred at half the time is luck; one in ten is not."""
    assert fastest([Paced(1.0, 1e-3)] * 99 + [Paced(1.0, 0.5e-3)]) == 1e-3
    assert fastest([Paced(1.0, 1e-3)] * 90 + [Paced(1.0, 0.5e-3)] * 10) == 0.5e-3


def test_a_reading_is_of_the_multiply_and_of_this_thread():
    reading = Pace().reading()
    assert 0 < reading.seconds < 1
    assert 0 < reading.share < 1.1
