"""The pictures of the README and the docs are those that umm draws now."""

import pytest
from docs.pictures import IMAGES, PICTURES

from experiments.common.image import is_current


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn_anew_when_what_it_shows_changes(name):
    """``python -m tests.docs.pictures`` draws them."""
    assert is_current(PICTURES[name](), IMAGES / f"{name}.svg")
