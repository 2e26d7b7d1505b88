"""The hardware experiment on GPUs that are NumPy underneath: every file comes out, once."""

import csv
import json
from dataclasses import asdict, replace
from statistics import median

import pytest
from conformance.fake_device import FakeWorld

import umm
from experiments.hardware import chains
from experiments.hardware.points import layouts
from experiments.hardware.run import measure_all
from umm_hw.calibrate import gpu_benchmarks
from umm_hw.cuda.executor import CudaExecutor


def test_at_least_thirty_layouts_are_measured_and_none_replicates_an_operand_fully():
    result = layouts()
    assert len(set(result)) == len(result) >= 30
    for a, b, c, _ in result:
        problem = umm.Problem(m=64, n=64, k=64, a=a, b=b, c=c, ranks=8)
        assert all(problem.layout(x).replicas < 8 for x in "ABC")


def test_every_file_is_written_and_what_is_there_is_not_measured_again(tmp_path, monkeypatch):
    """MLP-1 at 1/1024 with m = 16, in one type: 36 points, an agreement, a fraction of one call."""
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    world, result = FakeWorld(3), []
    options = {"problems": ["mlp1"], "batches": [16], "dtypes": ["bfloat16"], "ranks": 4, "iters": 2}
    options |= {"scale": 1024, "sides": (4, 8), "sizes": (256, 4096), "note": result.append}
    measure_all(world.devices(1), tmp_path, **options)
    names = {"points.csv", "summary.json", "versions.txt"}
    names |= {"machine.toml", "machine-landing.toml", "calibration.json", "calibration-landing.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    with (tmp_path / "points.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(layouts()) == 36
    summary = json.loads((tmp_path / "summary.json").read_text())
    (one,) = summary["sets"]
    assert one["layouts"] == 36
    assert one["best_s"] == min(float(row["measured_s"]) for row in rows)
    assert one["fraction_of_one_call"] == one["one_cublas_call_s"] / one["best_s"]
    assert -1 <= one["kendall_tau"] <= 1
    for way in ("kernel", "landing"):
        assert set(summary["accumulate_share_of_copy"][way]) == {"4", "8", "16", "24", "32", "64", "128"}
        assert set(summary["interference"][way]) == {"get", "accumulate"}
    result.clear()
    measure_all(world.devices(1), tmp_path, **options)
    assert len(result) == 1  # the summary alone
    assert world.memory == {}


def test_schemes_of_chains_are_measured_and_predicted_anew(tmp_path, monkeypatch):
    """16 tokens of a small model; the written file is read again, to four digits."""
    small = tmp_path / "config.json"
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    small.write_text(json.dumps(sizes | {"hidden_act": "silu"}))
    machine = umm.machine(str(chains.FOLDER / "machine.toml"))
    point = chains.ChainPoint("gated-mlp", str(small), 16, True, "tp2-dp2", "gathered", 4)
    executor = CudaExecutor(devices=FakeWorld(5).devices(1))
    result = chains.measured(point, point.schedule(machine), executor, {})
    assert result.measured_s > 0
    assert result.predicted_s == umm.run(point.schedule(machine), executor="sim").makespan_s
    assert result.predicted_gemm_s > result.predicted_map_s > 0
    chains.write(tmp_path / chains.FILE, chains.ChainPoint, [result])
    (row,) = chains.read(tmp_path)
    assert row == replace(
        result, **{x: float(f"{y:.4g}") for x, y in asdict(result).items() if x.endswith("_s")}
    )


def test_what_was_measured_of_chains_is_predicted_as_the_file_says():
    """On the H100 whose numbers machine.toml has: 80 points, within 7 % at the median."""
    rows = chains.read(chains.FOLDER)
    machine = umm.machine(str(chains.FOLDER / "machine.toml"))
    for row in rows[::30]:
        again = chains.predicted(row, row.schedule(machine))
        assert again.predicted_s == pytest.approx(row.predicted_s, rel=1e-3)
    assert len(rows) == 80
    assert median(abs(x.predicted_s / x.measured_s - 1) for x in rows) < 0.08
