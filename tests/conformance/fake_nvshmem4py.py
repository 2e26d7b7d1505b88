"""NVSHMEM4Py over host memory: the calls that the NVSHMEM library makes, done at once, in its argument order.

Source: ``nvshmem/bindings/nvshmem.pyx`` and ``nvshmem/core/init_fini.py`` of nvshmem4py-cu13 0.3.1; those of
0.4.1 take the same arguments.
"""

from enum import IntEnum
from threading import Lock
from time import monotonic, sleep
from types import ModuleType, SimpleNamespace

import numpy as np
from conformance.fake_cupy import memory

PATIENCE = 20.0  # seconds after which a signal that is awaited counts as lost


class Bindings(ModuleType):
    """nvshmem.bindings as one rank of a job has it."""

    class Signal_op(IntEnum):  # noqa: N801
        SIGNAL_SET = 9
        SIGNAL_ADD = 10

    def __init__(self, job, rank):
        super().__init__("nvshmem.bindings")
        self.job, self.rank, self.allocations = job, rank, 0

    def calloc(self, count, size):
        buffer = np.zeros(count * size, np.uint8)
        with self.job.parts_lock:
            self.job.parts[self.allocations, self.rank] = buffer
        self.allocations += 1
        self.job.barrier.wait()
        return buffer.ctypes.data

    def free(self, ptr):
        self.job.barrier.wait()
        number, _ = self._place(ptr)
        with self.job.parts_lock:
            del self.job.parts[number, self.rank]
        self.job.barrier.wait()

    def ptr(self, dest, pe):
        if pe // self.job.ranks_per_node != self.rank // self.job.ranks_per_node:
            return 0
        return self._of(dest, pe)

    def getmem_on_stream(self, dest, source, bytes, pe, cstrm):  # noqa: A002
        self._place(dest)  # the local side of a transfer across nodes is symmetric too
        memory(dest, bytes)[:] = memory(self._of(source, pe), bytes)

    def putmem_on_stream(self, dest, source, bytes, pe, cstrm):  # noqa: A002
        self._place(source)
        memory(self._of(dest, pe), bytes)[:] = memory(source, bytes)

    def quiet_on_stream(self, cstrm):
        assert isinstance(cstrm, int)

    def signal_op_on_stream(self, sig_addr, signal, sig_op, pe, cstrm):
        assert sig_op == self.Signal_op.SIGNAL_SET
        memory(self._of(sig_addr, pe), 8).view(np.uint64)[0] = signal

    def barrier_all_on_stream(self, stream):
        assert isinstance(stream, int)
        self.job.barrier.wait()

    def _place(self, address):
        """The number of the allocation an address of this rank is in, and the offset there."""
        with self.job.parts_lock:
            for (number, rank), buffer in self.job.parts.items():
                if rank == self.rank and 0 <= address - buffer.ctypes.data < len(buffer):
                    return number, address - buffer.ctypes.data
        raise AssertionError(f"address {address} is not in symmetric memory of rank {self.rank}")

    def _of(self, address, rank):
        number, offset = self._place(address)
        with self.job.parts_lock:
            return self.job.parts[number, rank].ctypes.data + offset


class Driver(ModuleType):
    """cuda.bindings.driver: a wait for a value that blocks the host, which queues in row order anyway."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"))
    CUstreamWaitValue_flags = SimpleNamespace(CU_STREAM_WAIT_VALUE_GEQ=0, CU_STREAM_WAIT_VALUE_FLUSH=1 << 30)
    result = CUresult.CUDA_SUCCESS

    def cuStreamWaitValue64(self, stream, addr, value, flags):  # noqa: N802
        assert isinstance(stream, int)
        assert flags == 1 << 30
        until = monotonic() + PATIENCE
        while self.result is self.CUresult.CUDA_SUCCESS and memory(addr, 8).view(np.uint64)[0] < value:
            assert monotonic() < until, "a signal was not raised"
            sleep(1e-5)
        return (self.result,)


class Core(ModuleType):
    """nvshmem.core: starting and ending."""

    def __init__(self, status):
        super().__init__("nvshmem.core")
        self.status, self.called = status, []

    def get_unique_id(self, empty=False):
        return SimpleNamespace(_data=np.zeros(1, np.dtype((np.void, 128))), empty=empty)

    def init(self, device=None, uid=None, rank=None, nranks=None, mpi_comm=None, initializer_method=""):
        assert mpi_comm is None
        self.called.append((device.number, uid.empty, rank, nranks, initializer_method))

    def init_status(self):
        return self.status

    def finalize(self):
        self.called.append("finalize")


class CoreDevice:
    """cuda.core.Device."""

    def __init__(self, number):
        self.number = number

    def set_current(self):
        pass


def modules(status=2):
    """The entries of sys.modules for NVSHMEM4Py and CUDA's bindings; ``bindings`` is set for each rank."""
    nvshmem, cuda, cuda_core = ModuleType("nvshmem"), ModuleType("cuda"), ModuleType("cuda.core")
    nvshmem.core, cuda_core.Device = Core(status), CoreDevice
    cuda_bindings = ModuleType("cuda.bindings")
    cuda_bindings.driver = Driver("cuda.bindings.driver")
    return {
        "nvshmem": nvshmem,
        "nvshmem.core": nvshmem.core,
        "cuda": cuda,
        "cuda.core": cuda_core,
        "cuda.bindings": cuda_bindings,
        "cuda.bindings.driver": cuda_bindings.driver,
    }


def shared_parts(job):
    """Give a job the parts that its ranks' bindings share."""
    job.parts, job.parts_lock = {}, Lock()
    return job
