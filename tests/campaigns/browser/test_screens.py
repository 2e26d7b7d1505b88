"""How every tab looks, light and dark: held against the pictures of the guide, and looked at by Axe.

``make screenshots`` writes the pictures anew.
"""

import os
from pathlib import Path

import pytest
from page_looks import TITLES, drawn, found, opened, painted, proven, settled, show

PICTURES = Path(__file__).parents[3] / "docs" / "images" / "explorer"
MULTIPLY = "/?machine=pvc-12&m=1024&n=12288&k=49152&a=row%4012&b=col%402&op=40"
CHAIN = "/?machine=pvc-12&chain=gated-mlp&tokens=1024&ffn=14336&choices=row%2Ccol%2Crow%40p"
COLOURS = 160
APART = 0.02  # share of the pixels from which on pictures are said to differ


def small(png):
    """Return a screenshot with few colours, as it is kept."""
    image = pytest.importorskip("PIL.Image")
    import io

    return image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=image.Dither.NONE)


def differences(picture, kept):
    """Return where two pictures differ: the share of their pixels, and the box around them."""
    from PIL import ImageChops

    if picture.size != kept.size:
        return 1.0, (0, 0, *picture.size)
    apart = ImageChops.difference(picture.convert("RGB"), kept.convert("RGB")).convert("L")
    mask = apart.point(lambda value: 255 if value > 48 else 0)
    return mask.histogram()[255] / (mask.width * mask.height), mask.getbbox()


def held(name, png, folder):
    """Keep a picture, or hold it against the kept one; a missing one fails."""
    from PIL import Image

    path = PICTURES / f"{name}.png"
    if os.environ.get("UMM_SCREENSHOTS") == "write":
        PICTURES.mkdir(parents=True, exist_ok=True)
        small(png).save(path, optimize=True)
    assert path.exists(), f"there is no {path}; make screenshots makes it"
    share, box = differences(small(png), Image.open(path))
    if share > APART:
        (folder / path.name).write_bytes(png)
        print(f"\n{path.name} differs in {share:.1%} of its pixels, within {box}: {folder / path.name}")


def serious(page):
    """Return the serious findings of Axe, without those on Dash's own dropdowns and radio buttons."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    result = [x for x in axe.run(page).response["violations"] if x["impact"] in ("serious", "critical")]
    nodes = [(x["id"], node["html"][:150]) for x in result for node in x["nodes"]]
    return [node for node in nodes if "dash-" not in node[1]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_tab_looks_as_in_the_guide_and_nothing_keeps_anybody_out(
    page, address, theme, tmp_path_factory
):
    folder = tmp_path_factory.mktemp(theme)
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.set_viewport_size({"width": 1360, "height": 1180})
    opened(page, address, MULTIPLY)
    proven(page)
    settled(page)
    for tab in TITLES:
        show(page, tab)
        drawn(page, tab)
        painted(page)
        page.mouse.move(0, 0)
        held(f"{tab}-{theme}", page.screenshot(), folder)
        assert serious(page) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_a_chain_looks_as_in_the_guide_and_keeps_nobody_out(
    page, address, theme, tmp_path_factory
):
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    page.set_viewport_size({"width": 1360, "height": 1700})
    page.goto(address + CHAIN)
    found(page)
    painted(page)
    page.mouse.move(0, 0)
    held(f"chain-{theme}", page.screenshot(), tmp_path_factory.mktemp(theme))
    assert serious(page) == []
