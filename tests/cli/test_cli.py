"""Typed commands: their output, their JSON, and the precedence of flags."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from command import MLP1, SMALL, good, record, umm

from umm.cli.answers import demo
from umm.cli.main import COMMANDS

PREDICTED = {
    "makespan_s", "fraction_of_peak", "breakdown", "memory_bytes", "pool_bytes", "get_bytes",
    "put_bytes", "accumulate_bytes", "reduce_bytes", "actions", "bound_by", "verdict",
}  # fmt: skip


@pytest.mark.parametrize("machine", ["h100-8", "pvc-12"])
def test_simulate_says_what_bounds_it(machine):
    out = good("simulate", "--machine", machine, *MLP1)
    assert "m=8192, n=49152, k=12288" in out
    assert re.search(r"makespan +\d", out)
    assert "% of peak" in out
    assert re.search(r"verdict +Bound by ", out)


def test_simulate_json_is_versioned_and_has_the_agreed_keys():
    result = record("simulate", *MLP1)
    assert (result["schema"], result["command"], result["machine"]) == (1, "simulate", "h100-8")
    assert result["problem"]["n"] == 49152
    assert result["predicted"].keys() >= PREDICTED
    assert sum(result["predicted"]["breakdown"].values()) == pytest.approx(result["predicted"]["makespan_s"])


def test_a_dimension_of_48k_is_49152():
    assert record("simulate", "-m", "1K", "-n", "48K", "-k", 96)["problem"]["n"] == 49152


def test_a_saved_schedule_is_performed_as_it_is(tmp_path):
    path = tmp_path / "x.json"
    asked = record("simulate", *SMALL, "--ranks", 4, "--c", "2d@2", "--save-schedule", path)
    saved = record("simulate", "--schedule", path)
    assert saved["predicted"]["makespan_s"] == asked["predicted"]["makespan_s"]
    assert saved["problem"] == asked["problem"]
    assert record("run", "--schedule", path, "--iters", 1, "--check")["measured"]["ok"] is True


def test_the_verdict_says_what_a_search_finds_and_following_it_ends_the_advice(tmp_path):
    """Rows of everything on PVC accumulate through slow links; the page has the whole verdict too."""
    asked = ["simulate", "--preset", "mlp1", "--machine", "pvc-12"]
    page = tmp_path / "x.html"
    slow = record(*asked, "--html", page)["predicted"]
    result = slow["advice"]
    layouts = [part for x in "abc" for part in (f"--{x}", result[x])]
    how = ["--stationary", result["stationary"], "--granularity", result["granularity"]]
    fast = record(*asked, *layouts, *how)["predicted"]
    assert (fast["makespan_s"], fast["memory_bytes"]) == (result["makespan_s"], result["memory_bytes"])
    assert fast["advice"] is None
    saving = 100 * (1 - fast["makespan_s"] / slow["makespan_s"])
    less = (slow["memory_bytes"] - fast["memory_bytes"]) / 2**20
    output = (
        f"search finds {saving:.0f} % less time with {less:.1f} MiB less: A {result['a']}, B {result['b']}, C"
    )
    assert output in slow["verdict"]
    assert output in page.read_text()


def test_a_makespan_has_the_range_of_the_machines_numbers():
    """GEMMs of 66 to 75 % of the peak where 72 % is meant, and nothing moves."""
    asked = ["-m", "8K", "-n", "8K", "-k", "8K", "--a", "row@8", "--b", "col", "--c", "col"]
    predicted = record("simulate", *asked)["predicted"]
    low, high = (seconds / (predicted["makespan_s"] - 3e-6) for seconds in predicted["makespan_range_s"])
    assert low == pytest.approx(0.72 / 0.75, rel=0.01)
    assert high == pytest.approx(0.72 / 0.66, rel=0.01)
    assert re.search(r"makespan +\S+ ms \(\S+ to \S+\), 71\.9 % of peak", good("simulate", *asked))


MEASURED_KEYS = {"best_s", "mean_s", "std_s", "iters", "max_abs_error", "ok", "verdict", "actions"} | {
    f"{what}_bytes" for what in ("memory", "pool", "get", "put", "accumulate", "reduce")
}


def test_run_checks_the_product_and_reports_best_mean_and_spread(tmp_path):
    result = record("run", *SMALL, "--a", "col@2", "--b", "2d", "--c", "row@4", "--iters", 3, "--check")
    measured = result["measured"]
    assert measured.keys() == MEASURED_KEYS
    predicted = record(
        "simulate", *SMALL, "--a", "col@2", "--b", "2d", "--c", "row@4", "--machine", "localhost"
    )
    moved = (
        "memory_bytes",
        "pool_bytes",
        "get_bytes",
        "put_bytes",
        "accumulate_bytes",
        "reduce_bytes",
        "actions",
    )
    assert {name: measured[name] for name in moved} == {name: predicted["predicted"][name] for name in moved}
    assert measured["verdict"].startswith("Order and bytes are real")
    assert (measured["iters"], measured["ok"]) == (3, True)
    assert 0 < measured["best_s"] <= measured["mean_s"]
    assert measured["max_abs_error"] < 1e-4


def test_run_of_half_precision_is_checked_too():
    assert record("run", *SMALL, "--dtype", "float16", "--iters", 1, "--check")["measured"]["ok"] is True


def test_a_wrong_product_ends_in_4(monkeypatch):
    from umm_hw.numpy.executor import NumpyExecutor

    honest = NumpyExecutor.run

    def off_by_one(self, schedule, operands=None):
        trace = honest(self, schedule, operands)
        trace.result[3, 5] += 1
        return trace

    monkeypatch.setattr(NumpyExecutor, "run", off_by_one)
    result = umm("run", *SMALL, "--iters", 1, "--check")
    assert result.exit_code == 4
    assert result.stderr.startswith("error: C is wrong: max error 1 ")


def test_compare_of_two_files_and_of_both_run_here(tmp_path):
    schedule, predicted, measured = (tmp_path / name for name in ("s.json", "p.json", "m.json"))
    good("simulate", "--machine", "localhost", *SMALL, "--save-schedule", schedule, "--save-trace", predicted)
    good("run", "--schedule", schedule, "--iters", 1, "--save-trace", measured)
    out = good("compare", predicted, measured)
    assert "all dependencies kept" in out
    assert re.search(r"gemm +\d+", out)
    both = record("compare", *SMALL, "--iters", 2)
    assert both["comparison"]["order_kept"] is True
    assert both["measured"].keys() == MEASURED_KEYS
    assert both["measured"]["mean_s"] >= both["measured"]["best_s"]
    of_files = record("compare", predicted, measured)["measured"]
    assert of_files.keys() == MEASURED_KEYS
    assert of_files["mean_s"] is None
    assert of_files["get_bytes"] == both["measured"]["get_bytes"]


def test_compare_refuses_a_makespan_beyond_the_tolerance(tmp_path):
    """A measured trace that ran at half speed: the prediction is 50 % below it."""
    fast, slow = tmp_path / "fast.json", tmp_path / "slow.json"
    good("simulate", *SMALL, "--save-trace", fast)
    trace = json.loads(fast.read_text())
    slow.write_text(json.dumps(trace | {x: [2 * t for t in trace[x]] for x in ("start", "end")}))
    assert umm("compare", fast, slow, "--fail-above", "50%").exit_code == 0
    result = umm("compare", fast, slow, "--fail-above", "0.25")
    assert result.exit_code == 4
    assert result.stderr == "error: the predicted makespan is -50.0 % off, more than the 25 % allowed\n"


def test_times_of_the_numpy_executor_are_not_held_to_a_tolerance():
    result = umm("compare", *SMALL, "--iters", 1, "--fail-above", "25%")
    assert result.exit_code == 2
    assert "one process" in result.stderr


def test_search_reports_how_many_points_it_took_and_the_best():
    """1024 x 512 x 256 on 4 ranks: (3 · 3)³ · 3 = 2187 points as written."""
    asked = ("search", "-m", "1K", "-n", 512, "-k", 256, "--ranks", 4, "--machine", "h100-8")
    paper = ("--grids", "square", "--granularity", "tile", "--final", "reduce")
    result = record(*asked, *paper, "--top", 3)
    assert (result["priced"], result["proven"], len(result["top"])) == (2187, True, 3)
    assert 3 <= result["simulated"] <= result["distinct"] < result["priced"]
    best = result["top"][0]
    assert {"a", "b", "c", "stationary", "makespan_s", "memory_bytes"} <= best.keys()
    layouts = [part for matrix in "abc" for part in (f"--{matrix}", best[matrix])]
    alone = record("simulate", *asked[1:], *layouts, "--stationary", best["stationary"])["predicted"]
    assert alone["makespan_s"] == pytest.approx(best["makespan_s"], rel=1e-9)
    out = good(*asked, *paper, "--prefetch", "1,2", "--a", "row,col@2", "--top", 3)
    assert re.search(r"# +memory +makespan +range +move +peak +A +B +C +stationary +pref\.", out)
    assert "Proven best of 432 in this model, to 0.8 %: A row, col@2, B all, C all of row," in out


def test_search_shows_the_gap_to_the_best_steps_where_a_policy_proves_one():
    asked = ("search", "-m", 96, "-n", 96, "-k", 96, "--ranks", 4, "--machine", "pvc-12")
    asked = (*asked, "--a", "col", "--b", "row", "--c", "2d", "--stationary", "C", "--memory", "none")
    asked = (*asked, "--granularity", "tile", "--top", 2)
    rows = good(*asked, "--policy", "direct,exhaustive").splitlines()
    assert rows[2].split()[-1] == "gap"
    assert rows[2].split()[-2] in ("stationary", "stat.")
    policies = {
        word: row for row in rows[3:5] for word in row.split()[-3:] if word in ("direct", "exhaustive")
    }
    assert {word: row.endswith(" 0 %") for word, row in policies.items()} == {
        "exhaustive": True,
        "direct": False,
    }
    assert not good(*asked, "--policy", "direct").splitlines()[2].endswith("gap")


def test_search_without_a_budget_and_with_one_too_small():
    asked = ("search", *SMALL, "--ranks", 4)
    assert record(*asked, "--memory", "none", "--top", 1)["memory_limit_bytes"] == 80 * 10**9
    result = umm(*asked, "--memory", "0.1x")
    assert result.exit_code == 3
    assert "the smallest memory that works is" in result.stderr


def test_the_demo_prints_two_leaderboards_checks_every_row_and_writes_a_page(tmp_path, monkeypatch):
    """At a sixty-fourth of the paper's sizes, so that it is quick."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "PRESETS", {"mlp1": {"m": 128, "n": 768, "k": 192}})
    out = good("demo", "--quiet")
    assert out.count("Proven best of ") == len(re.findall(r"all \d+ rows are right", out)) == 2
    page = (tmp_path / "umm-demo.html").read_text()
    assert "The fastest on pvc-12" in page
    assert "The fastest on h100-8" in page


def test_tiles_shows_every_owner_within_80_columns():
    out = good("tiles", "-m", 64, "-n", 48, "-k", 40, "--a", "col@2", "--b", "cyclic:2x2:2x4", "--ranks", 8)
    assert "A = col@2   64 x 40" in out
    assert "r0 r4" in out
    assert "…" in out  # 20 x 24 tiles of B do not all fit
    assert max(map(len, out.splitlines())) <= 80


def test_tiles_json_holds_edges_and_owners():
    result = record("tiles", *SMALL, "--a", "col@2", "--ranks", 4)["tiles"]["A"]
    assert result["col_edges"] == [0, 20, 40]
    assert result["owners"] == [[[0, 1]], [[2, 3]]]


def test_machine_list_show_and_check():
    assert {"pvc-12", "h100-8"} <= {row["name"] for row in record("machine", "list")["machines"]}
    out = good("machine", "show", "pvc-12")
    assert re.search(r"0\.0 +· +230 +20 +20", out)
    assert "Brock & Golin 2025, section" in out
    published, assumed = out.split("Published:")[1].split("Assumed, not measured:")
    assert "Brock & Golin" in published
    assert "copy_engines" in assumed
    assert "copy_engines" not in published
    assert good("machine", "check", "h100-8") == "h100-8: ok, 8 devices, 24 links\n"
    assert record("machine", "show", "h100-8")["machine"]["bandwidth"][0][1] == 374e9


def test_doctor_lists_executors_that_can_run_here():
    rows = {row["name"]: row["reason"] for row in record("doctor")["executors"]}
    assert rows["sim"] is None
    assert rows["numpy"] is None
    assert "executors" in good("doctor")


def test_doctor_names_the_smallest_extra_with_a_package():
    extras = {row["name"]: row["extra"] for row in record("doctor")["packages"]}
    packages = ("numpy", "mpi4py", "mpich", "distributed", "pyopencl", "dash", "torch")
    assert [extras[x] for x in packages] == ["", "mpi", "mpi-wheels", "dask", "opencl", "explore", "torch"]


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_a_preset(tmp_path):
    config = tmp_path / "umm.toml"
    config.write_text('preset = "mlp1"\nm = "1K"\nranks = 8\nmachine = "pvc-12"\nmax-gemms = 3\n')
    both = ("simulate", "--config", config)
    result = record(*both)
    assert result["problem"] | {"m": 1024, "n": 49152, "k": 12288, "ranks": 8} == result["problem"]
    assert (result["machine"], result["options"]["max_gemms"]) == ("pvc-12", 3)
    assert record(*both, env={"UMM_M": "2K"})["problem"]["m"] == 2048
    assert record(*both, "-m", 3, env={"UMM_M": "2K"})["problem"]["m"] == 3
    assert record(*both, "--preset", "mlp2")["problem"]["n"] == 12288
    assert record("simulate", "--preset", "mlp2", "--config", config)["problem"]["m"] == 1024
    assert record("simulate", env={"UMM_CONFIG": str(config), "UMM_RANKS": "4"})["problem"]["ranks"] == 4


def test_text_has_no_ansi_codes_off_a_terminal_and_notes_go_to_stderr(tmp_path):
    result = umm("simulate", *SMALL, "--save-schedule", tmp_path / "x.json")
    assert "\x1b" not in result.output
    assert result.stderr == f"wrote the schedule to {tmp_path / 'x.json'}\n"
    assert umm("simulate", *SMALL, "--quiet", "--save-schedule", tmp_path / "x.json").stderr == ""


def test_what_goes_to_stdout_can_go_to_a_file(tmp_path):
    """Text or JSON, the same; nothing on stdout, and a note on stderr unless --quiet."""
    text, data = tmp_path / "x.txt", tmp_path / "x.json"
    result = umm("simulate", *SMALL, "-o", text)
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "",
        f"wrote {text}\n",
    )
    assert text.read_text() == good("simulate", *SMALL)
    result = umm("simulate", *SMALL, "--json", "--quiet", "-o", data)
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(data.read_text()) == record("simulate", *SMALL)
    for command in ("doctor", "tiles", "search", "run", "compare"):
        arguments = {"doctor": [], "search": [*SMALL, "--memory", "none"]}.get(command, SMALL)
        assert umm(command, *arguments, "--quiet", "-o", text).output == ""
        assert text.read_text()


def test_a_file_holds_what_was_printed_before_a_failure_and_is_not_made_without(tmp_path, monkeypatch):
    from umm_hw.numpy.executor import NumpyExecutor

    path = tmp_path / "x.txt"
    result = umm("run", "--executor", "sim", *SMALL, "-o", path)
    assert (result.exit_code, path.exists()) == (2, False)
    assert umm("simulate", *SMALL, "-o", tmp_path / "no" / "x").exit_code == 2
    honest = NumpyExecutor.run
    monkeypatch.setattr(
        NumpyExecutor,
        "run",
        lambda *given: replace(honest(*given), results={"C": np.zeros((64, 48))}),
    )
    assert umm("run", *SMALL, "--iters", 1, "--check", "-o", path).exit_code == 4
    assert "C is wrong" in path.read_text()


def test_every_command_has_help():
    for name in COMMANDS:
        assert f"Usage: umm {name}" in good(name, "--help")
    assert "Commands:" in good()


def test_answers_say_where_operands_lie_and_what_bringing_them_from_rows_takes():
    """A row@8 is 7/8 of 128 MiB to move to each of 8 ranks; given layouts are no question any more."""
    asked = ["-m", "8K", "-n", "1K", "-k", "4K", "--b", "col", "--c", "col"]
    predicted = record("simulate", *asked, "--a", "row@8")["predicted"]
    assert set(predicted["bring_s"]) == {"A", "B", "C"}
    text = " ".join(good("simulate", *asked, "--a", "row@8").split())
    assert "operands start in the layouts shown; starting from row, moving them would add: A 3" in text
    assert "operands A from row by gets" in " ".join(
        good("simulate", *asked, "--a", "row@8", "--given", "a=row").split()
    )
    top = record("search", *asked, "--a", "row@8", "--stationary", "B", "--top", "1")["top"][0]
    assert top["bring_s"] == predicted["bring_s"]
    assert "move: the time to move A from row" in good("search", *asked, "--given", "a=row", "--top", "1")


def test_a_movement_for_each_multiply_is_found_and_simulated_as_it_is_printed():
    """The last line of a search is the option that has the makespan of its best."""
    asked = ("--chain", "mlp", "--hidden", 2048, "--ffn", 4096, "--tokens", 1024, "--backward", "--ranks", 4)
    ways = ("--movement", "flat,gathered", "--choices", "row,col")
    best = record("search", *asked, *ways, "--top", 1)["top"][0]
    result = good("search", *asked, *ways, "--top", 1).splitlines()[-1]
    assert result == "To simulate it: --movement " + ",".join(f"{x}={y}" for x, y in best["movement"].items())
    layouts = ",".join(f"{name}={text}" for name, text in best["layouts"].items())
    again = record("simulate", *asked, "--layouts", layouts, *result.split()[-2:])
    assert again["predicted"]["makespan_s"] == pytest.approx(best["makespan_s"], rel=1e-12)
