"""The CuPy device over host memory: every pointer, pitch, leading dimension and size it hands on."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conformance import fake_cupy
from conformance.executor_suite import MACHINE, integer_operands
from conformance.fewer_examples import FewerExamples, FewerPrograms
from conformance.test_cuda_transport import run_ranks
from conformance.transport_suite import TransportConformance

import umm
from umm.errors import InfeasibleError, InputError
from umm_hw.cuda.executor import CudaExecutor
from umm_hw.devices.device import Region
from umm_hw.devices.transport import DeviceTransport
from umm_hw.gpu import cupy_device
from umm_hw.gpu.cupy_device import CupyDevice, atomics_problem, device_count
from umm_hw.gpu.visible import visible_gpus


@pytest.fixture(scope="module", autouse=True)
def cupy():
    """CuPy as the fake one, with three GPUs and links that carry atomic adds."""
    with pytest.MonkeyPatch.context() as patch:
        result = fake_cupy.modules(3)
        for name, module in result.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(cupy_device, "atomics_problem", lambda number, other: None)
        yield result


def devices():
    return [CupyDevice(number) for number in range(device_count())]


class TestExecutor(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return lambda **options: CudaExecutor(devices=devices(), **options)


class TestLanding(FewerExamples):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return lambda **options: CudaExecutor(devices=devices(), accumulate="landing", **options)


class TestTransport(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        return lambda size, program: run_ranks(DeviceTransport(size, devices()), program)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_each_type_is_computed_as_it_should_be(cupy, dtype):
    """float64 in float64, all others in float32; TF32 only when asked."""
    cublas = cupy["cupy_backends.cuda.libs.cublas"]
    problem = umm.Problem(m=9, n=10, k=11, a="2d", b="row", c="col@2", ranks=4, dtype=dtype)
    schedule = umm.schedule(problem, MACHINE, stationary="B")
    a, b = (np.asarray(x, np.float64) for x in integer_operands(umm.Problem(m=9, n=10, k=11, ranks=4)))
    cublas.computed.clear()
    result = CudaExecutor(devices=devices()).run(schedule, (a, b)).result
    assert np.array_equal(result, a @ b)
    assert cublas.computed == {cublas.CUBLAS_COMPUTE_64F if dtype == "float64" else cublas.CUBLAS_COMPUTE_32F}
    if dtype == "float32":
        cublas.computed.clear()
        CudaExecutor(devices=devices(), tf32=True).run(schedule, (a, b))
        assert cublas.computed == {cublas.CUBLAS_COMPUTE_32F_FAST_TF32}


def test_peer_access_that_is_enabled_already_is_fine():
    one, other, _ = devices()
    assert one.reach(other) is None
    assert one.reach(other) is None


def test_gpus_that_cannot_reach_each_other_say_so(monkeypatch, cupy):
    one, other, _ = devices()
    monkeypatch.setattr(cupy["cupy.cuda"].runtime, "deviceCanAccessPeer", lambda device, peer: 0)
    assert one.reach(one) is None
    assert one.reach(other) == "GPU 0 cannot access the memory of GPU 1"


def test_an_error_of_the_runtime_is_raised(monkeypatch):
    one, other, _ = devices()
    one.reach(other)
    monkeypatch.setattr(fake_cupy.Runtime.CUDARuntimeError, "status", 2)
    with pytest.raises(fake_cupy.Runtime.CUDARuntimeError):
        one.reach(other)


@pytest.mark.parametrize(
    ("supported", "result"), [(1, None), (0, "the link from GPU 0 to GPU 1 carries no atomic adds")]
)
def test_the_driver_is_asked_whether_a_link_carries_atomic_adds(monkeypatch, supported, result):
    """cuDeviceGetP2PAttribute(value, 3, 0, 1): attribute 3 is native atomics."""

    def attribute(value, number, source, target):
        assert (number, source, target) == (3, 0, 1)
        value._obj.value = supported

    driver = SimpleNamespace(cuDeviceGetP2PAttribute=attribute)
    monkeypatch.setattr(cupy_device.ctypes, "CDLL", {"libcuda.so.1": driver}.__getitem__)
    assert atomics_problem(0, 1) == result


def test_ranges_are_pushed_and_popped(monkeypatch, cupy):
    result = []
    nvtx = SimpleNamespace(RangePush=result.append, RangePop=lambda: result.append(None))
    monkeypatch.setattr(cupy["cupy.cuda"], "nvtx", nvtx)
    problem = umm.Problem(m=8, n=8, k=8, a="row", b="row", c="row@2", ranks=2)
    CudaExecutor(devices=devices(), nvtx=True).run(umm.schedule(problem, MACHINE, stationary="C"))
    assert result[:2] == ["gemm 0 of rank 0", None]
    assert any(name and name.startswith("barrier") and "of rank" not in name for name in result)


def test_memory_that_a_gpu_has_not_is_refused_and_what_was_taken_given_back(monkeypatch, cupy):
    """The second GPU has 1 GiB left and is asked for more; another error of the runtime is not hidden."""
    runtime = cupy["cupy.cuda"].runtime
    malloc = runtime.malloc

    class TooMuch(runtime.CUDARuntimeError):
        status = 2

    def limited(size):
        if size > 1 << 30:
            raise TooMuch
        return malloc(size)

    monkeypatch.setattr(runtime, "malloc", limited)
    monkeypatch.setattr(runtime, "memGetInfo", lambda: (1 << 30, 1 << 32), raising=False)
    kept = len(runtime.kept)
    transport = DeviceTransport(2, devices()[:2])
    result = r"fake \(GPU 1\) has 1.0 GiB free, and 2.0 GiB more is needed; fewer replicas"
    with pytest.raises(InfeasibleError, match=result):
        transport.allocate([64, 2 << 30])
    transport.close()
    assert len(runtime.kept) == kept
    monkeypatch.setattr(TooMuch, "status", 700)
    with pytest.raises(TooMuch):
        devices()[0].allocate(2 << 30)


def test_all_visible_gpus_are_found_once():
    visible_gpus.cache_clear()
    result = visible_gpus()
    assert [device.number for device in result] == [0, 1, 2]
    assert visible_gpus() is result
    visible_gpus.cache_clear()


def test_an_array_whose_rows_have_gaps_between_elements_is_refused():
    (device, *_) = devices()
    region = Region(device.allocate(64), 2, 4, 4, np.dtype(np.float64))
    with pytest.raises(InputError, match="the elements of a row must be adjacent"):
        device.region(device.view(region)[:, ::2])


def test_columns_of_host_arrays_are_copied_both_ways():
    """A column-major array has no adjacent row elements: it goes through one that has."""
    (device, *_) = devices()
    target = Region(device.allocate(96), 2, 3, 6, np.dtype(np.float64))
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    device.upload(array, target)
    back = np.zeros((2, 3), order="F")
    device.download(target, back)
    assert np.array_equal(back, array)
