"""Chains at the command line: simulated, executed and checked, from presets and from files."""

import json
import re

import pandas as pd
import pytest
from command import good, record, times_only, umm

from umm.program import save_chain
from umm.program.presets import chain
from umm.space import Store

MLP = ["--chain", "mlp", "--hidden", "64", "--ffn", "96", "--tokens", "40", "--backward"]
SMALL = ["--chain", "mlp", "--hidden", "8", "--ffn", "12", "--tokens", "6"]
COLUMNS = """
name = "columns"
tensors = [
    { name = "X", shape = [64, 64], dtype = "float32", role = "input" },
    { name = "g", shape = [1, 64], dtype = "float32", role = "input" },
    { name = "Y", shape = [64, 64], dtype = "float32", role = "output" },
]
statements = [{ kind = "map", out = "Y", fn = "mul_cols", reads = ["X", "g"] }]
"""
CHECKED = ["--executor", "numpy", "--check", "--iters", "1", "--warmup", "0"]


@pytest.mark.parametrize("layouts", ["megatron", "sequence", "data", "sequence,X=row@2,dW1=2d"])
def test_run_holds_every_output_of_a_chain(layouts):
    result = record("run", "--machine", "h100-8", *MLP, *CHECKED, "--layouts", layouts)
    assert result["measured"]["ok"]
    assert result["problem"]["chain"] == "mlp"


def test_run_calls_gradients_right_that_are_zero_but_for_rounding():
    """A token alone attends to itself with weight 1 whatever the query, so dWq and dWk are zero."""
    sizes = ["--chain", "attention", "--hidden", "32", "--heads", "8", "--tokens", "7", "--sequences", "7"]
    measured = record("run", "--machine", "h100-8", *sizes, "--backward", *CHECKED)["measured"]
    assert measured["ok"]
    assert measured["max_abs_error"] > 0


def test_run_takes_a_chain_from_a_file(tmp_path):
    outline = chain("gated-mlp", hidden=8, ffn=12, tokens=6, backward=True)
    save_chain(outline, tmp_path / "layer.toml")
    path = tmp_path / "layer.toml"
    result = record("run", "--machine", "h100-8", "--ranks", 4, "--chain", path, *CHECKED)
    assert result["measured"]["ok"]
    assert result["problem"]["layouts"]["W1"] == "col"


@times_only()
def test_simulate_tells_the_layouts_and_the_makespan():
    text = good("simulate", *MLP, "--layouts", "sequence")
    assert "H = X·W1; G = gelu(H); Y = G·W2" in text
    assert "row: X 40x64, Y 40x64" in text
    result = record("simulate", *MLP)
    assert result["problem"]["layouts"]["X"] == "row@8"
    assert result["predicted"]["makespan_s"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hidden", "4"], "--hidden needs a chain, such as --chain transformer-layer"),
        (["--chain", "mlp", "-m", "4"], "--chain mlp takes the place of -m"),
        (["--chain", "mpl"], "there is no chain 'mpl'; did you mean 'mlp'?"),
        (["--chain", "none.toml"], "cannot read none.toml"),
        (["--chain", "none.toml", "--ffn", "4"], "none.toml already decides --ffn"),
        ([*MLP, "--layouts", "megatrom"], "did you mean 'megatron'?"),
        ([*MLP, "--layouts", "W9=row"], "has no tensor 'W9'"),
        ([*MLP, "--layouts", "megatron,W1"], "'W1' of the layouts is not TENSOR=LAYOUT"),
    ],
)
def test_what_is_not_a_chain_is_refused(flags, message):
    refused = umm("simulate", *flags)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


def test_search_proves_the_best_layouts_of_a_chain():
    asked = ["search", *MLP, "--choices", "row,col", "--machine", "h100-8", "--top", 2, "--memory", "none"]
    result = record(*asked)
    assert result["proven"]
    assert result["top"][0]["makespan_s"] <= result["top"][1]["makespan_s"]
    assert result["top"][0]["layouts"].keys() == result["problem"]["tensors"].keys()
    assert result["named"].keys() == {"megatron", "sequence", "data", "multiply by multiply"}
    assert "Proven best of 32: " in good(*asked)


def test_assignments_of_the_same_numbers_are_one_row_that_counts_them(tmp_path):
    """Of three two are the same, with X and Y by columns or by rows; g is on both ranks."""
    path = tmp_path / "columns.toml"
    path.write_text(COLUMNS)
    asked = ("search", "--chain", path, "--ranks", 2, "--machine", "h100-8")
    table = good(*asked).splitlines()
    assert re.match(r"1 to 2 +3.01 µs .* no flop +16.2 KiB  as above; 1 more by other$", table[6])
    assert table[7].strip() == "layouts of X"
    assert table[8].startswith("3 ")
    assert len(record(*asked, "--top", 9)["top"]) == 3


def test_the_winner_of_a_search_is_run_by_name_or_from_a_file(tmp_path):
    """'best' is the search's result, changed where it is stated; a file has it under the same name."""
    path, asked = tmp_path / "best.toml", [*SMALL, "--machine", "h100-8", "--ranks", 2]
    result = record("search", *asked, "--top", 1, "--memory", "none", "--save-chain", path)
    wanted = result["top"][0]["layouts"]
    chosen = record("run", *asked, *CHECKED, "--layouts", "best,X=row@2")
    assert chosen["measured"]["ok"]
    assert chosen["problem"]["layouts"] == wanted | {"X": "row@2"}
    for layouts in ([], ["--layouts", "best"]):
        of_file = record("simulate", "--chain", path, "--machine", "h100-8", "--ranks", 2, *layouts)
        assert of_file["problem"]["layouts"] == wanted
        assert of_file["predicted"]["makespan_s"] == result["top"][0]["makespan_s"]
    assert umm("search", "-m", 4, "-n", 4, "-k", 4, "--save-chain", path).exit_code == 2


def test_a_saved_chain_on_other_ranks_than_its_layouts_are_for_is_told_of_the_flag(tmp_path):
    path = tmp_path / "best.toml"
    outline = chain("mlp", hidden=8, ffn=12, tokens=6).with_layouts("best", {"W1": "row@4"})
    save_chain(outline, path)
    result = umm("simulate", "--chain", path, "--machine", "h100-8", "--ranks", 6)
    assert result.exit_code == 2
    assert result.stderr == (
        "error: 6 ranks cannot hold 4 equal replicas; choose from 1, 2, 3, 6; "
        f"if {path} was saved for other ranks, give --ranks\n"
    )
    assert "--ranks" not in umm("simulate", *SMALL, "--layouts", "X=row@3", "--ranks", 4).stderr


def test_compare_takes_a_chain():
    result = record("compare", "--machine", "h100-8", *SMALL, "--iters", "1", "--layouts", "sequence")
    assert result["comparison"]["order_kept"]
    assert result["problem"]["chain"] == "mlp"
    refused = umm("compare", "a.json", "b.json", "--chain", "mlp")
    assert "the traces already decide --chain" in refused.stderr


def test_sweep_stores_a_chains_layouts_as_json_and_goes_on_where_it_stopped(tmp_path):
    """Two numbers of tokens by three names; then every assignment of two choices, two of which were named."""
    store, csv = tmp_path / "s.db", tmp_path / "all.csv"
    sized = [*SMALL[:-2], "--tokens", "4,8", "-o", store, "--machine", "h100-8", "--pool", "none"]
    good("sweep", *sized, "--layouts", "sequence,data")
    again = umm("sweep", *sized, "--export", csv)
    assert "6 points: 4 were in" in again.stderr
    with Store(store) as opened:
        frame = opened.frame("all_runs")
        assert len(opened.frame()) == 0
    assert frame.status.tolist() == ["ok"] * 6
    assert frame.chain.nunique() == 2
    assert frame.chain.str.startswith("mlp X:").all()
    assert ((frame.gap >= 0) & (frame.gap < 1)).all()
    megatron = json.loads(frame.layouts[frame.layouts.str.contains('"X":"row@8"')].iloc[0])
    assert (megatron["W1"], megatron["W2"], megatron["G"]) == ("col", "row", "col")
    assert len(pd.read_csv(csv)) == 6


def test_sweep_performs_every_assignment_of_choices_and_finds_what_a_search_finds(tmp_path):
    choices = [*SMALL, "--choices", "row,col", "--machine", "h100-8", "--ranks", 2]

    def swept(*flags):
        return [json.loads(x) for x in good("sweep", *choices, "--json", *flags).splitlines()]

    stored = swept("-o", tmp_path / "s.db", "--jobs", 2)
    result = record("search", *choices, "--memory", "none", "--top", 1)
    assert len(stored) == result["priced"] == 32
    best = min(stored, key=lambda row: row["time_s"])
    assert best["time_s"] == result["top"][0]["makespan_s"]
    tight = swept("-o", tmp_path / "t.db", "--memory", "1.5x", "--pool", "none")
    assert {x["status"] for x in tight} == {"ok", "too large"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "4"], "--tokens needs a chain"),
        ([*MLP, "--layouts", "megatrom"], "did you mean 'megatron'?"),
        ([*MLP, "--layouts", "data", "--choices", "row"], "leave out one or the other"),
        ([*MLP, "--prefetch", "1,2"], "--prefetch is not an axis of a chain's sweep"),
        ([*MLP, "-m", "4"], "takes the place of -m"),
        ([*MLP, "--memory", "x"], "memory 'x' is not a budget"),
    ],
)
def test_what_a_chain_is_not_swept_by_is_refused(tmp_path, flags, message):
    refused = umm("sweep", *flags, "-o", tmp_path / "s.db")
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "4"], "--tokens needs a chain"),
        ([*MLP, "--offset", "none,index"], "--offset is not an axis of a chain's search"),
        ([*MLP, "--grids", "all"], "--grids is not an axis of a chain's search"),
        ([*MLP, "--balanced", "--interleaved"], "--balanced, --interleaved is not an axis of a chain's"),
        ([*MLP, "--stationary", "A,B"], "several statements take one stationary matrix, not A, B"),
        ([*MLP, "--choices", "rwo"], "rwo"),
    ],
)
def test_what_a_chain_is_not_searched_by_is_refused(flags, message):
    refused = umm("search", *flags)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


MIXTURE = ["--chain", "moe", "--experts", 4, "--top-k", 1, "--hidden", 64, "--ffn", 64, "--tokens", 512]


@times_only()
def test_a_group_of_experts_per_rank_is_named_and_its_edges_are_shown_in_short():
    """Eight experts on eight ranks: ``ep8`` is ``ep8-tp1``, W1's rows are cut at 64, 128 … 512."""
    asked = ["--machine", "h100-8", *MIXTURE, "--experts", 8]
    short, long = (good("simulate", *asked, "--layouts", name) for name in ("ep8", "ep8-tp1"))
    assert short == long
    assert "edges 8x1: W1 512x64" in " ".join(short.split())
    refused = umm("simulate", *asked, "--layouts", "ep").stderr
    assert "choose from expert, tensor, whole, or a scheme such as ep8 or ep4-tp2" in refused


def test_peers_of_a_mixture_have_p50_and_p95_over_routings():
    """Nearly all tokens go to one of four experts: p50 and p95 of every row over three draws."""
    asked = ["--machine", "h100-8", "--ranks", 4, *MIXTURE, "--routing", "zipf:6", "--routings", 3]
    rows = {x["algorithm"]: x for x in record("peers", *asked)["rows"]}
    assert {"expert", "ep2-tp2", "tensor", "whole", "ep4+4"} <= rows.keys()
    assert all(x["p50_s"] <= x["p95_s"] for x in rows.values())


def test_tiles_of_a_mixture_are_cut_between_experts():
    result = record("tiles", "--machine", "h100-8", "--ranks", 2, *MIXTURE, "--routing", "balanced")
    assert result["tiles"]["R"]["row_edges"] == [0, 256, 512]
    assert result["tiles"]["W1"]["row_edges"] == [0, 128, 256]


@pytest.mark.parametrize(
    ("more", "why"),
    [(["--routings", 3, "--jitter", "3%"], "without --jitter"), (["--routings", 1], "1 is not in the range")],
)
def test_routings_that_cannot_be_drawn_are_refused(more, why):
    answer = umm("peers", "--machine", "h100-8", "--ranks", 4, *MIXTURE, *more)
    assert answer.exit_code == 2
    assert why in answer.stderr.replace("\n", " ")


@pytest.mark.parametrize("command", ["tiles", "simulate", "plan", "run"])
def test_flags_of_a_chain_are_refused_where_there_is_none(command):
    refused = umm(command, "-m", 16, "-n", 12, "-k", 8, "--ranks", 2, "--weights", "fp8", "--backward")
    assert refused.exit_code == 2
    assert "--backward, --weights need a chain" in " ".join(refused.stderr.split())
