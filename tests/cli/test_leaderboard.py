"""The output of a search: whole words, the front, its knee, ties, and the space of the proof."""

import re
from itertools import pairwise

import pytest
from command import good, record, umm

SMALL = ("search", "--machine", "h100-8", "-m", "1K", "-n", "3K", "-k", "12K")


def test_the_front_falls_in_time_as_it_grows_in_memory_and_says_what_it_is_the_best_of():
    """The rows of the table are those of --json, with their range, and the knee is marked."""
    result = record(*SMALL)
    out = good(*SMALL)
    front = result["frontier"]
    assert len(front) >= 3
    for before, after in pairwise(front):
        assert before["memory_bytes"] < after["memory_bytes"]
        assert before["makespan_s"] > after["makespan_s"]
    for x in (*front, *result["top"]):
        low, high = x["makespan_range_s"]
        assert low <= x["makespan_s"] <= high
    assert [x["knee"] for x in front].count(True) == 1
    rows = [line for line in out.splitlines() if re.match(r" *\*?\d+ +\d", line)]
    assert len(rows) == len(front)
    assert [row.lstrip().startswith("*") for row in rows] == [x["knee"] for x in front]
    count = f"{result['distinct']:,}"
    assert f"Proven best of {count} in this model, to 0.8 %: row, col, 2d on every process" in out


def test_top_ranks_plainly_and_names_what_ties():
    result = record(*SMALL, "--top", 4)
    times = [x["makespan_s"] for x in result["top"]]
    assert len(times) == 4
    assert times == sorted(times)
    tied = [x["ties_with_first"] for x in result["top"]]
    assert tied[0] is True
    out = good(*SMALL, "--top", 4)
    assert re.search(r"tie, |tie: |is the fastest all over", out)
    assert "the knee" not in out


def test_a_limit_says_what_more_memory_buys_on_screen_and_in_json():
    last = record(*SMALL)["frontier"][-1]
    limit = last["memory_bytes"] - 1
    result = record(*SMALL, "--memory", limit)
    more = result["more_memory"]
    assert result["memory_limit_bytes"] == limit < more["memory_bytes"]
    assert more["makespan_s"] < 0.99 * result["top"][0]["makespan_s"]
    assert re.search(r"above the limit would buy \d+ %: ", good(*SMALL, "--memory", limit))


@pytest.mark.parametrize(
    "flags",
    [
        ("--a", "2d:2x1:balanced@2:interleaved", "--c", "row:balanced@2:interleaved"),
        ("--balanced", "--interleaved", "--top", 5),
    ],
)
def test_no_word_of_a_leaderboard_is_broken_at_80_columns(flags):
    """Layouts that do not fit beside each other lie below each other."""
    asked = ("search", "--machine", "h100-8", "--ranks", 4, "-m", 1000, "-n", 3000, "-k", 1000, *flags)
    out = good(*asked)
    assert max(map(len, out.splitlines())) <= 80
    shown = record(*asked)
    for x in shown["top" if "--top" in flags else "frontier"]:
        assert all(re.search(rf"(?<!\S){re.escape(x[name])}(?![^\s,])", out) for name in "abc")


def test_the_page_draws_every_point_of_the_space_and_the_front(tmp_path):
    """--html writes simulated points, bounds of the others and the front."""
    page = tmp_path / "space.html"
    front = record(*SMALL, "--html", str(page))["frontier"]
    text = page.read_text(encoding="utf-8")
    for result in ("simulated", "lower bound", "Time against memory", *(f"<td>{x['a']}</td>" for x in front)):
        assert result in text


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (("-m", "1K,2K", "-n", "1K", "-k", "1K"), "leave out --html"),
        (("--chain", "mlp", "--hidden", "1K", "--ffn", "4K", "--tokens", "1K"), "leave out --chain"),
    ],
)
def test_a_page_is_of_one_space_of_one_multiply(asked, result, tmp_path):
    """Several sizes have a space each, and a chain's is not drawn."""
    refused = umm("search", *asked, "--html", str(tmp_path / "space.html"))
    assert refused.exit_code == 2
    assert result in refused.output
