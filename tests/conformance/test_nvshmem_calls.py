"""The NVSHMEM library over host memory: every address, size, rank and flag it hands on, and how it starts."""

import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from conformance import fake_cupy, fake_nvshmem4py
from conformance.executor_suite import integer_operands
from conformance.fake_nvshmem import FakeJob, FakeRanks
from conformance.fewer_examples import FewerExamples, FewerPrograms
from conformance.test_nvshmem_executor import chained

from umm.errors import ExecutorUnavailableError
from umm_hw.gpu import cupy_device
from umm_hw.gpu.cupy_device import CupyDevice
from umm_hw.nvshmem.executor import NvshmemExecutor
from umm_hw.nvshmem.library import NvshmemLibrary, connect
from umm_hw.symmetric.one_sided import Joined


@pytest.fixture(scope="module", autouse=True)
def modules():
    """CuPy, NVSHMEM4Py and CUDA's bindings as the fake ones."""
    with pytest.MonkeyPatch.context() as patch:
        modules = fake_cupy.modules(2) | fake_nvshmem4py.modules()
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(cupy_device, "atomics_problem", lambda number, other: None)
        yield modules


class HostJob(FakeJob):
    """Ranks that are threads, each with NVSHMEM's own calls over host memory."""

    def __init__(self, size, ranks_per_node=1000, shares_gpu=True):
        super().__init__(size, ranks_per_node=ranks_per_node)
        fake_nvshmem4py.shared_parts(self)
        self.ranks = [FakeRanks(self, rank) for rank in range(size)]
        self.made = []
        for rank in self.ranks:
            sys.modules["nvshmem"].bindings = fake_nvshmem4py.Bindings(self, rank.rank)
            self.made.append(Joined(rank, NvshmemLibrary(rank, shares_gpu), CupyDevice(rank.rank % 2)))

    def joined(self, rank):
        return self.made[rank]


class HostNvshmem:
    """Executors that start as many ranks as a schedule has."""

    def __init__(self, ranks_per_node=1000, **options):
        self.ranks_per_node, self.options = ranks_per_node, options

    def executor(self, ranks):
        job = HostJob(ranks, self.ranks_per_node)
        return NvshmemExecutor(job=job, connect=job.joined, **self.options)

    def run(self, schedule, operands=None):
        return self.executor(schedule.ranks).run(schedule, operands)

    def runs(self, schedule, operands=None, repeat=1):
        return self.executor(schedule.ranks).runs(schedule, operands, repeat)

    def makespan(self, schedule):
        return self.executor(schedule.ranks).makespan(schedule)

    def available(self):
        return None


class TestOneNode(FewerExamples):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return HostNvshmem


class TestTwoRanksPerNode(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(HostNvshmem, 2)


@pytest.mark.parametrize("ranks_per_node", [1000, 2])
def test_ranks_wait_for_each_other_by_stream_memory_operations(ranks_per_node):
    schedule = chained()
    a, b = integer_operands(schedule.problem)
    assert np.array_equal(HostNvshmem(ranks_per_node).run(schedule, (a, b)).result, a @ b)


# How it starts ------------------------------------------------------------------------------------


def transport(shared=True):
    """An MPI transport of one rank, as far as starting needs it."""
    from mpi4py import MPI

    return SimpleNamespace(comm=MPI.COMM_SELF, rank=0, size=1, shared=shared)


@pytest.fixture
def start(monkeypatch, modules):
    """A function that starts NVSHMEM in a process where it has not been started, ending with a status."""
    at_exit = []
    monkeypatch.setattr("umm_hw.nvshmem.library._JOINED", [])
    monkeypatch.setattr("umm_hw.nvshmem.library.atexit.register", at_exit.append)
    modules["nvshmem"].bindings = fake_nvshmem4py.Bindings(fake_nvshmem4py.shared_parts(FakeJob(1)), 0)
    core = modules["nvshmem.core"]
    core.called.clear()

    def started(status):
        monkeypatch.setattr(core, "status", status)
        joined = connect(transport())
        assert at_exit == [core.finalize]
        assert core.called == [(0, False, 0, 1, "uid")]
        return joined

    return started


@pytest.mark.parametrize(("status", "meets"), [(2, 0), (3, 1), (4, 0)])
def test_it_starts_once_by_a_unique_id_and_meets_on_the_host_where_ranks_share_a_gpu(start, status, meets):
    """Status 3 is LIMITED_MPG, several ranks per GPU without MPS."""
    assert NvshmemExecutor()._real_connect() is connect
    joined = start(status)
    assert connect(transport()) is joined
    assert (joined.ranks.rank, joined.ranks.size, joined.device.number) == (0, 1, 0)
    met = []
    joined.library._ranks = SimpleNamespace(barrier=lambda: met.append(1))
    joined.library.barrier(joined.device.stream())
    assert len(met) == meets


@pytest.mark.parametrize("status", [0, 1, 5])
def test_a_start_that_only_looks_fine_is_refused(monkeypatch, start, status):
    """Without a GPU 3.4.5 returns from init as if it had started."""
    with pytest.raises(ExecutorUnavailableError, match=f"NVSHMEM did not start \\(status {status}\\)"):
        start(status)


def test_a_job_of_another_size_is_refused(start):
    start(2)
    with pytest.raises(ExecutorUnavailableError, match="NVSHMEM joins 1 ranks for the life of the processes"):
        connect(SimpleNamespace(size=2))


def test_a_link_without_atomic_adds_is_refused(monkeypatch, start):
    from mpi4py import MPI

    class Two:
        """Two ranks of one host."""

        rank, size = 0, 2

        def Split_type(self, kind):  # noqa: N802
            assert kind == MPI.COMM_TYPE_SHARED
            return SimpleNamespace(rank=0, size=2, Free=lambda: None)

    monkeypatch.setattr(cupy_device, "atomics_problem", lambda number, other: "PCIe carries no atomic adds")
    with pytest.raises(ExecutorUnavailableError, match="PCIe carries no atomic adds; start as many ranks"):
        connect(SimpleNamespace(comm=Two(), rank=0, size=2))


def test_symmetric_memory_that_is_used_up_is_named(monkeypatch, start):
    joined = start(2)
    monkeypatch.setattr(joined.library._bindings, "calloc", lambda count, size: 0)
    with pytest.raises(ExecutorUnavailableError, match=r"no 64 bytes .* set NVSHMEM_SYMMETRIC_SIZE higher"):
        joined.library.allocate(64)


def test_streams_that_cannot_wait_for_a_value_are_named(monkeypatch, start, modules):
    joined = start(2)
    refused = SimpleNamespace(name="CUDA_ERROR_NOT_SUPPORTED")
    monkeypatch.setattr(modules["cuda.bindings.driver"], "result", refused)
    with pytest.raises(ExecutorUnavailableError, match=r"wait for signals \(CUDA_ERROR_NOT_SUPPORTED\)"):
        joined.library.wait_signal(0, joined.device.stream())
