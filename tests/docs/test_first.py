"""The README's first picture is of the schedule that it simulates."""

from docs.first import FILE, figure

from experiments.common.image import is_current


def test_the_first_picture_is_drawn_anew_when_the_schedule_changes():
    """``python -m tests.docs.first`` draws it."""
    assert is_current(figure(), FILE)
