"""The built site opens offline: every link leads to a page and a place on it, and no other host is asked."""

import os
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[2] / "build/docs"
FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """The links of a page, its requests, and the places that can be linked to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.fetched, self.places = [], [], {"", "top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif (tag, name) in FETCHED:
                self.fetched.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


@cache
def page(path):
    return Page(Path(path))


def wrong(path):
    """The links and requests of a page that lead nowhere."""
    for link in page(path).links + page(path).fetched:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if link in page(path).fetched and parts.scheme != "data":
                yield f"asks {parts.netloc}"
            continue
        target = os.path.normpath(path.parent / unquote(parts.path)) if parts.path else str(path)
        if not os.path.exists(target):
            yield f"{link} is not there"
        elif target.endswith(".html") and unquote(parts.fragment) not in page(Path(target)).places:
            yield f"{link} is no place on the page"


def test_every_link_leads_somewhere_and_no_other_host_is_asked():
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 50
    assert not {str(path.relative_to(SITE)): links for path in pages if (links := list(wrong(path)))}
