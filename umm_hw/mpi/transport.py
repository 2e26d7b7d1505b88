"""The transport over MPI: each rank a process, each heap a part of one window of symmetric memory."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from umm.arrays import Ints
from umm.errors import InputError
from umm_hw.mpi import wait
from umm_hw.mpi.clock import offset_to_first
from umm_hw.mpi.locks import locks
from umm_hw.mpi.meeting import Meeting, SharedMeeting
from umm_hw.mpi.windows import RemoteWindow, SharedWindow, Window, block_view
from umm_hw.transport import Block

ALIGNMENT = 64  # bytes; heaps start at cache lines
WINDOW_VARIABLE = "UMM_MPI_WINDOW"  # "remote" uses the way across hosts also on one host


class MpiTransport:
    """One rank's access to the memory of all ranks of a communicator.

    On one host, memory is shared and peers' parts are NumPy views; a get is a copy, an accumulate an addition
    under the target's lock. Across hosts it is MPI's Rget, Rput and Raccumulate. Making one is collective.
    ``UMM_MPI_WINDOW=remote`` in the environment makes one host do so too.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.rank = comm.rank
        self.size = comm.size
        self.shared = shared = os.environ.get(WINDOW_VARIABLE) != "remote" and on_one_host(comm)
        self._windows: list[tuple[Window, Ints]] = []  # with the bytes of each rank
        self._used = np.zeros(comm.size, dtype=np.int64)  # of the last window
        self._heaps: list[tuple[Window, Ints]] = []  # with the offset in each rank
        self._own: list[NDArray[np.uint8]] = []  # this rank's part of each heap
        self._locks = locks(comm, shared)
        self._copier: ThreadPoolExecutor | None = None
        host = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.first_of_host: int = host.bcast(comm.rank)
        """The lowest rank on this rank's host."""
        self.place_on_host: tuple[int, int] = (host.rank, host.size)
        """This rank's number among those of its host, and how many these are."""
        self._firsts = sorted(set(comm.allgather(self.first_of_host)))
        host.Free()
        wait.barrier(comm)
        self._meeting = SharedMeeting(comm) if shared else Meeting(comm)

    @property
    def reserved(self) -> int:
        """Bytes that this rank's windows hold, which the next heaps can have."""
        return int(sum(sizes[self.rank] for _, sizes in self._windows))

    def reserve(self, nbytes: Sequence[int]) -> None:
        """Make sure that heaps of so many bytes in all fit one window; collective, while there is no heap."""
        # Memory of earlier, smaller windows is given back first.
        wanted = _aligned(nbytes)
        if any(np.all(size >= wanted) for _, size in self._windows):
            return
        self._give_back()
        self._add_window(wanted)

    def allocate(self, nbytes: Sequence[int]) -> int:
        """Reserve bytes of each rank, all zero, and return the number of the new heap."""
        wanted = _aligned(nbytes)
        if not self._windows or np.any(self._used + wanted > self._windows[-1][1]):
            self._add_window(wanted)
        window = self._windows[-1][0]
        self._heaps.append((window, self._used.copy()))
        start = self._used[self.rank]
        self._own.append(window.own[start : start + wanted[self.rank]])
        self._used += wanted
        self.clear(len(self._heaps) - 1)  # the owner touches its pages first
        self.barrier()
        return len(self._heaps) - 1

    def clear(self, heap: int) -> None:
        """Set this rank's part of a heap to zero."""
        self._own[heap][:] = 0

    def view(self, block: Block) -> NDArray[Any]:
        """Return an array that is a block of this rank's memory."""
        if block.rank != self.rank:
            raise InputError(f"rank {self.rank} cannot view memory of rank {block.rank}; get copies it")
        window, place = self._place(block)
        return block_view(window.own, place)

    def get(self, source: Block, into: NDArray[Any]) -> None:
        """Copy any rank's block into a local array."""
        window, place = self._place(source)
        window.get(place, into)

    def get_async(self, source: Block, into: NDArray[Any]) -> Future[None]:
        """Start a get on the copy thread; MPI's own Rget copies inside the call."""
        if self._copier is None:
            self._copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="umm-copy")
        return self._copier.submit(self.get, source, into)

    def put(self, array: NDArray[Any], target: Block) -> None:
        """Copy a local array into any rank's block."""
        window, place = self._place(target)
        window.put(array, place)

    def accumulate(self, array: NDArray[Any], target: Block) -> None:
        """Add a local array to any rank's block: by MPI where it can, else alone under the target's lock."""
        window, place = self._place(target)
        if window.adds(target.dtype):
            window.accumulate(array, place)
            return
        self.take_lock(target.rank)
        try:
            window.add_alone(array, place)
        finally:
            self.release_lock(target.rank)

    def gather(self, content: Any) -> list[Any]:
        """Return the contents of all ranks on rank 0, an empty list elsewhere; anything that pickles."""
        return wait.gather(self.comm, content)

    def broadcast(self, content: Any) -> Any:
        """Return rank 0's content on every rank."""
        return wait.broadcast(self.comm, content)

    def agreed(self, number: float) -> float:
        """Return rank 0's number on every rank, in one message."""
        value = np.array([number])
        wait.until_complete(self.comm.Ibcast(value))
        return float(value[0])

    def offset(self) -> float:
        """Return the seconds to add to this rank's clock to get rank 0's; collective."""
        return offset_to_first(self.comm, self._firsts, self.first_of_host)

    def take_lock(self, rank: int) -> None:
        """Wait until nobody holds a rank's lock, and hold it."""
        self._locks.take(rank)

    def release_lock(self, rank: int) -> None:
        """Let others hold a rank's lock."""
        self._locks.release(rank)

    def quiet(self) -> None:
        """Wait until every put and accumulate of this rank is visible to all ranks."""
        for window, _ in self._windows:
            window.quiet()

    def barrier(self) -> None:
        """Wait until every rank has come here, leaving the core to others meanwhile."""
        self.quiet()
        self._meeting.wait()
        self.quiet()

    def free(self) -> None:
        """Forget the heaps; their window is kept for the next ones."""
        self.barrier()
        self._heaps.clear()
        self._own.clear()
        largest = max(self._windows, key=lambda entry: int(entry[1].sum()), default=None)
        self._give_back(keep=largest)

    def close(self) -> None:
        """Give all memory back; collective, the last call."""
        self.barrier()
        if self._copier is not None:
            self._copier.shutdown()
        self._heaps.clear()
        self._own.clear()
        self._give_back()
        self._locks.free()
        self._meeting.free()

    def _place(self, block: Block) -> tuple[Window, Block]:
        """Return the window of a block, and the block counted from the start of a rank's part of it."""
        window, starts = self._heaps[block.heap]
        return window, block._replace(offset=int(starts[block.rank]) + block.offset)

    def _add_window(self, nbytes: Ints) -> None:
        sizes = np.maximum(nbytes, ALIGNMENT)
        kind = SharedWindow if self.shared else RemoteWindow
        self._windows.append((kind(self.comm, sizes.tolist()), sizes))
        self._used = np.zeros(self.size, dtype=np.int64)

    def _give_back(self, keep: tuple[Window, Ints] | None = None) -> None:
        for entry in self._windows:
            if entry is not keep:
                entry[0].free()
        self._windows = [] if keep is None else [keep]
        self._used = np.zeros(self.size, dtype=np.int64)


def on_one_host(comm: MPI.Intracomm) -> bool:
    """Whether all ranks can share memory; collective."""
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    together = here.size == comm.size
    here.Free()
    return together


def _aligned(nbytes: Sequence[int] | Ints) -> Ints:
    return -(-np.asarray(nbytes, dtype=np.int64) // ALIGNMENT) * ALIGNMENT
