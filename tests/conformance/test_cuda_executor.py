"""The CUDA executor over GPUs that are NumPy underneath: the conformance suite, and planted mistakes.

``UMM_TEST_GPU=1`` (make test-gpu) runs the same suite on the real ones.
"""

import os
from functools import partial
from itertools import count

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, ExecutorConformance, integer_operands
from conformance.fake_device import FakeDevice, FakeWorld
from conformance.fewer_examples import FewerExamples, FewerPrograms
from conformance.program_suite import ProgramConformance
from hazards import without_waits
from programs import ROUND

import umm
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.program import Chain, Sum
from umm.program.tensors import Tensor
from umm.schedules.writer.builder import Builder
from umm_hw.bfloat16 import to_bfloat16, to_float32
from umm_hw.cuda.executor import CudaExecutor

seeds = count()


def fake_executor(devices, **options):
    """An executor whose GPUs take another random order every time."""
    seed = next(seeds)
    world = FakeWorld(seed, eager=(0.0, 0.5, 0.9)[seed % 3])
    return CudaExecutor(devices=world.devices(devices), **options)


class TestOneDevice(ExecutorConformance, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(fake_executor, 1)


class TestFourDevices(FewerExamples, ProgramConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(fake_executor, 4)


class TestLanding(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(fake_executor, 3, accumulate="landing")


if os.environ.get("UMM_TEST_GPU"):

    class TestRealDevices(ExecutorConformance, ProgramConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def executor(cls):
            return CudaExecutor


@pytest.fixture(params=["fake", "real"] if os.environ.get("UMM_TEST_GPU") else ["fake"])
def make(request):
    """Executors of fake GPUs, and of real ones where those are tested."""
    return partial(fake_executor, 2) if request.param == "fake" else CudaExecutor


TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 1e-5, "bfloat16": 1e-5}


@pytest.mark.parametrize("accumulate", ["kernel", "landing"])
@pytest.mark.parametrize("stationary", ["A", "B", "C"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_type_is_multiplied_with_sums_in_float32_or_float64(make, dtype, stationary, accumulate):
    """Against a float64 product of the rounded operands, with C in float32 beside half precision."""
    shape = {"m": 33, "n": 20, "k": 50, "ranks": 4}
    c_dtype = "float64" if dtype == "float64" else "float32"
    problem = umm.Problem(**shape, a="row", b="2d@2", c="col@2", dtype=dtype, c_dtype=c_dtype)
    schedule = umm.schedule(problem, MACHINE, stationary=stationary)
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1, 1, problem.shape(x)).astype(np.float32) for x in "AB")
    if dtype == "bfloat16":
        a, b = to_float32(to_bfloat16(a)), to_float32(to_bfloat16(b))
    elif dtype == "float16":
        a, b = a.astype(np.float16), b.astype(np.float16)
    result = make(accumulate=accumulate).run(schedule, (a, b)).result
    assert result.dtype == (np.float64 if dtype == "float64" else np.float32)
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(result - a @ b) <= TOLERANCE[dtype] * (np.abs(a) @ np.abs(b)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_c_may_be_kept_in_half_precision(make, dtype):
    """Whole numbers up to 256 are exact in both."""
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row", ranks=2, dtype=dtype, c_dtype=dtype)
    a = np.arange(64, dtype=np.float32).reshape(8, 8) % 5
    result = make().run(umm.schedule(problem, MACHINE, stationary="A"), (a, np.eye(8))).result
    assert np.array_equal(result, a)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-2), ("bfloat16", 0.1)])
def test_a_chain_of_any_type_rounds_what_each_statement_writes(make, dtype, tolerance):
    """An MLP block and its gradients; every tensor is kept in the type, every sum made in float32."""
    outline = umm.chain("mlp", backward=True, dtype=dtype, hidden=6, ffn=10, tokens=5)
    made = outline.laid_out("sequence", 2)
    rng = np.random.default_rng(2)
    operands = {x.name: rng.uniform(-1, 1, x.shape).astype(np.float32) for x in made.tensors if x.is_input}
    result = make(replica=None).run(umm.schedule(made, MACHINE), operands).results
    for name, expected in made.reference(operands).items():
        if name in made.outputs:
            error = np.abs(result[name] - expected).max()
            assert error <= tolerance * np.abs(expected).max(), name


def test_a_sum_lands_where_the_schedule_wants_it_copied_by_the_engine(monkeypatch):
    """Two ranks on two GPUs, one accumulate: copy_engine means a copy, and an add beside the sum."""
    copied = []
    copy = FakeDevice.copy
    monkeypatch.setattr(FakeDevice, "copy", lambda *given: copied.append(given) or copy(*given))
    parts = np.arange(12.0).reshape(2, 3, 2)
    for means, copies in (("copy_engine", 1), ("kernel", 0), (None, 0)):
        partial_sum = Tensor("R", Layout.parse("row@2", (3, 2), 2), "float64", "both")
        build = Builder("sum", Chain("sum", (partial_sum,), (Sum("R", "R"),), 2), ROUND)
        tiles = [build.tile("R", 0, 0, replica) for replica in range(2)]
        build.accumulate(tiles[1], tiles[0], means=means)
        copied.clear()
        assert np.array_equal(fake_executor(2).run(build.schedule(), {"R": parts}).result, parts.sum(axis=0))
        assert len(copied) == copies


def test_types_that_cublas_does_not_combine_are_refused(make):
    wide = umm.Problem(m=4, n=4, k=4, ranks=2, dtype="float32", c_dtype="float64")
    with pytest.raises(InputError, match=r"C of float64 .* choose its type from float32"):
        make().run(umm.schedule(wide, MACHINE))
    one = umm.Problem(m=4, n=4, k=4, ranks=1, dtype="float32")
    build = Builder("mixed", one, MACHINE, [Tensor("W", one.layout("B"), "float64")])
    build.gemm(*(build.tile(name, 0, 0) for name in ("C", "A", "W")))
    with pytest.raises(InputError, match="A of float32 and W of float64 are not multiplied on GPUs; cast"):
        make().run(build.schedule())
    half = umm.Problem(m=4, n=4, k=4, ranks=2, dtype="float16")
    with pytest.raises(InputError, match="tf32 rounds float32 operands; leave it out for float16"):
        make(tf32=True).run(umm.schedule(half, MACHINE))


# Planted mistakes ---------------------------------------------------------------------------------


def is_wrong(schedule, seed):
    a, b = integer_operands(schedule.problem)
    executor = CudaExecutor(devices=FakeWorld(seed, eager=(0.0, 0.7)[seed % 2]).devices(2))
    return not np.array_equal(executor.run(schedule, (a, b)).result, a @ b)


@pytest.mark.parametrize(
    ("waiting", "awaited", "stationary", "c"),
    [
        ("gemm", "get", "C", "row"),
        ("get", "gemm", "C", "row"),
        ("accumulate", "gemm", "A", "row"),
        ("gemm", "accumulate", "A", "row"),
        ("reduce", "barrier", "C", "row@2"),
        ("barrier", "gemm", "C", "row@2"),
    ],
)
def test_a_left_out_event_shows_as_a_wrong_product(waiting, awaited, stationary, c):
    """Each reason to wait, left out everywhere, is caught by some of 40 random orders; with it none fails."""
    problem = umm.Problem(
        m=24, n=24, k=24, a="cyclic:4x4:1x4", b="cyclic:4x4:4x1", c=c, ranks=4, dtype="float64"
    )
    one = {"prefetch": 1, "max_gemms": 1, "max_accumulates": 1, "final": "broadcast"}
    right = umm.schedule(problem, MACHINE, stationary=stationary, **one)
    assert not any(is_wrong(right, seed) for seed in range(10))
    wrong = without_waits(right, waiting, awaited)
    assert any(is_wrong(wrong, seed) for seed in range(40))


def test_a_wait_for_an_event_that_was_not_recorded_is_noticed():
    """CUDA would go on without waiting."""
    (device,) = FakeWorld().devices(1)
    with pytest.raises(AssertionError, match="never recorded"):
        device.wait(device.stream(), device.event(timed=False))


def test_a_slice_is_multiplied_where_it_lies(monkeypatch):
    """No copy is made for a gemm: gets are the only copies of row×row→row by stationary C, 2 per rank."""
    copies = []
    monkeypatch.setattr(FakeDevice, "copy", lambda self, source, target, stream: copies.append(source))
    problem = umm.Problem(m=9, n=9, k=9, a="row", b="row", c="row", ranks=3)
    fake_executor(1).run(umm.schedule(problem, MACHINE, stationary="C"))
    assert len(copies) == 6


def test_actions_are_named_in_a_profiler_s_timeline():
    """Row×row→row over 2 ranks has 6 actions."""
    world = FakeWorld()
    (device,) = world.devices(1)
    problem = umm.Problem(m=8, n=8, k=8, a="row", b="row", c="row", ranks=2)
    CudaExecutor(devices=[device], nvtx=True).run(umm.schedule(problem, MACHINE, stationary="C"))
    assert device.ranges[:4] == ["gemm 0 of rank 0", None, "gemm 1 of rank 1", None]
    assert len(device.ranges) == 12


def test_no_memory_is_kept_after_a_run_or_a_failure():
    world = FakeWorld()
    executor = CudaExecutor(devices=world.devices(2))
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=4), MACHINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeDevice, "download", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            executor.run(schedule)
    assert world.memory == {}
    executor.makespan(schedule)
    assert world.memory == {}


def test_no_memory_is_kept_when_a_run_cannot_be_prepared(monkeypatch):
    """The streams cannot be had, when tiles are there already."""
    world = FakeWorld()
    executor = CudaExecutor(devices=world.devices(2))
    monkeypatch.setattr(executor, "_stream", lambda lane, device: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        executor.run(umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=4), MACHINE))
    assert world.memory == {}


def test_streams_are_kept_from_run_to_run():
    """Each has a cuBLAS workspace that should not be allocated anew."""
    world = FakeWorld()
    executor = CudaExecutor(devices=world.devices(1))
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE)
    executor.run(schedule)
    kept = dict(executor._streams)
    executor.run(schedule)
    assert executor._streams == kept


def test_a_schedule_is_performed_again_with_c_from_zero():
    """Three runs give three traces and one product, not three times it."""
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row@2", ranks=4, dtype="float64")
    a, b = integer_operands(problem)
    traces = fake_executor(2).runs(umm.schedule(problem, MACHINE, stationary="A"), (a, b), repeat=3)
    assert [trace.makespan_s > 0 for trace in traces] == [True, True, True]
    assert np.array_equal(traces[-1].result, a @ b)


def test_a_run_on_gpus_leaves_a_checkpoint(tmp_path):
    problem = umm.Problem(m=6, n=5, k=4, a="row", b="col", c="2d@2", ranks=4)
    a, b = integer_operands(problem)
    trace = fake_executor(2).run(umm.schedule(problem, MACHINE), (a, b), save=tmp_path)
    loaded = umm.load(tmp_path)
    assert np.array_equal(loaded["A"], a)
    assert np.array_equal(loaded["C"], trace.result)
    assert np.array_equal(trace.result, a @ b)
