"""Images of figures: the same bytes every time, whatever ids plotly draws by lot and however a host hints."""

import shutil

import pytest

from experiments.common.image import MissingFontError, to_svg
from umm.figures.style import drawn

HINTED = """<match target="font"><edit name="hinting" mode="assign"><bool>true</bool></edit>
<edit name="hintstyle" mode="assign"><const>hintfull</const></edit></match>"""
WITHOUT = """<selectfont><rejectfont><pattern><patelt name="family"><string>Inter</string></patelt></pattern>
</rejectfont></selectfont>"""


def figure():
    """A bar with a pattern, and a line over it."""
    bar = {"type": "bar", "x": [0], "y": [2], "marker": {"pattern": {"shape": "/"}}}
    return drawn([bar, {"type": "scatter", "x": [0, 1], "y": [1, 2]}], "Two", 300)


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Return the environment that gives this host rules for fonts."""

    def set_up(rules):
        file = tmp_path / "fonts.conf"
        file.write_text(f"<fontconfig><include>/etc/fonts/fonts.conf</include>{rules}</fontconfig>")
        monkeypatch.setenv("FONTCONFIG_FILE", str(file))

    return set_up


def svg():
    return to_svg(figure(), shutil.which("chromium") or shutil.which("google-chrome"))


def test_a_figure_is_the_same_image_every_time_and_on_a_host_that_hints_fonts(host):
    first, second = svg(), svg()
    assert first.startswith("<svg")
    assert first == second
    host(HINTED)
    assert svg() == first


def test_without_its_font_no_image_is_drawn(host):
    host(WITHOUT)
    with pytest.raises(MissingFontError):
        svg()
