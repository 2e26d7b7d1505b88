"""A served page and a browser on it; an error in either fails the test."""

import logging
import re
import shutil
import threading

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs make test-browser")

QUIET = re.compile("GPU stall due to ReadPixels")  # software rendering


@pytest.fixture(scope="session")
def address():
    from umm.cli.flags.values import PRESETS
    from umm.explorer.app import serving

    server = serving("127.0.0.1", 0, None, PRESETS)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed; make test-browser installs it where it can")
    with sync_api.sync_playwright() as playwright:
        # Root has no sandbox; without a GPU WebGL is rendered by software.
        arguments = ["--no-sandbox", "--enable-unsafe-swiftshader"]
        opened = playwright.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def page(browser, address, caplog):
    """A page of its own that fails on requests to another host and on errors of console or server."""
    caplog.set_level(logging.ERROR)
    context = browser.new_context(viewport={"width": 1360, "height": 1000}, accept_downloads=True)
    yield watched(context.new_page(), address, wrong := [])
    context.close()
    assert wrong == []
    assert [record.getMessage() for record in caplog.records] == []


def watched(opened, address, wrong):
    """Return a page that writes down its requests to others, and every error of its console."""
    opened.on(
        "console", lambda m: wrong.append(m.text) if m.type == "error" and not QUIET.search(m.text) else None
    )
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on(
        "request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else wrong.append(r.url)
    )
    opened.on("response", lambda r: wrong.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    opened.set_default_timeout(240_000)  # others may use the host too
    return opened
