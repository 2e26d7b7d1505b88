"""The page for a state: all parts of every tab, sound figures, a line where there is no answer."""

import json
import shlex
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from click.testing import CliRunner

from umm.cli.main import main
from umm.executor import executor
from umm.explorer import answer
from umm.explorer.app import as_json
from umm.explorer.background import Behind
from umm.explorer.background import look as look_sure
from umm.explorer.copies import as_command, as_python
from umm.explorer.point import case_of, point_of, tried
from umm.explorer.savings import grow, search_each
from umm.explorer.search import look
from umm.explorer.state import State, read
from umm.explorer.tabs import TABS
from umm.explorer.uploads import trace_or_store
from umm.explorer.view import View
from umm.machines import machine
from umm.machines.files import named_file
from umm.space import makespan_range, search
from umm.traces.files import save_trace
from umm.units import format_bytes, format_seconds, range_in_words

SMALL = State(machine="h100-8", ranks=2, m=512, n=768, k=256, a="row@2", b="row", c="col")


def view_of(state, files=None, **more):
    case, _ = tried(lambda: case_of(state, files or {}))
    return View(state, case, Behind(), **more)


def known(sure):
    """Do the work of the process behind the page here, for a range or the number that decides."""
    look_sure(sure.take, *sure.asked()[1:])


def looked_through(view):
    """Do the work of the process behind the page here; return the stages that it went through."""
    priced, stages = view.priced, []

    def send(message):
        priced.take(message)
        stages.append(priced.refusal or priced.stage)

    look(send, *priced.asked()[1:])
    priced.done = True
    return list(dict.fromkeys(stages))


def grown(view):
    """Do the work of the process behind the page here, once the points are proven."""
    grow(view.growing.take, *view.growing.asked()[1:])
    view.growing.done = True
    return view.growing


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("tab", TABS)
def test_a_tab_shows_all_its_parts_in_sound_figures(tab, dark):
    view = view_of(State(**{**vars(SMALL), "tab": tab, "data": True, "op": 3}), dark=dark)
    for result in (False, True):
        if result:
            looked_through(view)
        shown = answer.tab_shown(view)
        assert set(shown) == set(TABS[tab].outputs)
        for name, value in shown.items():
            if name.endswith(".figure"):
                go.Figure(value)  # plotly's own check of every property


def test_bounds_come_first_then_what_is_proven_then_all_points_exactly():
    view = view_of(State(**{**vars(SMALL), "space": "paper"}))
    assert "search finds" not in answer.verdict(view)
    assert looked_through(view) == ["priced", "top", "front", "factors", "all"]
    priced = view.priced
    assert priced.words == f"{len(priced.seconds):,} of {len(priced.seconds):,} points exact."
    assert priced.seconds[priced.best[0]] == priced.top[0].makespan_s
    fits = priced.seconds[priced.memory <= priced.limit]
    assert fits.min() == priced.top[0].makespan_s


def test_few_points_are_priced_at_once_and_many_by_a_process():
    """The process is told the bounds, and tells none; the default space of a search has 100,000 points."""
    few, many = (view_of(State(machine="pvc-12", space=space)).priced for space in ("paper", "search"))
    few.price()
    assert few.words.startswith("The best are being proven; 0 of 8,232 points exact")
    told = []
    with pytest.raises(StopIteration):
        look(lambda message: told.append(message) or next(iter(())), *few.asked()[1:])
    assert "points" not in told[0]
    assert few.asked()[-1].seconds is few.seconds
    many.price()
    assert many.asked()[-1] is None


def test_what_the_page_ranks_is_what_a_search_finds():
    view = view_of(SMALL)
    looked_through(view)
    result = search(view.case.space, view.point.machine, top=40)
    points = view.priced.points
    assert view.priced.top == result.top
    assert view.priced.front == result.frontier
    assert view.priced.ranges == [result.sure.range(x) for x in result.top[:10]]
    assert [points.points.program(points.points.allowed[points.number_of(x)]) for x in result.top] == [
        x.problem for x in result.top
    ]


def test_the_leaderboard_says_what_ties_and_what_moving_operands_adds():
    view = view_of(SMALL)
    looked_through(view)
    result = search(view.case.space, view.point.machine, top=40)
    table, ties, moves = answer.tab_shown(view)["leaders.children"]
    headings = [x.children for x in table.children[0].children.children]
    assert headings[-4:] == ["range", "move", "of peak", "memory"]
    assert view.priced.moves == [sum(result.bringing(x).values()) for x in result.top[:10]]
    assert " tie, within 0.8 % anywhere" in ties.children or "is fastest anywhere" in ties.children
    assert moves.children.endswith("move is the extra time if they start, and C ends, in row.")


def test_bounds_are_hatched_grey_until_the_best_of_every_two_factors_is_proven():
    """In the colours of times there are only simulated ones."""
    view = view_of(State(**{**vars(SMALL), "space": "paper", "tab": "replication"}))
    view.priced.price()
    figure = answer.tab_shown(view)["replicas.figure"]
    times, bounds = figure["data"]
    assert np.isnan(times["z"]).all()
    assert np.isfinite(bounds["z"]).all()
    assert [x["type"] for x in figure["layout"]["shapes"]].count("path") == bounds["z"].size
    looked_through(view)
    (times,) = answer.tab_shown(view)["replicas.figure"]["data"]
    assert np.isfinite(times["z"]).all()


def test_the_point_stands_at_its_own_time_before_it_is_exact_among_the_others():
    """The page has simulated it; among a search's points it mostly stays a lower bound."""
    view = view_of(SMALL)
    looked_through(view)
    view.priced.seconds[view.selected], view.priced.exact[view.selected] = 5e-6, False  # its lower bound
    shown = answer.tab_shown(view)["pareto.figure"]
    here, unit = shown["data"][-1], shown["layout"]["xaxis"]["title"]["text"]
    assert here["name"] == "this point"
    assert unit == "memory of the fullest rank (MiB)"
    assert here["hovertemplate"].startswith("%{y:.4g} µs, %{x:.4g} MiB")
    trace = view.point.trace
    assert here["x"] == pytest.approx([trace.memory_bytes / 2**20], abs=1e-6)
    assert here["y"][0] * 1e-6 == pytest.approx(trace.makespan_s, rel=1e-6)  # in µs
    elsewhere = view_of(State(**{**vars(SMALL), "algorithm": "cannon", "ranks": 4, "machine": "h100-8"}))
    looked_through(elsewhere)
    assert "this point" in [x["name"] for x in answer.tab_shown(elsewhere)["pareto.figure"]["data"]]


@pytest.mark.parametrize("graph", [*(x for tab in TABS.values() for x in tab.clicks), "lanes"])
def test_a_mark_that_is_clicked_has_its_number_in_a_list(graph):
    """Dash takes it from a list alone, and an array travels as bytes; cells of a heat map have theirs."""
    tab = next(name for name, tab in TABS.items() if graph in tab.graphs)
    view = view_of(State(**{**vars(SMALL), "tab": tab}))
    looked_through(view)
    data = json.loads(as_json(answer.tab_shown(view)[f"{graph}.figure"]))["data"]
    numbers = [x["customdata"] for x in data if "customdata" in x]
    assert numbers
    assert all(isinstance(x, list) for x in numbers) or data[0]["type"] == "heatmap"


def test_a_chain_without_any_flop_has_no_share_of_the_peak_and_no_roofline():
    embedding = State(
        chain="embedding", tokens=64, hidden=64, vocab=64, ranks=2, layouts="data", tab="roofline"
    )
    view = view_of(embedding, pinned=view_of(replace(embedding, layouts="megatron")))
    title = answer.tab_shown(view)["roofs.figure"]["layout"]["title"]["text"]
    assert title == "Roofline: no rank does any flop"
    assert answer.facts(view.point.trace)["fact-of-peak.children"] == "no flop"
    assert "nan" not in str(answer.compared(view))


def test_replicas_are_followed_over_larger_m_once_the_points_are_proven():
    """Every time is that of a search in which the factors are fixed; the sentence sums up."""
    view = view_of(State(**{**vars(SMALL), "a": "row", "tab": "replication", "grow": True}))
    assert view.question is view.priced
    looked_through(view)
    assert view.question is view.growing
    result = grown(view)
    assert view.question is view.priced
    assert list(result.found) == [512 * 2**i for i in range(7)]
    for m in (512, 4096):
        space = view.case.space.changed(m=m)
        for factor, seconds in zip((1, 2), result.found[m], strict=True):
            layouts = [x for x in space.points().choices[0] if x.replicas == 1]
            b = [x for x in space.points().choices[1] if x.replicas == factor]
            only = space.changed(a=tuple(map(str, layouts)), b=tuple(map(str, b)))
            assert search(only, view.point.machine).top[0].makespan_s == pytest.approx(seconds, rel=1e-9)
    shown = answer.tab_shown(view)
    assert shown["replication-words.children"].startswith("With A@1, this point's, B@2 saves ")
    assert result.said.startswith("With A@1, replicas of B pay ")
    assert len(shown["grown.children"][1].children.children[1].children) == 7


def test_numbers_of_ranks_and_nodes_are_searched_one_by_one_beside_each_other():
    """Each row equals a search of that number; an impossible number has a line."""
    for asked, over, counts in (
        ({"over": "ranks", "counts": "1,2,4", "price": 3.6}, "ranks", (1, 2, 4)),
        ({"machine": "dgx-h100x4", "counts": "1,2,4000000"}, "nodes", ()),
        ({"machine": "dgx-h100x4", "counts": "1,2,9999"}, "nodes", (1, 2)),
    ):
        view = view_of(State(**{**vars(SMALL), **asked, "tab": "scaling"}))
        looked_through(view)
        if not counts:  # too long a number is none
            assert view.scaled is None
            assert "is not a list of whole numbers" in answer.tab_shown(view)["scaling-words.children"]
            continue
        assert view.question is view.scaled
        assert "Waiting for 1, 2, " in answer.tab_shown(view)["scaling-words.children"]
        search_each(view.scaled.take, *view.scaled.asked()[1:])
        view.scaled.done = True
        assert view.question is view.priced
        rows, shown = view.scaled.rows, answer.tab_shown(view)
        assert [row.ranks if over == "ranks" else row.nodes for row in rows] == [*counts]
        for row in rows:
            target = machine(view.case.machine.name, {"nodes": str(row.nodes)} if row.nodes else {})
            only = search(view.case.space.changed(ranks=row.ranks), target, top=1)
            assert only.top[0].makespan_s == row.makespan_s
        table = shown["scaling-table.children"].children
        assert len(table.children[1].children) == len(counts)
        assert ("$/million" in str(table)) == ("price" in asked)
        assert shown["over.value"] == over
        assert ("9999 nodes: " in shown["scaling-words.children"]) == (over == "nodes")
        assert shown["scaled.figure"]["data"][0]["y"]


def test_replicas_that_never_pay_are_said_to_be_so_and_a_budget_that_they_exceed():
    view = view_of(State(**{**vars(SMALL), "tab": "replication", "grow": True, "memory": "3MiB"}))
    looked_through(view)
    assert "no replica of B saves 1 %" in answer.tab_shown(view)["replication-words.children"]
    assert "no replica of B saves 1 % at any m" in grown(view).said
    assert "does not fit" in str(answer.tab_shown(view)["grown.children"])


def test_of_every_factor_the_best_is_exact_before_all_points_are():
    view = view_of(SMALL)
    assert looked_through(view)[:4] == ["priced", "top", "front", "factors"]
    priced = view.priced
    factors, points = priced.points.factors, priced.points.points
    for factor in {tuple(x) for x in factors.T.tolist()}:
        mine = (factor == factors.T).all(axis=1)
        least = min(priced.seconds[mine & priced.exact])
        for number in np.flatnonzero(mine)[::7]:
            schedule = points.schedule(int(points.allowed[number]), priced.machine)
            assert executor("sim").makespan(schedule) >= least * (1 - 1e-12)


def test_following_the_advice_gives_what_it_says_and_ends_it():
    view = view_of(SMALL)
    looked_through(view)
    result = answer.verdict(view)
    (advice,) = [x for x in view.priced.front if f"{x.words}, {x.way}" in result]
    followed = SMALL.at(advice.layouts, advice.stationary, advice.options)
    after = View(followed, case_of(followed), view.behind)
    assert after.point.trace.makespan_s == advice.makespan_s
    saving = 1 - after.point.trace.makespan_s / view.point.trace.makespan_s
    point = format_seconds(view.point.trace.makespan_s)
    assert f"search finds {100 * saving:.0f} % less time" in result
    assert "less time with the same memory: A " in str(replace(view.advice, extra_bytes=0))
    assert result.endswith(f" That takes {format_seconds(advice.makespan_s)}, this point {point}.")
    assert "Nothing that fits is 1 % faster." in answer.verdict(after)


def test_a_makespan_gets_the_range_of_the_machine_s_numbers():
    view = view_of(State())
    assert answer.within(view) == ""
    low, high = makespan_range(
        view.point.machine, view.point.lower, executor("sim").makespan, view.point.trace.makespan_s
    )
    assert low < view.point.trace.makespan_s < high
    known(view.range)
    assert answer.within(view) == range_in_words(view.point.trace.makespan_s, (low, high))
    assert answer.words(view, {}, {})["fact-range.children"] == answer.within(view)


def test_the_page_says_where_the_rest_of_the_peak_goes():
    """2048 cubed on eight H100: 40 % of peak, and the causes of the other 60 %."""
    view = view_of(State(machine="h100-8", m=2048, n=2048, k=2048))
    shown = answer.words(view, {}, {})
    assert shown["fact-of-peak.children"] == "40 %"
    assert shown["rest.children"] == (
        "The other 60 % of peak: launches 30 %, kernels' rate 15 %, exposed communication 15 %."
    )
    assert answer.facts(None)["rest.children"] == ""


def test_no_action_is_an_empty_field_and_the_first_is_0():
    shown = [answer.control_values(State(op=op), [1])["op.value"] for op in (-1, 0, 12)]
    assert shown == ["", "0", "12"]


def test_a_budget_that_nothing_fits_says_the_least_that_would_do():
    view = view_of(State(**{**vars(SMALL), "memory": "0.1x"}))
    assert looked_through(view)[-1].startswith("nothing fits")
    assert "the smallest memory that works is" in answer.progress(view)["status.children"]


def test_a_point_over_its_budget_says_by_how_much():
    result = answer.verdict(view_of(State(**{**vars(SMALL), "memory": "1x"})))
    assert result.startswith("Does not fit: it needs ")


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("?machine=pvc-12&a=row@5", "12 ranks cannot hold 5 equal replicas; choose from 1, 2, 3, 4, 6, 12"),
        ("?machine=/etc/passwd", "there is no machine '/etc/passwd'; choose from"),
        ("?machine=../topologies/pvc-12.toml", "there is no machine"),
        ("?ranks=12&machine=pvc-12&a=cyclic:64x64:3x4&b=cyclic:64x64:3x4", "parts, more than the page draws"),
        ("?memory=lots", "memory 'lots' is not a budget"),
        ("?ranks=999", "h100-8"),
    ],
)
def test_what_has_no_answer_says_why(query, line):
    state, mistakes = read(query)
    case, problem = tried(lambda: case_of(state))
    view = View(state, case, Behind(), mistakes=(problem,) if problem else ())
    assert (view.point, mistakes) == (None, [])
    assert line in view.wrong[0]


def test_a_pinned_point_stands_beside_this_one():
    state = State(**{**vars(SMALL), "pin": "?machine=h100-8&ranks=2&m=512&n=768&k=256&a=row&b=row&c=row"})
    text = str(answer.compared(view_of(state, pinned=view_of(read(state.pin)[0]))))
    assert "pinned: row row row, auto" in text
    pinned = format_bytes(point_of(case_of(read(state.pin)[0])).trace.memory_bytes)
    shown = format_bytes(point_of(case_of(SMALL)).trace.memory_bytes)
    assert f"Th(children='memory', scope='row'), Td('{pinned}'), Td('{shown}')" in text


def test_a_dropped_machine_is_a_machine_and_its_file_that_of_the_command(tmp_path, monkeypatch):
    text = named_file("pvc-12").read_text()
    state = State(**{**vars(SMALL), "machine": "mine"})
    point = point_of(case_of(state, {"mine": text}))
    assert (point.machine.name, case_of(State(machine="mine"), {"mine": text}).ranks) == ("mine", 12)
    (tmp_path / "mine.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*shlex.split(as_command(state))[1:], "--json"])
    assert json.loads(result.stdout)["predicted"]["makespan_s"] == point.trace.makespan_s
    assert "'mine.toml:tf32 nodes=2'" in as_python(State(machine="mine:tf32", nodes=2), 16)


def test_a_machine_multiplies_in_tf32_as_on_the_command_line():
    """By name, one that was dropped in and one of several nodes; its control shows it."""
    files = {"mine": named_file("h100-8").read_text()}
    for name, nodes, same in (
        ("h100-8:tf32", 0, "h100-8:tf32"),
        ("mine:tf32", 0, "h100-8:tf32"),
        ("h100-8:tf32", 2, "h100-8:tf32 nodes=2"),
    ):
        case = case_of(State(machine=name, nodes=nodes), files)
        assert (
            case.machine.peak("float32") == machine(same).peak("float32") > machine("h100-8").peak("float32")
        )
        assert case.ranks == machine(same).default_ranks
    view = view_of(State(**{**vars(SMALL), "machine": "h100-8:tf32"}))
    assert "h100-8:tf32" in answer.words(view, {}, {})["machine.options"]
    _, why = tried(lambda: case_of(State(machine="pvc-12:tf32")))
    assert why.startswith("pvc-12 states no peak for tf32")


def test_a_dropped_trace_is_held_against_its_prediction(tmp_path):
    trace = point_of(case_of(SMALL)).trace
    path = tmp_path / "measured.json"
    save_trace(trace, path)
    measured = trace_or_store("measured.json", path.read_bytes())
    shown = answer.tab_shown(view_of(State(**{**vars(SMALL), "tab": "measured"}), measured=measured))
    assert shown["agreement.figure"]["data"]
    assert "+0.0 %" in shown["measured-words.children"]


def test_the_paper_s_space_can_be_asked_for():
    space = case_of(State(machine="pvc-12", space="paper")).space
    assert (space.points().written, space.points().count) == (17496, 8232)


ASSUMED = "machine=pvc-12-planes&m=8192&n=12288&k=12288&a=col@12&b=2d&c=2d&dtype=bfloat16"


def test_the_assumed_number_that_decides_is_named_as_by_the_command():
    """Not before the search has found the point's reference."""
    view = view_of(read(f"?{ASSUMED}")[0])
    assert answer.found(view)["assumed.children"] == ""
    view.priced.front = search(view.case.space, view.point.machine, top=1).frontier
    result = CliRunner().invoke(main, [*shlex.split(as_command(view.state))[1:], "--json"])
    line = json.loads(result.stdout)["predicted"]["assumed"]
    assert " is assumed; at " in line
    known(view.decides)
    assert answer.found(view)["assumed.children"] == line
