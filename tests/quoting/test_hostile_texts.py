"""Texts of anybody in other languages: 200 hostile ones come out as they were, wherever one is taken."""

import ast
import io
import json
import re
import shlex
import tomllib
from contextlib import suppress
from dataclasses import replace
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest
from command import good, umm
from emit_chains import MACHINE, laid_out, simulated
from emit_problems import PROBLEMS, problem_of
from hostile import hostile_texts
from machine_text import GOOD, SWITCH
from made_profiles import event

from umm import chain, machine
from umm.cli.flags.framework import load_traced
from umm.cli.printed.output import Output
from umm.emit.chains.program import emit_chain
from umm.emit.collective_tables import xla_table
from umm.emit.program import emit
from umm.errors import InputError, UmmError
from umm.explorer.copies import as_command, as_python, as_search, as_toml
from umm.explorer.state import State
from umm.figures.page import Section, write_page
from umm.machines import machine_names
from umm.machines.drafts.scaffold import text as machine_text
from umm.profiles.chakra import COMP, Node, written
from umm.program import load_chain
from umm.program.files import save_chain
from umm.program.models import PUBLIC
from umm.quoting.spreadsheet import csv_cell, of_csv_cell
from umm.quoting.terminal import in_lines, line, visible

TEXTS = hostile_texts()
LAYER = simulated(laid_out("gated-mlp", "sequence"))
UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def code(tree):
    """A program with its texts left out, and these texts."""
    texts = [x for x in ast.walk(tree) if isinstance(x, ast.Constant) and isinstance(x.value, str)]
    values = [x.value for x in texts]
    for constant in texts:
        constant.value = ""
    return ast.dump(tree), values


def squeezed(text):
    """A text as a wrapped docstring shows it, all spaces left out."""
    return visible(re.sub("[\t\n\x0b\x0c\r ]", "", text))


@pytest.mark.parametrize("target", ["torch", "jax", "umm"])
@pytest.mark.parametrize("name", ["two axes", "fewer rows than ranks"])
def test_a_machines_name_is_never_code_of_a_program(name, target):
    """Of all texts of a program those with the name alone differ, and nothing that is executed does."""

    def program(machine_name):
        note = f"umm predicts 3 ms on {machine_name}, 50 % of peak."
        text = emit(target, problem_of(name), machine_name, PROBLEMS[name][2], {"prefetch": 1}, note)
        assert not UNSEEN.search(text)
        return code(ast.parse(text))

    plain, usual = program("m")
    for text in TEXTS:
        dumped, texts = program(text)
        assert dumped == plain, text
        differing = [(x, y) for x, y in zip(usual, texts, strict=True) if x != y]
        assert all(x in ("m", usual[0]) for x, _ in differing), text
        assert squeezed(text) in squeezed(texts[0]), text
        assert target != "umm" or text in texts, text


def chain_emitted(target, text):
    """A layer in a framework's words; its note, and its name where it may be one, is a text of anybody."""
    program = LAYER.schedule.program
    with suppress(UmmError):
        program = replace(program, name=text)
    named = replace(LAYER, schedule=replace(LAYER.schedule, program=program))
    emitted = emit_chain(target, named, MACHINE, f"3 ms on {text}.")
    assert not UNSEEN.search(emitted)
    return emitted


@pytest.mark.parametrize("target", ["torch", "jax"])
def test_a_chains_name_and_a_note_are_never_code_of_its_program(target):
    """Only the docstring of the program differs."""
    plain, usual = code(ast.parse(chain_emitted(target, "m")))
    for text in TEXTS:
        dumped, texts = code(ast.parse(chain_emitted(target, text)))
        assert dumped == plain, text
        assert texts[1:] == usual[1:], text


@pytest.mark.parametrize("target", ["torchtitan", "megatron"])
def test_a_chains_name_and_a_note_are_comments_of_its_flags(target):
    usual = [x for x in chain_emitted(target, "m").split("\n") if not x.startswith("#")]
    for text in TEXTS:
        assert [x for x in chain_emitted(target, text).split("\n") if not x.startswith("#")] == usual, text


def test_a_modules_name_is_imported_only_if_it_is_one():
    for text in TEXTS:
        for name in (text, f"{text}:f", f"os:{text}"):
            with pytest.raises(InputError) as refused:
                load_traced(name)
            assert "\n" not in visible(str(refused.value))
    result = umm("simulate", "--module", "os:\nerror: x\x1b[2J")
    assert result.stderr.count("\n") == 1
    assert not UNSEEN.search(result.stderr)


@pytest.mark.parametrize("form", ["kineto", "chakra"])
def test_kernels_of_a_profile_are_only_shown(form, tmp_path):
    """200 kernels whose names, operators and collectives are hostile: lines of the answer stay ours."""
    path, texts = tmp_path / f"x.{form}", [x for x in TEXTS if not re.search("[\ud800-\udfff]", x)]
    if form == "kineto":
        events = []
        for number, text in enumerate(texts):
            args = {"External id": text, "device": 0, "stream": text, "Collective name": text, "dtype": text}
            events.append(event("cpu_op", text, number, 1, {"External id": text, "Input Dims": [[text]]}))
            events.append(event("kernel", text, 10 * number, 5, args))
        path.write_text(json.dumps(events), encoding="utf-8")
    else:
        nodes = [Node(i + 1, x, COMP, i * 1e-5, 5e-6, (), {x: 1}) for i, x in enumerate(texts)]
        path.write_bytes(written(nodes))
    asked = ("compare", "--profile", path, "--machine", "h100-8", "--ranks", 1, "-m", 64, "-n", 64, "-k", 64)
    shown = good(*asked)
    assert not UNSEEN.search(shown)
    assert shown.count("\n") < 30
    assert json.loads(good(*asked, "--json"))["profile"]["kernels_s"] == pytest.approx(len(texts) * 5e-6)


def proto_string(quoted):
    """The text that a string of a text protocol buffer is."""
    assert quoted[0] == quoted[-1] == '"'
    inner = quoted[1:-1]
    assert not re.search(r'(?<!\\)(?:\\\\)*"', inner)
    return ast.literal_eval(f'b"{inner}"').decode()


def test_a_platform_is_one_string_of_xlas_table():
    one = machine("h100-8")
    plain = xla_table(one, "p").splitlines()
    for text in TEXTS[::8]:
        lines = xla_table(one, text).splitlines()
        assert [x for x, y in zip(lines, plain, strict=True) if x != y] == [lines[1]]
        read = proto_string(re.fullmatch(r"  key: (.*)", lines[1])[1])
        assert read == text.encode("utf-8", "replace").decode()


def test_sources_and_descriptions_are_written_and_read_as_they_are():
    for text in TEXTS:
        if not re.search("[\ud800-\udfff]", text):  # no UTF-8, which no TOML file has
            number = {"value": "3 us", "source": text}
            content = {"description": text, "devices": {"rank": text, "launch": number}}
            assert tomllib.loads(machine_text(content)) == content, text


def test_layouts_and_chains_are_written_and_read_as_they_are(tmp_path):
    outline = chain("mlp", tokens=8, hidden=8, ffn=8)
    texts = [x for x in TEXTS if x.isprintable()]
    for text in texts:
        named = outline.with_layouts(text, {"X": "col"})
        save_chain(named, tmp_path / "chain.toml")
        assert load_chain(tmp_path / "chain.toml") == named, text
    for text in set(TEXTS) - set(texts):
        with pytest.raises(UmmError, match="cannot name layouts"):
            outline.with_layouts(text, {"X": "col"})


def test_what_the_page_copies_is_what_it_shows():
    """A command for a shell, Python and TOML; a machine that has no name is a file that was dropped in."""
    for text in TEXTS:
        file = text if text in machine_names() else f"{text}.toml"
        for state in (State(machine=text, a=text), State(machine=text, chain=text, layouts=text)):
            for command in (as_command(state), as_search(state)):
                words = shlex.split(command)
                assert words[words.index("--machine") + 1] == file
                assert ("--a" not in words or words[words.index("--a") + 1] == text) or state.chain
            usual = code(ast.parse(as_python(State(machine="m", chain="c" if state.chain else ""), 4)))[0]
            python = as_python(state, 4)
            tree = ast.parse(python)
            assert {text, file} <= {*code(tree)[1]}, text
            assert state.chain or code(ast.parse(python))[0] == usual
            if not re.search("[\ud800-\udfff]", text):
                assert tomllib.loads(as_toml(state))["machine"] == file


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data):
        self.words.append(data)


def test_a_name_adds_no_tag_to_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "")

    def read(text):
        figure = go.Figure(go.Scatter(x=[1], y=[2], text=[text], name=text))
        write_page(tmp_path / "x.html", text, [Section(text, text, text, figure)])
        page = Page()
        page.feed((tmp_path / "x.html").read_text(encoding="utf-8"))
        return page

    tags = read("plain").tags
    for text in TEXTS[::2]:
        if not re.search("[\ud800-\udfff\r]", text):  # which UTF-8 or HTML has not
            page = read(text)
            assert page.tags == tags, text
            assert page.words.count(text) >= 4, text


def test_what_a_terminal_obeys_is_shown():
    for text in TEXTS:
        assert not UNSEEN.search(visible(text))
        assert line(text).isprintable(), text
    assert in_lines({"a\n": ["x\ny", {"z": 1}]}) == {"a": ["x y", {"z": 1}]}


def test_a_machines_texts_are_lines_of_its_page(tmp_path):
    """A source that has line ends cannot look like lines of ours; a name that cannot be shown is refused."""
    path = tmp_path / "mine.toml"
    plain = tomllib.loads(GOOD + SWITCH)

    def lines(text):
        launch = {"value": "3 us", "source": text}
        content = {**plain, "description": text, "devices": {**plain["devices"], "launch": launch}}
        path.write_text(machine_text(content), encoding="utf-8")
        assert machine(path).description == line(text)
        shown = good("machine", "show", path)
        assert not UNSEEN.search(shown)
        return shown.count("\n")

    usual = lines("plain")
    for text in ("a\nerror: b\x1b[2K", "a\u2028b\u202e", "x\r\ty"):
        assert lines(text) == usual
    odd = tmp_path / "x\ny.toml"
    odd.write_bytes(path.read_bytes())
    result = umm("machine", "show", odd)
    assert result.exit_code == 2
    assert "has characters that cannot be shown; rename it" in result.stderr


def test_the_keys_of_a_models_config_are_no_lines(tmp_path):
    """A key that is not understood is printed."""
    path = tmp_path / "config.json"
    for text in ("odd\nerror: key \x1b[31m", "a\u2028b"):
        path.write_text(json.dumps({**PUBLIC["llama-3-8b"], text: 1}), encoding="utf-8")
        shown = good("model", path)
        assert line(text) in shown
        assert not re.search("^error", shown, re.MULTILINE)
        assert not UNSEEN.search(shown)


def test_a_name_of_a_device_is_no_format(tmp_path):
    """``{x}`` in a name is no place of ``--explain``'s template."""
    path = tmp_path / "mine.toml"
    for text in ("{x}", "{0}", "{", "%s", "{0.__class__}", "<a_text>"):
        names = [f"{text}{i}" for i in range(4)]
        named = GOOD.replace("[devices]\n", f"[devices]\nnames = {names}\n") + SWITCH
        path.write_text(named, encoding="utf-8")
        sizes = ("-m", 4096, "-n", 4096, "-k", 4096, "--a", "row", "--b", "row", "--c", "row")
        assert f" on {text}" in good("simulate", *sizes, "--explain", "--machine", path)


def test_a_cell_is_no_formula_and_comes_back():
    for text in TEXTS:
        assert not re.match(r"[=+\-@\t\r]", csv_cell(text))
        assert of_csv_cell(csv_cell(text)) == text


def test_a_console_prints_what_a_terminal_only_shows():
    for text in TEXTS:
        shown = io.StringIO()
        console = Output().console()
        console.file = shown
        console.print(text)
        assert not UNSEEN.search(shown.getvalue()), text
