"""The page of a chain: its address, what it shows of a search, and what it says of bad input."""

import base64
import json
import random
import shlex
import time
from types import MappingProxyType
from urllib.parse import quote

import pytest
from click.testing import CliRunner

import umm
from umm.cli.main import main
from umm.errors import InputError
from umm.explorer.app import make_app
from umm.explorer.background import Behind
from umm.explorer.chains import answer
from umm.explorer.chains.callbacks import viewed
from umm.explorer.chains.files import MOST_BYTES, MOST_PARTS, chain_of, dropped_chain
from umm.explorer.chains.state import ChainState, as_command, read
from umm.program import load_chain
from umm.program.files import toml

SMALL = "?ranks=4&tokens=64&hidden=64&ffn=128&choices=row%2Ccol%2Crow%40p"
LAYER = toml(umm.chain("gated-mlp", tokens=64, hidden=64, ffn=128))


@pytest.fixture(scope="module")
def behind():
    made = Behind()
    yield made
    made.close()


def found(query, behind, texts=MappingProxyType({})):
    """Return the view of an address once its search is over."""
    view = viewed(query, "light", {}, texts, behind)
    behind.want("me", view.found)
    end = time.monotonic() + 60
    while not (view.found.done or view.found.failed):
        assert time.monotonic() < end
        time.sleep(0.01)
    return view


def test_every_part_of_a_state_comes_back_from_its_address():
    state = ChainState(
        "layer.toml", 512, 96, 7, 3, 1, 2, "float16", True, 0.25, "X=row,W1=2d", "h100-8", 4, "2x", "row,2d",
        "best", 12.0, 3, 1, True,
    )  # fmt: skip
    assert read(state.query) == (state, [])
    assert ChainState().query == ""


def test_a_model_stands_for_its_sizes():
    state, mistakes = read("?model=llama-3-8b&ffn=1K")
    assert (state.hidden, state.ffn, state.heads, state.kv_heads, mistakes) == (4096, 1024, 32, 8, [])


def test_the_page_shows_what_the_command_finds(behind):
    """The best, its range, those of a name and the proof are those of ``umm search --chain``."""
    view = found(SMALL, behind)
    command = shlex.split(as_command(view.state))[1:]
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
    "chain": ["mlp", "gated-mlp", "attention", "transformer-layer", "summa25-layer", "layer.toml",
              "none.toml", ""],
    "tokens": ["1", "7", "8K", "0", "9" * 30], "hidden": ["64", "7", "-1", "1e3"], "ffn": ["1", "96", "x"],
    "heads": ["1", "2", "7", "0"], "kv_heads": ["0", "1", "3", "-1"], "sequences": ["1", "3", "9999"],
    "dtype": ["float64", "bfloat16", "complex64"], "backward": ["1", "0", "yes"],
    "machine": ["h100-8", "localhost", "/etc/passwd", ""], "ranks": ["0", "1", "3", "8", "999", "-2"],
    "memory": ["1x", "-1", "1e999x", "x"], "choices": ["row", "all", "row,,col", "@", "edges:0-3x0-5:1x2"],
    "row": ["1", "0", "99"], "rank": ["-1", "5", "99"], "data": ["1", "2"], "model": ["llama-3-8b", "x"],
    "m": ["7"], "dropout": ["0.1", "1", "2", "nan", "1e-9", ""], "given": ["X=row", "X", "Y=row", "X=zebra"],
    "stationary": ["auto", "best", "B", "D"], "optimizer": ["12", "0.5", "-1", "inf"],
}  # fmt: skip


def test_random_addresses_are_answered(behind):
    """Each is a question for a search, or has a line that says why it has none."""
    chance = random.Random(5)
    for _ in range(150):
        names = chance.choices(list(PARTS), k=chance.randrange(6))
        query = "?" + "&".join(f"{name}={quote(chance.choice(PARTS[name]))}" for name in names)
        view = viewed(query, "dark", {}, {"layer.toml": LAYER}, behind)
        assert view.found is not None or view.mistakes, query
        assert read(view.state.query) == (view.state, [])
        answer.words(view, {}, {})
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
        (("--chain", "mlp", "-m", "8"), "-m is not for this page"),
        (("--chain", "mlp", "--preset", "mlp1"), "--preset is not for this page"),
        (("--chain", "mlp", "--set", "launch=x2"), "--set is not for this page"),
        (("--chain", "mlp", "--machine", "h100"), "there is no machine 'h100'"),
        (("--chain", "layer.toml"), "cannot read layer.toml: No such file or directory"),
        (("--chain", "layers"), "chain 'layers' is unknown; choose from mlp"),
        (("--chain", "mlp", "--heads", "8"), "chain mlp has no size 'heads'"),
        (("--chain", "attention", "--dropout", "0.1"), "chain attention has no MLP"),
        (("--chain", "mlp", "--given", "Y=row"), "Y of chain mlp cannot be given elsewhere"),
        (("--chain", "mlp", "--top", "5"), "No such option"),
    ],
)
def test_the_command_refuses_what_the_page_has_no_place_for(opened, args, why):
    said = opened(*args)
    assert said.exit_code == 2
    assert why in said.stderr


# Files --------------------------------------------------------------------------------------------


def test_a_file_on_the_command_line_is_what_the_page_opens(opened, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("umm.explorer.app.make_app", lambda *args: served.append(args[-1]) or make_app())
    (tmp_path / "layer.toml").write_text(LAYER)
    said = opened("--chain", str(tmp_path / "layer.toml"), "--given", "X=row", "--choices", "row,col",
                  "--optimizer", "12", "--stationary", "best", "--memory", "2x")  # fmt: skip
    address = said.stdout.strip().partition("/chain/")[2]
    state, mistakes = read(address)
    assert (state.chain, state.given, state.choices) == ("layer.toml", "X=row", "row,col")
    assert (state.optimizer, state.stationary, state.memory, mistakes) == (12.0, "best", "2x", [])
    assert served == [{"layer.toml": LAYER}]


@pytest.mark.parametrize(
    ("text", "args", "why"),
    [
        (LAYER, ("--tokens", "4K", "--dtype", "float64"), "already decides --tokens, --dtype; leave it out"),
        (LAYER, ("--given", "Y=row"), "Y of chain gated-mlp cannot be given elsewhere"),
        (LAYER.replace('"X"', '"\\u001b[31m"'), (), "layer.toml: "),
        ("name = ", (), "layer.toml is not TOML"),
        ("#" * (MOST_BYTES + 1), (), f"has more than {MOST_BYTES} bytes"),
    ],
)
def test_a_file_on_the_command_line_that_is_no_chain_is_refused(opened, tmp_path, text, args, why):
    (tmp_path / "layer.toml").write_text(text)
    said = opened("--chain", str(tmp_path / "layer.toml"), *args)
    assert said.exit_code == 2
    assert why in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1


def test_the_page_finds_for_a_file_what_the_command_finds(behind, tmp_path, monkeypatch):
    """With inputs given elsewhere, state of an optimizer, and the best matrix in place of each multiply."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.toml").write_text(LAYER)
    query = (
        "?chain=layer.toml&ranks=4&choices=row,col&given=X=row,W1=col&optimizer=12&stationary=best&tokens=9"
    )
    view = found(query, behind, {"layer.toml": LAYER})
    command = shlex.split(as_command(view.state))[1:]
    said = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert [x["makespan_s"] for x in said["top"]] == [x.makespan_s for x in view.found.top]
    assert [x["memory_bytes"] for x in said["top"]] == [x.memory_bytes for x in view.found.top]
    shown = answer.words(view, {}, {"layer.toml": LAYER})
    assert shown["chain.options"][-1] == "layer.toml"
    assert shown["models.hidden"]
    assert shown["dtype-field.hidden"]
    assert shown["tokens-field.hidden"]


def test_a_preset_is_searched_with_dropout_and_given_inputs(behind):
    view = found(SMALL + "&dropout=0.1&given=X=row", behind)
    chain = view.found.space.program
    assert any(x.fn == "dropout" for x in chain.statements if hasattr(x, "fn"))
    assert chain.given == {"X": "row"}
    command = shlex.split(as_command(view.state, view.found.top[0].layouts))[1:]
    said = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert said["predicted"]["makespan_s"] == pytest.approx(view.found.top[0].makespan_s)


def test_the_python_of_a_file_runs_where_it_lies(behind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.toml").write_text(LAYER)
    query = "?chain=layer.toml&ranks=4&choices=row,col&stationary=best&given=X=row&optimizer=1"
    shown = answer.found_shown(found(query, behind, {"layer.toml": LAYER}))
    exec(shown["as-python.children"], {})
    printed = capsys.readouterr().out
    assert "proven best of" in printed
    assert printed.splitlines()[-1] in shown["verdict.children"]
    assert "in place" in shown["as-row.children"]


def test_a_file_that_is_not_here_has_a_line(behind):
    view = viewed("?chain=layer.toml", "light", {}, {}, behind)
    assert view.mistakes == ["the file 'layer.toml' is not here; drop it in, or choose another chain"]
    assert view.found is None


def test_what_stands_in_an_address_is_quoted_in_a_command():
    state, _ = read(
        "?" + "&".join(f"{x}={quote('a b;$(c)')}" for x in ("machine", "given", "choices", "memory"))
    )
    words = shlex.split(as_command(state))
    assert words.count("a b;$(c)") == 4


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("layer.txt", LAYER.encode(), "give the chain's file a plain name, such as layer.toml"),
        (".toml", LAYER.encode(), "give the chain's file a plain name"),
        ("a\nb.toml", LAYER.encode(), "give the chain's file a plain name"),
        ("a" * 40 + ".toml", LAYER.encode(), "give the chain's file a plain name"),
        ("layer.toml", b"\xff\xfe", "layer.toml is not a text file; a chain is TOML"),
        ("layer.toml", b"x = " + b"[" * 5000, "layer.toml is not TOML that can be read: it nests too deep"),
        ("layer.toml", b"x = " + b"9" * 9000, "layer.toml is not TOML: it has a whole number beyond 64 bits"),
        ("layer.toml", b"#" * (MOST_BYTES + 1), "characters are too many for a chain"),
        ("layer.toml", b"", "a chain lacks 'name'; it has the keys name, tensors"),
        ("layer.toml", LAYER.replace("64, 128", "0, 128").encode(), "is not possible"),
    ],
)
def test_a_dropped_file_that_is_no_chain_is_refused_in_a_line(name, content, why):
    with pytest.raises(InputError) as refused:
        dropped_chain(name, content)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_chain_of_too_many_statements_is_refused():
    lines = LAYER + "".join(f'\n[[tensors]]\nname = "T{i}"\nshape = [1, 1]\ndtype = "float32"\n'
                            for i in range(MOST_PARTS))  # fmt: skip
    with pytest.raises(InputError, match=f"the page takes up to {MOST_PARTS} of each"):
        chain_of(lines, "layer.toml")


LOCAL = {"Host": "localhost"}


@pytest.fixture
def client():
    return make_app(chains={"named.toml": LAYER}).server.test_client()


@pytest.fixture
def asked(client):
    """Return what a callback of the page of a chain answers a browser: outputs by ``id.property``."""

    def ask(output, **given):
        known = client.get("/chain/_dash-dependencies", headers=LOCAL).json
        one = next(x for x in known if output in x["output"] and not x["clientside_function"])
        values = {x.replace("__", ".").replace("_", "-"): value for x, value in given.items()}
        told = {
            what: [x | {"value": values.get(f"{x['id']}.{x['property']}")} for x in one[what]]
            for what in ("inputs", "state")
        }
        pairs = [x.rsplit(".", 1) for x in one["output"].strip(".").split("...")]
        body = told | {
            "output": one["output"],
            "outputs": [{"id": x, "property": y.partition("@")[0]} for x, y in pairs],
            "changedPropIds": [f"{one['inputs'][0]['id']}.{one['inputs'][0]['property']}"],
        }
        answered = client.post("/chain/_dash-update-component", json=body, headers=LOCAL)
        found = json.loads(answered.data)["response"] if answered.data else {}
        return {f"{x}.{name}": value for x, props in found.items() for name, value in props.items()}

    return ask


def test_a_chain_is_dropped_in_and_its_best_layouts_are_saved(asked, client, tmp_path):
    """The newest four stay; the file that comes back has the layouts of the row as its default."""
    sent = "data:;base64," + base64.b64encode(LAYER.encode()).decode()
    four = {f"{x}.toml": LAYER for x in "abcd"}
    said = asked("chain-files.data", drop_chain__contents=sent, drop_chain__filename="layer.toml",
                 chain_files__data=four,
                 url__search="?tokens=4096&row=3&choices=row%2Ccol&ranks=4")  # fmt: skip
    assert list(said["chain-files.data"]) == ["b.toml", "c.toml", "d.toml", "layer.toml"]
    assert said["drop-words.children"] == "layer.toml is read."
    query, files = said["url.search"], said["chain-files.data"]
    assert query == "?chain=layer.toml&tokens=4096&ranks=4&choices=row%2Ccol"
    about = {"query": query, "dropped": files, "theme": "light", "viewer": "me", "files": {}}
    shown = client.post("/chain/answer", json=about, headers=LOCAL).json["shown"]
    assert shown["chain.options"][-2:] == ["d.toml", "layer.toml"]
    assert "named.toml" in shown["chain.options"]
    saved, end = {}, time.monotonic() + 60
    while "download.data" not in saved:
        assert time.monotonic() < end
        time.sleep(0.05)
        saved = asked("download.data", to_toml__n_clicks=1, url__search=query, chain_files__data=files)
    (tmp_path / "chain.toml").write_text(saved["download.data"]["content"])
    best = load_chain(tmp_path / "chain.toml").default_layouts
    space = umm.Space(chain=chain_of(LAYER, "layer.toml"), ranks=4, layouts=("row", "col"))
    assert best == umm.search(space, "pvc-12").top[0].layouts


def test_what_is_dropped_in_and_is_no_chain_changes_a_line_alone(asked):
    sent = "data:;base64," + base64.b64encode(b"name = 1").decode()
    said = asked("chain-files.data", drop_chain__contents=sent, drop_chain__filename="layer.toml")
    assert list(said) == ["drop-words.children"]
    assert said["drop-words.children"].startswith("layer.toml: a chain lacks 'tensors'; ")
