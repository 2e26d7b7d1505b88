"""umm what-if: its output, the keys of its JSON, its pages, and its refusals."""

import re

import pytest
from command import good, record, umm

from umm.space.what_if import sensitivity

SMALL = ["-n", "3K", "-k", "12K", "--a", "row,col", "--b", "row,col", "--c", "row", "--stationary", "B"]


def test_the_choice_what_moves_it_and_where_it_flips_are_told():
    result = record("what-if", "--machine", "pvc-12", "-m", 256, *SMALL, "--reach", 2)
    assert result["choice"]["makespan_s"] > 0
    assert {x["what"] for x in result["moves"]} >= {"fabric.bandwidth", "peak.float32", "launch"}
    assert all(x["half_s"] > 0 and x["most_s"] > 0 for x in result["moves"])
    assert {x["what"] for x in result["flips"]} >= {"fabric*bandwidth", "memory"}
    assert (result["machine"], result["reach"], result["problem"]["m"]) == ("pvc-12", 2.0, 256)


def test_another_choice_names_whatever_differs_from_the_best():
    """Of one layout and stationary matrix only the size of gets differs: slices where links are slow."""
    asked = ["--machine", "cpu-hdr", "--nodes", 4, "--dtype", "f64", *("-m", "8K", "-n", "8K", "-k", "8K")]
    asked = ["what-if", *asked, "--a", "2d", "--b", "2d", "--c", "2d", "--stationary", "C", "--reach", 4]
    result = record(*asked)
    other = [x["choice"] for x in result["flips"] if x["choice"]]
    assert result["choice"]["granularity"] == "tile"
    assert other
    assert {x["granularity"] for x in other} == {"slice"}
    output = " ".join(good(*asked).split())
    assert output.count("C 2d, stationary C, slices, ") == len(other)


def test_fixed_layouts_are_one_choice_and_lines_stay_within_80_columns():
    asked = ["-m", 256, "-n", 256, "-k", 256, "--a", "row", "--b", "col", "--c", "row", "--stationary", "C"]
    text = good("what-if", *asked, "--reach", 2)
    assert text.split("number")[1].split()[:3] == ["now", "half", "twice"]
    assert "No number changes the choice between x0.5 and x2." in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_map_tells_for_every_m_what_is_best_from_where_to_where():
    result = record("what-if", "--machine", "pvc-12", "-m", "256,1K", *SMALL, "--map", "memory")["map"]
    assert result["over"] == "memory"
    assert [x["m"] for x in result["stretches"]] == sorted(x["m"] for x in result["stretches"])
    text = good("what-if", "-m", 256, *SMALL, "--map", "fabric*bandwidth", "--reach", 2)
    assert "in factors of 374 GB/s" in text
    assert "0.5x" in text


def test_a_map_prints_one_line_for_neighbours_that_do_not_differ():
    """10.9 KiB a rank buy nothing over 10.5, nor 19.5 over 17.2; JSON has every step."""
    asked = ["what-if", "-m", 64, "-n", 96, "-k", 48, "--map", "memory"]
    steps = record(*asked)["map"]["stretches"]
    shown = [x for x in good(*asked).splitlines() if "µs" in x]
    times = [re.search(r"[\d.]+ µs", x)[0] for x in shown]
    assert len(set(times)) == len(times) < len(steps)
    assert shown[-1].split()[:2] == [
        f"{next(x for x in steps if x['memory_bytes'] > 17000)['start']:.3g}x",
        "4x",
    ]


def test_layouts_of_a_chain_hold_as_many_layers_as_are_said(monkeypatch):
    """Of 24 layers with Adam's states the choice and its memory are those of the search, 46.6 MiB."""
    usual = sensitivity.knobs
    monkeypatch.setattr(sensitivity, "knobs", lambda *asked: usual(*asked)[:1])  # each takes several searches
    asked = ["--chain", "mlp", "--hidden", 256, "--ffn", 512, "--tokens", 512, "--ranks", 4, "--backward"]
    asked += ["--layers", 24, "--optimizer", "adam", "--choices", "row,col", "--memory", "60MiB"]
    result, best = record("what-if", *asked, "--reach", 2)["choice"], record("search", *asked)["top"][0]
    assert result["memory_bytes"] == best["memory_bytes"] == pytest.approx(46.6 * 2**20, rel=1e-2)
    assert result["makespan_s"] == pytest.approx(best["makespan_s"], rel=1e-9)
    of_one = ["-m", 8, "-n", 8, "-k", 8, "--layers", 2]
    assert "layers need a chain" in umm("what-if", *of_one).output


def test_pages_are_written(tmp_path):
    pytest.importorskip("plotly")
    for more in (["--reach", 2], ["--map", "memory"]):
        page = tmp_path / "w.html"
        good("what-if", "-m", 256, *SMALL, *more, "--html", page, "--quiet")
        assert "Plotly" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["-m", "256,1K"], "several sizes need --map"),
        (["-m", 256, "--map", "fabric.width"], "no number 'fabric.width'"),
        (["-m", 256, "--map", "copy_engines"], "cannot be scaled"),
        (["-m", 256, "--reach", "1"], "is not in the range"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_line(more, says):
    result = umm("what-if", *SMALL, *more)
    assert result.exit_code == 2
    assert says in result.stderr
