"""The page's server: what it answers, what it refuses, and that no upload brings it down."""

import base64
import random
import re
import sqlite3
import string
from urllib.parse import quote

import pytest

from umm.errors import InputError
from umm.explorer import answer
from umm.explorer.app import make_app, serving
from umm.explorer.behind import Behind
from umm.explorer.dropped import content_of, topology, trace_or_store
from umm.explorer.point import point_of, tried
from umm.explorer.state import read
from umm.explorer.tabs import TABS
from umm.explorer.view import View
from umm.machines.files import named_file
from umm.space import Store


@pytest.fixture(scope="module")
def client():
    return make_app().server.test_client()


def test_the_page_lets_the_browser_ask_nobody_else(client):
    page = client.get("/", headers={"Host": "127.0.0.1:8050"})
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    assert set(re.findall(r"(?:src|href)=\"(\w*:?//[^\"]*)", page.get_data(as_text=True))) == set()


def test_a_name_of_somebody_else_is_refused(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200


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


def test_a_port_that_is_taken_is_said_in_a_line():
    server = serving("127.0.0.1", 0)
    try:
        with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1, port \d+.*--port 0"):
            serving("127.0.0.1", server.server_port)
    finally:
        server.server_close()


def uploaded(content):
    return "data:application/octet-stream;base64," + base64.b64encode(content).decode()


def test_five_hundred_random_files_end_in_a_line_each():
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
    lines = []
    for _ in range(500):
        content = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(6)):
            where = chance.randrange(len(content) + 1)
            content[where : where + chance.randrange(9)] = chance.randbytes(chance.randrange(9))
        name = "".join(chance.choices(string.printable, k=8))
        upload = uploaded(bytes(content))
        for reader in (topology, trace_or_store):
            _, line = tried(lambda reader=reader, upload=upload, name=name: reader(name, content_of(upload)))
            lines += [line] if line else []
    assert len(lines) > 500
    assert [line for line in lines if "\n" in line or len(line) > 400] == []


def test_an_upload_that_is_no_base64_or_too_large_is_refused():
    with pytest.raises(InputError, match="did not arrive whole"):
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


def test_random_addresses_are_answered():
    """Each is a state with an answer, or with lines that say why it has none; every tab can show it."""
    chance = random.Random(3)
    words = [
        "m",
        "n",
        "k",
        "a",
        "b",
        "machine",
        "tab",
        "pin",
        "rank",
        "op",
        "memory",
        "policy",
        "ranks",
        "fixed",
    ]
    values = [
        "1",
        "-1",
        "96",
        "9" * 30,
        "row@2",
        "2d:3x4",
        "😀",
        "%00",
        "../..",
        "all",
        "NaN",
        "<script>",
        "",
        "tiles",
    ]
    behind, lines = Behind(), 0
    for _ in range(300):
        parts = [f"{chance.choice(words)}={quote(chance.choice(values))}" for _ in range(chance.randrange(6))]
        state, mistakes = read("?ranks=2&m=64&n=64&k=64&" + "&".join(parts))
        point, problem = tried(lambda state=state: point_of(state, {}))
        view = View(state, point, behind)
        answer.words(state, view, mistakes, {}, {})
        shown = answer.tab_shown(view)
        assert point is None or set(shown) == set(TABS[state.tab].outputs)
        lines += len(mistakes) + bool(problem)
    assert lines > 100
