"""Images of figures: the same bytes every time, whatever ids plotly draws by lot."""

import shutil

from experiments.common.image import to_svg
from umm.figures.style import drawn


def figure():
    """A bar with a pattern, and a line over it."""
    bar = {"type": "bar", "x": [0], "y": [2], "marker": {"pattern": {"shape": "/"}}}
    return drawn([bar, {"type": "scatter", "x": [0, 1], "y": [1, 2]}], "Two", 300)


def test_a_figure_is_the_same_image_every_time():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    first, second = (to_svg(figure(), browser) for _ in range(2))
    assert first.startswith("<svg")
    assert first == second
