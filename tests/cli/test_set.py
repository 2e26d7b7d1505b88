"""--set at the command line: every command that takes a machine takes it changed."""

import sqlite3

from command import good, record, umm

ASKED = ["-m", 1024, "-n", 1024, "-k", 1024, "--a", "col", "--b", "row", "--c", "row"]


def test_half_the_bandwidth_takes_longer_and_the_machine_says_so():
    now, half = (record("simulate", *ASKED, *more) for more in ([], ["--set", "fabric.bandwidth=x0.5"]))
    assert half["machine"] == "h100-8 fabric.bandwidth=x0.5"
    assert half["predicted"]["makespan_s"] > 1.2 * now["predicted"]["makespan_s"]


def test_a_saved_schedule_keeps_the_machine_it_was_lowered_for(tmp_path):
    saved = tmp_path / "s.json"
    set_ = ["--set", "memory=1MB"]
    for asked in ([*ASKED, *set_, "--save-schedule", saved], ["--schedule", saved]):
        assert "more than 878.9 KiB, 90 % of its device" in " ".join(good("simulate", *asked).split())


def test_a_list_is_an_axis_of_a_sweep_and_of_nothing_that_asks_one_question(tmp_path):
    store, listed = tmp_path / "s.db", ["--set", "fabric.bandwidth=x0.5,x1"]
    good("sweep", *ASKED, "--stationary", "C", *listed, "-o", store, "--pool", "none", "--quiet")
    with sqlite3.connect(store) as rows:
        results = dict(rows.execute("SELECT machine, time_s FROM runs"))
    assert results["h100-8 fabric.bandwidth=x0.5"] > results["h100-8"]
    result = umm("simulate", *ASKED, *listed)
    assert result.exit_code == 2
    assert "a list is an axis of umm search and umm sweep" in result.stderr


def test_devices_can_be_counted_otherwise():
    assert "2 x 1 tiles" in good("tiles", "-m", 8, "-n", 8, "-k", 8, "--set", "count=2")


def test_a_collective_takes_it_too():
    slow = record("collective", "all-gather", "-b", "16M", "-e", "16M", "--set", "fabric.bandwidth=x0.1")
    fast = record("collective", "all-gather", "-b", "16M", "-e", "16M")
    assert slow["rows"][0]["seconds"] > 2 * fast["rows"][0]["seconds"]


def test_what_sets_nothing_is_told_in_a_line():
    for text, says in (
        ("fabric.bandwidth", "write it like fabric.bandwidth=225GB/s"),
        ("fabric.bandwith=x2", "did you mean 'fabric.bandwidth'"),
    ):
        result = umm("simulate", *ASKED, "--set", text)
        assert result.exit_code == 2
        assert says in result.stderr


def test_a_search_has_one_answer_for_each_size_and_says_where_it_changes():
    asked = ["-m", "64,8K", "-n", "256", "-k", "64", "--granularity", "tile", "--final", "reduce"]
    result = record("search", *asked)
    assert [x["problem"]["m"] for x in result["answers"]] == [64, 8192]
    assert all(x["proven"] for x in result["answers"])
    assert [x["top"][0]["a"] for x in result["answers"]] == ["row@8", "row"]
    assert result["changes"] == [[0, 1]]
    assert "The best changes between m = 64 and 8192." in good("search", *asked)


def test_a_search_takes_settings_as_an_axis_too():
    layouts = ["--a", "row,row@8", "--b", "col", "--c", "col"]
    asked = ["-m", 1024, "-n", 1024, "-k", 1024, *layouts, "--set", "fabric.bandwidth=x0.5,x1"]
    result = record("search", *asked)
    assert [x["machine"] for x in result["answers"]] == ["h100-8 fabric.bandwidth=x0.5", "h100-8"]
    assert "m fabric.bandwidth A" in good("search", *asked)
    assert umm("search", *asked, "--top", 3).exit_code == 2
    one = record("search", *asked[:-1], "fabric.bandwidth=x0.5")
    assert one["top"][0]["makespan_s"] == result["answers"][0]["top"][0]["makespan_s"]


def test_lines_of_several_settings_stay_within_80_columns():
    """They are too wide for a table: settings and layouts lie below the numbers."""
    asked = [
        "-m",
        "64,8K",
        "-n",
        96,
        "-k",
        48,
        "--machine",
        "pvc-12",
        "--a",
        "row",
        "--b",
        "col",
        "--c",
        "row",
    ]
    shown = good("search", *asked, "--set", "devices.launch=x0.5,x1", "--set", "fabric.bandwidth=x0.5")
    assert max(map(len, shown.splitlines())) <= 80
    assert "      set devices.launch=x0.5 fabric.bandwidth=x0.5, A row, B col, C row" in shown


def test_a_machine_is_shown_with_a_number_of_nodes():
    """Three nodes of eight H100 have 24 devices."""
    assert record("machine", "show", "h100-8", "--nodes", 3)["machine"]["devices"] == 24
