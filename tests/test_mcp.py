"""Tools for agents are the commands: their flags, words, answers and errors; needs no SDK."""

import json
import sys

import click
import pytest
from command import umm
from hostile import hostile_texts

from umm.cli.flags.options import WRITE
from umm.errors import InputError
from umm.mcp.answers import RECORDS, numbers, schema
from umm.mcp.tools import tools

TOOLS = tools()
# Small questions to the tools whose answers have a type.
ASKED = {
    "simulate": {"m": 64, "n": 48, "k": "40", "a": "col"},
    "search": {"m": 64, "n": 48, "k": 40, "ranks": 2, "top": 3},
    "peers": {"m": 64, "n": 48, "k": 40, "ranks": 2, "crossover": False},
    "step": {"model": "llama-3-8b", "batch": "128", "length": "8K", "fsdp": 8},
    "serve": {"model": "llama-3-8b"},
    "machine_show": {"machine": "pvc-12"},
    "machine_list": {},
    "collective": {"what": "all-gather", "end": "1MiB"},
    "fuse": {"preset": "mlp1"},
    "muon": {"model": "llama-3-8b"},
    "model": {"name_or_file": "llama-3-8b"},
    "models": {},
    "what_if": {"m": 64, "n": 48, "k": 40, "ranks": 2},
}


def test_a_tools_arguments_are_the_words_of_its_command():
    words = TOOLS["simulate"].command_line(
        {"m": 8192, "k": "-1", "a": "-x", "graphs": False, "backward": True}
    )
    assert words == ["simulate", "-m", "8192", "-k", "-1", "--a=-x", "--eager", "--backward", "--json"]
    words = TOOLS["machine_show"].command_line({"machine": "--x", "set": ["launch=x2", "launch=x3"]})
    assert words == ["machine", "show", "--set=launch=x2", "--set=launch=x3", "--json", "--", "--x"]
    assert "--json" not in TOOLS["step"].command_line({"emit": "megatron"})
    assert TOOLS["step"].command_line({"emit": None, "help_all": False}) == ["step", "--json"]
    assert TOOLS["simulate"].command_line({"letters": None, "m": 8}) == ["simulate", "-m", "8", "--json"]
    assert TOOLS["machine_show"].command_line({"machine": "x", "toml": False})[2] == "--json"


@pytest.mark.parametrize("name", TOOLS)
def test_a_schema_has_the_flags_of_the_help_and_none_that_writes_or_executes(name):
    served = TOOLS[name]
    properties = served.schema()["properties"]
    assert properties.keys() <= served.params.keys()
    assert all(x["description"] and x["type"] for x in properties.values())
    for param in served.params.values():
        assert param.type is not WRITE
        assert param.name not in {"executor", "module", "config", "as_json", "quiet"}
    usual = {key for key, (_, most) in served.command.groups.items() if most}
    left = {x.name for x in served.command.params if x.name in usual} - {
        x.name for x in served.params.values()
    }
    assert left <= {"as_json", "html", "save_chain", "module", "executor", "fail_above"}


@pytest.mark.parametrize("name", RECORDS)
def test_an_answer_is_of_its_schema(name):
    """Each key that a type names without a default is there, with its type."""
    answer = answered(name)
    RECORDS[name].model_validate(answer)
    named = set(schema(name)["$defs"][RECORDS[name].__name__]["properties"])
    assert named & answer.keys()
    for number in numbers(answer):
        assert number["low"] <= number["value"] <= number["high"]
        assert answer["machine"].split()[0] in number["source"]


def answered(name):
    result = umm(*TOOLS[name].command_line(ASKED[name]))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_predicted_number_has_its_range_and_source():
    (number,) = numbers(answered("step"))
    assert number["path"] == "step_s"
    assert number["low"] < number["value"] < number["high"]
    assert number["source"].startswith("predicted from the numbers of machine h100-8 (stack: Megatron-Bridge")


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("simulate", {"tokns": "8K"}, "simulate takes no 'tokns'; did you mean 'tokens'?"),
        ("simulate", {"m": None, "backward": "yes"}, "backward takes true or false, not 'yes'"),
        ("simulate", {"a": ["row", "col"]}, "a takes one value, not 2"),
        ("simulate", {"m": {"x": 1}}, "m takes a text or a number, not dict"),
        ("compare", {"m": 8}, "compare lacks profile; give it"),
        ("compare", {"m": 8, "profile": None}, "compare lacks profile; give it"),
        ("compare", {"m": 8, "profile": ""}, "compare lacks profile; give it"),
        ("compare", {"profile": "x.json", "fail_above": 0.1}, "compare takes no 'fail_above'"),
        ("models", {"m": 8}, "models takes no 'm'; it takes no arguments"),
        ("simulate", {"module": "os:getcwd"}, "simulate takes no 'module'"),
        ("simulate", {"html": "x.html"}, "simulate takes no 'html'"),
    ],
)
def test_what_cannot_be_typed_is_refused_in_a_line(tool, arguments, says):
    with pytest.raises(InputError) as refused:
        TOOLS[tool].command_line(arguments)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_all_flags_of_a_tool_are_listed_without_what_it_requires():
    result = umm(*TOOLS["compare"].command_line({"help_all": True}))
    assert result.exit_code == 0
    assert "--profile FILE" in result.stdout
    for name, required in (("step", "--model"), ("collective", "WHAT")):
        assert required in umm(*TOOLS[name].command_line({"help_all": True})).stdout


def test_hostile_texts_are_one_word_each_or_refused():
    """200 texts as a value, as one of a list, as an argument and as a name: no text becomes a flag."""
    for text in hostile_texts():
        for tool, arguments in (
            ("machine_show", {"machine": text, "set": [text]}),
            ("simulate", {"m": text, "a": text}),
        ):
            if len(text.encode(errors="ignore").decode()) < len(text) or "\0" in text:
                with pytest.raises(InputError, match="cannot be typed: it has a NUL, half a character"):
                    TOOLS[tool].command_line(arguments)
                continue
            words = TOOLS[tool].command_line(arguments)
            command, ctx = TOOLS[tool].command, click.Context(click.Command("umm"))
            given = [x for x in words[len(TOOLS[tool].words) :] if x != "--json" or text == "--json"]
            parsed, rest, _ = command.make_parser(ctx).parse_args(given)
            assert text in (parsed.get("machine"), parsed.get("m"))
            assert (parsed.get("a") == text) or (parsed.get("changes") == [text])
            assert not rest
        if text not in TOOLS["simulate"].params:
            with pytest.raises(InputError, match="simulate takes no"):
                TOOLS["simulate"].command_line({text: "1"})


def test_a_missing_sdk_answers_with_its_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = umm("mcp")
    assert result.exit_code == 2
    assert result.stderr == "error: agents are served by the mcp package; pip install 'umm-sim[mcp]'\n"
