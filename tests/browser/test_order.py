"""Answers that come late or in another order than asked for: the page shows what its address says."""

import json
import re
import time

from page_looks import START, makespan, opened, painted, show

from umm.explorer import answer

RANGED = "document.querySelector('.fact .note').innerText.includes(' to ')"


def swapped(page, one, other):
    """Let the next answer to a change of one property arrive right after the next to one of another."""
    held = []

    def hold(route):
        (changed,) = json.loads(route.request.post_data)["changedPropIds"] or [""]
        if changed == one and not held:
            held.append(route)
            held.append(route.fetch())
        elif changed == other and len(held) == 2:
            route.fulfill(response=route.fetch())
            late, answered = held
            held.append(None)
            late.fulfill(response=answered)
        else:
            route.continue_()

    page.route(re.compile("_dash-update-component"), hold)
    return held


def held_are(page, held, count):
    """Wait until so many steps of a swap are done."""
    end = time.monotonic() + 120
    while len(held) < count:
        assert time.monotonic() < end
        page.wait_for_timeout(20)


def test_what_was_found_for_another_address_is_not_shown(page, address):
    """The clock asks about m = 4096; back at m = 2048 the answer arrives, and nothing of it is shown."""
    opened(page, address)
    page.wait_for_function(RANGED)
    before, said = makespan(page), page.inner_text("#verdict")
    page.fill("#m", "4096")
    page.keyboard.press("Enter")
    page.wait_for_function("text => document.querySelector('.fact .value').innerText !== text", arg=before)
    held = swapped(page, "asked.data", "url.search")
    held_are(page, held, 2)
    page.go_back()
    held_are(page, held, 3)
    painted(page)
    assert page.url.endswith(START)
    assert makespan(page) == before
    assert page.inner_text("#verdict")[:40] == said[:40]
    page.wait_for_function(RANGED)
    assert makespan(page) == before


def test_what_takes_longer_than_the_clock_s_turn_is_shown(page, address, monkeypatch):
    """Of the clock's questions only the last would be answered if it asked while one is under way."""
    sure = answer.sure

    def slow(point):
        time.sleep(1.0)
        return sure(point)

    monkeypatch.setattr(answer, "sure", slow)
    opened(page, address)
    page.wait_for_function(RANGED, timeout=60_000)


def test_a_search_that_was_cancelled_stays_so_on_another_tab(page, address):
    opened(page, address, "/?m=5120&n=5120")
    page.click("#cancel")
    page.wait_for_function("document.getElementById('status').innerText.endsWith('cancelled.')")
    show(page, "replication")
    painted(page)
    page.wait_for_timeout(1000)
    assert page.inner_text("#status").endswith("cancelled.")
    assert not page.is_visible("#cancel")
