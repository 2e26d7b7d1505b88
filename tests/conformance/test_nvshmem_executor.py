"""The NVSHMEM executor and transport over GPUs that are NumPy underneath, in one node and across nodes.

``UMM_TEST_GPU=nvshmem`` (make test-nvshmem) runs the executor's suite on real GPUs.
"""

import os
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from time import sleep
from typing import ClassVar

import numpy as np
import pytest
from conformance import fake_device
from conformance.executor_suite import MACHINE, integer_operands
from conformance.fake_nvshmem import FakeJob, FakeLibrary, FakeRanks
from conformance.fewer_examples import FewerExamples, FewerPrograms
from conformance.transport_suite import TransportConformance
from examples import examples

import umm
from umm.errors import ExecutorUnavailableError, InfeasibleError, InputError
from umm.schedules.table.details import ACCUMULATE
from umm_hw.calibrate import gpu_benchmarks
from umm_hw.mpi.job.job import MpiJob
from umm_hw.nvshmem.executor import NvshmemExecutor
from umm_hw.symmetric.transport import SymmetricTransport
from umm_hw.transport import Block

seeds = count()


class FakeNvshmem:
    """Executors that start as many fake ranks as a schedule has, in another random order every time."""

    def __init__(self, ranks_per_node=1000, **options):
        self.ranks_per_node, self.options = ranks_per_node, options
        self.jobs = []

    def run(self, schedule, operands=None):
        return self._executor(schedule).run(schedule, operands)

    def runs(self, schedule, operands=None, repeat=1):
        return self._executor(schedule).runs(schedule, operands, repeat)

    def makespan(self, schedule):
        return self._executor(schedule).makespan(schedule)

    def available(self):
        return NvshmemExecutor(connect=lambda rank: None).available()

    def _executor(self, schedule):
        seed = next(seeds)
        job = FakeJob(schedule.ranks, seed, (0.0, 0.5, 0.9)[seed % 3], self.ranks_per_node)
        self.jobs.append(job)
        return NvshmemExecutor(job=job, connect=job.joined, **self.options)


class TestOneNode(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return FakeNvshmem


class TestTwoRanksPerNode(FewerExamples, FewerPrograms):
    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls):
        return partial(FakeNvshmem, 2)


if os.environ.get("UMM_TEST_GPU") == "nvshmem":

    class RealNvshmem(FakeNvshmem):
        """Executors over a job for each number of ranks: NVSHMEM joins all processes of one."""

        started: ClassVar[dict[int, MpiJob]] = {}

        def _executor(self, schedule):
            while self.started and schedule.ranks not in self.started and sum(self.started) > 8:
                self.started.pop(next(iter(self.started))).close()  # each rank has a thread that spins
            if schedule.ranks not in self.started:
                self.started[schedule.ranks] = MpiJob(schedule.ranks, timeout=120)
            return NvshmemExecutor(job=self.started[schedule.ranks], **self.options)

        def available(self):
            return NvshmemExecutor().available()

    class TestRealDevices(FewerExamples, FewerPrograms):
        many = 8  # NVSHMEM has no memory for 16 processes on one H100

        @pytest.fixture(scope="class")
        @classmethod
        def executor(cls):
            yield RealNvshmem
            while RealNvshmem.started:
                RealNvshmem.started.popitem()[1].close()


class TransportOverNvshmem(TransportConformance):
    ranks_per_node = 1000

    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        def run_ranks(size, program):
            job = FakeJob(size, ranks_per_node=cls.ranks_per_node)

            def on_rank(rank):
                transport = SymmetricTransport(job.joined(rank))
                result = program(transport)
                transport.close()
                return result

            results = job.call(size, on_rank)
            assert job.world.memory == {}
            return results

        return run_ranks


class TestTransportInOneNode(TransportOverNvshmem):
    pass


class TestTransportAcrossNodes(TransportOverNvshmem):
    ranks_per_node = 3


def test_no_memory_is_kept_after_a_run():
    executor = FakeNvshmem(ranks_per_node=2)
    executor.run(umm.schedule(umm.Problem(m=8, n=8, k=8, c="col@2", ranks=4), MACHINE, stationary="A"))
    assert executor.jobs[0].world.memory == {}


def test_processes_that_are_more_than_the_ranks_are_refused():
    """NVSHMEM joins all processes of a job."""
    job = FakeJob(3)
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE)
    with pytest.raises(InputError, match="the schedule is for 2 ranks, but NVSHMEM joins 3 processes"):
        NvshmemExecutor(job=job, connect=job.joined).run(schedule)


@pytest.mark.parametrize("ranks_per_node", [1000, 2])
def test_a_schedule_is_performed_again_with_c_from_zero(ranks_per_node):
    """C is cleared only when no rank still adds to it for the run before; random orders."""
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row", ranks=4, dtype="float64")
    schedule = umm.schedule(problem, MACHINE, stationary="A")
    a, b = integer_operands(problem)
    for _ in range(examples(20)):
        traces = FakeNvshmem(ranks_per_node)._executor(schedule).runs(schedule, (a, b), repeat=3)
        assert len(traces) == 3
        assert np.array_equal(traces[-1].result, a @ b)


@pytest.mark.parametrize("locked", [True, False])
def test_additions_across_nodes_need_the_lock(monkeypatch, locked):
    """Ranks add to one tile by get, add, put; where their hosts are slow, one would undo the other."""
    problem = umm.Problem(m=8, n=8, k=16, a="col", b="row", c="2d", ranks=4, dtype="float64")
    schedule = umm.schedule(problem, MACHINE, stationary="A")
    a, b = integer_operands(problem)
    get = FakeLibrary.get

    def slow_get(self, *arguments):
        get(self, *arguments)
        sleep(1e-3)

    monkeypatch.setattr(FakeLibrary, "get", slow_get)
    if not locked:
        monkeypatch.setattr(FakeRanks, "take_lock", lambda self, rank: None)
        monkeypatch.setattr(FakeRanks, "release_lock", lambda self, rank: None)
    results = [FakeNvshmem(1).run(schedule, (a, b)).result for _ in range(10)]
    assert all(np.array_equal(result, a @ b) for result in results) == locked


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("ranks_per_node", [1000, 2])
def test_every_type_is_multiplied(dtype, ranks_per_node):
    """Whole numbers, exact in each type: C is float64 or float32."""
    types = {"dtype": dtype, "c_dtype": "float64" if dtype == "float64" else "float32"}
    problem = umm.Problem(m=17, n=12, k=20, a="row", b="2d@2", c="col@2", ranks=4, **types)
    a, b = (np.asarray(x, np.float64) for x in integer_operands(replace(problem, dtype="float64")))
    executor = FakeNvshmem(ranks_per_node, tf32=dtype == "float32", nvtx=True)
    result = executor.run(umm.schedule(problem, MACHINE, stationary="A"), (a, b)).result
    assert result.dtype == (np.float64 if dtype == "float64" else np.float32)
    assert np.array_equal(result, a @ b)


def test_what_a_transport_cannot_do_is_refused(monkeypatch):
    monkeypatch.setattr("umm_hw.symmetric.transport.LANDING", 64)
    job = FakeJob(2, ranks_per_node=1)

    def program(rank):
        joined = job.joined(rank)
        with pytest.raises(InputError, match="blocks = 0 is not possible"):
            SymmetricTransport(joined, blocks=0)
        transport = SymmetricTransport(joined)
        target = Block(1 - rank, transport.allocate([80, 80]), 0, 1, 10, 10, np.dtype(np.float64))
        with pytest.raises(InputError, match=f"rank {rank} cannot view memory of rank {1 - rank}"):
            transport.view(target)
        with pytest.raises(InputError, match="a row of 80 bytes does not cross nodes; at most 64 do"):
            transport.put(np.zeros((1, 10)), target)
        transport.close()

    job.call(2, program)


def test_arrays_of_the_device_are_put_and_got_there():
    job = FakeJob(2)

    def program(rank):
        transport = SymmetricTransport(job.joined(rank))
        heap = transport.allocate([16, 16])
        source, target = (Block(x, heap, 0, 1, 2, 2, np.dtype(np.float64)) for x in (rank, 1 - rank))
        view = transport.view(source)
        transport.barrier()
        if rank == 0:
            view[...] = 3.0
            transport.put(view, target)
        transport.barrier()
        if rank == 1:
            view[...] = 0.0
            transport.get(target, view)
        result = view.tolist()
        transport.close()
        return result

    assert job.call(2, program) == [[[3.0, 3.0]]] * 2


def test_memory_that_a_gpu_has_not_is_refused_on_every_rank():
    """A fake GPU has 1 GiB; NVSHMEM would end the process."""
    schedule = umm.schedule(umm.Problem(m=2, n=30_000, k=30_000, b="row@2", ranks=2), MACHINE)
    job = FakeJob(2)
    tiny = (np.zeros((2, 30_000), np.float32), np.broadcast_to(np.float32(0), (30_000, 30_000)))
    with pytest.raises(InfeasibleError, match=r"fake 0 has 1.0 GiB, and a rank needs 3.4 GiB; fewer repl"):
        NvshmemExecutor(job=job, connect=job.joined).run(schedule, tiny)


def test_what_is_missing_is_said_before_anything_starts(monkeypatch):
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE)
    monkeypatch.setattr("umm_hw.nvshmem.executor.find_spec", lambda name: None if name == "nvshmem" else True)
    result = r"executor nvshmem needs nvshmem; pip install 'umm-sim\[nvshmem\]'"
    with pytest.raises(ExecutorUnavailableError, match=result):
        NvshmemExecutor().run(schedule)
    with pytest.raises(ExecutorUnavailableError, match=result):
        NvshmemExecutor().calibrate(["float32"], print)
    with pytest.raises(InputError, match="tf32 rounds float32 operands; leave it out for float16"):
        NvshmemExecutor(tf32=True).calibrate(["float16"], print)


def test_the_process_forks_before_cuda_begins(monkeypatch):
    """Under mpiexec a rank goes on in a child process, where CUDA of the parent would not work."""
    happened = []
    monkeypatch.setattr("umm_hw.nvshmem.executor.find_spec", lambda name: True)
    monkeypatch.setattr("umm_hw.nvshmem.executor.supervise", lambda: happened.append("fork"))
    monkeypatch.setattr("umm_hw.nvshmem.executor.gpu_problem", lambda extra: happened.append("cuda"))
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_PORT", "host:4711")
    monkeypatch.setenv("PMI_SIZE", "1")
    assert NvshmemExecutor().available() is None
    assert happened == ["fork", "cuda"]


# Signals: dependencies between ranks without a barrier ---------------------------------------------


def chained():
    """A schedule in which each accumulate waits for the one before it, mostly of another rank.

    Direct schedules have no such dependencies; a signal that is missing would stop the run.
    """
    problem = umm.Problem(m=12, n=12, k=12, a="col", b="row", c="2d", ranks=4, dtype="float64")
    schedule = umm.schedule(problem, MACHINE, stationary="A")
    after = [schedule.after_of(row).tolist() for row in range(len(schedule))]
    accumulates = (schedule.kind == ACCUMULATE).nonzero()[0].tolist()
    for before, then in pairwise(accumulates):
        after[then].append(before)
    counts = [len(waits) for waits in after]
    return replace(
        schedule,
        after=np.array([before for waits in after for before in waits]),
        after_offsets=np.concatenate([[0], np.cumsum(counts)]),
    )


@pytest.mark.parametrize("ranks_per_node", [1000, 2])
def test_actions_wait_for_those_of_other_ranks_by_signals(ranks_per_node):
    """No accumulate begins before the one before it, of another rank, has ended."""
    schedule = chained()
    accumulates = (schedule.kind == ACCUMULATE).nonzero()[0]
    a, b = integer_operands(schedule.problem)
    for _ in range(5):
        trace = FakeNvshmem(ranks_per_node).run(schedule, (a, b))
        assert np.array_equal(trace.result, a @ b)
        assert np.all(trace.start[accumulates][1:] >= trace.end[accumulates][:-1])


def test_a_signal_that_is_not_raised_stops_the_run(monkeypatch):
    monkeypatch.setattr(fake_device, "PATIENCE", 0.5)
    monkeypatch.setattr(FakeLibrary, "signal", lambda self, address, rank, stream: None)
    with pytest.raises(AssertionError, match="every stream waits for another"):
        FakeNvshmem().run(chained())


def test_a_job_s_gpu_is_calibrated_from_the_last_rank_s_memory(tmp_path, monkeypatch):
    """Two ranks, small shapes: the file describes two devices joined by a switch, or one that is shared."""
    monkeypatch.setattr(gpu_benchmarks, "SHORTEST", 1e-5)
    monkeypatch.setattr("umm_hw.symmetric.program.grid", lambda device: ((4, 8), (256, 4096)))
    job, result = FakeJob(2), []
    text = NvshmemExecutor(job=job, connect=job.joined).calibrate(["float32"], result.append)
    file = tmp_path / "two.toml"
    file.write_text(text)
    assert umm.machine(str(file)).device_count == 2
    assert "--executor nvshmem" in text
    assert result == ["everything, on rank 0 and from the last rank"]
    assert job.world.memory == {}
    shared = FakeJob(2)
    shared.devices[1].number = 0
    file.write_text(NvshmemExecutor(job=shared, connect=shared.joined).calibrate(["float32"], result.append))
    assert umm.machine(str(file)).device_count == 1


def test_ranks_of_several_nodes_are_not_calibrated_together():
    job = FakeJob(2, ranks_per_node=1)
    with pytest.raises(InputError, match="calibrate with the ranks of one node"):
        NvshmemExecutor(job=job, connect=job.joined).calibrate(["float32"], lambda what: None)
    assert job.world.memory == {}
