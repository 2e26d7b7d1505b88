"""Figures and the page: their content, and that nothing leaves the machine."""

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from examples import examples
from hypothesis import given, settings
from made_traces import gelu_of_a_product, slower, two_ranks
from strategies import problems, stationaries

import umm
from umm.errors import InputError
from umm.figures import (
    Section,
    agreement,
    breakdown_bars,
    link_map,
    timeline,
    trace_sections,
    write_comparison,
    write_html,
    write_page,
)
from umm.figures.links import fill
from umm.figures.plan import plan_figure
from umm.figures.style import KIND_COLOURS, KIND_SYMBOLS, KIND_WIDTHS
from umm.plans.written import plan_on
from umm.schedules.table.details import KINDS
from umm.traces.traffic import link_bytes


def named(figure):
    """The traces of a figure by name."""
    return {trace.name: trace for trace in figure.data if trace.name}


def said(figure, kind):
    """The text beside the pointer at the bars of a kind."""
    return next(trace for trace in figure.data if trace.legendgroup == kind and not trace.name)


def test_the_timeline_has_one_path_per_kind():
    """Two gets: four corners each, a gap between the lanes; start, middle and end name them."""
    figure = timeline(two_ranks())
    assert set(named(figure)) == {"gemm", "get", "reduce", "critical path"}
    get = named(figure)["get"]
    assert get.fill == "toself"
    assert np.array_equal(get.x, [1, 1, 5, 5, np.nan, 0, 0, 2, 2], equal_nan=True)
    assert np.array_equal(get.y, [0.75, 1.25, 1.25, 0.75, np.nan, 2.75, 3.25, 3.25, 2.75], equal_nan=True)
    words = said(figure, "get")
    assert np.array_equal(words.x, [1, 3, 5, 0, 1, 2])
    assert (
        words.text[3]
        == "get of rank 1, copy_in.0, op 0<br>A(0,0)<br>16 B with rank 0<br>0 s to 2.00 s: 2.00 s"
    )
    assert list(figure.layout.yaxis.ticktext) == [
        "rank 0 compute", "rank 0 copy_in.0", "rank 1 compute", "rank 1 copy_in.0", "rank 1 accumulate.0"
    ]  # fmt: skip


def test_the_marks_at_starts_are_one_line_that_changes_lanes_between_them():
    """Rank 0 multiplies from 0 and 5, gets from 1."""
    marks = next(trace for trace in timeline(two_ranks()).data if trace.mode == "lines")
    assert marks.x[:8].tolist() == [0, 0, 5, 5, 5, 1, 1, 1]
    assert marks.y[:8] == pytest.approx([-0.42, 0.42, 0.42, -0.42, 0.5, 0.5, 0.58, 1.42])
    assert not np.isnan(marks.x).any()


def test_every_kind_has_a_look_of_its_own():
    assert set(KIND_WIDTHS) == set(KIND_SYMBOLS) == set(KIND_COLOURS) - {"barrier"}
    assert set(KINDS) <= set(KIND_COLOURS)
    assert len(set(KIND_COLOURS.values())) == len(KIND_COLOURS)


def test_a_timeline_of_many_actions_joins_those_a_pixel_apart(monkeypatch):
    """r1's gemms 2-5 and 5-6 touch, r0's 0-3 and 5-7 do not: three bars."""
    monkeypatch.setattr("umm.figures.lanes.SINGLE_UP_TO", 0)
    figure = timeline(two_ranks())
    gemm = named(figure)["gemm"]
    assert np.array_equal(gemm.x, [0, 0, 3, 3, 5, 5, 7, 7, np.nan, 2, 2, 6, 6], equal_nan=True)
    assert list(said(figure, "gemm").text[6:]) == ["2 gemm actions of rank 1, compute"] * 3


def test_the_timeline_of_many_ranks_shows_the_first():
    figure = timeline(two_ranks(), ranks=1)
    assert figure.layout.title.text == "Schedule by rank and lane, rank 0 of 2"
    assert list(figure.layout.yaxis.ticktext) == ["rank 0 compute", "rank 0 copy_in.0"]


def test_the_link_map_names_the_busiest():
    figure = link_map(two_ranks())
    assert figure.layout.title.text.startswith("Links: the busiest is g0 down")
    assert len(figure.data[0].y) == 4


def test_the_link_map_says_when_nothing_is_communicated():
    figure = link_map(umm.run(umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=1), "h100-8")))
    assert figure.layout.title.text == "Links: nothing is communicated"


@settings(max_examples=examples(30))
@given(problems(max_ranks=8), stationaries)
def test_the_link_map_loses_no_byte(problem, stationary):
    trace = umm.run(umm.schedule(problem, "h100-8", stationary=stationary))
    links = np.arange(len(trace.schedule.links.names))
    edges = np.linspace(0, trace.makespan_s, 8)
    moved = fill(trace, links, edges) * np.diff(edges) * trace.schedule.links.bandwidth[:, np.newaxis]
    assert moved.sum(axis=1) == pytest.approx(link_bytes(trace.schedule))


def test_the_bars_stack_to_the_makespan():
    figure = breakdown_bars(two_ranks().breakdown())
    assert [bar.name for bar in figure.data] == ["compute", "reduce", "exposed communication", "idle"]
    assert np.sum([bar.y for bar in figure.data], axis=0).tolist() == [10, 10]
    assert len({bar.marker.pattern.shape for bar in figure.data}) == 4


def test_the_agreement_figure_has_a_mark_per_action_a_line_and_a_band():
    figure = agreement(umm.compare(two_ranks(), slower(two_ranks(), 1.25)))
    assert set(named(figure)) == {"within ±20 %", "y = x", "gemm", "get", "reduce"}
    assert list(named(figure)["get"].x) == [2.5, 5.0]
    assert list(named(figure)["get"].y) == [2.0, 4.0]
    band = named(figure)["within ±20 %"]
    assert np.array(band.y[:2]) / band.x[:2] == pytest.approx([0.8, 0.8])
    assert np.array(band.y[2:]) / band.x[2:] == pytest.approx([1.2, 1.2])


def test_the_ticks_of_times_are_round_numbers_within_the_axis():
    """From 1.67 to 9 s: no bare 2 and 3 between powers of ten."""
    layout = agreement(umm.compare(two_ranks(), slower(two_ranks(), 1.25))).layout
    for axis in (layout.xaxis, layout.yaxis):
        assert {1.5, 2, 3, 5, 7} & set(axis.tickvals)
        assert axis.dtick is None


def test_times_without_meaning_are_not_drawn():
    with pytest.raises(InputError, match="compare order and bytes"):
        agreement(umm.compare(two_ranks(), slower(two_ranks(), 1.0, "meaningless")))


def test_the_report_opens_offline(tmp_path):
    """plotly.js is inside; the page forbids every request and loads nothing from elsewhere."""
    write_html(two_ranks(), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    head, script, rest = re.split(r"<script>|</script>", text, maxsplit=2)
    assert len(script) > 1_000_000
    assert "default-src 'none'" in head
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", head + rest)
    config = json.loads(re.search(r"setPlotConfig\((.*)\);$", script)[1])
    assert config["plotlyServerURL"] == ""
    assert config["modeBarButtonsToRemove"] == ["sendChartToCloud"]
    assert not config["showSendToCloud"]
    assert rest.count('class="plotly-graph-div"') == rest.count("<details>") == 3


def test_the_report_opens_with_the_verdict_and_what_was_asked(tmp_path):
    write_html(two_ranks(), tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    body = re.sub("<[^>]+>", " ", text[text.index("<body>") : text.index("plotly-graph-div")])
    assert "C = AB, 4×6×2 on h100-8" in body
    assert "Bound by get on a link to a switch (g1 up), 40 % of the critical path; 25 % overlapped." in body
    assert "m=4 n=6 k=2 float32, A row, B row, C row@2, stationary C, ranks 2 of h100-8" in body


def test_the_page_of_a_chain_says_what_it_computes(tmp_path):
    write_html(gelu_of_a_product(), tmp_path / "r.html")
    text = html.unescape((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "<h1>layer on h100-8</h1>" in text
    assert "layer on 2 ranks: H = X·W; Y = gelu(H); by_rows, ranks 2 of h100-8" in text
    assert list(named(timeline(gelu_of_a_product()))) == ["gemm", "get", "map", "critical path"]


def test_a_page_holds_tables_and_several_traces(tmp_path):
    """As the demo writes it: leaderboards, then the figures of two traces."""
    board = pd.DataFrame(
        {"layouts": ["row <b>", "col"], "time_s": [0.002, 0.003], "memory_bytes": [1024, 2048], "then": None}
    )
    sections = [Section("Leaderboard", table=board)]
    for heading in ("one", "two"):
        sections += trace_sections(two_ranks(), heading)
    write_page(tmp_path / "p.html", "Demo", sections)
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert all(part in text for part in ("<h2>Leaderboard</h2>", "row &lt;b&gt;", "2.00 ms", "2.0 KiB"))
    assert "<td>None</td>" not in text
    ids = re.findall(r'<div id="(plot-\d+)"', text)
    assert len(ids) == len(set(ids)) == 6


def test_a_page_heads_columns_in_words_and_writes_values_with_their_unit(tmp_path):
    frame = pd.DataFrame({"a": ["row"], "makespan_s": [2e-3], "memory_bytes": [1536], "fits": [True]})
    write_page(tmp_path / "p.html", "T", [Section(table=frame.assign(gap=[None]))])
    cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", (tmp_path / "p.html").read_text())
    assert cells[:5] == ["A", "makespan", "memory", "fits", "gap"]
    assert cells[5:] == ["row", "2.00 ms", "1.5 KiB", "yes", ""]


def test_no_page_of_a_schedule_has_a_bare_number_of_seconds(tmp_path):
    write_html(two_ranks(), tmp_path / "r.html")
    *_, parts = re.findall(r"<table.*?</table>", (tmp_path / "r.html").read_text(), re.DOTALL)
    headings, first = re.findall(r"<th>(.*?)</th>", parts), re.findall(r"<td>(.*?)</td>", parts)
    assert headings == ["rank", "compute", "reduce", "exposed communication", "idle"]
    assert all(re.fullmatch(r"0 s|[0-9.]+ ([mµn]?s)", x) for x in first[1:5])


def test_a_page_of_tables_alone_carries_no_script(tmp_path):
    write_page(tmp_path / "p.html", "T", [Section(table=pd.DataFrame({"n": range(600)}))])
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "The first 500 of 600 rows." in text


@pytest.mark.parametrize("times", ["measured", "meaningless"])
def test_the_page_of_a_comparison_holds_its_verdict_and_every_action(tmp_path, times):
    predicted = two_ranks()
    comparison = umm.compare(predicted, slower(predicted, 2.0, times))
    path = tmp_path / "compared.html"
    write_comparison(comparison, path)
    page = path.read_text(encoding="utf-8")
    assert str(comparison) in html.unescape(page)
    assert f"Data of this figure, {len(predicted.schedule)} rows" in page or times == "meaningless"
    assert page.count("Schedule by rank and lane") == 2
    assert ("per action (makespan" in page) == (times == "measured")


def test_a_plan_shows_who_computes_and_the_bytes_from_whom_to_whom():
    chain = umm.chain("mlp", tokens=1024, hidden=1024, ffn=4096, dtype="bfloat16")
    schedule = umm.schedule(chain.laid_out("megatron", 4), "h100-8")
    figure = plan_figure(plan_on(schedule, umm.machine("h100-8")), schedule)
    h, g, y, summed, moved = figure.data
    assert h.text.tolist() == [["r0", "r1", "r2", "r3"]] == g.text.tolist()
    assert y.text.tolist() == [["r0…r3"]]  # each rank's own part of all of Y
    assert [(~np.isnan(x.z)).sum() for x in (summed, moved)] == [12, 12]
    assert np.nansum(summed.z) == 3 * 1024 * 1024 * 2
    assert "Y = gemm(G, W2)" in figure.layout.annotations[2].text
