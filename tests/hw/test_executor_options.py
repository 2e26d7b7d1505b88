"""An executor's own options on the command line, and calibrating GPUs by the command."""

from functools import partial

import pytest
from command import SMALL, good, record, umm
from conformance.fake_device import FakeWorld

from umm_hw.calibrate import gpu_benchmarks
from umm_hw.calibrate.gpu import calibrate
from umm_hw.cuda.executor import CudaExecutor


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs that are NumPy underneath, calibrated with few and small shapes."""
    devices = FakeWorld().devices(2)
    monkeypatch.setattr(CudaExecutor, "available", lambda self: None)
    monkeypatch.setattr("umm_hw.cuda.executor.visible_gpus", lambda: devices)
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    few = partial(calibrate, sides=(4, 16), sizes=(256, 1 << 16))
    monkeypatch.setattr("umm_hw.calibrate.gpu.calibrate", few)
    return devices


def test_options_reach_the_executor_and_the_record(gpus):
    """--option may be repeated and hold a list; whole numbers and on or off are no text."""
    arguments = ["--executor", "cuda", "--ranks", "4", "--check", "--iters", "2", *SMALL]
    result = record("run", *arguments, "--option", "accumulate=landing,blocks=3", "--option", "tf32=on")
    assert result["executor_options"] == {"accumulate": "landing", "blocks": 3, "tf32": True}
    assert result["measured"]["ok"] is True
    output = umm("run", *arguments, "--option", "accumulate=push")
    assert (
        output.exit_code,
        "accumulate 'push' is unknown; choose from kernel, landing" in output.stderr,
    ) == (
        2,
        True,
    )


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_every_type_is_checked_against_numpy(gpus, dtype):
    arguments = ["--executor", "cuda", "--ranks", "4", "--dtype", dtype, "--iters", "1", *SMALL]
    assert record("run", *arguments, "--a", "col", "--stationary", "A", "--check")["measured"]["ok"] is True


def test_actions_are_named_for_a_profiler_when_asked(gpus):
    good(
        "run",
        "--executor",
        "cuda",
        "--ranks",
        "2",
        "--iters",
        "1",
        "--warmup",
        "0",
        *SMALL,
        "--option",
        "nvtx=on",
    )
    assert "gemm 0 of rank 0" in gpus[0].ranges


def test_options_come_from_the_environment_and_from_a_file_too(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('option = "order=random,seed=4"\n')
    wanted = {"order": "random", "seed": 4}
    assert record("run", *SMALL, "--config", file)["executor_options"] == wanted
    assert record("run", *SMALL, env={"UMM_OPTION": "order=random seed=4"})["executor_options"] == wanted


@pytest.mark.parametrize("text", ["blocks", "=3", "blocks=", "a b=3"])
def test_what_is_not_an_option_is_refused(text):
    result = umm("run", *SMALL, "--option", text)
    assert result.exit_code == 2
    assert f"{text!r} is not an option; write it like blocks=16" in result.stderr


def test_an_option_the_executor_does_not_take_is_answered_with_those_it_does():
    result = umm("run", *SMALL, "--option", "tf32=on")
    assert result.exit_code == 2
    assert "unexpected keyword argument 'tf32'; it takes order, seed, replica" in result.stderr


@pytest.mark.parametrize(
    ("executor", "text", "output"),
    [
        ("mpi", "replica=x", "option replica takes a whole number, not 'x'"),
        ("mpi", "timeout=on", "option timeout takes a number, not True"),
        ("mpi", "job=5", "option job can only be given in Python, not 5"),
        ("numpy", "seed=-1", "option seed takes a whole number, not '-1'"),
        ("numpy", "order=3", "option order takes text, not 3"),
    ],
)
def test_an_option_of_another_type_is_refused(executor, text, output):
    result = umm("run", *SMALL, "--executor", executor, "--option", text)
    assert result.exit_code == 2
    assert f"error: executor {executor}: {output}" in result.stderr


def test_gpus_are_calibrated_in_every_type_into_a_file_of_the_executor_s_name(gpus, tmp_path, monkeypatch):
    """Not into localhost.toml, which describes the cores of this host."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = umm("machine", "calibrate", "--executor", "cuda", "--option", "accumulate=landing")
    assert result.exit_code == 0, result.output
    assert [path.name for path in tmp_path.rglob("*.toml")] == ["cuda.toml"]
    assert set(record("machine", "show", "cuda")["machine"]["peaks"]) == {
        "float64",
        "float32",
        "float16",
        "bfloat16",
    }
    assert "accumulate by landing" in good("machine", "show", "cuda")


def test_one_type_can_be_calibrated_alone(gpus, tmp_path):
    file = tmp_path / "half.toml"
    result = record("machine", "calibrate", "--executor", "cuda", "--dtype", "bfloat16", "-o", file)
    assert list(result["machine"]["peaks"]) == ["bfloat16"]
