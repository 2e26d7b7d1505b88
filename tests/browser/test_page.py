"""The page as people use it: in headless Chromium, by mouse and by keyboard."""

import re

import pytest
from page_looks import START, TITLES, drawn, makespan, opened, proven, show

from umm.explorer.point import point_of
from umm.explorer.state import State
from umm.traces.files import save_trace


def test_a_newcomer_s_path(page, address):
    """Change each replication factor by keyboard: verdict, address and figures follow; go back again."""
    opened(page, address)
    before = makespan(page)
    for operand in "abc":
        page.focus(f"#{operand}-index")
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"document.getElementById('{operand}-words').innerText.startsWith('2')")
    page.wait_for_function("location.search.includes('c=2d%402')")
    assert page.input_value("#a") == "2d@2"
    page.wait_for_function("text => document.querySelector('.fact .value').innerText !== text", arg=before)
    proven(page)
    assert re.search(
        r"search finds \d+ % less time|Nothing that fits is 1 % faster", page.inner_text("#verdict")
    )
    page.wait_for_function("document.querySelector('.fact .note').innerText.includes(' to ')")
    for tab in TITLES:
        show(page, tab)
        drawn(page, tab)
        assert f"tab={tab}" in page.url or tab == "leaderboard"
    page.go_back()
    page.wait_for_function("location.search.includes('tab=whatif')")
    page.wait_for_selector("#show-whatif:not([hidden])")


def test_a_permalink_opens_what_it_showed(page, address, browser):
    opened(page, address, START + "&a=row%402&tab=tiles&op=3")
    drawn(page, "tiles")
    assert page.inner_text("#op-words").startswith("Action 3: ")
    other = browser.new_page()
    opened(other, page.url, "")
    assert other.input_value("#a") == "row@2"
    assert makespan(other) == makespan(page)
    other.close()


def test_taking_a_row_shows_its_point(page, address):
    opened(page, address)
    proven(page)
    row = page.locator(".leaders tbody tr").first
    said = row.locator("td").nth(5).inner_text()
    row.locator("button").click()
    page.wait_for_function("said => document.querySelector('.fact .value').innerText === said", arg=said)
    page.wait_for_selector(".leaders tbody tr.chosen")
    assert "search finds" not in page.inner_text("#verdict") or "the same time" in page.inner_text("#verdict")


def test_a_pinned_point_stands_beside_the_next(page, address):
    opened(page, address)
    page.click("#pin")
    page.wait_for_function("location.search.includes('pin=')")
    page.fill("#b", "col@4")
    page.keyboard.press("Enter")
    page.wait_for_selector("#compare table")
    assert "pinned: 2d 2d 2d, auto" in page.inner_text("#compare")
    page.click("#pin")
    page.wait_for_selector("#compare table", state="detached")


def test_a_measured_trace_is_dropped_in_and_a_machine(page, address, tmp_path):
    trace = tmp_path / "measured.json"
    save_trace(point_of(State(m=256, n=256, k=256, machine="h100-8", ranks=4), {}).trace, trace)
    opened(page, address, START + "&tab=measured")
    page.set_input_files("#drop-measured input[type=file]", str(trace))
    page.wait_for_function("document.getElementById('measured-words').innerText.includes('+0.0 %')")
    from umm.machines.files import named_file

    mine = tmp_path / "mine.toml"
    mine.write_text(named_file("pvc-12").read_text())
    page.set_input_files("#drop-machine input[type=file]", str(mine))
    page.wait_for_function("location.search.includes('machine=mine')")
    hostile = tmp_path / "hostile.toml"
    hostile.write_text("x = [" * 5000)
    page.set_input_files("#drop-machine input[type=file]", str(hostile))
    page.wait_for_function("document.getElementById('drop-words').innerText.includes('not TOML')")


@pytest.mark.parametrize(
    ("button", "name"), [("#to-csv", "points.csv"), ("#to-html", "point.html"), ("#to-png", None)]
)
def test_every_export_is_a_file(page, address, button, name):
    opened(page, address)
    drawn(page, "leaderboard")
    with page.expect_download() as download:
        page.click(button)
    assert name in (None, download.value.suggested_filename)


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("/?m=lots&colour=red", "is no part of this page's address"),
        ("/?machine=nowhere", "there is no machine 'nowhere'"),
        ("/?a=row%405", "cannot hold 5 equal replicas; choose from 1, 2, 3, 4, 6, 12"),
        ("/?memory=0.1x", "the smallest memory that works is"),
        ("/?memory=1GB&m=65536", "Does not fit: it needs"),
    ],
)
def test_what_cannot_be_is_said_in_the_page(page, address, query, line):
    page.goto(address + query)
    page.wait_for_function("line => document.getElementById('answer')?.innerText.includes(line)", arg=line)
