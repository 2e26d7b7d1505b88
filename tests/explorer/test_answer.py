"""What the page shows for a state: all parts of every tab, sound figures, a line where there is no answer."""

import numpy as np
import plotly.graph_objects as go
import pytest

from umm.explorer import answer
from umm.explorer.dropped import trace_or_store
from umm.explorer.point import point_of, space_of, tried
from umm.explorer.priced import Pricing, simulated
from umm.explorer.state import State, read
from umm.explorer.tabs import TABS
from umm.explorer.view import View
from umm.machines.files import named_file
from umm.traces.files import save_trace
from umm.units import format_bytes

SMALL = State(machine="h100-8", ranks=2, m=512, n=768, k=256, a="row@2", b="row", c="col")


def view_of(state, files=None, **more):
    point, _ = tried(lambda: point_of(state, files or {}))
    return View(state, point, Pricing(), **more)


def all_exact(view):
    """Simulate all points here, as the process behind the page does."""
    priced = view.priced
    seconds, memory = simulated(priced.space, priced.machine, priced.order.tolist())
    priced.take(priced.order, np.array(seconds), np.array(memory, dtype=float))
    return view


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("tab", TABS)
def test_a_tab_shows_all_its_parts_in_sound_figures(tab, dark):
    view = view_of(State(**{**vars(SMALL), "tab": tab, "data": True, "op": 3}), dark=dark)
    shown = answer.tab_shown(view)
    assert set(shown) == set(TABS[tab].outputs)
    for name, value in shown.items():
        if name.endswith(".figure"):
            go.Figure(value)  # plotly's own check of every property


def test_bounds_come_first_and_the_sentence_then_says_what_would_be_better():
    view = view_of(SMALL)
    assert answer.advice(view) == ""
    before = view.priced.seconds.copy()
    all_exact(view)
    assert (view.priced.seconds >= before).all()
    best = int(view_of(SMALL).best[0])
    assert view.priced.words == f"{len(view.priced.points):,} of {len(view.priced.points):,} points exact."
    assert best >= 0


def test_following_the_advice_gives_what_it_says_and_ends_it():
    view = all_exact(view_of(SMALL))
    layouts, stationary = view.priced.texts(int(view.best[0]))
    followed = SMALL.at(layouts, stationary)
    after = View(followed, point_of(followed, {}), view.pricing)
    assert f"{' '.join(layouts)}, stationary {stationary}, would save" in answer.verdict(view)
    saving = 1 - after.point.trace.makespan_s / view.point.trace.makespan_s
    assert f"would save {100 * saving:.0f} %" in answer.verdict(view)
    assert "Nothing that fits is 1 % faster." in answer.verdict(after)


def test_a_point_over_its_budget_says_by_how_much():
    said = answer.verdict(view_of(State(**{**vars(SMALL), "memory": "1x"})))
    assert said.startswith("Does not fit: it needs ")


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("?a=row@5", "12 ranks cannot hold 5 equal replicas; choose from 1, 2, 3, 4, 6, 12"),
        ("?machine=/etc/passwd", "there is no machine '/etc/passwd'; choose from"),
        ("?machine=../topologies/pvc-12.toml", "there is no machine"),
        ("?a=cyclic:64x64:3x4&b=cyclic:64x64:3x4", "parts, more than the page draws"),
        ("?memory=lots", "memory 'lots' is not a budget"),
        ("?ranks=999", "pvc-12"),
    ],
)
def test_what_has_no_answer_says_why(query, line):
    state, mistakes = read(query)
    point, problem = tried(lambda: point_of(state, {}))
    assert (point, mistakes) == (None, [])
    assert line in problem


def test_a_pinned_point_stands_beside_this_one():
    state = State(**{**vars(SMALL), "pin": "?machine=h100-8&ranks=2&m=512&n=768&k=256&a=row&b=row&c=row"})
    text = str(answer.compared(state, view_of(state), {}))
    assert "pinned: row row row, auto" in text
    there = format_bytes(point_of(read(state.pin)[0], {}).trace.memory_bytes)
    here = format_bytes(point_of(SMALL, {}).trace.memory_bytes)
    assert f"Th(children='memory', scope='row'), Td('{there}'), Td('{here}')" in text


def test_a_dropped_machine_is_a_machine():
    text = named_file("pvc-12").read_text()
    point = point_of(State(machine="mine"), {"mine": text})
    assert (point.machine.name, point.problem.ranks) == ("mine", 12)


def test_a_dropped_trace_is_held_against_its_prediction(tmp_path):
    trace = point_of(SMALL, {}).trace
    path = tmp_path / "measured.json"
    save_trace(trace, path)
    measured = trace_or_store("measured.json", path.read_bytes())
    shown = answer.tab_shown(view_of(State(**{**vars(SMALL), "tab": "measured"}), measured=measured))
    assert shown["agreement.figure"]["data"]
    assert "+0.0 %" in shown["measured-words.children"]


def test_space_is_the_paper_s_with_the_state_s_choices():
    space = space_of(State(), point_of(State(), {}).machine)
    assert (space.points().written, len(space.points())) == (17496, 8232)
