"""The page as people use it: in headless Chromium, by mouse and by keyboard."""

import re

import pytest
from page_looks import START, TITLES, drawn, drawn_in_sight, makespan, opened, painted, proven, settled, show

from umm.explorer.point import case_of, point_of
from umm.explorer.state import State
from umm.traces.files import save_trace

pytestmark = pytest.mark.timeout(900)  # others may use the host too


def test_a_newcomer_s_path(page, address):
    """Change each replication factor by keyboard: verdict, address and figures follow; go back again."""
    opened(page, address)
    before = makespan(page)
    for operand in "abc":
        page.focus(f"#{operand}-index")
        page.keyboard.press("ArrowRight")
        page.wait_for_function(f"document.getElementById('{operand}-words').innerText.startsWith('2')")
    page.wait_for_function("location.search.includes('c=row%402')")
    assert page.input_value("#a") == "row@2"
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
    page.fill("#op", "0")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('op-words').innerText.startsWith('Action 0: ')")
    page.fill("#op", "")
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('op-words').innerText.startsWith('No action is chosen')")
    assert "op=" not in page.url
    other = browser.new_page()
    opened(other, page.url, "")
    assert other.input_value("#a") == "row@2"
    assert makespan(other) == makespan(page)
    other.close()


def test_taking_a_row_shows_its_point(page, address):
    opened(page, address)
    proven(page)
    row = page.locator(".leaders tbody tr").first
    result = row.locator("td").nth(5).inner_text()
    row.locator("button").click()
    page.wait_for_function("said => document.querySelector('.fact .value').innerText === said", arg=result)
    page.wait_for_selector(".leaders tbody tr.chosen")
    assert "search finds" not in page.inner_text("#verdict") or "the same time" in page.inner_text("#verdict")


def clicked(page, graph, name):
    """Click the middle one of a figure's marks of a name."""
    page.locator(f"#{graph}").scroll_into_view_if_needed()
    drawn_in_sight(page, f"#{graph}")
    place = page.evaluate(
        """([graph, name]) => {
          const gd = document.querySelector(`#${graph} .js-plotly-plot`), box = gd.getBoundingClientRect();
          const marks = gd._fullData.find((x) => x.customdata && [x.name, x.legendgroup].includes(name));
          const at = Math.floor(marks.x.length / 2), { xaxis: x, yaxis: y } = gd._fullLayout;
          return [box.x + x._offset + x.d2p(marks.x[at]), box.y + y._offset + y.d2p(marks.y[at])];
        }""",
        [graph, name],
    )
    page.mouse.move(place[0] - 2, place[1])
    page.mouse.move(*place)
    page.wait_for_timeout(200)  # plotly.js looks for the mark under the pointer
    page.mouse.click(*place)


def test_a_click_on_a_mark_or_a_bar_shows_it(page, address):
    opened(page, address)
    proven(page)
    settled(page)
    clicked(page, "pareto", "front")
    page.wait_for_function("/[?&][abc]=/.test(location.search)")
    show(page, "schedule")
    painted(page)
    clicked(page, "lanes", "gemm")
    page.wait_for_function("/[?&]op=\\d/.test(location.search)")
    show(page, "tiles")
    page.wait_for_function("/^Action \\d+: gemm/.test(document.getElementById('op-words').innerText)")


def test_a_question_that_the_server_fails_on_says_so(page, address):
    opened(page, address)
    page.route(re.compile("/answer$"), lambda route: route.fulfill(body="no JSON"))
    page.fill("#m", "1024")
    page.keyboard.press("Enter")
    status = "text => document.getElementById('status').innerText.includes(text)"
    page.wait_for_function(status, arg="The page's server failed (")


def test_a_pinned_point_stands_beside_the_next(page, address):
    opened(page, address)
    page.click("#pin")
    page.wait_for_function("location.search.includes('pin=')")
    page.fill("#b", "col@4")
    page.keyboard.press("Enter")
    page.wait_for_selector("#compare table")
    compares = "text => document.getElementById('compare').innerText.includes(text)"
    page.wait_for_function(compares, arg="this: row col@4 row, auto")
    assert "pinned: row row row, auto" in page.inner_text("#compare")
    page.fill("#m", "4K")
    page.keyboard.press("Enter")
    page.wait_for_function(compares, arg="this: row col@4 row, auto, m=4096")
    page.click("#pin")
    page.wait_for_selector("#compare table", state="detached")


def test_what_replicas_save_is_followed_as_m_grows(page, address, browser):
    """A click, and for seven values of m every factor stands in a row; the address tells it to another."""
    opened(page, address, START + "&tab=replication")
    page.locator("#grow label").click()
    page.wait_for_function("location.search.includes('grow=1')")
    page.wait_for_function("document.querySelector('#grown .said')?.innerText")
    rows = page.locator("#grown tbody tr")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == [f"{2048 * 2**i:,}" for i in range(7)]
    result = page.inner_text("#grown .said")
    assert re.match(
        r"With A@1, (replicas of B pay .*B@\d saves [\d.]+ %|no replica of B saves 1 %)", result
    ), result
    assert re.match(
        r"With A@1, this point's, .* With the best factor of A, ", page.inner_text("#replication-words")
    )
    settled(page)
    other = browser.new_page()
    opened(other, page.url, "")
    other.wait_for_function("said => document.querySelector('#grown .said')?.innerText === said", arg=result)
    other.close()
    page.locator("#grow label").click()
    page.wait_for_selector("#grown table", state="detached")


def test_a_number_can_go_down_by_its_button(page, address):
    """Dash greys the button of a number that had no value when its page was made."""
    opened(page, address)
    page.locator("summary").filter(has_text="Advanced").click()
    page.locator("#prefetch ~ .dash-stepper-decrement").click()
    page.wait_for_function("location.search.includes('prefetch=1')")


def test_on_a_phone_the_answer_is_a_touch_away_and_nothing_is_cut_off(page, address):
    """Wide parts scroll by themselves; words of the heat map and the tiles stay as large as elsewhere."""
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, address)
    page.get_by_role("link", name="Answer", exact=True).click()
    page.wait_for_function("document.getElementById('verdict').getBoundingClientRect().top < 60")
    for tab in TITLES:
        show(page, tab)
        drawn(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab
    for tab, graph in (("replication", "#replicas"), ("tiles", "#owners")):
        show(page, tab)
        drawn(page, tab)
        assert page.locator(graph).bounding_box()["width"] >= 900
    page.get_by_role("link", name="Choose", exact=True).click()
    page.wait_for_function("document.getElementById('choose').getBoundingClientRect().top >= -1")


def test_a_measured_trace_is_dropped_in_and_a_machine(page, address, tmp_path):
    trace = tmp_path / "measured.json"
    small = State(m=256, n=256, k=256, machine="h100-8", ranks=4)
    save_trace(point_of(case_of(small)).trace, trace)
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
        ("/?m=lots&colour=red", "unknown parameter 'colour'"),
        ("/?machine=nowhere", "there is no machine 'nowhere'"),
        ("/?machine=pvc-12&a=row%405", "cannot hold 5 equal replicas; choose from 1, 2, 3, 4, 6, 12"),
        ("/?memory=0.1x", "the smallest memory that works is"),
        ("/?memory=1GB&m=65536", "Does not fit: it needs"),
    ],
)
def test_what_cannot_be_is_said_in_the_page(page, address, query, line):
    page.goto(address + query)
    page.wait_for_function("line => document.getElementById('answer')?.innerText.includes(line)", arg=line)
