"""Backoff: waits that look now and then see an event soon, for little of a core."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm_hw.cores import backoff
from umm_hw.cores.backoff import FIRST_PAUSE, GROWTH, LONGEST_PAUSE, SLACK, Backoff

LOOK = 25e-6  # seconds that a look takes
usuals = st.floats(FIRST_PAUSE, 2e-3)
slacks = st.floats(1e-3, 0.1)


class Clock:
    """A clock that moves by sleeps and looks."""

    def __init__(self):
        self.now = 1234.5
        self.pauses = []

    def sleep(self, seconds):
        self.now += seconds
        self.pauses.append(seconds)


@pytest.fixture(scope="module")
def clock():
    """The module's clock."""
    made = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "perf_counter", lambda: made.now)
        patch.setattr(backoff, "sleep", made.sleep)
        yield made


def waited(clock, event, *how):
    """When each look of a wait for an event began, in seconds after the wait did; the last sees it."""
    began, looks = clock.now, []
    pauses = Backoff(*how)
    clock.pauses.clear()
    while not looks or looks[-1] < event:
        if looks:
            pauses.sleep()
        looks.append(clock.now - began)
        clock.now += LOOK
    return looks


@given(event=st.floats(0, 60), usual=usuals, slack=slacks)
def test_an_event_is_seen_within_a_share_of_the_wait(clock, event, usual, slack):
    """Or within the usual pause, and always within 0.2 s, as is another lane's failure."""
    late = waited(clock, event, usual, slack)[-1] - event
    assert late <= min(max(usual, slack * event), LONGEST_PAUSE) + LOOK + 1e-9


@given(usual=usuals, slack=slacks)
def test_the_first_looks_are_quick_and_each_pause_is_at_most_half_as_long_again(clock, usual, slack):
    """An event within 100 us is seen at most half of its time and 20 us after it, if the usual pause is."""
    waited(clock, 1.0, usual, slack)
    assert clock.pauses[0] == FIRST_PAUSE
    assert all(later <= GROWTH * earlier * (1 + 1e-12) for earlier, later in pairwise(clock.pauses))


@given(event=st.floats(1, 60), usual=st.sampled_from([200e-6, 500e-6, 2e-3]))
def test_looks_of_a_long_wait_take_little_of_a_core(clock, event, usual):
    """Less than 1 % of a core in a wait of a second or more; one every 200 us takes 12 %."""
    assert LOOK * len(waited(clock, event, usual)) < 0.01 * event


def test_another_wait_begins_with_quick_looks(clock):
    pauses = Backoff(500e-6, SLACK)
    for _ in range(200):
        pauses.sleep()
    assert clock.pauses[-1] > 1e-3
    pauses.restart()
    pauses.sleep()
    assert clock.pauses[-1] == FIRST_PAUSE


def test_a_lock_that_another_rank_holds_is_tried_less_often_the_longer_it_is_held(clock):
    """Every 20 us took 12 % of a core, on which the rank that holds it may multiply."""
    locks = pytest.importorskip("umm_hw.mpi.locks")

    class Taken(locks.Locks):
        tries = 0

        def __init__(self):
            self.began = clock.now

        def _exchange(self, rank, old, new):
            self.tries += 1
            clock.now += LOOK
            return clock.now > self.began + 1.0

    taken = Taken()
    taken.take(0)
    assert taken.tries * LOOK < 0.06
