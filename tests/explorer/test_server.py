"""The page's server: its answers, its refusals, and that no upload ends it."""

import base64
import json
import os
import random
import re
import socket
import sqlite3
import string
import threading
import time
from urllib.parse import quote

import numpy as np
import pytest
from counted import at_most
from dash import html

from umm.errors import InputError
from umm.explorer import answer
from umm.explorer.app import as_json, is_loopback, make_app, serving
from umm.explorer.background import Behind, look
from umm.explorer.point import case_of, point_of, predicted, tried
from umm.explorer.state import read
from umm.explorer.tabs import TABS
from umm.explorer.uploads import content_of, topology, trace_or_store
from umm.explorer.view import View
from umm.machines.files import named_file
from umm.space import Space, Store, sweep
from umm.units import format_seconds

# All of them, as often as a release should: UMM_FUZZ=1. A host with other work to do may take long over them.
ALL = bool(os.environ.get("UMM_FUZZ"))
ADDRESSES, UPLOADS = (2000, 500) if ALL else (100, 60)
UNHURRIED = pytest.mark.timeout(7200 if ALL else 300)


@pytest.fixture(scope="module")
def client():
    return make_app().server.test_client()


def test_the_page_lets_the_browser_ask_nobody_else(client):
    page = client.get("/", headers={"Host": "127.0.0.1:8050"})
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    assert set(re.findall(r"(?:src|href)=\"(\w*:?//[^\"]*)", page.get_data(as_text=True))) == set()


def test_the_address_without_a_query_is_what_the_page_was_started_with(client):
    host = {"Host": "localhost"}
    started = make_app(start="?machine=h100-8&m=1024").server.test_client()
    assert started.get("/", headers=host).headers["Location"] == "/?machine=h100-8&m=1024"
    assert started.get("/?machine=pvc-12", headers=host).status_code == 200
    assert client.get("/", headers=host).status_code == 200


def test_a_name_of_somebody_else_is_refused(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "open_to_all"),
    [
        ("127.0.0.1", False), ("127.1", False), ("2130706433", False), ("localhost", False), ("::1", False),
        ("0.0.0.0", True), ("0", True), ("::", True),
    ],
)  # fmt: skip
def test_an_address_of_the_loopback_is_known_however_it_is_written(host, open_to_all):
    assert is_loopback(host) != open_to_all
    try:
        server = serving(host, 0)
    except InputError:
        pytest.skip(f"this host cannot listen on {host}")
    with server.socket:
        page = server.app.test_client().get("/", headers={"Host": "evil.example"})
    assert page.status_code == (200 if open_to_all else 403)


def test_a_connection_on_which_nothing_comes_keeps_no_thread(monkeypatch, capfd):
    monkeypatch.setattr("umm.explorer.app.IDLE", 0.2)
    server = serving("127.0.0.1", 0)
    before = set(threading.enumerate())
    serve = threading.Thread(target=server.serve_forever)
    serve.start()
    try:
        idle = [socket.create_connection(("127.0.0.1", server.server_port), timeout=30) for _ in range(4)]
        idle[0].sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert [x.recv(1) for x in idle] == [b""] * 4  # the server has closed them
        for x in idle:
            x.close()
        for thread in set(threading.enumerate()) - before - {serve}:
            thread.join(30)
            assert not thread.is_alive()
    finally:
        server.shutdown()
        server.server_close()
        serve.join(30)
    assert capfd.readouterr().err == ""


def test_an_order_that_is_searched_is_found_behind_the_page(client, monkeypatch):
    """A policy that searches takes up to 20 s, too long inside a request, of the point and of one pinned."""
    query = "?machine=pvc-12&ranks=4&policy=exhaustive&m=64&n=64&k=64&a=cyclic:16x16:2x2"
    wanted = point_of(case_of(read(query)[0])).trace.makespan_s
    here = []
    monkeypatch.setattr("umm.explorer.point.schedule", lambda *_, **__: here.append(1))
    predicted.cache_clear()

    def told(stage=None):
        about = {"query": f"{query}&pin={quote(query)}", "viewer": "order", "stage": stage}
        return client.post("/answer", json=about, headers={"Host": "localhost"}).json

    shown, end = told()["shown"], time.monotonic() + 120
    while "to order" in shown["status.title"]:
        assert time.monotonic() < end
        time.sleep(0.02)
        shown |= told(shown["status.title"])["shown"]
    assert not here
    assert shown["fact-makespan.children"] == format_seconds(wanted)
    assert "the same" in str(shown["compare.children"])


@pytest.mark.parametrize(
    "path", ["/assets/../app.py", "/assets/%2e%2e/state.py", "/_dash-component-suites/dash/../../x"]
)
def test_no_file_of_the_host_is_served(client, path):
    assert client.get(path, headers={"Host": "localhost"}).status_code in (400, 404, 500)


def test_a_request_that_is_too_large_is_not_read(client):
    large = "x" * (17 * 2**20)
    page = client.post(
        "/_dash-update-component", data=large, content_type="application/json", headers={"Host": "localhost"}
    )
    assert page.status_code == 413, page.status_code


@pytest.mark.parametrize(
    "told",
    [
        None, [], "query", {"query": 3}, {"viewer": ["me"]}, {"files": ["pvc-12"]}, {"files": {"x": 1}},
        {"dropped": {"chain": "x"}}, {"stage": 1},
        {"chains": ["x"]}, {"chains": {"x": 1}},
    ],
)  # fmt: skip
def test_what_no_page_asks_is_refused(client, told):
    assert client.post("/answer", json=told, headers={"Host": "localhost"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/_dash-component-suites/dash/nowhere.js", None, 404),
        ("/_dash-component-suites/nowhere/x.js", None, 404),
        ("/answer", "[" * 200_000, 400),
        ("/answer", '{"a":' * 200_000, 400),
        ("/_dash-update-component", "[" * 200_000, 400),
        ("/_dash-update-component", "{}", 400),
        ("/_dash-update-component", '{"output": 3, "outputs": 3, "inputs": 3, "changedPropIds": 3}', 400),
        ("/_dash-update-component", '{"output": "x.y", "outputs": [], "inputs": []}', 400),
        ("/_dash-update-component", "null", 400),
    ],
)
def test_what_an_attacker_sends_is_no_traceback_on_the_terminal(client, capfd, path, body, code):
    host = {"Host": "localhost"}
    sent = {"headers": host, "content_type": "application/json"}
    page = client.get(path, headers=host) if body is None else client.post(path, data=body, **sent)
    assert page.status_code == code
    result = capfd.readouterr().err
    assert "Traceback" not in result
    assert len(result.splitlines()) <= 1


def test_tiles_that_no_page_draws_are_refused_soon(client):
    """16 Mi tiles took 20 s before they were too many to draw."""
    query = "?machine=h100-8&m=16Mi&n=1&k=1&a=cyclic:1x1:8x1&c=cyclic:1x1:8x1&policy=exhaustive"
    with at_most(calls=1_000_000):
        page = client.post("/answer", json={"query": query, "viewer": "x"}, headers={"Host": "localhost"})
    assert "16777216 tiles" in str(page.json["shown"])


def test_what_is_found_behind_the_page_comes_after_it(client):
    """First all that is shown, then, with the known values already, only results found meanwhile."""
    about = {"query": "?ranks=2&m=512&n=512&k=512&tab=schedule", "viewer": "me", "theme": "light"}

    def told(**more):
        return client.post("/answer", json=about | more, headers={"Host": "localhost"}).json

    first = told()
    assert {"m.value", "verdict.children", "lanes.figure"} <= set(first["shown"])
    later, end = told(stage=""), time.monotonic() + 60
    while not later["over"]:
        assert set(later["shown"]) == {
            "status.children", "status.title", "cancel.hidden",
            "verdict.children", "fact-range.children", "assumed.children",
        }  # fmt: skip
        assert time.monotonic() < end
        time.sleep(0.05)
        later = told(stage=later["shown"]["status.title"])
    assert " to " in later["shown"]["fact-range.children"]
    assert told()["shown"]["fact-range.children"] == later["shown"]["fact-range.children"]


def test_figures_are_sent_as_the_bytes_of_their_numbers():
    """Values that plotly.js has no bytes for come as a list, NaN in one as null."""

    def sent(values):
        return json.loads(as_json({"x": values}))["x"]

    assert sent(np.array([[1, -2], [3, 4]])) == {
        "dtype": "i4",
        "bdata": "AQAAAP7///8DAAAABAAAAA==",
        "shape": "2, 2",
    }
    assert sent(np.array([0.5, np.nan])) == {"dtype": "f8", "bdata": "AAAAAAAA4D8AAAAAAAD4fw=="}
    assert sent(np.array([2**40])) == [2**40]
    assert sent(np.array(["µs", "</a>"], dtype=object)) == ["µs", "</a>"]
    assert sent(np.zeros(0)) == []
    assert sent([np.int64(1), float("nan")]) == [1, None]
    assert sent(html.P("x"))["props"]["children"] == "x"


def test_a_port_that_is_taken_is_said_in_a_line():
    server = serving("127.0.0.1", 0)
    try:
        with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1, port \d+.*--port 0"):
            serving("127.0.0.1", server.server_port)
    finally:
        server.server_close()


def uploaded(content):
    return "data:application/octet-stream;base64," + base64.b64encode(content).decode()


@UNHURRIED
def test_random_files_end_in_a_line_each():
    """Whole files with bytes changed, cut or doubled: read, or refused in one line; never anything else."""
    chance = random.Random(7)
    with Store(":memory:") as store:
        store_bytes = store._connection.serialize()
    seeds = [
        named_file("h100-8").read_bytes(),
        store_bytes,
        b'{"trace_schema": 1, "start": []}',
        b"PK\x03\x04",
        b"",
    ]
    lines, start = [], time.process_time()
    for _ in range(UPLOADS):
        content = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(6)):
            where = chance.randrange(len(content) + 1)
            content[where : where + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
        name = "".join(chance.choices(string.printable, k=8))
        upload = uploaded(bytes(content))
        for reader in (topology, trace_or_store):
            _, line = tried(lambda reader=reader, upload=upload, name=name: reader(name, content_of(upload)))
            lines += [line] if line else []
    print(f"\n{UPLOADS} uploads in {time.process_time() - start:.1f} s of a core, {len(lines)} refusals")
    assert len(lines) > UPLOADS
    assert [line for line in lines if "\n" in line or len(line) > 400] == []


def test_an_upload_that_is_no_base64_or_too_large_is_refused():
    with pytest.raises(InputError, match="the upload is incomplete"):
        content_of("data:x;base64,@@@")
    with pytest.raises(InputError, match="too large"):
        content_of("data:x;base64," + "A" * (13 * 2**20))


def test_a_store_whose_table_never_ends_is_given_up(tmp_path):
    path = tmp_path / "endless.db"
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW all_runs AS "
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    )
    connection.close()
    with pytest.raises(InputError, match="no table all_runs"):
        trace_or_store("endless.db", path.read_bytes())


def test_a_store_with_a_row_that_its_index_lacks_is_refused(tmp_path):
    """SQLite itself would show it in one order and leave it out in another."""
    path = tmp_path / "s.db"
    sweep(Space(m=8, n=8, k=8, ranks=2, a="row", b="col", c="row"), "h100-8", path, pool="none")
    content = bytearray(path.read_bytes())
    place = content.rindex(b"h100-8")
    content[place : place + 6] = b"h100-9"
    with pytest.raises(InputError, match=r"this store is damaged: .*missing from index"):
        trace_or_store("s.db", bytes(content))


PARTS = {
    "m": ["1", "96", "1K", "-1", "0", "9" * 30, "NaN", "1e3"],
    "n": ["1", "100", "7", "", "1.5"],
    "k": ["1", "33", "128", "😀"],
    "a": ["row", "row@2", "2d:3x4", "cyclic:8x8:1x2", "col:balanced@2:interleaved", "edges:0-3x0-5:1x2", "@"],
    "b": ["col", "2d@2", "2d:2x1", "cyclic:1x1:2x1", "row@0", "row@5", "[Shard(0)]", "P('x')", "\x00"],
    "c": ["2d", "row@2", "2d:1x2", "", "<script>alert(1)</script>", "row" * 40],
    "given": ["a=row", "a=row,c=row@2", "d=row", "=", "a=,b="],
    "dtype": ["float64", "float16", "bfloat16", "complex64"],
    "machine": ["h100-8", "pvc-12-planes", "localhost", "/etc/passwd", "../../etc/passwd", "C:\\x", ""],
    "ranks": ["0", "1", "2", "3", "12", "1024", "-2", "2K"],
    "stationary": ["A", "B", "C", "auto", "D"],
    "algorithm": ["universal", "cannon", "summa", "dtensor", "magic"],
    "policy": ["direct", "greedy", "cost-greedy", "exhaustive", "fast"],
    "prefetch": ["0", "2", "4096", "99999", "x"],
    "max_gemms": ["1", "0", "64"],
    "granularity": ["tile", "slice", "grain"],
    "final": ["reduce", "all-reduce", "reduce-scatter", "broadcast", "end"],
    "reuse": ["on", "none", "off"],
    "memory": ["1x", "0.01x", "1GiB", "-1", "1e999x", "x"],
    "space": ["search", "paper", "time"],
    "tab": [*TABS, "moon"],
    "across": ["A", "B", "C", "Z"],
    "fixed": ["0", "1", "2", "77"],
    "grow": ["1", "0", "2"],
    "over": ["nodes", "ranks", "moons"],
    "counts": ["1,2", "0", "x", "1,2,3,4,5,6,7,8,9"],
    "price": ["2.5", "-1"],
    "rank": ["-1", "0", "1", "99"],
    "op": ["-1", "0", "5", "99999999"],
    "what": ["devices.memory", "nothing", "fabric*bandwidth"],
    "pin": ["?a=row", "?pin=?pin=?", "?machine=../..", "%%%"],
    "data": ["1", "0", "2"],
    "colour": ["red"],
}  # fmt: skip


@UNHURRIED
def test_random_addresses_are_answered():
    """Each is a state with an answer, or with lines that say why it has none; every tab can show it."""
    chance = random.Random(3)
    behind, lines, took = Behind(), 0, []
    for _ in range(ADDRESSES):
        names = chance.choices(list(PARTS), k=chance.randrange(8))
        parts = [f"{name}={quote(chance.choice(PARTS[name]))}" for name in names]
        start = time.process_time()  # not the clock: others may use the host too
        state, mistakes = read("?ranks=2&m=64&n=64&k=64&" + "&".join(parts))
        case, problem = tried(lambda state=state: case_of(state))
        view = View(state, case, behind, mistakes=tuple(filter(None, [*mistakes, problem])))
        answer.words(view, {}, {})
        answer.progress(view)
        shown = answer.tab_shown(view)
        if view.range is not None:
            look(lambda _: None, *view.range.asked()[1:])
        took.append(time.process_time() - start)
        assert case is None or set(shown) == set(TABS[state.tab].outputs)
        if view.scheduled is not None:
            look(view.scheduled.take, *view.scheduled.asked()[1:])
            view.scheduled.done = True
        assert view.point is not None or view.wrong
        lines += len(view.wrong)
    assert lines > ADDRESSES / 3
    assert max(took) < 60, "an address that takes this long hangs the page"
    print(f"\n{ADDRESSES:,} addresses in {sum(took):.1f} s of a core, the slowest {max(took):.1f} s")
