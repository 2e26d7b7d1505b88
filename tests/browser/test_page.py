"""The page as people use it: in headless Chromium, by mouse and by keyboard."""

import re
import statistics
import time

import pytest

from umm.explorer.point import point_of
from umm.explorer.state import TABS, State
from umm.traces.files import save_trace

TITLES = dict(
    zip(
        TABS,
        (
            "Leaderboard", "Replication", "Coordinates", "Schedule", "Links", "Tiles", "Roofline", "What if",
            "Predicted vs measured",
        ),
        strict=True,
    )
)  # fmt: skip
START = "/?machine=h100-8&ranks=4&m=2048&n=3072&k=1024"


def opened(page, address, query=START):
    page.goto(address + query)
    page.wait_for_selector(".fact")
    return page


def drawn(page, tab):
    page.wait_for_function(
        "tab => [...document.querySelectorAll(`#show-${tab} .main-svg`)]"
        ".some(x => x.getBoundingClientRect().height > 90)",
        arg=tab,
    )


def makespan(page):
    return page.inner_text(".fact .value >> nth=0")


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
    page.wait_for_function("document.getElementById('status').innerText.includes('points exact.')")
    assert re.search(r"would save \d+ %|Nothing that fits is 1 % faster", page.inner_text("#verdict"))
    for tab, title in TITLES.items():
        page.locator("#tab label").filter(has_text=re.compile(f"^{title}$")).click()
        if tab != "measured":
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


def test_taking_the_first_row_follows_the_advice(page, address):
    opened(page, address)
    page.wait_for_function("document.getElementById('status').innerText.includes('points exact.')")
    said = page.inner_text("#verdict")
    page.click(".pick >> nth=0")
    page.wait_for_function(
        "document.getElementById('verdict').innerText.includes('Nothing that fits is 1 % faster')"
    )
    assert page.input_value("#a") in said


def test_a_pinned_point_stands_beside_the_next(page, address):
    opened(page, address)
    page.click("#pin")
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
    drawn(page, "measured")
    assert "+0.0 %" in page.inner_text("#measured-words")
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
        ("/?memory=1GB&tab=leaderboard&m=65536", "rank"),
    ],
)
def test_what_cannot_be_is_said_in_the_page(page, address, query, line):
    page.goto(address + query)
    page.wait_for_function("line => document.getElementById('answer')?.innerText.includes(line)", arg=line)


@pytest.mark.parametrize("tab", TABS)
def test_nothing_serious_stands_in_the_way_of_a_screen_reader(page, address, tab):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    opened(page, address, f"{START}&tab={tab}&data=1")
    page.wait_for_timeout(1500)
    found = [x for x in axe.run(page).response["violations"] if x["impact"] in ("serious", "critical")]
    nodes = [(x["id"], node["html"][:150]) for x in found for node in x["nodes"]]
    # What Dash puts into its own dropdowns and radio buttons is not ours to mend; keys reach all of them.
    serious = [node for node in nodes if "dash-" not in node[1]]
    assert serious == []


def test_times_from_a_change_to_its_paint(page, address):
    """A replication factor changed on the tab of the schedule; printed, for machines differ."""
    opened(page, address, "/?tab=schedule&granularity=slice&m=1024&n=2048&k=1024&machine=h100-8")
    drawn(page, "schedule")
    times = []
    for number in range(60):
        key = "ArrowRight" if number % 6 < 3 else "ArrowLeft"
        page.focus(f"#{'abc'[number % 3]}-index")
        before = page.url
        start = time.perf_counter()
        page.keyboard.press(key)
        page.wait_for_function("before => location.href !== before", arg=before)
        page.wait_for_function(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
            "done(!document.querySelector('[data-dash-is-loading=true]')))))"
        )
        times.append(time.perf_counter() - start)
    middle, most = statistics.median(times), sorted(times)[int(0.95 * len(times))]
    print(f"\nfrom a change to its paint: p50 {1e3 * middle:.0f} ms, p95 {1e3 * most:.0f} ms of {len(times)}")
