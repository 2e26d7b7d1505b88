"""A notebook's view of results: a verdict, a figure, its data; and plain results print in one line."""

from functools import cache

import pytest
from made_traces import gelu_of_a_product, slower, two_ranks

import umm
from umm.errors import InputError
from umm.figures import notebook
from umm.space import Space, map_over_memory

SMALL = Space(m=64, n=48, k=32, ranks=2, a="row,col", b="row", c="row,col")
PROBLEM = umm.Problem(m=64, n=48, k=32, ranks=2)


@cache
def mlp():
    return umm.chain("mlp", hidden=16, ffn=24, tokens=8)


RESULTS = {
    "trace": (two_ranks, "Bound by get on a link to a switch (g1 up)"),
    "trace of a chain": (gelu_of_a_product, "layer on 2 ranks"),
    "comparison": (lambda: umm.compare(two_ranks(), slower(two_ranks(), 1.25)), "-20.0 %"),
    "layout": (lambda: umm.Layout.parse("2d@2", (6, 4), ranks=8), "6x4 in 2d@2 over 8 ranks, 2 replicas"),
    "found": (lambda: umm.search(SMALL, "h100-8"), "Proven best of "),
    "chain's layouts": (lambda: umm.search(Space(chain=mlp(), ranks=2), "h100-8"), "proven best of "),
    "peers": (lambda: umm.peers(PROBLEM, "h100-8", crossover=False), "From A row, B row to C row"),
    "chain's peers": (lambda: umm.peers(mlp(), "h100-8", crossover=False), "mlp, 8 ranks of h100-8"),
    "sensitivity": (lambda: umm.sensitivity(SMALL, "h100-8", reach=2), "stationary"),
    "map": (lambda: map_over_memory(SMALL, "h100-8", [64]), "Best layouts by m and memory"),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_shows_a_verdict_a_figure_and_its_data_and_prints_in_one_line(kind, monkeypatch):
    make, word = RESULTS[kind]
    monkeypatch.setattr(notebook.Session, "has_plotly", True)
    result = make()
    text = result._repr_html_()
    assert word in text
    assert (
        text.count('class="verdict"') == text.count('class="plotly-graph-div"') == text.count("<table") == 1
    )
    assert result.figure().layout.title.text
    assert "\n" not in repr(result)
    assert len(repr(result)) < 300


def test_the_first_output_of_a_session_carries_what_draws_and_no_output_asks_a_server(monkeypatch):
    monkeypatch.setattr(notebook.Session, "has_plotly", False)
    first, second = two_ranks()._repr_html_(), two_ranks()._repr_html_()
    assert len(first) > 1_000_000 > 50_000 > len(second)
    assert 'src="http' not in first
    assert "cdn" not in second
    assert "restart the kernel" in second


def test_times_without_meaning_leave_the_verdict_and_the_table():
    comparison = umm.compare(two_ranks(), slower(two_ranks(), 1.0, "meaningless"))
    text = comparison._repr_html_()
    assert "Order and bytes only" in text
    assert "<table" in text
    assert "plotly-graph-div" not in text
    with pytest.raises(InputError, match="compare order and bytes"):
        comparison.figure()


def test_a_schedule_prints_in_one_line():
    schedule = two_ranks().schedule
    assert repr(schedule) == "Schedule(multiply on 2 ranks of h100-8: 8 actions)"
    assert repr(two_ranks()) == f"Trace(mpi, 10.00 s: {schedule!r})"
