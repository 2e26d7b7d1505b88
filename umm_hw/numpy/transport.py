"""The transport of p virtual ranks in one process: every rank's memory is a NumPy array."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError
from umm_hw.transport import Block

T = TypeVar("T")


class _World:
    """The state that virtual ranks share: their memory, a lock on each rank's part of it, and the barrier."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.heaps: list[list[NDArray[np.uint8]]] = []
        self.locks = [Lock() for _ in range(size)]
        self.allocating = Lock()
        self.barrier = Barrier(size)
        self.copier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="umm-copy")  # no thread until used


class NumpyTransport:
    """One of p virtual ranks; ``as_rank`` gives the others.

    One thread may act for all ranks in turn, as the NumPy executor does, as long as it never waits at a
    barrier; :func:`run_ranks` gives each rank a thread of its own.

    Args:
        size: Number of virtual ranks, p.

    >>> transport = NumpyTransport(size=2)
    >>> heap = transport.allocate([0, 16])
    >>> there = Block(rank=1, heap=heap, offset=0, rows=1, cols=2, stride=2, dtype=np.dtype("float64"))
    >>> transport.accumulate(np.array([[1.0, 2.0]]), there)
    >>> transport.accumulate(np.array([[0.5, 0.5]]), there)
    >>> transport.as_rank(1).view(there)
    array([[1.5, 2.5]])
    """

    def __init__(self, size: int) -> None:
        self.rank = 0
        self.size = size
        self._world = _World(size)
        self._allocations = 0

    def as_rank(self, rank: int) -> "NumpyTransport":
        """Return another rank's access to the same memory."""
        other = NumpyTransport.__new__(NumpyTransport)
        other.rank, other.size, other._world, other._allocations = rank, self.size, self._world, 0
        return other

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's part of all heaps."""
        return sum(heap[self.rank].nbytes for heap in self._world.heaps)

    def allocate(self, nbytes: Sequence[int]) -> int:
        """Reserve bytes of each rank; the i-th call of every rank means the same heap."""
        heap = self._allocations
        self._allocations += 1
        with self._world.allocating:
            if heap == len(self._world.heaps):
                self._world.heaps.append([np.zeros(int(size), dtype=np.uint8) for size in nbytes])
        return heap

    def clear(self, heap: int) -> None:
        """Set this rank's part of a heap to zero."""
        self._world.heaps[heap][self.rank].fill(0)

    def view(self, block: Block) -> NDArray[Any]:
        """Return an array that is a block of this rank's memory."""
        if block.rank != self.rank:
            raise InputError(f"rank {self.rank} cannot view memory of rank {block.rank}; get copies it")
        return self._array(block)

    def get(self, source: Block, into: NDArray[Any]) -> None:
        """Copy any rank's block into a local array."""
        np.copyto(into, self._array(source))

    def get_async(self, source: Block, into: NDArray[Any]) -> Future[None]:
        """Start a get on the copy thread."""
        return self._world.copier.submit(self.get, source, into)

    def put(self, array: NDArray[Any], target: Block) -> None:
        """Copy a local array into any rank's block."""
        np.copyto(self._array(target), array)

    def accumulate(self, array: NDArray[Any], target: Block) -> None:
        """Add a local array to any rank's block, alone on that rank's memory meanwhile."""
        destination = self._array(target)
        with self._world.locks[target.rank]:
            np.add(destination, array, out=destination)

    def quiet(self) -> None:
        """Do nothing: puts and accumulates are visible when they return."""

    def barrier(self) -> None:
        """Wait for the threads of all ranks."""
        self._world.barrier.wait()

    def free(self) -> None:
        """Wait for all ranks and forget the heaps; a view keeps its own memory alive."""
        self.barrier()
        self._allocations = 0
        if self.rank == 0:
            self._world.heaps.clear()
        self.barrier()

    def _array(self, block: Block) -> NDArray[Any]:
        item = block.dtype.itemsize
        buffer = self._world.heaps[block.heap][block.rank]
        shape, strides = (block.rows, block.cols), (block.stride * item, item)
        return np.ndarray(shape, block.dtype, buffer, block.offset, strides)


def run_ranks(size: int, program: Callable[[NumpyTransport], T]) -> list[T]:
    """Run a program on each of p virtual ranks, each in its own thread, and return the results by rank.

    If one fails, or the caller is interrupted, the others fail at their next barrier and the error is raised.

    >>> run_ranks(3, lambda transport: transport.rank ** 2)
    [0, 1, 4]
    """
    first = NumpyTransport(size)

    def run(rank: int) -> T:
        try:
            return program(first.as_rank(rank))
        except BaseException:
            first._world.barrier.abort()
            raise

    with ThreadPoolExecutor(max_workers=size, thread_name_prefix="umm-rank") as threads:
        try:
            futures = [threads.submit(run, rank) for rank in range(size)]
            wait(futures)
        except BaseException:  # Ctrl-C: those that run would wait for those that never began
            first._world.barrier.abort()
            raise
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise next((e for e in errors if not isinstance(e, BrokenBarrierError)), errors[0])
    return [future.result() for future in futures]
