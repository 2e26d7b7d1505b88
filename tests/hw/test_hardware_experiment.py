"""The hardware experiment on GPUs that are NumPy underneath: every file comes out, once."""

import csv
import json

from conformance.fake_device import FakeWorld

import umm
from experiments.hardware.points import layouts
from experiments.hardware.run import measure_all
from umm_hw.calibrate import gpu_benchmarks


def test_at_least_thirty_layouts_are_measured_and_none_replicates_an_operand_fully():
    found = layouts()
    assert len(set(found)) == len(found) >= 30
    for a, b, c, _ in found:
        problem = umm.Problem(m=64, n=64, k=64, a=a, b=b, c=c, ranks=8)
        assert all(problem.layout(x).replicas < 8 for x in "ABC")


def test_every_file_is_written_and_what_is_there_is_not_measured_again(tmp_path, monkeypatch):
    """MLP-1 at 1/1024 with m = 16, in one type: 36 points, an agreement, a fraction of one call."""
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    world, said = FakeWorld(3), []
    options = {"problems": ["mlp1"], "batches": [16], "dtypes": ["bfloat16"], "ranks": 4, "iters": 2}
    options |= {"scale": 1024, "sides": (4, 8), "sizes": (256, 4096), "note": said.append}
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
    said.clear()
    measure_all(world.devices(1), tmp_path, **options)
    assert len(said) == 1  # the summary alone
    assert world.memory == {}
