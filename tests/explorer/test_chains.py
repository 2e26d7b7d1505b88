"""The page with a chain in place of one multiply: its search, its tabs, and its answers to bad input."""

import base64
import json
import random
import shlex
import time
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import quote

import plotly.graph_objects as go
import pytest
from click.testing import CliRunner

import umm
from umm.cli.main import main
from umm.errors import InputError
from umm.explorer import answer
from umm.explorer.app import make_app
from umm.explorer.background import Behind
from umm.explorer.callbacks import Asked, Sources, answered, viewed
from umm.explorer.copies import as_command, as_search
from umm.explorer.point import MOST_CHAIN, MOST_PARTS, chain_from
from umm.explorer.search import look_at_chain
from umm.explorer.state import State, read
from umm.explorer.tabs import TABS
from umm.explorer.uploads import Dropped, dropped_chain
from umm.program import load_chain
from umm.program.files import toml

SMALL = "?chain=mlp&ranks=4&tokens=64&hidden=64&ffn=128&choices=row%2Ccol%2Crow%40p"
LAYER = toml(umm.chain("gated-mlp", tokens=64, hidden=64, ffn=128))


@pytest.fixture(scope="module")
def behind():
    made = Behind()
    yield made
    made.close()


def looked_at(query, behind, texts=MappingProxyType({}), theme="light"):
    return viewed(Asked(query, theme=theme), Sources(Dropped(), behind, texts))


def found(query, behind, texts=MappingProxyType({})):
    """Return the view of an address once its search is over."""
    view = looked_at(query, behind, texts)
    behind.want("me", view.priced)
    end = time.monotonic() + 60
    while not view.priced.over:
        assert time.monotonic() < end
        time.sleep(0.01)
    return view


def shown(view, texts=MappingProxyType({})):
    """Return all that the page shows of a view."""
    return answer.words(view, {}, {}, texts) | answer.tab_shown(view) | answer.progress(view)


def test_what_is_used_today_is_there_before_the_search_of_a_chain_ends():
    """Each of the chain's own layouts with the makespan of its simulation."""
    mlp, sent = umm.chain("mlp", hidden=64, ffn=96, tokens=40), []
    look_at_chain(sent.append, umm.Space(chain=mlp, ranks=4), umm.machine("h100-8"), 10**10)
    known = [x["named"] for x in sent if set(x) == {"named"}]
    assert [list(x) for x in known] == [
        ["megatron"],
        ["megatron", "sequence"],
        ["megatron", "sequence", "data"],
    ]
    trace = umm.run(umm.schedule(mlp.laid_out("megatron", ranks=4), "h100-8"))
    assert known[-1]["megatron"] == trace.makespan_s
    assert any("top" in x for x in sent[len(known) :])


def test_a_page_that_waits_for_a_search_shows_what_is_used_today_as_it_comes(monkeypatch):
    """It has shown nothing by now; the search has sent one scheme, then none, then another."""
    sources = Sources(Dropped(), Behind(), {})
    monkeypatch.setattr(sources.behind, "want", lambda *_: None)
    priced = viewed(Asked(SMALL), sources).priced
    priced.heard.set()
    stage = ""
    for named, rows in (
        ({"megatron": 3e-5}, 1),
        ({"megatron": 3e-5}, 0),
        ({"megatron": 3e-5, "data": 2e-5}, 2),
    ):
        priced.take({"named": named})
        shown = answered(Asked(SMALL, stage=stage), sources).shown
        stage = shown["status.title"]
        tables = [x for x in shown.get("leaders.children", []) if x.className == "tensors"]
        assert sum(len(x.children[1].children) for x in tables) == rows
    assert shown["verdict.children"] == "Searching… The fastest known scheme, data, takes 20.00 µs."


def test_addresses_of_the_page_that_chains_once_had_lead_to_the_same_here():
    client = make_app().server.test_client()
    for old, new in (
        ("/chain/", "/?chain=mlp"),
        ("/chain?hidden=8", "/?chain=mlp&hidden=8"),
        ("/chain/?chain=gated-mlp&row=3&choices=row%2Ccol", "/?chain=gated-mlp&row=3&choices=row%2Ccol"),
    ):
        assert client.get(old, headers={"Host": "localhost"}).headers["Location"] == new
    assert client.get("/chain/", headers={"Host": "evil.example"}).status_code == 403
    state, mistakes = read(
        "?chain=layer.toml&tokens=512&hidden=96&ffn=7&heads=3&kv_heads=1&sequences=2&dtype=float16&backward=1"
        "&dropout=0.25&given=X%3Drow&machine=h100-8&ranks=4&memory=2x&choices=row%2C2d&stationary=best"
        "&optimizer=12&row=3&rank=1&data=1"
    )
    assert mistakes == []
    assert (state.chain, state.ffn, state.dropout, state.optimizer, state.row) == (
        "layer.toml",
        7,
        0.25,
        12.0,
        3,
    )


def test_a_model_stands_for_its_sizes():
    state, mistakes = read("?model=llama-3-8b&ffn=1K")
    assert (state.hidden, state.ffn, state.heads, state.kv_heads, mistakes) == (4096, 1024, 32, 8, [])
    assert read("?chain=head&model=llama-3-8b")[0].sizes["vocab"] == 128256
    mixture = read("?chain=moe&model=mixtral-8x7b&experts=16")[0]
    assert (mixture.experts, mixture.top_k, mixture.ffn) == (16, 2, 14336)


def test_a_model_that_the_page_has_not_is_refused_by_what_takes_it():
    """Deepseek-v3 has layers of two kinds, so no one set of sizes."""
    state, (line,) = read("?chain=moe-layer&model=deepseek-v3")
    assert state == State(chain="moe-layer")
    assert line.startswith(
        "the page has no model 'deepseek-v3', but those whose layers are all alike: llama-"
    )
    assert line.endswith("; umm search --model takes any")


def test_the_page_shows_what_the_command_finds(behind):
    """The best, its range, those of a name and the proof are those of ``umm search --chain``."""
    view = found(SMALL, behind)
    result = run(as_search(view.state))
    priced = view.priced
    assert [x["makespan_s"] for x in result["top"]] == [x.makespan_s for x in priced.top]
    assert result["top"][0]["makespan_range_s"] == list(view.ends)
    assert result["named"] == priced.named
    assert priced.proof.startswith("Proven best of ")
    page = shown(view)
    assert page["verdict.children"].endswith("nothing is communicated. Nothing that fits is 1 % faster.")
    assert "row@4" in str(page["tensors.children"])
    assert page["leaders.children"][1].children == priced.ties


def run(command):
    result = CliRunner().invoke(main, [*shlex.split(command)[1:], "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("dark", [False, True])
def test_every_tab_serves_a_chain_in_sound_figures(behind, dark):
    """Of a row of the search, of layouts that are typed, and before anything is found."""
    waits = looked_at("?chain=mlp&tokens=4096&ranks=4", behind, theme="dark" if dark else "light")
    for tab, content in TABS.items():
        parts = answer.tab_shown(replace(waits, state=replace(waits.state, tab=tab)))
        assert set(parts) == set(content.outputs)
    for layouts in ("", "&layouts=megatron"):
        for tab, content in TABS.items():
            view = replace(found(f"{SMALL}{layouts}&tab={tab}&data=1&op=3", behind), dark=dark)
            parts = answer.tab_shown(view)
            assert set(parts) == set(content.outputs)
            drawn = [value for name, value in parts.items() if name.endswith(".figure")]
            for figure in drawn:
                go.Figure(figure)  # plotly's own check of every property
            assert tab in ("scaling", "measured") or any(drawn)  # which wait for more


def test_a_mark_of_a_chain_is_a_point_with_its_bound_or_its_time(behind):
    """Every number of the search's points leads to layouts whose makespan is no less than its bound."""
    view = found(SMALL, behind)
    priced = view.priced
    assert len(priced.seconds) == len(priced.exact) > 100
    for number in range(0, len(priced.seconds), len(priced.seconds) // 12):
        marked = looked_at(view.state.at(*priced.points.parts(number)).query, behind)
        assert marked.selected == number
        seconds = marked.point.trace.makespan_s
        assert seconds >= priced.seconds[number] * (1 - 1e-9)
        if priced.exact[number]:
            assert seconds == pytest.approx(priced.seconds[number], rel=1e-12)


def test_another_row_has_its_own_layouts_schedule_and_command(behind):
    view = found(SMALL + "&row=3&data=1&tab=schedule", behind)
    page = shown(view)
    choice = view.priced.top[2]
    assert run(page["as-command.children"])["predicted"]["makespan_s"] == pytest.approx(choice.makespan_s)
    assert view.point.trace.makespan_s == pytest.approx(choice.makespan_s)
    assert "first start" in str(page["schedule-data.children"])
    assert page["facts.data"]["point"].startswith("?chain=mlp&tokens=64&hidden=64&ffn=128&ranks=4&layouts=X")


def test_layouts_that_are_typed_are_the_point_and_the_search_says_what_is_better(behind):
    view = found(SMALL + "&layouts=megatron", behind)
    best = view.priced.top[0].makespan_s
    saving = 100 * (1 - best / view.point.trace.makespan_s)
    assert f"; search finds {saving:.0f} % less time with " in answer.verdict(view)
    assert view.unlike(view.priced.top[0]) in answer.verdict(view)
    assert view.priced.named["megatron"] == pytest.approx(view.point.trace.makespan_s)
    pinned = found(SMALL + "&pin=" + quote(view.state.query), behind)
    assert "pinned: " in str(shown(pinned)["compare.children"])


def test_rows_with_equal_numbers_are_one_as_the_command_prints_them(behind):
    """Each of them can still be taken."""
    view = found(
        "?machine=pvc-12&chain=mlp&ranks=4&tokens=512&hidden=512&ffn=2048&backward=1&choices=row%2Ccol"
        "&stationary=best",
        behind,
    )
    table, note = answer.tab_shown(view)["leaders.children"]
    rows = table.children[1].children
    buttons = [len(row.children[0].children) for row in rows]
    assert sum(buttons) == len(view.priced.top) > len(rows)
    assert "3 more by other layouts of X, Y" in str(rows[0])
    assert note.children == view.priced.ties
    assert note.children.startswith("1 to 4 tie")


def test_the_best_matrix_in_place_of_each_multiply_is_that_of_the_search(behind):
    """Also where layouts are typed, which no row of the search says it for."""
    view = found(SMALL + "&stationary=best&backward=1", behind)
    for choice in view.priced.top[:3]:
        best = looked_at(view.state.at(choice.layouts, choice.kept, choice.options).query, behind)
        assert best.point.way["stationary"] == choice.stationary
        assert best.point.trace.makespan_s == pytest.approx(choice.makespan_s, rel=1e-12)


def test_the_python_that_is_copied_prints_the_verdict(behind, capsys):
    view = found(SMALL, behind)
    exec(shown(view)["as-python.children"], {})
    printed = capsys.readouterr().out
    assert "proven best of" in printed
    assert printed.splitlines()[-1] == view.point.trace.verdict


def test_a_row_that_is_not_there_is_said_in_a_line(behind):
    view = found(SMALL + "&row=77", behind)
    assert answer.verdict(view) == "No answer: there is no row 77; the search ranks 10."
    assert shown(view)["facts-strip.hidden"]


def test_a_budget_that_nothing_fits_is_said_in_the_verdict(behind):
    assert "no layouts of chain mlp fit" in answer.verdict(found(SMALL + "&memory=0.1x", behind))


PARTS = {
    "chain": ["", "mlp", "gated-mlp", "attention", "transformer-layer", "summa25-layer", "layer.toml",
              "none.toml", ""],
    "tokens": ["1", "7", "8K", "0", "9" * 30], "hidden": ["64", "7", "-1", "1e3"], "ffn": ["1", "96", "x"],
    "heads": ["1", "2", "7", "0"], "kv_heads": ["0", "1", "3", "-1"], "sequences": ["1", "3", "9999"],
    "dtype": ["float64", "bfloat16", "complex64"], "backward": ["1", "0", "yes"],
    "machine": ["h100-8", "localhost", "/etc/passwd", ""], "ranks": ["0", "1", "3", "8", "999", "-2"],
    "memory": ["1x", "-1", "1e999x", "x"], "choices": ["row", "all", "row,,col", "@", "edges:0-3x0-5:1x2"],
    "row": ["1", "0", "99"], "rank": ["-1", "5", "99"], "data": ["1", "2"], "model": ["llama-3-8b", "x"],
    "m": ["7"], "tab": [*TABS], "layouts": ["megatron", "X=row", "X=zebra", "Q=row", "W1=cyclic:1x1:1x1"],
    "down": ["W1", "Q"], "statement": ["0", "2", "99"], "op": ["4", "-1"],
    "dropout": ["0.1", "1", "2", "nan", "1e-9", ""], "given": ["X=row", "X", "Y=row", "X=zebra"],
    "stationary": ["auto", "best", "B", "D"], "optimizer": ["12", "0.5", "-1", "inf"],
}  # fmt: skip


def test_random_addresses_are_answered(behind):
    """Each is a question for a search, or has a line that says why it has none."""
    chance = random.Random(5)
    for _ in range(150):
        names = chance.choices(list(PARTS), k=chance.randrange(6))
        parts = [f"{name}={quote(chance.choice(PARTS[name]))}" for name in names]
        view = looked_at(
            "?chain=mlp&hidden=64&ffn=96&tokens=64&" + "&".join(parts), behind, {"layer.toml": LAYER}
        )
        assert view.case is not None or view.mistakes, view.state
        assert read(view.state.query) == (view.state, [])
        page = shown(view)
        assert view.case is None or set(TABS[view.state.tab].outputs) <= set(page)


@pytest.fixture
def opened(monkeypatch):
    """Return the output of ``umm explore``; the server ends at once."""
    monkeypatch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", lambda *_: None)

    def run(*args):
        return CliRunner().invoke(main, ["explore", "--no-open", "--quiet", "--port", "0", *args])

    return run


def test_the_command_opens_the_page_of_a_chain(opened):
    result = opened("--chain", "mlp", "--model", "llama-3-8b", "--ffn", "8K", "--tokens", "1K", "--backward")
    assert result.stdout.strip().partition("/?")[2] == (
        "chain=mlp&tokens=1024&ffn=8192&kv_heads=8&vocab=128256&backward=1"
    )


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--hidden", "8K"), "--hidden needs a chain"),
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
    result = opened(*args)
    assert result.exit_code == 2
    assert why in result.stderr


# Files --------------------------------------------------------------------------------------------


def test_a_file_on_the_command_line_is_what_the_page_opens(opened, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("umm.explorer.app.make_app", lambda *args: served.append(args[3]) or make_app())
    (tmp_path / "layer.toml").write_text(LAYER)
    result = opened("--chain", str(tmp_path / "layer.toml"), "--given", "X=row", "--choices", "row,col",
                  "--optimizer", "12", "--stationary", "best", "--memory", "2x")  # fmt: skip
    address = result.stdout.strip().partition("/?")[2]
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
        ("#" * (MOST_CHAIN + 1), (), f"has more than {MOST_CHAIN} bytes"),
    ],
)
def test_a_file_on_the_command_line_that_is_no_chain_is_refused(opened, tmp_path, text, args, why):
    (tmp_path / "layer.toml").write_text(text)
    result = opened("--chain", str(tmp_path / "layer.toml"), *args)
    assert result.exit_code == 2
    assert why in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_page_finds_for_a_file_what_the_command_finds(behind, tmp_path, monkeypatch):
    """With inputs given elsewhere, state of an optimizer, and the best matrix in place of each multiply."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.toml").write_text(LAYER)
    query = (
        "?chain=layer.toml&ranks=4&choices=row,col&given=X=row,W1=col&optimizer=12&stationary=best&tokens=9"
    )
    view = found(query, behind, {"layer.toml": LAYER})
    result = run(as_search(view.state))
    assert [x["makespan_s"] for x in result["top"]] == [x.makespan_s for x in view.priced.top]
    assert [x["memory_bytes"] for x in result["top"]] == [x.memory_bytes for x in view.priced.top]
    page = shown(view, {"layer.toml": LAYER})
    assert page["chain.options"][-1]["value"] == "layer.toml"
    assert page["models.hidden"]
    assert page["dtype-field.hidden"]
    assert page["tokens-field.hidden"]
    assert page["a-set.hidden"]


def test_a_preset_is_searched_with_dropout_and_given_inputs(behind):
    view = found(SMALL + "&dropout=0.1&given=X=row", behind)
    chain = view.case.bare
    assert any(x.fn == "dropout" for x in chain.statements if hasattr(x, "fn"))
    assert chain.given == {"X": "row"}
    result = run(as_command(view.point.state))
    assert result["predicted"]["makespan_s"] == pytest.approx(view.priced.top[0].makespan_s)


def test_the_python_of_a_file_runs_where_it_lies(behind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.toml").write_text(LAYER)
    query = "?chain=layer.toml&ranks=4&choices=row,col&stationary=best&given=X=row&optimizer=1"
    view = found(query, behind, {"layer.toml": LAYER})
    page = shown(view)
    exec(page["as-python.children"], {})
    printed = capsys.readouterr().out
    assert "proven best of" in printed
    assert printed.splitlines()[-1] == view.point.trace.verdict
    assert "only the Python below" in page["as-command.children"]


def test_a_file_that_is_not_here_has_a_line(behind):
    view = looked_at("?chain=layer.toml", behind)
    assert view.wrong == ["the file 'layer.toml' is not here; drop it in, or choose another chain"]
    assert view.point is None


def test_what_stands_in_an_address_is_quoted_in_a_command():
    state, _ = read(
        "?chain=mlp&"
        + "&".join(f"{x}={quote('a b;$(c)')}" for x in ("machine", "given", "choices", "memory"))
    )
    words = shlex.split(as_search(state))
    assert (words.count("a b;$(c)"), words.count("a b;$(c).toml")) == (3, 1)


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
        ("layer.toml", b"#" * (MOST_CHAIN + 1), "characters are too many for a chain"),
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
        chain_from(lines, "layer.toml")


LOCAL = {"Host": "localhost"}


@pytest.fixture
def client():
    return make_app(chains={"named.toml": LAYER}).server.test_client()


@pytest.fixture
def asked(client):
    """Return a callback's answer to a browser: outputs by ``id.property``."""

    def ask(output, takes, **given):
        known = client.get("/_dash-dependencies", headers=LOCAL).json
        one = next(x for x in known if output in x["output"] and takes in str(x["inputs"]))
        values = {x.replace("__", ".").replace("_", "-"): value for x, value in given.items()}
        told = {
            what: [x | {"value": values.get(f"{x['id']}.{x['property']}")} for x in one[what]]
            for what in ("inputs", "state")
        }
        pairs = [x.rsplit(".", 1) for x in one["output"].strip(".").split("...")]
        body = told | {
            "output": one["output"],
            "outputs": [{"id": x, "property": y.partition("@")[0]} for x, y in pairs],
            "changedPropIds": [next(f"{x['id']}.{x['property']}" for x in one["inputs"] if x["id"] == takes)],
        }
        answered = client.post("/_dash-update-component", json=body, headers=LOCAL)
        result = json.loads(answered.data)["response"] if answered.data else {}
        return {f"{x}.{name}": value for x, props in result.items() for name, value in props.items()}

    return ask


def test_a_chain_is_dropped_in_and_its_best_layouts_are_saved(asked, client, tmp_path):
    """The newest four stay; the file that comes back has the layouts of the row as its default."""
    sent = "data:;base64," + base64.b64encode(LAYER.encode()).decode()
    four = {f"{x}.toml": LAYER for x in "abcd"}
    result = asked("chain-files.data", "drop-chain", drop_chain__contents=sent,
                 drop_chain__filename="layer.toml", chain_files__data=four,
                 url__search="?chain=mlp&tokens=4096&row=3&choices=row%2Ccol&ranks=4")  # fmt: skip
    assert list(result["chain-files.data"]) == ["b.toml", "c.toml", "d.toml", "layer.toml"]
    assert result["drop-words.children"] == "layer.toml is read."
    query, files = result["url.search"], result["chain-files.data"]
    assert query == "?chain=layer.toml&tokens=4096&ranks=4&choices=row%2Ccol"
    about = {"query": query, "chains": files, "theme": "light", "viewer": "me", "files": {}}
    shown = client.post("/answer", json=about, headers=LOCAL).json["shown"]
    offered = [x["value"] for x in shown["chain.options"]]
    assert offered[-2:] == ["d.toml", "layer.toml"]
    assert "named.toml" in offered
    saved, end = {}, time.monotonic() + 60
    while "download.data" not in saved:
        assert time.monotonic() < end
        time.sleep(0.05)
        saved = asked(
            "download.data", "to-toml", to_toml__n_clicks=1, url__search=query, chain_files__data=files
        )
    (tmp_path / "chain.toml").write_text(saved["download.data"]["content"])
    best = load_chain(tmp_path / "chain.toml").default_layouts
    space = umm.Space(chain=chain_from(LAYER, "layer.toml"), ranks=4, layouts=("row", "col"))
    assert best == umm.search(space, "h100-8").top[0].layouts  # where the page begins


def test_what_is_dropped_in_and_is_no_chain_changes_a_line_alone(asked):
    sent = "data:;base64," + base64.b64encode(b"name = 1").decode()
    result = asked(
        "chain-files.data", "drop-chain", drop_chain__contents=sent, drop_chain__filename="layer.toml"
    )
    assert list(result) == ["drop-words.children"]
    assert result["drop-words.children"].startswith("layer.toml: a chain lacks 'tensors'; ")
