"""Calibration: it writes a machine, every number has its source and uncertainty, and it predicts."""

import re
import tomllib
from dataclasses import replace
from functools import partial
from itertools import product

import mpi_programs
import numpy as np
import pytest
from command import good, record
from command import umm as command
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.errors import MachineError
from umm.executor import Rounds
from umm.host import hardware
from umm.machines.changes import changes
from umm.program.functions.passes import passes
from umm.schedules.table.details import ACCUMULATE, GEMM, GET, MAP
from umm.space.what_if.decision_map import PROBLEMS
from umm.step.program import pipeline_chain
from umm_hw.calibrate import host, host_benchmarks, small_schedules
from umm_hw.calibrate.figures import Figure
from umm_hw.calibrate.gemm_law import drawn_to_law
from umm_hw.calibrate.host import Calibration, GemmRates
from umm_hw.calibrate.host_file import topology_text
from umm_hw.calibrate.losses import Loss, lost_share, overhead, refill
from umm_hw.calibrate.small_schedules import Watched, gemms_beside, watched
from umm_hw.cores.pace import Paced


def found(devices=2, share=1.0, pace=1.0, lost=0.4):
    """Round numbers: 100 Gflop/s a core, half of that for 64x64x64, 10 GB/s for one, 16 GB/s for both."""
    rates = GemmRates(Figure(100e9, 0.01), (64, 1024), [[[0.5, 1.0]] * 2] * 2, 0.02)
    return Calibration(
        counted=1.0,
        devices=devices,
        share=share,
        pace=pace,
        gemm={"float32": rates},
        launch=Figure(3e-6, 0.1),
        overhead=Figure(10e-6, 0.2),
        local_overhead=Figure(20e-6, 0.2),
        refill=Figure(40e-12, 0.2),
        backplane=Figure(16e9, 0.03),
        by_size=[(2**16, Figure(5e9, 0.1)), (2**26, Figure(10e9, 0.03))],
        again=[(2**16, Figure(6e9, 0.1)), (2**26, Figure(8e9, 0.1))],
        accumulate_efficiency=Figure(0.75, 0.05),
        memory_bandwidth=Figure(30e9, 0.04),
        strided_accumulates=Figure(0.5, 0.1),
        cache=2**24,
        passes={"float32": [Figure(1e-10 * x, 0.1) for x in (1, 2, 20, 200) * len(host.PASS_SIZES)]},
        signal=Figure(50e-6, 0.1),
        interference={kind: Figure(lost, 0.1) for kind in ("get", "accumulate", "local")},
        spread=0.031,
    )


BRIEF = {
    "umm_hw.calibrate.host_benchmarks:SHARE_SECONDS": 0.02,
    "umm_hw.calibrate.host_benchmarks:SHORTEST": 1e-4,
    "umm_hw.calibrate.host_benchmarks:REGION": 2**21,
    "umm_hw.mpi.program:READING": 5,
}


@pytest.fixture
def brief(lent, shared_ranks):
    """Ranks that measure each thing for a short time, of little memory."""
    (before, _) = lent(2).call(2, partial(mpi_programs.set_constants, values=BRIEF))
    yield
    lent(2).call(2, partial(mpi_programs.set_constants, values=before))


@pytest.fixture
def quick(brief, monkeypatch):
    """Few and small measurements: the test is that they are made, not their values."""
    monkeypatch.setattr(host, "GEMM_SIZES", dict.fromkeys(host.GEMM_SIZES, (16, 64)))
    monkeypatch.setattr(host, "SIZES", (2**14, 2**16, 2**18, 2**20))
    monkeypatch.setattr(host, "LARGE", (2**16, 2**18))
    monkeypatch.setattr(host, "SIDES", (128,))
    monkeypatch.setattr(small_schedules, "TILES", 2**18)
    monkeypatch.setattr(host, "REPEATS", 2)
    monkeypatch.setattr(host, "GEMM_REPEATS", 1)
    monkeypatch.setattr(host, "GET_REPEATS", 2)
    monkeypatch.setattr(host, "PASS_REPEATS", 1)
    monkeypatch.setattr(host, "PASS_SIZES", (2**14, 2**16, 2**18, 2**20))
    monkeypatch.setattr(host, "PASSES", 1)


def test_the_file_says_what_was_found(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found()))
    machine = umm.machine(path)
    assert (machine.device_count, machine.default_ranks) == (2, 2)
    assert machine.peak("float32") == 100e9
    assert machine.spread == 0.031
    assert machine.gemm_efficiency("float32", 64, 64, [64, 256, 4096]).tolist() == [0.5, 0.75, 1.0]
    assert machine.launch_s == pytest.approx(3e-6)
    assert machine.bandwidth_matrix()[0, 1] == 10e9
    backplane = machine.link_names.index("backplane")
    assert machine.link_bandwidth[backplane] == 16e9
    assert backplane in machine.route(0, 1)
    assert machine.effective_bytes(2**16) == 2**17  # a small message reaches half the link
    assert machine.accumulate_efficiency == 0.75
    assert (machine.local_overhead_s, machine.signal_s) == pytest.approx((20e-6, 50e-6))
    assert (machine.strided_accumulates, machine.cache) == (0.5, 2**24)
    assert machine.refill == pytest.approx(25e9)
    none = replace(found(), cache=0, refill=Figure(0.0, 0.0))  # where nothing tells, or no byte costs
    path.write_text(topology_text(none))
    assert (umm.machine(path).cache, umm.machine(path).refill) == (0, 0)


@pytest.mark.parametrize(("lost", "on_engine"), [(0.1, False), (0.9, True)])
def test_local_accumulates_take_of_the_engine_where_they_take_of_its_rate(tmp_path, lost, on_engine):
    """Beside gemms on a host with cores to spare they cost a tenth of the rate, else nearly all of it."""
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found(lost=lost)))
    assert umm.machine(path).local_on_engine == on_engine


def test_the_port_is_as_fast_as_the_fastest_message(tmp_path):
    """Gets of 1 MiB from a cache reach 13 GB/s, of 64 MiB 10: the file is one that can be true."""
    path = tmp_path / "here.toml"
    by_size = [(2**20, Figure(13e9, 0.0)), (2**26, Figure(10e9, 0.0))]
    path.write_text(topology_text(replace(found(), by_size=by_size)))
    machine = umm.machine(path)
    assert machine.bandwidth_matrix()[0, 1] == 13e9
    assert machine.effective_bytes([2**20, 2**26]).tolist() == [2**20, -(-(2**26) * 13 // 10)]
    again = [(2**16, Figure(15e9, 0.0)), (2**26, Figure(12e9, 0.0))]  # of what was got before
    path.write_text(topology_text(replace(found(), again=again)))
    machine = umm.machine(path)
    assert machine.bandwidth_matrix()[0, 1] == 15e9
    assert machine.effective_bytes([2**16, 2**26], cached=True).tolist() == [2**16, 2**26 * 15 // 12]
    assert machine.effective_bytes(2**26, cached=0.0) == 2**26 * 15 // 10


def test_every_measured_number_carries_date_versions_and_uncertainty(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found()))
    measured = [fact for fact in umm.machine(path).facts if fact.uncertainty is not None]
    assert len(measured) == 18
    for fact in measured:
        assert "numpy" in fact.source
        assert fact.source.split("; ")[-1][:2] == "20"


def test_maps_on_a_calibrated_host_take_what_numpy_takes(tmp_path):
    """gelu goes over its array some fifty times, a sum thrice; a fused read is read again."""
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found()))
    machine = umm.machine(path)
    chain = pipeline_chain(2, 1, 64, 128)
    schedule = umm.schedule(chain, machine)
    nbytes = 64 * 128 * 4
    expected = {
        name: machine.launch_s + 1e-10 * nbytes * sum(
            count / 128 * {"add": 1, "exp": 2, "where": 20}[kind]
            for kind, count in passes(name, (), "float32", 128).items()
        )
        for name in ("gelu", "gelu_grad")
    }  # fmt: skip
    rows = (schedule.kind == MAP).nonzero()[0]
    names = [schedule.functions[schedule.details.fn[row]].name for row in rows]
    assert schedule.seconds[rows].tolist() == pytest.approx([expected[x] for x in names])
    assert expected["gelu"] > 50e-10 * nbytes
    path.write_text(topology_text(replace(found(), passes={})))  # by the bandwidth of memory alone
    plain = umm.schedule(chain, umm.machine(path))
    assert max(plain.seconds[rows]) < expected["gelu"] / 5


def test_passes_of_a_machine_file_are_checked(tmp_path):
    path = tmp_path / "here.toml"
    text = topology_text(found())
    path.write_text(re.sub(r"exp = \[.*", 'exp = ["1 GB/s"]', text))
    with pytest.raises(MachineError, match="sizes and exp must be equally long"):
        umm.machine(path)
    slower = replace(found(), passes={"float32": [x.times(2) for x in found().passes["float32"]]})
    path.write_text(text)
    other = tmp_path / "other.toml"
    other.write_text(topology_text(slower))
    factors = {x.key: x.factor for x in changes(umm.machine(path), umm.machine(other))}
    assert factors["devices.passes[float32]"] == pytest.approx(0.5)


def test_a_host_that_others_used_is_called_busy(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found(share=0.52)))
    assert umm.machine(path).description.endswith("; busy: a rank got 52 % of a core")


def test_a_host_whose_cores_change_their_pace_is_called_unsteady(tmp_path):
    path = tmp_path / "here.toml"
    path.write_text(topology_text(found(pace=0.7)))
    assert umm.machine(path).description.endswith("; unsteady: 70 % of its best pace in the median")


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


SHAPES = list(product((16, 32, 64, 128, 256, 1024), repeat=3))


def law(m, n, k):
    """100 Gflop/s less the time to pack A and B: half of that where n is 50."""
    return m * n * k * (2e-11 + 1e-9 / n)


@given(st.integers(1, 2**32 - 1))
def test_times_that_scatter_are_drawn_to_their_law(seed):
    """Of 216 shapes each is measured 5 % off; drawn to five numbers at most 2 % in the median."""
    rng = np.random.default_rng(seed)
    true = np.array([law(*shape) for shape in SHAPES])
    noise = np.full(len(true), 0.05)
    drawn, residual = drawn_to_law(SHAPES, true * np.exp(rng.normal(0, noise)), noise)
    assert np.median(np.abs(drawn / true - 1)) < 0.02
    assert residual < 0.05


def test_what_lies_off_the_law_beyond_its_noise_stays_where_it_was_measured():
    true = np.array([law(*shape) for shape in SHAPES])
    measured = true * np.where(np.arange(len(true)) % 2, 1.2, 1.0)
    drawn, residual = drawn_to_law(SHAPES, measured, np.full(len(true), 1e-3))
    assert np.allclose(drawn, measured, rtol=1e-2)
    assert residual > 0.05


def test_a_transfer_beside_gemms_costs_what_they_take_longer():
    """A gemm ends 70 us later where a transfer of 50 us runs beside it: it costs 20 us more than its own."""
    losses = [Loss(2**18, 70e-6, 50e-6)]
    assert overhead(losses, 0.0).value == pytest.approx(20e-6)
    assert lost_share(losses, 20e-6, 0.0).value == 0.95


def test_a_transfer_on_a_core_of_its_own_costs_a_part_of_its_time():
    """A gemm ends 10 us later beside a transfer of 50 us: a fifth of its time, and no overhead."""
    losses = [Loss(2**18, 10e-6, 50e-6)]
    assert overhead(losses, 0.0).value == 0
    assert lost_share(losses, 0.0, 0.0).value == pytest.approx(0.2)


def test_large_transfers_cost_gemms_what_they_drove_out_of_the_caches():
    """16 us whatever the size, and 40 for each MB, where copies take 80; on a core of its own none."""
    losses = [Loss(size, size / 1e10 + 16e-6 + size * 40e-12, size / 1e10) for size in (2**16, 2**18, 2**20)]
    per_byte = refill(losses, 12.5e9).value
    assert per_byte == pytest.approx(40e-12)
    assert overhead(losses, per_byte).value == pytest.approx(16e-6)
    assert lost_share(losses, 16e-6, per_byte).value == 0.95
    assert refill([Loss(2**16, 10e-6, 20e-6), Loss(2**20, 30e-6, 80e-6)], 12.5e9).value == 0


@pytest.mark.parametrize("kind", ["get", "accumulate", "in", "local", "own in"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_second_gemm_has_a_transfer_beside_it(kind, ranks):
    """The others have none, and a run reports how much later the gemms with one end."""
    schedule = gemms_beside(ranks, "float32", 512, kind)
    moves = np.isin(schedule.kind, (GET, ACCUMULATE))
    assert 2 * moves.sum() == (schedule.kind == GEMM).sum()
    assert ((schedule.src == schedule.dst)[moves] == (kind in ("local", "own in"))).all()
    start, end = np.zeros(len(schedule)), np.zeros(len(schedule))
    for rank in range(ranks):  # gemms of 1 s one after the other, 3 s where there is a transfer of 2 s
        now = 0.0
        for row in (schedule.rank == rank).nonzero()[0].tolist():
            took = 2.0 if moves[row] else 1.0
            start[row], end[row], now = now, now + took, now + took
    result = watched(schedule, Paced(1.0, 1e-3), start + moves * 1e-9, end)
    assert (result.cost, result.own) == pytest.approx((2.0, 2.0))


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
    result = command("machine", "calibrate", "--ranks", "2", "--dtype", "float32", "-o", path)
    assert result.exit_code == 0, result.output
    assert "measuring gemms beside transfers, and what an action costs" in result.stderr
    assert f"wrote {path}" in result.stderr
    out = good("simulate", "--machine", path, "-m", "64", "-n", "64", "-k", "64")
    assert "2 ranks on localhost" in out
    assert " ± " in good("machine", "show", path)


@pytest.mark.mpi
def test_the_file_of_before_is_kept_and_what_changed_is_said(quick, tmp_path):
    path = tmp_path / "here.toml"
    old = topology_text(replace(found(), accumulate_efficiency=Figure(1e-3, 0.0)))
    path.write_text(old)
    result = record("machine", "calibrate", "--ranks", "2", "--dtype", "float32", "-o", path)
    assert (tmp_path / "here-before.toml").read_text() == old
    assert result["kept"] == str(tmp_path / "here-before.toml")
    (change,) = [x for x in result["changes"] if x["key"] == "devices.accumulate_efficiency"]
    assert change["before"] == "0.001"
    assert change["factor"] > 10
    assert [list(x["problem"].values()) for x in result["decisions"]] == [list(x) for x in PROBLEMS]


@pytest.mark.mpi
def test_tables_of_the_file_of_before_are_kept_beside_it(quick, tmp_path):
    path, table = tmp_path / "here.toml", "dtype,m,n,k,seconds\nbfloat16,64,64,64,1e-5\n"
    path.write_bytes(umm.machine("h100-8").source_path.read_bytes())
    (tmp_path / "here.kernels.csv").write_text(table)
    good("machine", "calibrate", "--ranks", "2", "--dtype", "float32", "-o", path)
    assert umm.machine(path).tables is None
    assert (tmp_path / "here-before.kernels.csv").read_text() == table
    assert umm.machine(tmp_path / "here-before.toml").tables is not None


@pytest.mark.mpi
def test_rounds_that_are_finished_are_kept_and_the_rest_measured_later(quick, tmp_path, monkeypatch):
    """Ctrl-C in the second of two rounds; the same command then measures that, and drops the kept file."""
    monkeypatch.setattr(host, "PASSES", 2)
    asked = ("machine", "calibrate", "--ranks", 2, "--dtype", "float32", "-o", tmp_path / "here.toml")
    add, rounds = host.Kept.add, []

    def added(self, *result):
        rounds.append(result)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        add(self, *result)

    monkeypatch.setattr(host.Kept, "add", added)
    outcome = command(*asked)
    assert outcome.exit_code == 130
    assert "measuring for about" in outcome.stderr
    assert f"finished rounds are kept in {tmp_path / 'here.rounds.json'}; the same command" in outcome.stderr
    outcome = command(*asked)
    assert outcome.exit_code == 0, outcome.output
    assert f"the rest: 1 of 2 rounds are kept in {tmp_path / 'here.rounds.json'}" in outcome.stderr
    assert "multiplies in float32, 2 of 2" in outcome.stderr
    assert "multiplies in float32, 1 of 2" not in outcome.stderr
    assert [x.name for x in tmp_path.iterdir()] == ["here.toml"]


@pytest.mark.mpi
def test_a_quick_calibration_ends_after_its_time(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(host, "PASSES", 99)
    monkeypatch.setattr(host, "QUICK_S", 0.1)
    asked = ("--quick", "--ranks", 2, "--dtype", "float32", "-o", tmp_path / "here.toml")
    result = command("machine", "calibrate", *asked)
    assert result.exit_code == 0, result.output
    assert "multiplies in float32, 1 of 99" in result.stderr
    assert "multiplies in float32, 2 of 99" not in result.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"measurement": 1}', '{"measurement": {}, "found": 3}'])
def test_rounds_of_something_else_are_measured_again(tmp_path, text):
    path, what = tmp_path / "x.rounds.json", {"ranks": 2, "sizes": {"float32": (16,)}}
    path.write_text(text)
    kept = host.Kept(Rounds(path), what)
    assert (kept.of_core, kept.repeats) == (1.0, [])
    kept.add(0.9, [[[Paced(1.0, 2.0)]]], {("get", 128): [Watched(1.0, 2.0, 1.0)]})
    again = host.Kept(Rounds(path), what)
    assert (again.of_core, again.all_found()) == (0.9, [[[Paced(1.0, 2.0)]]])
    assert again.all_smalls()["get", 128][0].reading == 2.0
    assert host.Kept(Rounds(path, quick=True), what).repeats == []


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    result = command("machine", "calibrate", "-o", tmp_path / "none" / "here.toml")
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    assert "measuring" not in result.stderr


def test_types_and_executors_that_cannot_be_measured_are_refused():
    result = command("machine", "calibrate", "--dtype", "bfloat16")
    assert result.exit_code == 2
    output = "'bfloat16' cannot be measured with executor mpi; choose from float32, float64, float16"
    assert output in result.stderr
    result = command("machine", "calibrate", "--executor", "numpy")
    assert result.exit_code == 2
    assert "executor numpy measures no machine; choose from cuda, mpi, nvshmem" in result.stderr


def test_a_kernel_that_leaves_avx512_unused_is_warned_about():
    assert "set it to SkylakeX" in hardware.kernel_warning("openblas", "Zen", flags="sse avx2 avx512f")
    assert hardware.kernel_warning("openblas", "Zen", flags="sse avx2") is None
    assert hardware.kernel_warning("openblas", "Cooperlake", flags="avx512f") is None
    assert hardware.kernel_warning("mkl", "AVX2", flags="avx512f") is None


def test_a_busy_host_widens_every_range_and_says_why():
    """In the repeats that count ranks had half of their cores: all ranges are 100 % wider."""
    quiet, busy = (topology_text(replace(found(), counted=x)) for x in (1.0, 0.5))
    assert "wider" not in quiet
    read = [tomllib.loads(text)["devices"]["peak"]["float32"] for text in (quiet, busy)]
    assert read[1]["uncertainty"] == pytest.approx(min(1.0, read[0]["uncertainty"] + 1.0))
    assert "ranges 100 % wider, because others used the cores" in read[1]["source"]
    assert "calibrate again on a quiet host" in tomllib.loads(busy)["description"]
