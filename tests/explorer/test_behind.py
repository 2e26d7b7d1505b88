"""Questions behind the page: answered in processes of their own, of each viewer only the newest."""

import time

import pytest

from umm.explorer import background as module
from umm.explorer.background import Behind, Question


def counts(send, upto, seconds):
    for number in range(upto):
        send(number)
        time.sleep(seconds)


def fails(send):
    raise SystemExit(3)


class Counting(Question):
    def __init__(self, *asked):
        super().__init__()
        self._asked, self.got = asked, []

    def asked(self):
        return self._asked

    def take(self, message):
        self.got.append(message)


def until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def behind():
    made = Behind()
    yield made
    made.close()


def test_a_question_is_answered_message_by_message_and_kept(behind):
    question = behind.of("count", lambda: Counting(counts, 3, 0.0))
    behind.want("me", question)
    until(lambda: question.done)
    assert question.got == [0, 1, 2]
    assert behind.of("count", lambda: Counting(counts, 9, 0.0)) is question


def test_a_question_whose_process_was_killed_is_asked_anew_by_the_next_page(behind):
    """It stays as it is for those who look at it; the system may have had too little memory only then."""
    failed = behind.of("count", lambda: Counting(fails))
    behind.want("me", failed)
    until(lambda: failed.over)
    assert failed.failed == "the search process ended early; reload the page to try again"
    assert behind.of("count", lambda: Counting(counts, 3, 0.0)) is failed
    behind.forget_failed()
    again = behind.of("count", lambda: Counting(counts, 3, 0.0))
    behind.want("me", again)
    until(lambda: again.done)


def test_a_newer_question_ends_the_older(behind):
    older, newer = Counting(counts, 10**6, 0.01), Counting(counts, 2, 0.0)
    behind.want("me", older)
    until(lambda: older.got)
    behind.want("me", newer)
    until(lambda: newer.done)
    stopped = len(older.got)
    time.sleep(0.1)
    assert (len(older.got), older.done, older.failed) == (stopped, False, "")


def test_two_viewers_are_answered_at_once_and_one_who_left_makes_room(behind, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    endless = [Counting(counts, 10**6, 0.01) for _ in range(2)]
    for number, question in enumerate(endless):
        behind.want(str(number), question)
    until(lambda: all(x.got for x in endless))
    third = Counting(counts, 2, 0.0)
    behind.want("third", third)
    until(lambda: third.done)


def test_what_is_cancelled_stays_so_until_another_is_wanted(behind):
    question = Counting(counts, 10**6, 0.01)
    behind.want("me", question)
    until(lambda: question.got)
    behind.cancel("me")
    behind.want("me", question)
    assert behind.has_cancelled("me", question)
    assert not behind.has_cancelled("you", question)
    time.sleep(0.2)
    stopped = len(question.got)
    time.sleep(0.2)
    assert len(question.got) == stopped


def test_what_a_viewer_has_left_ends_before_anything_else_is_wanted(behind):
    older, newer = Counting(counts, 10**6, 0.01), Counting(counts, 2, 0.0)
    behind.want("me", older)
    until(lambda: older.got)
    behind.leave("me", older)
    counted = len(older.got)
    until(lambda: len(older.got) > counted)
    behind.leave("me", newer)
    time.sleep(0.1)  # what was under way comes in
    stopped = len(older.got)
    time.sleep(0.1)
    assert (len(older.got), older.done, newer.got) == (stopped, False, [])
