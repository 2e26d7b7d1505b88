"""NVSHMEM itself, by NVIDIA's bindings: joining the ranks by a unique id, and symmetric memory."""

import atexit
from typing import TYPE_CHECKING

import numpy as np

from umm.errors import ExecutorUnavailableError
from umm_hw.devices.device import Stream
from umm_hw.symmetric.one_sided import Joined, Ranks

if TYPE_CHECKING:
    from umm_hw.mpi.transport import MpiTransport

_INITIALIZED, _LIMITED_MPG, _FULL_MPG = 2, 3, 4  # of nvshmemx_init_status_t


class NvshmemLibrary:
    """The calls of ``nvshmem.bindings``, which take addresses and streams as numbers.

    A wait for a signal is a stream memory operation: nvshmemx_signal_wait_until_on_stream would end the
    process where ranks share a GPU without MPS, and a kernel that waits would hold a multiprocessor.

    Args:
        shares_gpu: Whether ranks share a GPU without MPS.
    """

    def __init__(self, ranks: Ranks, shares_gpu: bool) -> None:
        from cuda.bindings import driver
        from cupy.cuda import runtime
        from nvshmem import bindings

        self._ranks, self._shares_gpu = ranks, shares_gpu
        self._driver, self._bindings = driver, bindings
        flags = driver.CUstreamWaitValue_flags
        self._wait = int(flags.CU_STREAM_WAIT_VALUE_GEQ)
        self._runtime, self._number = runtime, runtime.getDevice()
        if runtime.deviceGetAttribute(runtime.cudaDevAttrCanFlushRemoteWrites, self._number):
            self._wait |= int(flags.CU_STREAM_WAIT_VALUE_FLUSH)

    def allocate(self, nbytes: int) -> int:
        """Call nvshmem_calloc."""
        address: int = self._bindings.calloc(1, nbytes)
        if address == 0:
            raise ExecutorUnavailableError(
                f"NVSHMEM has no {nbytes} bytes of symmetric memory left; set NVSHMEM_SYMMETRIC_SIZE higher"
            )
        return address

    def free(self, address: int) -> None:
        """Call nvshmem_free."""
        self._bindings.free(address)

    def peer(self, address: int, rank: int) -> int:
        """Call nvshmem_ptr."""
        peer: int = self._bindings.ptr(address, rank)
        return peer

    def get(self, into: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Call nvshmemx_getmem_on_stream."""
        self._bindings.getmem_on_stream(into, source, nbytes, rank, self._pointer(stream))

    def put(self, into: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Call nvshmemx_putmem_on_stream."""
        self._bindings.putmem_on_stream(into, source, nbytes, rank, self._pointer(stream))

    def quiet(self, stream: Stream) -> None:
        """Call nvshmemx_quiet_on_stream."""
        self._bindings.quiet_on_stream(self._pointer(stream))

    def signal(self, address: int, rank: int, stream: Stream) -> None:
        """Call nvshmemx_signal_op_on_stream."""
        how = int(self._bindings.Signal_op.SIGNAL_SET)
        self._bindings.signal_op_on_stream(address, 1, how, rank, self._pointer(stream))

    def wait_signal(self, address: int, stream: Stream) -> None:
        """Call cuStreamWaitValue64."""
        (status,) = self._driver.cuStreamWaitValue64(self._pointer(stream), address, 1, self._wait)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise ExecutorUnavailableError(
                f"the GPU's streams cannot wait for signals ({status.name}); NVSHMEM needs a Volta or newer"
            )

    def barrier(self, stream: Stream) -> None:
        """Call nvshmemx_barrier_all_on_stream."""
        # Where ranks share a GPU without MPS it spins, holding Python's lock, until their hosts have all come
        # to it. So they meet before, in a way that leaves the other threads alive: the watchdog beats, and
        # MPI serves the locks.
        if self._shares_gpu:
            self._ranks.barrier()
        self._bindings.barrier_all_on_stream(self._pointer(stream))

    def _pointer(self, stream: Stream) -> int:
        """Make the GPU current, which it is not yet in a new thread, and return a stream as a number."""
        self._runtime.setDevice(self._number)
        pointer: int = stream.ptr
        return pointer


def connect(transport: "MpiTransport") -> Joined:
    """Join the ranks of an MPI job by NVSHMEM; collective, and once in the life of a process.

    Ranks of a host take its GPUs in blocks of neighbours. They may be more than the GPUs.
    ExecutorUnavailableError if NVSHMEM does not start, or has started with other ranks.
    """
    if not _JOINED:
        _JOINED.append(_join(transport))
    joined = _JOINED[0]
    if joined.ranks.size != transport.size:
        raise ExecutorUnavailableError(
            f"NVSHMEM joins {joined.ranks.size} ranks for the life of the processes; start new ones for "
            f"{transport.size}"
        )
    return joined


_JOINED: list[Joined] = []  # at most one: NVSHMEM starts once in a process


def _join(transport: "MpiTransport") -> Joined:
    import nvshmem.core
    from cuda.core import Device as CoreDevice
    from mpi4py import MPI

    from umm_hw.gpu.cupy_device import CupyDevice, atomics_problem, device_count

    comm = transport.comm
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    gpus = min(device_count(), here.size)
    number = here.rank * gpus // here.size
    here.Free()
    for other in range(gpus):
        reason = atomics_problem(number, other) if other != number else None
        if reason is not None:
            raise ExecutorUnavailableError(f"{reason}; start as many ranks as share a link that does")
    device = CoreDevice(number)
    device.set_current()
    unique_id = nvshmem.core.get_unique_id(empty=comm.rank != 0)
    comm.Bcast(unique_id._data.view(np.int8), root=0)
    nvshmem.core.init(
        device=device, uid=unique_id, rank=comm.rank, nranks=comm.size, initializer_method="uid"
    )
    status = int(nvshmem.core.init_status())
    if status not in (_INITIALIZED, _LIMITED_MPG, _FULL_MPG):
        raise ExecutorUnavailableError(
            f"NVSHMEM did not start (status {status}); NVSHMEM_DEBUG=INFO in the environment makes it say why"
        )
    atexit.register(nvshmem.core.finalize)
    library = NvshmemLibrary(transport, status == _LIMITED_MPG)
    return Joined(transport, library, CupyDevice(number))
