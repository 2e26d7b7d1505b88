"""A chain on the page as people use it: from one multiply to the best layouts of a block."""

import re

import pytest
from page_looks import TITLES, answered, found, opened, painted, show

pytestmark = pytest.mark.timeout(900)  # others may use the host too


def chosen(page, name, text):
    """Choose one of a few words."""
    page.locator(f"#{name} label").filter(has_text=re.compile(f"^{text}$")).click()


def test_a_newcomer_s_path_to_the_layouts_of_a_chain(page, address):
    """From one multiply: a preset, a model, fewer tokens and ranks, backward too; another row, and back."""
    opened(page, address)
    chosen(page, "chain", "mlp")
    page.wait_for_function("location.search.includes('chain=mlp')")
    answered(page)
    chosen(page, "chain", "gated-mlp")
    page.wait_for_function("location.search.includes('chain=gated-mlp')")
    page.get_by_role("button", name="llama-3-8b").click()
    page.wait_for_function("document.getElementById('ffn').value === '14336'")
    for name, value in (("tokens", "1024"), ("ranks", "4"), ("choices", "row,col,row@p")):
        page.fill(f"#{name}", value)
        page.keyboard.press("Enter")
        page.wait_for_function("part => location.search.includes(part)", arg=f"{name}={value[:3]}")
    found(page)
    page.wait_for_function("document.getElementById('status').innerText.startsWith('Proven best of')")
    forward = page.inner_text("#verdict")
    assert re.match(r"Bound by .*\. Nothing that fits is 1 % faster\.$", forward), forward
    chosen(page, "backward", "and backward")
    page.wait_for_function("said => document.getElementById('verdict').innerText !== said", arg=forward)
    found(page)
    both = page.inner_text("#verdict")
    assert "--backward" in page.text_content("#as-command")
    page.get_by_role("button", name=re.compile("^Show number 2:")).click()
    page.wait_for_function("location.search.includes('row=2')")
    page.wait_for_selector("#leaders [aria-current] >> text=2")
    assert page.inner_text("#tensors h2 >> nth=0").startswith("Row 2")
    for tab in TITLES:
        show(page, tab)
        painted(page)
    page.click("#pin")
    page.wait_for_function("decodeURIComponent(location.search).includes('layouts=')")
    page.wait_for_selector("#compare table")
    show(page, "leaderboard")
    page.get_by_role("button", name=re.compile("^Show number 1:")).click()
    page.wait_for_function("said => document.getElementById('verdict').innerText === said", arg=both)
    painted(page)


def test_the_schemes_of_a_chain_are_there_while_its_search_goes_on(page, address):
    page.goto(address + "/?chain=transformer-layer&machine=h100-8")
    page.wait_for_selector("#leaders table.tensors >> text=megatron")
    assert page.is_visible("#cancel")
    page.wait_for_function("document.getElementById('verdict').innerText.startsWith('Searching… ')")
    page.click("#cancel")


def test_every_chain_in_sight_answers_as_it_is_chosen(page, address):
    """At the page's own sizes: with the best layouts, or the best known scheme while the search goes on."""
    opened(page, address, "/?choices=row%2Ccol")
    answered(page)
    names = [x.strip() for x in page.locator("#chain label").all_inner_texts()]
    assert {"moe", "moe-layer", "head", "embedding"} <= {*names}
    for name in names[1:]:
        chosen(page, "chain", name)
        page.wait_for_function(
            "name => document.getElementById('as-search')?.textContent.includes(`--chain ${name} `)", arg=name
        )
        page.wait_for_function(
            "/^(Bound by|Searching… The fastest)/.test(document.getElementById('verdict').innerText)"
        )
        assert page.inner_text("#mistakes") == ""


def test_a_chain_that_cannot_be_is_said_in_the_page(page, address):
    page.goto(address + "/chain/?machine=pvc-12&chain=attention&heads=7&hidden=64")
    page.wait_for_function("document.getElementById('mistakes')?.innerText.includes('7')")
    assert page.inner_text("#verdict").startswith("No answer")
    query = "/?machine=pvc-12&chain=mlp&memory=0.1x&tokens=64&hidden=64&ffn=128&ranks=4&choices=row%2Ccol"
    page.goto(address + query)
    page.wait_for_function(
        "document.getElementById('verdict')?.innerText.includes('no layouts of chain mlp fit')"
    )
