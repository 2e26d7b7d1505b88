"""The OpenCL executor on a real device, PoCL's CPU: all conformance suites, and queues that are held up.

Without pyopencl none of it runs, and the summary says so; ``make test-opencl`` installs its wheels.
"""

import os
import random
import signal
import subprocess
import sys
from functools import partial
from itertools import count
from threading import Timer
from time import perf_counter

import numpy as np
import pytest

cl = pytest.importorskip(
    "pyopencl", reason="NOT TESTED: the OpenCL executor, for pyopencl is not installed; see make test-opencl"
)

# ruff: noqa: E402  nothing below can be imported without it
from conformance.algorithm_suite import AlgorithmConformance
from conformance.executor_suite import MACHINE, ExecutorConformance, integer_operands
from conformance.fewer_examples import FewerExamples, FewerPrograms
from conformance.program_suite import ProgramConformance, summing, whole_numbers
from conformance.test_cuda_transport import run_ranks
from conformance.transport_suite import TransportConformance
from hazards import without_waits
from opencl_programs import racing_additions

import umm
from umm.errors import ExecutorUnavailableError, InputError, UmmError
from umm.executor import executor as named
from umm.program.functions import FUNCTIONS
from umm_hw.bfloat16 import BFLOAT16, to_bfloat16, to_float32
from umm_hw.blocks import Mapped
from umm_hw.calibrate import gpu_benchmarks
from umm_hw.devices.device import Region
from umm_hw.devices.expressions import ELEMENTWISE
from umm_hw.devices.transport import DeviceTransport
from umm_hw.mpi.job.job import MpiJob
from umm_hw.opencl import clblast
from umm_hw.opencl.context import Memory
from umm_hw.opencl.device import OpenClDevice
from umm_hw.opencl.executor import OpenClExecutor, OpenClRanks
from umm_hw.opencl.platforms import visible

LONGEST_DELAY = 2e-3  # seconds that a queue is held up
seeds = count()


class Delayed(OpenClDevice):
    """A device whose queues are held up at random, each time by an event that is set a while later."""

    chosen = random.Random(0)

    def delay(self, stream):
        if self.chosen.random() < 0.4:
            event = cl.UserEvent(stream.context)
            cl.enqueue_barrier(stream, wait_for=[event])
            stream.flush()
            go_on = partial(event.set_status, cl.command_execution_status.COMPLETE)
            Timer(self.chosen.random() * LONGEST_DELAY, go_on).start()

    def copy(self, source, target, stream):
        self.delay(stream)
        super().copy(source, target, stream)

    def multiply(self, a, b, c, stream, *numbers, **options):
        self.delay(stream)
        super().multiply(a, b, c, stream, *numbers, **options)

    def map(self, mapped, reads, target, stream):
        self.delay(stream)
        super().map(mapped, reads, target, stream)

    def accumulate(self, source, target, blocks, stream):
        self.delay(stream)
        super().accumulate(source, target, blocks, stream)


def cores(kind, parts=2):
    """The CPU's cores as devices of one context."""
    (cpu,) = cl.get_platforms()[0].get_devices()
    equally = [cl.device_partition_property.EQUALLY, 1]
    devices = cpu.create_sub_devices(equally)[:parts] if parts > 1 else [cpu]
    memory = Memory(cl.Context(devices))
    return [kind(device, number, memory) for number, device in enumerate(devices)]


DELAYED = cores(Delayed, parts=1)
APART = cores(OpenClDevice)


def delayed(seed=None, **options):
    Delayed.chosen = random.Random(next(seeds) if seed is None else seed)
    return OpenClExecutor(devices=DELAYED, **options)


class TestOneDevice(ExecutorConformance, ProgramConformance, AlgorithmConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(OpenClExecutor, device="cpu")


class TestDelayedQueues(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return delayed


class TestLandingOnTwoDevices(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(OpenClExecutor, accumulate="landing", devices=APART)


class TestTransport(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        return lambda size, program: run_ranks(DeviceTransport(size, APART), program)


@pytest.fixture(scope="module")
def job():
    job = MpiJob(16, timeout=120)
    yield job
    job.close()


@pytest.mark.mpi
class TestProcesses(FewerExamples, FewerPrograms, AlgorithmConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, job):
        return partial(OpenClRanks, job=job)


# What kernels give ---------------------------------------------------------------------------------


def placed(device, array):
    region = Region.packed(device.allocate(array.nbytes), array.shape, array.dtype)
    device.upload(array, region)
    return region


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_kernel_gives_what_the_numpy_form_of_a_map_gives(name, dtype):
    """7x5 of the whole 7x9, to a few units in the last place, rounded to the type."""
    function, device = FUNCTIONS[name], visible("cpu")[0]
    shapes = {"rc": (7, 5), "1c": (1, 5), "r1": (7, 1), "11": (1, 1)}
    rng = np.random.default_rng(3)
    reads = [rng.uniform(0.5, 3.0, shapes[x]) for x in function.operands[1:]]
    reads = [to_float32(to_bfloat16(x)) if dtype == "bfloat16" else x.astype(dtype) for x in reads]
    needed = {"factor": 1.7, "columns": 9}
    parameters = {x: needed[x] for x in function.parameters if x in needed}
    mapped = Mapped(function, parameters, (0, 7), (2, 7), (7, 9))
    stored = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    regions = [placed(device, to_bfloat16(x) if stored == BFLOAT16 else x) for x in reads]
    target = placed(device, np.zeros(shapes[function.operands[0]], stored))
    stream = device.stream()
    device.map(mapped, regions, target, stream)
    device.finish(stream)
    result = np.empty(target[1:3], stored)
    device.download(target, result)
    expected = mapped(*reads, like=reads[0] if reads else np.zeros(1))
    got = to_float32(result) if stored == BFLOAT16 else result
    exact = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=exact, atol=exact)


@pytest.mark.parametrize(
    ("source", "target"),
    [("float16", "float32"), ("bfloat16", "float32"), ("float16", "float16"), ("bfloat16", "bfloat16")],
)
def test_half_precision_is_multiplied_and_accumulated_in_float32(source, target):
    """2048 + 1 is 2048 in float16 and 2049 in float32; A is read transposed, C is a slice."""
    device = visible("cpu")[0]
    stored = {"float16": np.dtype(np.float16), "bfloat16": BFLOAT16, "float32": np.dtype(np.float32)}

    def of(values, dtype):
        return to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype)

    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (70, 19)).astype(np.float32), rng.integers(-3, 4, (70, 33)).astype(np.float32)
    full = placed(device, of(np.ones((19, 40), np.float32), target))
    c = full._replace(address=full.address + 5 * stored[target].itemsize, cols=33)
    stream = device.stream()
    device.multiply(
        placed(device, of(a, source)), placed(device, of(b, source)), c, stream, 1.0, 2.0, trans=2
    )
    device.accumulate(placed(device, of(b[:19], source)), c, 3, stream)
    device.finish(stream)
    result = np.empty(full[1:3], stored[target])
    device.download(full, result)
    got = to_float32(result) if target == "bfloat16" else result.astype(np.float32)
    expected = np.ones((19, 40), np.float32)
    expected[:, 5:38] += 2 * (a.T @ b) + b[:19]
    np.testing.assert_allclose(got, expected, rtol=8e-3 if target == "bfloat16" else 1e-3)


@pytest.mark.parametrize("trans", [2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_matrix_times_its_transpose_is_one_triangle_mirrored(dtype, trans):
    """2·AᵀA + 3·C or 2·A·Aᵀ + 3·C of 150x150, 3x3 tiles; C, not symmetric before, is a slice."""
    device = visible("cpu")[0]
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (19, 150)).astype(dtype)
    a = a if trans == 2 else np.ascontiguousarray(a.T)
    before = rng.integers(-3, 4, (150, 160)).astype(dtype)
    wide, factor, stream = placed(device, before), placed(device, a), device.stream()
    c = wide._replace(address=wide.address + 5 * before.itemsize, cols=150)
    device.multiply(factor, factor, c, stream, 3.0, 2.0, trans=trans)
    device.finish(stream)
    after, expected = np.empty_like(before), before.copy()
    device.download(wide, after)
    expected[:, 5:155] = 2 * (a.T @ a if trans == 2 else a @ a.T) + 3 * before[:, 5:155]
    np.testing.assert_array_equal(after, expected)


@pytest.mark.skipif(clblast.library() is None, reason="CLBlast is not installed: apt-get install libclblast1")
def test_clblast_multiplies_where_it_is_installed(monkeypatch):
    """0.5·AᵀB + 2·C of 19x33 in a slice of 40 columns; β = 0 does not read C, which is nan."""
    monkeypatch.setenv(clblast.VARIABLE, "on")
    (device,) = cores(OpenClDevice, parts=1)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (70, 19)).astype(np.float32), rng.integers(-3, 4, (70, 33)).astype(np.float32)
    stream, result = device.stream(), []
    for start, beta in ((1.0, 2.0), (np.nan, 0.0)):
        complete = placed(device, np.full((19, 40), start, np.float32))
        c = complete._replace(address=complete.address + 5 * 4, cols=33)
        device.multiply(placed(device, a), placed(device, b), c, stream, beta, 0.5, trans=2)
        device.finish(stream)
        result.append(np.empty((19, 40), np.float32))
        device.download(complete, result[-1])
    np.testing.assert_allclose(result[0][:, 5:38], 0.5 * (a.T @ b) + 2)
    np.testing.assert_allclose(result[1][:, 5:38], 0.5 * (a.T @ b))
    assert (result[0][:, :5] == 1).all()


@pytest.mark.mpi
def test_no_addition_is_lost_between_processes(job):
    """Four processes add 1 to the same 250 float32 10,000 times each: 10^7 additions."""
    assert job.call(4, partial(racing_additions, elements=250, times=10_000)) == [[40_000.0] * 250] * 4


@pytest.mark.mpi
def test_a_rank_that_is_killed_is_named():
    job = MpiJob(3, timeout=60)
    schedule = umm.schedule(umm.Problem(m=64, n=48, k=32, ranks=3), MACHINE)
    _, process = job.processes[1]
    Timer(1.0, os.kill, (process, signal.SIGKILL)).start()
    with pytest.raises(UmmError, match=r"rank 1 \(process \d+ on .+\) was killed or ended early"):
        OpenClRanks(job=job).runs(schedule, repeat=10**6)


def test_who_starts_the_ranks_starts_no_mpi():
    """Its shared memory would have a name that nobody removes when it is killed."""
    imports = (
        "import sys, umm_hw.opencl.shared, umm_hw.symmetric.program; sys.exit('mpi4py.MPI' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", imports], check=True)


# Left-out waits, and what is refused ----------------------------------------------------------------


@pytest.mark.parametrize(("waiting", "awaited"), [("accumulate", "accumulate"), ("put", "accumulate")])
def test_a_left_out_wait_shows_on_queues_that_are_held_up(waiting, awaited):
    """A ring that sums up, on real queues: right with all waits, wrong in some of 40 runs without some."""
    schedule, parts = summing(4, [range(4)], shape=(8, 3)), whole_numbers(4, 8, 3)

    def is_right(performed, seed):
        result = delayed(seed, replica=None).run(performed, {"R": parts}).results["R"]
        return np.array_equal(result, [parts.sum(axis=0)] * 4)

    assert all(is_right(schedule, seed) for seed in range(10))
    wrong = without_waits(schedule, waiting, awaited)
    assert not all(is_right(wrong, seed) for seed in range(40))


def test_what_opencl_cannot_do_is_refused_in_a_line():
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE)
    with pytest.raises(ExecutorUnavailableError, match="no device whose name has 'vulkan'; there are CPU"):
        named("opencl", device="vulkan", processes=False).run(schedule)
    with pytest.raises(InputError, match="processes accumulate by kernels"):
        named("opencl", accumulate="landing", processes=True)


def test_an_error_of_a_map_on_the_host_comes_to_who_runs_it(monkeypatch):
    outline = umm.chain("attention", dtype="float32", hidden=8, heads=4, kv_heads=2, tokens=4)
    schedule = umm.schedule(outline.laid_out("megatron", 2), MACHINE)
    monkeypatch.setattr("umm_hw.opencl.device.bfloat16_bits", None)
    monkeypatch.setattr(Mapped, "__call__", lambda *reads, like: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        OpenClExecutor(device="cpu").run(schedule)


def test_a_cpu_is_calibrated(tmp_path, monkeypatch):
    """Small shapes: the file describes one device, and predicts a run.

    Its peak is at least what a multiply does that takes as long as all of this; a busy host lowers both.
    """
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    monkeypatch.setattr("umm_hw.calibrate.gpu.grid", lambda device: ((16, 64), (4096, 65536)))
    file = tmp_path / "cpu.toml"
    began = perf_counter()
    file.write_text(OpenClExecutor(device="cpu").calibrate(["float32"], lambda what: None))
    took = perf_counter() - began
    machine = umm.machine(str(file))
    assert machine.device_count == 1
    assert 2 * 64**3 / took < machine.peak("float32") < 1e13
    problem = umm.Problem(m=64, n=64, k=64, ranks=2)
    assert umm.run(umm.schedule(problem, machine), executor="sim").makespan_s > 0


def test_a_run_leaves_a_checkpoint(tmp_path):
    problem = umm.Problem(m=6, n=5, k=4, a="row", b="col", c="2d@2", ranks=4)
    a, b = integer_operands(problem)
    trace = OpenClExecutor(device="cpu").run(umm.schedule(problem, MACHINE), (a, b), save=tmp_path)
    assert np.array_equal(umm.load(tmp_path)["C"], trace.result)
    assert np.array_equal(trace.result, a @ b)
