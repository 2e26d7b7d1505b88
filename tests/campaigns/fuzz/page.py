"""The page: addresses, dropped files, and the lines to copy."""

import base64
import json
import string
import tomllib
from functools import cache
from pathlib import Path
from random import Random
from urllib.parse import quote, unquote

from fuzz.files import MACHINES, bytes_changed
from fuzz.judged import REFUSED, TAKEN, shown, tried
from fuzz.strings import odd_text
from fuzz.texts import FOREIGN, LAYOUTS
from umm.explorer.app import make_app
from umm.explorer.copies import as_command, as_python, as_search, as_toml
from umm.explorer.state import PARTS, read
from umm.explorer.uploads import content_of, topology, trace_or_store
from umm.machines.files import named_file
from umm.space import Store

NAMES = (*PARTS, "policy", "prefetch", "reuse", "max_gemms", "offset", "granularity", "final", "colour", "")


def address(random: Random, _folder: Path) -> str:
    """Any address is a state whose own address means the same, and a line for each part without meaning."""
    values = (
        *LAYOUTS,
        *FOREIGN,
        *MACHINES,
        "8",
        "1K",
        "A",
        "auto",
        "float32",
        "2x",
        "16GiB",
        "on",
        "none",
        "direct",
        "tiles",
    )
    parts = []
    for _ in range(random.randrange(8)):
        value = random.choice(values) if random.random() < 0.7 else odd_text(random)
        value = quote(value, errors="replace") if random.random() < 0.9 else value
        parts.append(f"{random.choice(NAMES)}={value}" if random.random() < 0.95 else value)
    joint = random.choice("&&&;")
    query = "?" + joint.join(parts)
    state, mistakes = read(query)
    sizes = [unquote(part[2:]) for part in parts if part.startswith("m=")]
    if len(sizes) == 1 and sizes[0].isascii() and sizes[0].isdecimal() and joint == "&":
        assert state.m == int(sizes[0]) or mistakes, query
    for line in mistakes:
        assert len(line) < 400, line
        assert "\n" not in line, line
    again, none = read(state.query)
    assert (again, none) == (state, []) or len(state.query) > 8000, query
    tomllib.loads(as_toml(state))
    compile(as_python(state, 8), "copied", "exec")
    assert "\n" not in as_command(state) + as_search(state)
    return REFUSED if mistakes else TAKEN


@cache
def _seeds() -> list[bytes]:
    with Store(":memory:") as store:
        content = store._connection.serialize()
    return [
        named_file("h100-8").read_bytes(),
        content,
        b'{"trace_schema": 1, "start": []}',
        b"PK\x03\x04",
        b"",
    ]


def upload(random: Random, _folder: Path) -> str:
    """Whatever is dropped is read, or refused in one line."""
    content = bytes_changed(random, random.choice(_seeds()))
    name = "".join(random.choices(string.printable, k=8))
    sent = "data:application/octet-stream;base64," + base64.b64encode(content).decode()
    if random.random() < 0.05:
        sent = odd_text(random) + sent[random.randrange(len(sent)) :]
    taken = False
    for reader in (topology, trace_or_store):
        _, line = tried(lambda reader=reader: reader(name, content_of(sent)))
        taken |= line is None
        if line is not None:
            shown(" ".join(line.split()).replace(name, ""))
    return TAKEN if taken else REFUSED


@cache
def _client():
    app = make_app()
    client = app.server.test_client()
    asked = client.get("/_dash-dependencies", headers=HOST).json
    return client, [x for x in asked if not x.get("clientside_function")]


HOST = {"Host": "localhost"}
VALUES = (None, 3, -1.5, True, [], [None], {}, {"a": 1}, "x", "", "?m=x", "a" * 5000, "\0", [[[[]]]])


def _named(random: Random, given: list[dict[str, str]]) -> list[dict[str, object]]:
    """Return the arguments of a callback, with odd values."""
    result = [{"id": x["id"], "property": x["property"], "value": random.choice(VALUES)} for x in given]
    return result if random.random() < 0.8 else result[: random.randrange(len(result) + 1)]


def request(random: Random, _folder: Path) -> str:
    """A request of anybody has an answer; none is a traceback on the terminal or a failure of the server."""
    client, callbacks = _client()
    path, body = "/answer", json.dumps({"query": random.choice(VALUES), "viewer": random.choice(VALUES)})
    if random.random() < 0.6:
        callback = random.choice(callbacks)
        names = [x.rsplit(".", 1) for x in callback["output"].strip(".").split("...")]
        outputs = [{"id": name, "property": what.split("@")[0]} for name, what in names]
        asked = {
            "output": callback["output"],
            "outputs": outputs if callback["output"].startswith("..") else outputs[0],
            "inputs": _named(random, callback["inputs"]),
            "state": _named(random, callback["state"]),
            "changedPropIds": [f"{x['id']}.{x['property']}" for x in callback["inputs"][:1]],
        }
        if random.random() < 0.4:
            asked[random.choice(list(asked))] = random.choice(VALUES)
        path, body = "/_dash-update-component", json.dumps(asked)
    elif random.random() < 0.3:
        body = random.choice(("[", '{"a":', "")) * random.choice((1, 1000, 200_000)) + odd_text(random)
    elif random.random() < 0.2:
        name = quote(odd_text(random), errors="replace")
        path = f"/_dash-component-suites/{random.choice(('dash', 'plotly', 'x'))}/{name}"
    sent = body.encode("utf-8", "surrogatepass")
    done = client.post(path, data=sent, headers=HOST, content_type="application/json")
    assert done.status_code < 500, (path, body[:300])
    return TAKEN if done.status_code < 400 else REFUSED
