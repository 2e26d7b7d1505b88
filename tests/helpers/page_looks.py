"""Waits of tests for parts of the page."""

import re

TITLES = {
    "leaderboard": "Leaderboard",
    "replication": "Replication",
    "coordinates": "Coordinates",
    "schedule": "Schedule",
    "links": "Links",
    "tiles": "Tiles",
    "roofline": "Roofline",
    "whatif": "What if",
    "measured": "Predicted vs measured",
}
START = "/?machine=pvc-12&ranks=4&m=2048&n=3072&k=1024"
BUSY = "[data-dash-is-loading=true], [aria-busy=true]"


def opened(page, address, query=START):
    page.goto(address + query)
    page.wait_for_selector(".fact")
    return page


def answered(page):
    """Wait until a page shows the answer for its address, which overrides earlier choices."""
    page.wait_for_function("document.getElementById('as-command')?.textContent")


def drawn(page, tab):
    """Wait until a tab shows its content: a figure, or the place to drop a file."""
    if tab == "measured":
        page.wait_for_selector("#measured-words")
        return
    drawn_in_sight(page, f"#show-{tab} .dash-graph")


def drawn_in_sight(page, figure):
    """Scroll to the first figure there is of some until it is drawn: it is not before it comes near."""
    page.wait_for_function(
        """figure => {
          const tall = (places) => [...document.querySelectorAll(places)]
            .find((x) => x.getBoundingClientRect().height > 90);
          if (tall(`${figure} .main-svg`)) return true;
          tall(figure)?.scrollIntoView({ block: "nearest" });
        }""",
        arg=figure,
    )


def proven(page):
    """Wait until the front is proven, and the page has said so."""
    page.wait_for_function(
        "/the front|^([\\d,]+) of \\1 points exact/.test(document.getElementById('status').innerText)"
    )


def painted(page):
    """Wait until nothing is under way and the browser has painted."""
    page.wait_for_function(
        "busy => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
        "done(!document.querySelector(busy)))))",
        arg=BUSY,
    )


def makespan(page):
    return page.inner_text(".fact .value >> nth=0")


def settled(page):
    """Wait until all that is found out behind the page is shown."""
    page.wait_for_selector("#cancel", state="hidden")


def found(page):
    """Wait until the search over a chain's layouts is over and its best rows are drawn."""
    page.wait_for_selector("#leaders table")
    settled(page)
    drawn_in_sight(page, "#others")


def show(page, tab):
    """Go to a tab."""
    page.locator("#tab label").filter(has_text=re.compile(f"^{TITLES[tab]}$")).click()
    page.wait_for_selector(f"#show-{tab}:not([hidden])")
