"""Calibration: what is written is a machine, every number has its source and uncertainty, and it predicts."""

import tomllib
from dataclasses import replace

import pytest
from command import good, record
from command import umm as command

import umm
from umm.host import blas
from umm_hw.calibrate import host, host_benchmarks
from umm_hw.calibrate.host import Calibration, Figure, GemmRates
from umm_hw.calibrate.host_file import topology_text


def found(devices=2, share=1.0):
    """Round numbers: 100 Gflop/s a core, half of that for 64x64x64, 10 GB/s for one, 16 GB/s for both."""
    rates = GemmRates(Figure(100e9, 0.01), (64, 1024), [[[0.5, 1.0]] * 2] * 2, 0.02)
    return Calibration(
        devices=devices,
        share=share,
        gemm={"float32": rates},
        launch=Figure(3e-6, 0.1),
        transfer_overhead=Figure(20e-6, 0.2),
        port=Figure(10e9, 0.03),
        backplane=Figure(16e9, 0.03),
        by_size=[(2**16, Figure(5e9, 0.1)), (2**26, Figure(10e9, 0.03))],
        accumulate_efficiency=Figure(0.75, 0.05),
        memory_bandwidth=Figure(30e9, 0.04),
        interference={kind: Figure(0.4, 0.1) for kind in ("get", "accumulate", "reduce")},
    )


@pytest.fixture
def quick(monkeypatch):
    """Few and small measurements: what is tested is that they are made, not what comes out."""
    monkeypatch.setattr(host, "GEMM_SIZES", dict.fromkeys(host.GEMM_SIZES, (16, 64)))
    monkeypatch.setattr(host, "TRANSFER_SIZES", (2**16, 2**18, 2**20))
    monkeypatch.setattr(host, "REPEATS", 2)
    monkeypatch.setattr(host, "TINY_OPS", 40)


def test_the_file_says_what_was_found(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found()))
    machine = umm.machine(path)
    assert (machine.device_count, machine.default_ranks) == (2, 2)
    assert machine.peak("float32") == 100e9
    assert machine.gemm_efficiency("float32", 64, 64, [64, 256, 4096]).tolist() == [0.5, 0.75, 1.0]
    assert machine.launch_s == pytest.approx(3e-6)
    assert machine.bandwidth_matrix()[0, 1] == 10e9
    backplane = machine.link_names.index("backplane")
    assert machine.link_bandwidth[backplane] == 16e9
    assert backplane in machine.route(0, 1)
    assert machine.effective_bytes(2**16) == 2**17  # a small message reaches half the link
    assert machine.accumulate_efficiency == 0.75


def test_the_port_is_as_fast_as_the_fastest_message(tmp_path):
    """Gets of 1 MiB from a cache reach 13 GB/s, of 64 MiB 10: the file is one that can be true."""
    path = tmp_path / "here.toml"
    by_size = [(2**20, Figure(13e9, 0.0)), (2**26, Figure(10e9, 0.0))]
    path.write_text(topology_text(replace(found(), by_size=by_size)))
    machine = umm.machine(path)
    assert machine.bandwidth_matrix()[0, 1] == 13e9
    assert machine.effective_bytes([2**20, 2**26]).tolist() == [2**20, -(-(2**26) * 13 // 10)]


def test_every_measured_number_carries_date_versions_and_uncertainty(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found()))
    measured = [fact for fact in umm.machine(path).facts if fact.uncertainty is not None]
    assert len(measured) == 13
    for fact in measured:
        assert "numpy" in fact.source
        assert fact.source.split("; ")[-1][:2] == "20"


def test_a_host_that_others_used_is_called_busy(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found(share=0.52)))
    assert umm.machine(path).description.endswith("; busy: a rank got 52 % of a core")


def test_one_core_has_no_links(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found(devices=1)))
    assert tomllib.loads(path.read_text())["fabric"] == {"kind": "none"}
    assert umm.machine(path).device_count == 1


def test_quick_calls_are_timed_many_at_a_time():
    calls = []
    seconds = host_benchmarks.timed(lambda: calls.append(0), 3)
    assert len(seconds) == 3
    assert len(calls) > 300
    assert max(seconds) < 1e-3


@pytest.mark.mpi
def test_one_type_can_be_calibrated_after_another(quick, tmp_path, monkeypatch):
    """The file of the first one takes localhost's place, and has no peak of the second."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for dtype in ("float32", "float64"):
        assert list(record("machine", "calibrate", "--ranks", "2", "--dtype", dtype)["machine"]["peaks"]) == [
            dtype
        ]


@pytest.mark.mpi
def test_a_calibrated_machine_predicts_this_host(quick, tmp_path):
    path = tmp_path / "localhost.toml"
    said = command("machine", "calibrate", "--ranks", "2", "--dtype", "float32", "-o", path)
    assert said.exit_code == 0, said.output
    assert "measuring gemms beside transfers" in said.stderr
    assert f"wrote {path}" in said.stderr
    out = good("simulate", "--machine", path, "-m", "64", "-n", "64", "-k", "64")
    assert "2 ranks on localhost" in out
    assert " ± " in good("machine", "show", path)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    result = command("machine", "calibrate", "-o", tmp_path / "none" / "here.toml")
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    assert "measuring" not in result.stderr


def test_types_and_executors_that_cannot_be_measured_are_refused():
    result = command("machine", "calibrate", "--dtype", "bfloat16")
    assert result.exit_code == 2
    said = "'bfloat16' cannot be measured with executor mpi; choose from float32, float64, float16"
    assert said in result.stderr
    result = command("machine", "calibrate", "--executor", "numpy")
    assert result.exit_code == 2
    assert "executor numpy measures no machine; choose from cuda, mpi, nvshmem" in result.stderr


def test_a_kernel_that_leaves_avx512_unused_is_warned_about():
    assert "set it to SkylakeX" in blas.kernel_warning("openblas", "Zen", flags="sse avx2 avx512f")
    assert blas.kernel_warning("openblas", "Zen", flags="sse avx2") is None
    assert blas.kernel_warning("openblas", "Cooperlake", flags="avx512f") is None
    assert blas.kernel_warning("mkl", "AVX2", flags="avx512f") is None
