"""Calibration on GPUs that are NumPy underneath: a whole machine file comes out, whatever the numbers."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from conformance.fake_device import FakeWorld

import umm
from umm.errors import ExecutorUnavailableError, InputError
from umm_hw.calibrate import gpu_benchmarks
from umm_hw.calibrate.gpu import calibrate, machine_text
from umm_hw.calibrate.gpu_benchmarks import GpuMeasurements
from umm_hw.cuda.executor import CudaExecutor

# A GPU of 1 Tflop/s, 0.8 for small shapes; links of 100 GB/s after 2 us, local copies twice as fast.
SHAPES = {(64, 64, 64): 1e-6, (64, 64, 1024): 1e-6 + 2 * 64 * 64 * 1024 / 0.8e12}
SHAPES |= {(64, 1024, k): 1e-6 + 2 * 64 * 1024 * k / 1e12 for k in (64, 1024)}
SHAPES |= {(1024, n, k): 1e-6 + 2 * 1024 * n * k / 1e12 for n in (64, 1024) for k in (64, 1024)}
COPY = {4096: 2e-6, 1 << 20: 2e-6 + (1 << 20) / 100e9}
MEASURED = GpuMeasurements(
    gemm=dict.fromkeys(("float64", "float32", "float16", "bfloat16", "tf32"), SHAPES),
    copy=COPY,
    local_copy={size: seconds / 2 for size, seconds in COPY.items()},
    accumulate={24: {size: seconds / 0.75 for size, seconds in COPY.items()}},
    interference={"get": 0.01, "accumulate": 0.25},
    blocks=24,
)


@pytest.mark.parametrize("gpus", [1, 4])
def test_the_numbers_of_the_file_are_what_was_measured(tmp_path, gpus):
    (device,) = FakeWorld().devices(1)
    file = tmp_path / "here.toml"
    file.write_text(machine_text(device, gpus, MEASURED, "cuda"))
    machine = umm.machine(str(file))
    assert machine.device_count == gpus
    assert machine.copy_engines == 3
    assert machine.peak("float32") == pytest.approx(1e12)
    assert machine.gemm_efficiency("float32", 1024, 1024, 1024) == pytest.approx(1.0)
    assert machine.gemm_efficiency("bfloat16", 64, 64, 1024) == pytest.approx(0.8, abs=1e-4)
    assert machine.launch_s == pytest.approx(1e-6)
    assert machine.transfer_overhead_s == pytest.approx(2e-6)
    assert machine.accumulate_efficiency == pytest.approx(0.75)
    assert dict(machine.interference) == dict.fromkeys(("get", "put", "broadcast"), 0.01) | dict.fromkeys(
        ("accumulate", "reduce"), 0.25
    )
    assert all("measured on fake 0" in fact.source for fact in machine.facts if fact.key.endswith("peak"))
    if gpus == 4:
        assert machine.bandwidth_matrix()[0, 3] == pytest.approx(100e9)


def test_with_tf32_the_file_s_float32_is_tf32(tmp_path):
    """TF32 twice as fast: the peak of float32 doubles, and the source names it."""
    (device,) = FakeWorld().devices(1)
    twice = {shape: 1e-6 + (seconds - 1e-6) / 2 for shape, seconds in SHAPES.items()}
    measured = replace(MEASURED, gemm={**MEASURED.gemm, "tf32": twice})
    file = tmp_path / "tf32.toml"
    file.write_text(machine_text(device, 1, measured, "cuda", tf32=True))
    machine = umm.machine(str(file))
    assert machine.peak("float32") == pytest.approx(2e12)
    assert machine.peak("float64") == pytest.approx(1e12)
    assert "--option tf32=on" in file.read_text()


@pytest.mark.parametrize("gpus", [1, 2])
def test_each_way_to_accumulate_has_numbers_of_its_own(tmp_path, monkeypatch, gpus):
    """A landing copies and then adds, so it reaches less of a copy's bandwidth than the kernel alone here."""
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    shares = {}
    for way in ("kernel", "landing"):
        world = FakeWorld()
        executor = CudaExecutor(accumulate=way, blocks=8, devices=world.devices(gpus))
        monkeypatch.setattr(
            "umm_hw.calibrate.gpu.calibrate", partial(calibrate, sides=(4, 16), sizes=(256, 1 << 16))
        )
        file = tmp_path / f"{way}.toml"
        file.write_text(executor.calibrate(["float32"], lambda what: None))
        assert world.memory == {}
        machine = umm.machine(str(file))
        shares[way] = machine.accumulate_efficiency
        (fact,) = [fact for fact in machine.facts if fact.key == "devices.interference.accumulate"]
        assert f"accumulate by {way} of 8 blocks" in fact.source
    assert shares["landing"] < 0.75 * shares["kernel"]


def test_a_calibration_is_refused_where_it_could_not_run():
    devices = FakeWorld().devices(2)
    with pytest.raises(InputError, match="tf32 rounds float32 operands; leave it out for float64, bfloat16"):
        CudaExecutor(tf32=True, devices=devices).calibrate(["float64", "bfloat16"], print)
    devices[0].reach = lambda other: "the link from GPU 0 to GPU 1 carries no atomic adds"
    with pytest.raises(ExecutorUnavailableError, match="no atomic adds; accumulate=landing copies instead"):
        CudaExecutor(devices=devices).calibrate(["float32"], print)


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_calibration_measures_every_type_and_leaves_no_memory(tmp_path, monkeypatch, gpus):
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    world, result = FakeWorld(), []
    dtypes = ("float64", "float32", "float16", "bfloat16")
    text, measured = calibrate(world.devices(gpus), dtypes, result.append, sides=(4, 8), sizes=(256, 4096))
    assert world.memory == {}
    assert result == [
        "multiplies of float64, float32, float16, bfloat16",
        "copies",
        "accumulates",
        "multiplies beside transfers",
    ]
    assert set(measured.gemm) == {"float64", "float32", "float16", "bfloat16", "tf32"}
    assert len(measured.gemm["tf32"]) == 8
    assert set(measured.accumulate) == {4, 8, 16, 24, 32, 64, 128}
    file = tmp_path / "fake.toml"
    file.write_text(text)
    machine = umm.machine(str(file))
    problem = umm.Problem(m=8, n=8, k=8, ranks=2)
    assert np.isfinite(umm.run(umm.schedule(problem, machine), executor="sim").makespan_s)
