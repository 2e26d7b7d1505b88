"""The state of the page: every URL means one, every state has its URL, its copies do the same."""

import json
import shlex
import string
from dataclasses import replace

import pytest
from click.testing import CliRunner
from command import times_only
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.cli.commands.search import Search
from umm.cli.main import main
from umm.executor import executor
from umm.explorer.copies import as_command, as_python, as_search, as_toml
from umm.explorer.point import case_of, point_of
from umm.explorer.state import OPERANDS, TABS, State, read
from umm.plans.multiply.options import Options
from umm.program.presets import PRESETS

LAYOUTS = st.sampled_from(
    ["row", "col@2", "2d:3x2:balanced@2:interleaved", "cyclic:256x128:3x4", "any text, even this"]
)

states = st.builds(
    State,
    machine=st.sampled_from(["pvc-12", "h100-8", "my cluster & yours"]),
    chain=st.sampled_from(["", "mlp", "layer.toml"]),
    tokens=st.integers(1, 2**20),
    backward=st.booleans(),
    dropout=st.sampled_from([0.0, 0.25]),
    layouts=st.sampled_from(["", "megatron", "X=row,W1=2d@2"]),
    row=st.integers(1, 40),
    m=st.integers(1, 2**20),
    n=st.integers(1, 2**20),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    ranks=st.integers(0, 64),
    a=LAYOUTS,
    b=LAYOUTS,
    c=LAYOUTS,
    given=st.sampled_from(["", "a=row,c=col@2"]),
    stationary=st.sampled_from(["auto", "A", "B", "C"]),
    options=st.builds(
        Options, policy=st.sampled_from(["direct", "greedy"]), prefetch=st.integers(0, 9), reuse=st.booleans()
    ),
    memory=st.sampled_from(["", "2x", "16GiB"]),
    tab=st.sampled_from(TABS),
    fixed=st.integers(0, 12),
    over=st.sampled_from(["", "nodes", "ranks"]),
    counts=st.sampled_from(["", "1,2,4"]),
    price=st.sampled_from([0.0, 2.5]),
    rank=st.integers(-1, 20),
    pin=st.sampled_from(["", "?a=row&b=col%402"]),
    data=st.booleans(),
)


@given(states)
def test_a_state_is_read_back_from_its_url(state):
    assert read(state.query) == (state, [])


@given(st.text(st.sampled_from("?&=%@:;mnkabc-0123456789 \\\"'<>/é" + string.ascii_lowercase), max_size=300))
def test_any_url_is_a_state_and_lines_of_what_it_does_not_mean(query):
    state, mistakes = read(query)
    assert isinstance(state, State)
    assert all(isinstance(line, str) and len(line) < 300 and "\n" not in line for line in mistakes)


def test_the_usual_state_has_an_empty_url_and_a_part_that_means_nothing_a_line():
    assert State().query == ""
    state, mistakes = read("?m=0&b=col&tab=moon&rank=x")
    assert (state.b, state.m, state.tab) == ("col", 8192, "leaderboard")
    assert State().link == "?machine=h100-8"  # without a query the page is as umm explore was started
    assert [line.partition(" ")[0] for line in mistakes] == ["m:", "tab", "rank"]


def test_without_layouts_the_page_and_the_commands_mean_the_same():
    """The page opens at A, B and C in row, as umm simulate has them; machine and sizes are of the example."""
    usual = {x.name: x.default for x in main.get_command(None, "simulate").params}
    assert [usual[x] for x in OPERANDS] == [getattr(State(), x) for x in OPERANDS] == ["row"] * 3
    assert usual["stationary"] == State().stationary
    assert usual["dtype"] == State().dtype


def test_an_endless_url_is_not_read():
    assert read("?a=" + "x" * 9000) == (
        State(),
        ["the address has 9003 characters; at most 8192 are read"],
    )


@pytest.fixture
def state():
    options = Options(granularity="slice", prefetch=1)
    return State(
        machine="h100-8",
        m=1024,
        n=768,
        k=512,
        a="row@2",
        b="col",
        c="2d@2",
        given="a=row",
        stationary="B",
        options=options,
    )


def makespan(arguments):
    with times_only():
        result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["predicted"]["makespan_s"]


def test_what_the_page_tells_to_copy_gives_its_makespan(state, tmp_path, capsys):
    point = point_of(case_of(state))
    shown = point.trace.makespan_s
    assert makespan(shlex.split(as_command(state))[1:]) == shown
    file = tmp_path / "point.toml"
    file.write_text(as_toml(state))
    assert makespan(["simulate", "--config", str(file)]) == shown
    scope = {}
    exec(as_python(state, 8), scope)
    assert executor("sim").makespan(scope["schedule"]) == shown
    assert point.trace.verdict in capsys.readouterr().out


def test_a_text_of_an_address_is_one_word_of_the_command():
    """Who copies the command from a link runs nothing else."""
    state = State(machine="x; touch here", given="a=row&&b")
    words = shlex.split(as_command(state))
    assert words[words.index("--machine") + 1] == "x; touch here.toml"
    assert words[words.index("--given") + 1] == "a=row&&b"


@pytest.mark.parametrize("space", ["search", "paper"])
def test_the_search_that_the_page_tells_to_copy_is_that_of_the_page(space):
    state = State(machine="h100-8", m=512, n=384, k=256, ranks=2, space=space, memory="2x")
    result = CliRunner().invoke(main, [*shlex.split(as_search(state))[1:], "--json"])
    assert result.exit_code == 0, result.output
    points = case_of(state).space.points()
    assert json.loads(result.stdout)["distinct"] == points.count


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("more", ["", "&backward=1", "&decode=1"])
def test_every_chain_that_the_page_offers_has_an_answer_as_it_is_chosen(name, more):
    """At the page's own sizes, experts and vocabulary, in the first of its schemes."""
    state, mistakes = read(f"?chain={name}{more}")
    assert mistakes == []
    case = case_of(state)
    point = point_of(case_of(replace(state, layouts=next(iter(case.bare.layouts)))))
    assert point.trace.makespan_s > 0
    command = shlex.split(as_search(state))
    flags = {x.name for x in Search.command.params}
    assert {x.strip("-").replace("-", "_") for x in command if x.startswith("--")} <= flags


def test_nodes_and_layers_are_parts_of_the_address():
    """Two nodes of eight devices; the memory of four layers is more than that of one."""
    one, four = (case_of(read(f"?chain=mlp&nodes=2&layers={x}")[0]) for x in (1, 4))
    assert one.ranks == 16
    assert (one.space.layers, four.space.layers) == (1, 4)
    assert "--layers 4" in as_search(four.state)
    assert "--nodes 2" in as_command(replace(four.state, layouts="data"))


def test_a_point_of_many_layers_is_compared_with_the_search_as_that_counts():
    """Of eight layers the memory of all and the time of one in the middle, as a search has them."""
    state = read("?chain=mlp&ranks=2&layers=8&hidden=256&ffn=512&tokens=256&backward=1&optimizer=12")[0]
    case = case_of(state)
    result = umm.search(case.space, case.machine, memory=case.limit, top=1)
    best = result.top[0]
    texts = ",".join(f"{x}={text}" for x, text in best.layouts.items())
    here = point_of(case_of(replace(state, layouts=texts))).here
    assert here == (pytest.approx(best.makespan_s, rel=1e-9), best.memory_bytes)
    megatron = point_of(case_of(replace(state, layouts="megatron")))
    assert megatron.here[0] == pytest.approx(result.named["megatron"], rel=1e-9)
    assert megatron.here[0] != megatron.trace.makespan_s


def test_a_size_that_is_refused_says_what_stands_in_its_place():
    state, mistakes = read("?m=lots&ranks=+4+&a=+col")
    assert mistakes == [
        "m: 'lots' is not a size; write it like 49152, 48K, 2M (2097152) or 1e6; the page takes 8192"
    ]
    assert (state.m, state.ranks, state.a) == (8192, 4, "col")
