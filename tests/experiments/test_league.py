"""Laws of kernels by engine, fitted to made-up rows, and the league that judges predictors by such rows."""

import runpy
import sys

import numpy as np
import pytest

from experiments.common.machines import shipped
from experiments.kernels import allreduces, collectives, experts, multiplies, write
from experiments.kernels.forms import Form
from experiments.league import serving
from experiments.league.rows import Game, cell, roughness
from umm.cost import gemm_seconds
from umm.machines.kernels import Issue
from umm.machines.settings import with_settings

pd = pytest.importorskip("pandas")
DEVICE = multiplies.Device(units=8, peak=8e13, memory=1e12)


def made_up(numbers, count=120):
    """Rows of a law, 3 % off by turns."""
    random = np.random.default_rng(1)
    sizes = 2 ** random.integers(5, 13, size=(count, 3))
    rows = pd.DataFrame(sizes, columns=list("mnk"))
    law = multiplies.Law(numbers, Form())
    return rows.assign(latency=law.seconds(DEVICE, "bfloat16", rows) * 1e3 * (1 + 0.03 * (-1) ** rows.index))


def test_a_law_is_found_again_from_rows_of_it():
    numbers = {
        "value": 0.7, "feed": 4e10, "start": 3e-6, "ramp": 4e-7, "store": 3e10, "memory": 8e11, "norm": 3.0,
        "tail": 0.7, "overlap": 0.3,
    }  # fmt: skip
    rows = made_up(numbers)
    law, _ = multiplies._fit(rows, DEVICE, "bfloat16", Form())
    assert law.numbers["start"] == pytest.approx(3e-6, rel=0.05)
    misfits = np.log(law.seconds(DEVICE, "bfloat16", rows) / rows.latency * 1e3)
    assert np.abs(misfits).mean() < 0.035


def test_the_ways_of_a_collective_are_found_again_from_rows_of_them():
    form = collectives.Form("ring", {"start": 5e-6, "step": 1e-6, "link": 0.5})
    sizes = np.repeat(2.0 ** np.arange(14, 28, 2), 2)
    rows = pd.DataFrame({"nbytes": sizes, "ranks": [2.0, 8.0] * 7, "width": 4e11})
    rows["seconds"] = form.seconds(
        {"start": 9e-6, "step": 2e-6, "link": 0.7}, "all-gather", *rows.to_numpy().T
    )
    ways, _ = collectives._fit(rows, "all-gather", (form,), None)
    [x] = ways.numbers
    assert (x["start"], x["step"], x["link"]) == pytest.approx((9e-6, 2e-6, 0.7), rel=0.03)


def test_the_size_up_to_which_an_engine_has_its_own_all_reduce_is_found():
    sizes = 2.0 ** np.arange(12, 28)
    rows = pd.DataFrame({"nbytes": sizes, "ranks": 4.0, "width": 4e11})
    library = 2e-5 + sizes / 2e11
    rows["seconds"] = np.where(sizes <= 2**21, 4e-6 + sizes * 3 / 3e11, library)
    assert allreduces.largest(rows, library) == 2**21


def test_the_host_is_seen_where_no_multiply_takes_less():
    rows = pd.DataFrame({"m": [16, 64, 64, 65], "n": 64, "k": [128, 128, 32, 128]})
    rows["latency"] = [0.06, 0.09, 0.18, 0.09]
    kinds = (Issue(time="0 s"), Issue(time="0 s", rows=31), Issue(time="0 s", unless=[64, 128]))
    assert [round(x.time * 1e6) for x in multiplies.edges(rows, kinds)] == [90, 60, 180]


def test_experts_are_replayed_where_a_file_of_tactics_has_another_split():
    """4 experts of 512 columns of two splits, 1 of 1024 whose file may be that of 16, and 16 and 8 alone."""
    rows = pd.DataFrame({"num_tokens": 64, "hidden_size": 4096, "topk": 8}, range(5))
    rows["inter_size"], rows["num_experts"] = [1024, 2048, 1024, 1024, 1024], [16, 16, 16, 16, 32]
    rows["moe_tp_size"], rows["moe_ep_size"] = [2, 4, 1, 1, 1], [4, 4, 16, 1, 4]
    rows["system"], rows["library"], rows["latency"] = "h100_sxm", "trtllm 1.3.0rc20", 0.1
    rows["kernel_source"], rows["distribution"] = "moe_torch_flow_cutlass", "balanced"
    rows["moe_dtype"] = "fp8"
    assert experts.rows_of(rows).replayed.tolist() == [True, True, True, False, False]
    assert not experts.rows_of(rows.assign(moe_dtype="fp8_block")).replayed.any()


def test_laws_go_to_the_end_of_a_file_in_the_place_of_older_ones(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("schema = 1\n")
    write.put(path, "[engines.a]\n")
    write.put(path, "[engines.b]\n")
    assert path.read_text() == f"schema = 1\n\n{write.HEAD}\n\n[engines.b]\n"


def league(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["league", *map(str, args)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("experiments.league", run_name="__main__", alter_sys=True)
    return capsys.readouterr().out.splitlines()


def test_the_league_judges_collectives_by_operation_and_ranks(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    rows = pd.DataFrame({"system": "h100_sxm", "library": "nccl 2.29.2", "op_name": "all_reduce"}, [0, 1])
    rows["nccl_dtype"], rows["num_gpus"], rows["message_size"] = "half", 8, [2**14, 2**24]
    rows["latency"] = [0.031, 0.031 + 2**25 / 267e6]
    rows.to_parquet(tmp_path / "nccl.parquet")
    head, line = league(monkeypatch, capsys, tmp_path, "--collectives")
    assert head.split()[-3:] == ["law", "autoparallel", "wire"]
    assert line.startswith("h100_sxm all-reduce 8")
    assert "0% / 0%" in line


def test_the_league_judges_attention_by_the_kernel_that_was_measured(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    rows = pd.DataFrame({"kernel_source": ["triton", "trtllm_mha"] * 20, "latency": 0.1})
    rows["system"], rows["library"], rows["op_name"] = "b200_sxm", "sglang 0.5.14", "generation_attention"
    rows["attn_dtype"] = rows["kv_cache_dtype"] = "bfloat16"
    rows["batch_size"], rows["isl"], rows["step"] = 1, 1, np.arange(40) // 2 * 128
    rows["num_heads"], rows["num_key_value_heads"], rows["head_dim"], rows["window_size"] = 16, 2, 256, 0
    rows.to_parquet(tmp_path / "generation_attention.parquet")
    monkeypatch.setattr(serving, "KINDS", {"generation_attention": "decode"})
    triton, usual = serving.games(tmp_path)
    assert usual.name == "b200_sxm sglang+trtllm_mha generation_attention"
    assert triton.name == "b200_sxm sglang+triton generation_attention"
    assert set(triton.rows.kernel) == {"triton"}
    assert not np.allclose(serving.law(usual), serving.law(triton))


def test_the_league_prints_a_line_for_each_system_engine_and_type(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    random = np.random.default_rng(1)
    rows = pd.DataFrame(2 ** random.integers(6, 12, size=(40, 3)), columns=list("mnk"))
    rows["latency"] = 0.01
    rows["system"], rows["library"], rows["gemm_dtype"] = "h100_sxm", "vllm 0.24.0", "bfloat16"
    rows.to_parquet(tmp_path / "gemm.parquet")
    head, line = league(monkeypatch, capsys, tmp_path)
    assert head.split()[-6:] == ["aiconfigurator", "aiconfigurator_sol", "law", "plain", "roofline", "table"]
    assert line.startswith("h100_sxm vllm bfloat16")
    assert line.count("%") >= 8


def test_a_predictor_is_judged_by_the_rows_that_it_has_an_answer_for():
    """10 % off on a small multiply, twice the time of a large one, and no answer for a third."""
    seconds, large = np.array([1.1, np.nan, 2.0]), np.array([False, False, True])
    assert cell(seconds, np.ones(3), large) == "10% / 100% (2)"
    assert cell(seconds[:1], np.ones(1), large[:1]) == "10% / –"


def test_rows_are_as_rough_as_their_neighbours_differ_beyond_the_law():
    """Every other row takes 1.2 times the law's seconds: so far it is from the mean of its neighbours."""
    machine = with_settings(shipped("h100-8"), {"kernels": "vllm"})
    sizes = np.array([[m, 1024, 1024] for m in (64, 72, 81, 91, 102)], dtype=float)
    seconds = gemm_seconds(machine, "bfloat16", *sizes.T, 2) * [1, 1.2, 1, 1.2, 1]
    rows = np.column_stack([sizes, seconds])
    game = Game(("h100_sxm", "vllm", "bfloat16"), machine, machine, "bfloat16", rows, rows)
    assert roughness(game) == pytest.approx(1.2 ** (1 / 1.5**0.5) - 1, rel=0.01)
