"""The page of a chain: its address, what it shows of a search, and what it says of bad input."""

import json
import random
import time
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from umm.cli.main import main
from umm.explorer.app import make_app
from umm.explorer.behind import Behind
from umm.explorer.chains import answer
from umm.explorer.chains.callbacks import viewed
from umm.explorer.chains.state import ChainState, as_command, read

SMALL = "?ranks=4&tokens=64&hidden=64&ffn=128&choices=row%2Ccol%2Crow%40p"


@pytest.fixture(scope="module")
def behind():
    made = Behind()
    yield made
    made.close()


def found(query, behind):
    """Return the view of an address once its search is over."""
    view = viewed(query, "light", {}, behind)
    behind.want("me", view.found)
    end = time.monotonic() + 60
    while not (view.found.done or view.found.failed):
        assert time.monotonic() < end
        time.sleep(0.01)
    return view


def test_every_part_of_a_state_comes_back_from_its_address():
    state = ChainState(
        "attention", 512, 96, 7, 3, 1, 2, "float16", True, "h100-8", 4, "2x", "row,2d", 3, 1, True
    )
    assert read(state.query) == (state, [])
    assert ChainState().query == ""


def test_a_model_stands_for_its_sizes():
    state, mistakes = read("?model=llama-3-8b&ffn=1K")
    assert (state.hidden, state.ffn, state.heads, state.kv_heads, mistakes) == (4096, 1024, 32, 8, [])


def test_the_page_shows_what_the_command_finds(behind):
    """The best, its range, those of a name and the proof are those of ``umm search --chain``."""
    view = found(SMALL, behind)
    command = as_command(view.state).split()[1:]
    said = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert [x["makespan_s"] for x in said["top"]] == [x.makespan_s for x in view.found.top]
    assert said["top"][0]["makespan_range_s"] == list(view.found.ranges[0])
    assert (said["named"], view.found.sure) == (view.found.named, "proven best")
    shown = answer.found_shown(view)
    assert set(shown) == set(answer.FOUND)
    assert shown["verdict.children"].endswith("nothing is communicated.")
    assert "row@4" in str(shown["layouts.children"])
    assert shown["lanes.figure"]["data"]
    assert not shown["found.hidden"]


def test_another_row_has_its_own_layouts_schedule_and_command(behind):
    view = found(SMALL + "&row=3&data=1", behind)
    shown = answer.found_shown(view)
    choice = view.found.top[2]
    command = shown["as-row.children"].split()[1:]
    said = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert said["predicted"]["makespan_s"] == pytest.approx(choice.makespan_s)
    assert f"{choice.makespan_s / view.found.top[0].makespan_s:.2f}x the best" in shown["verdict.children"]
    assert "first_start_s" in str(shown["lanes-data.children"])


def test_the_python_that_is_copied_prints_the_verdict(behind, capsys):
    shown = answer.found_shown(found(SMALL, behind))
    exec(shown["as-python.children"], {})
    printed = capsys.readouterr().out
    assert "proven best of" in printed
    assert printed.splitlines()[-1] in shown["verdict.children"]


def test_a_row_that_is_not_there_is_said_in_a_line(behind):
    view = found(SMALL + "&row=77", behind)
    shown = answer.found_shown(view)
    assert "there is no row 77; the search ranks 10" in shown["verdict.children"]
    assert shown["found.hidden"]


def test_a_budget_that_nothing_fits_is_said_in_the_verdict(behind):
    view = found(SMALL + "&memory=0.1x", behind)
    assert "no layouts of chain mlp fit" in answer.found_shown(view)["verdict.children"]


PARTS = {
    "chain": ["mlp", "gated-mlp", "attention", "transformer-layer", "summa25-layer", "layer.toml", ""],
    "tokens": ["1", "7", "8K", "0", "9" * 30], "hidden": ["64", "7", "-1", "1e3"], "ffn": ["1", "96", "x"],
    "heads": ["1", "2", "7", "0"], "kv_heads": ["0", "1", "3", "-1"], "sequences": ["1", "3", "9999"],
    "dtype": ["float64", "bfloat16", "complex64"], "backward": ["1", "0", "yes"],
    "machine": ["h100-8", "localhost", "/etc/passwd", ""], "ranks": ["0", "1", "3", "8", "999", "-2"],
    "memory": ["1x", "-1", "1e999x", "x"], "choices": ["row", "all", "row,,col", "@", "edges:0-3x0-5:1x2"],
    "row": ["1", "0", "99"], "rank": ["-1", "5", "99"], "data": ["1", "2"], "model": ["llama-3-8b", "x"],
    "m": ["7"],
}  # fmt: skip


def test_random_addresses_are_answered(behind):
    """Each is a question for a search, or has a line that says why it has none."""
    chance = random.Random(5)
    for _ in range(150):
        names = chance.choices(list(PARTS), k=chance.randrange(6))
        query = "?" + "&".join(f"{name}={quote(chance.choice(PARTS[name]))}" for name in names)
        view = viewed(query, "dark", {}, behind)
        assert view.found is not None or view.mistakes, query
        assert read(view.state.query) == (view.state, [])
        answer.words(view, {})
        answer.progress(view)
        assert answer.found_shown(view)["found.hidden"]


def test_the_page_is_served_beside_that_of_one_multiply():
    client = make_app().server.test_client()
    page = client.get("/chain/", headers={"Host": "localhost"})
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
    short = client.get("/chain?hidden=8", headers={"Host": "localhost"})
    assert short.headers["Location"].endswith("/chain/?hidden=8")
    assert client.get("/chain/", headers={"Host": "evil.example"}).status_code == 403


@pytest.fixture
def opened(monkeypatch):
    """Return what ``umm explore`` prints; the server ends at once."""
    monkeypatch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", lambda *_: None)

    def run(*args):
        return CliRunner().invoke(main, ["explore", "--no-open", "--quiet", "--port", "0", *args])

    return run


def test_the_command_opens_the_page_of_a_chain(opened):
    said = opened("--chain", "mlp", "--model", "llama-3-8b", "--ffn", "8K", "--tokens", "1K", "--backward")
    assert said.stdout.strip().partition("/chain/")[2] == "?tokens=1024&ffn=8192&kv_heads=8&backward=1"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--hidden", "8K"), "--hidden is of a chain"),
        (("--chain", "mlp", "-m", "8"), "'m' is no part of this page's address"),
        (("--chain", "layer.toml"), "chain 'layer.toml' is unknown; choose from mlp"),
    ],
)
def test_the_command_refuses_what_the_page_has_no_place_for(opened, args, why):
    said = opened(*args)
    assert said.exit_code == 2
    assert why in said.stderr
