"""Answers that come late or in another order than asked for: the page shows its address's answer."""

import json
import re
import time

import pytest
from page_looks import START, found, makespan, opened, painted, show

from umm.explorer import answer

pytestmark = pytest.mark.timeout(900)  # others may use the host too

RANGED = "document.querySelector('.fact .note').innerText.includes(' to ')"


def swapped(page):
    """Let the next answer found behind the page arrive right after the next of a whole page.

    A page that has gone on leaves the request; that its answer then comes late is up to this test.
    """
    page.evaluate("""() => {
      const ask = window.fetch;
      window.fetch = (path, { signal, ...more }) => ask(path, more);
    }""")
    requests = []

    def hold(route):
        later = "stage" in json.loads(route.request.post_data)
        if later and not requests:
            requests.append(route)
            requests.append(route.fetch())
        elif not later and len(requests) == 2:
            route.fulfill(response=route.fetch())
            late, answered = requests
            requests.append(None)
            late.fulfill(response=answered)
        else:
            route.continue_()

    page.route(re.compile("/answer$"), hold)
    return requests


def held_are(page, requests, count):
    """Wait until so many steps of a swap are done."""
    end = time.monotonic() + 120
    while len(requests) < count:
        assert time.monotonic() < end
        page.wait_for_timeout(20)


def test_what_was_found_for_another_address_is_not_shown(page, address):
    """The page asks for m = 4096; back at 2048 the answer comes, and nothing of it is shown."""
    opened(page, address)
    page.wait_for_function(RANGED)
    before, result = makespan(page), page.inner_text("#verdict")
    page.fill("#m", "4096")
    page.keyboard.press("Enter")
    page.wait_for_function("text => document.querySelector('.fact .value').innerText !== text", arg=before)
    requests = swapped(page)
    held_are(page, requests, 2)
    page.go_back()
    held_are(page, requests, 3)
    painted(page)
    assert page.url.endswith(START)
    assert makespan(page) == before
    assert page.inner_text("#verdict")[:40] == result[:40]
    page.wait_for_function(RANGED)
    assert makespan(page) == before


def test_what_takes_longer_to_answer_than_the_page_waits_to_ask_is_shown(page, address, monkeypatch):
    """The page asks no second question while one is under way, whose answer it would then leave."""
    result = answer.found

    def slow(*args):
        time.sleep(1.0)
        return result(*args)

    monkeypatch.setattr(answer, "found", slow)
    opened(page, address)
    page.wait_for_function(RANGED, timeout=60_000)


def test_a_range_that_is_known_stays_on_another_tab(page, address):
    """At no moment is there none."""
    opened(page, address)
    page.wait_for_function(RANGED)
    page.evaluate("""() => {
      const range = document.getElementById("fact-range");
      window.ranges = [];
      new MutationObserver(() => window.ranges.push(range.innerText)).observe(
        range, { childList: true, characterData: true, subtree: true });
    }""")
    for tab in ("schedule", "tiles", "leaderboard"):
        show(page, tab)
        painted(page)
    page.wait_for_timeout(600)
    assert page.evaluate("window.ranges") == []
    page.wait_for_function(RANGED)


def test_what_is_chosen_before_the_first_answer_is_kept(page, address):
    """The first answer is late; the page then shows the choices made meanwhile."""
    requests = []

    def hold(route):
        if requests:
            route.continue_()
        else:
            requests.append(route)

    page.route(re.compile("/answer$"), hold)
    page.goto(address + "/chain/?machine=pvc-12&tokens=64&hidden=64&ffn=128&ranks=4&choices=row%2Ccol")
    page.locator("#chain label").filter(has_text=re.compile("^gated-mlp$")).click()
    page.wait_for_function("location.search.includes('chain=gated-mlp')")
    found(page)
    requests[0].abort()
    assert "--chain gated-mlp" in page.text_content("#as-command")
    assert "tokens=64" in page.url


def test_a_search_that_was_cancelled_stays_so_on_another_tab(page, address):
    opened(page, address, "/?machine=pvc-12&m=5120&n=5120")
    page.click("#cancel")
    page.wait_for_function("document.getElementById('status').innerText.endsWith('cancelled.')")
    show(page, "replication")
    painted(page)
    page.wait_for_timeout(1000)
    assert page.inner_text("#status").endswith("cancelled.")
    assert not page.is_visible("#cancel")
