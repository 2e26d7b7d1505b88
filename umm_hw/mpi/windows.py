"""Memory of all ranks as one MPI window: shared memory on one host, remote access across hosts."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from mpi4py.util.dtlib import from_numpy_dtype
from numpy.typing import NDArray

from umm_hw.mpi.wait import until_complete
from umm_hw.transport import Block

Bytes = NDArray[np.uint8]


class Window(Protocol):
    """A part of memory at every rank. Offsets of blocks count from the start of a rank's part."""

    own: Bytes  # this rank's part

    def adds(self, dtype: np.dtype[Any]) -> bool:
        """Whether ``accumulate`` can add this type, atomically for each element."""

    def get(self, source: Block, into: NDArray[Any]) -> None:
        """Copy a block into a local array."""

    def put(self, array: NDArray[Any], target: Block) -> None:
        """Copy a local array into a block."""

    def accumulate(self, array: NDArray[Any], target: Block) -> None:
        """Add a local array to a block."""

    def add_alone(self, array: NDArray[Any], target: Block) -> None:
        """Add a local array to a block that nobody else changes meanwhile; visible on return."""

    def quiet(self) -> None:
        """Make all puts and accumulates visible, and see those that others have made visible."""

    def free(self) -> None:
        """Give the memory back; collective. Views of it are invalid afterwards."""


def block_view(memory: Bytes, block: Block) -> NDArray[Any]:
    """Return a block of a rank's memory as an array, without copying."""
    item = block.dtype.itemsize
    shape, strides = (block.rows, block.cols), (block.stride * item, item)
    return np.ndarray(shape, block.dtype, memory, block.offset, strides)


def bytes_of(memory: Any) -> Bytes:
    """Return MPI's memory as an array, without copying."""
    return np.frombuffer(memory, dtype=np.uint8)


class SharedWindow:
    """All ranks are on one host: every rank's part is mapped into every process.

    Args:
        comm: Ranks of one host.
        nbytes: Bytes of each rank's part.
    """

    def __init__(self, comm: MPI.Intracomm, nbytes: Sequence[int]) -> None:
        # Of their own pages, so that a rank's memory can be on the rank's own NUMA node.
        apart = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        self._window = MPI.Win.Allocate_shared(nbytes[comm.rank], 1, info=apart, comm=comm)
        apart.Free()
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self._parts = [bytes_of(self._window.Shared_query(rank)[0]) for rank in range(comm.size)]
        self.own = self._parts[comm.rank]

    def part(self, rank: int) -> Bytes:
        """Return any rank's part."""
        return self._parts[rank]

    def adds(self, dtype: np.dtype[Any]) -> bool:
        """Return False: an addition in another rank's memory needs a lock."""
        return False

    def get(self, source: Block, into: NDArray[Any]) -> None:
        """Copy a block into a local array."""
        np.copyto(into, block_view(self._parts[source.rank], source))

    def put(self, array: NDArray[Any], target: Block) -> None:
        """Copy a local array into a block."""
        np.copyto(block_view(self._parts[target.rank], target), array)

    def accumulate(self, array: NDArray[Any], target: Block) -> None:
        """Never called: ``adds`` is False."""
        raise NotImplementedError

    def add_alone(self, array: NDArray[Any], target: Block) -> None:
        """Add a local array to a block."""
        self._window.Sync()
        view = block_view(self._parts[target.rank], target)
        np.add(view, array, out=view)
        self._window.Sync()

    def quiet(self) -> None:
        """Order this rank's loads and stores before those that follow."""
        self._window.Sync()

    def free(self) -> None:
        """Unmap the parts of all ranks."""
        self._window.Unlock_all()
        self._window.Free()


class RemoteWindow:
    """Ranks may be on different hosts: memory is reached by Rget, Rput and Raccumulate.

    The memory comes from ``Win.Allocate``. Memory of ``Win.Create`` is served only while the target's rank is
    inside MPI, so that a get would wait for its GEMM.

    Args:
        nbytes: Bytes of each rank's part.
    """

    def __init__(self, comm: MPI.Intracomm, nbytes: Sequence[int]) -> None:
        self._window = MPI.Win.Allocate(nbytes[comm.rank], 1, comm=comm)
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self.own = bytes_of(self._window.tomemory())

    def adds(self, dtype: np.dtype[Any]) -> bool:
        """Whether MPI has the type; it has neither float16 nor bfloat16."""
        return dtype.kind in "fiu" and dtype != np.float16

    def get(self, source: Block, into: NDArray[Any]) -> None:
        """Copy a block into a local array."""
        if source.rows == 0 or source.cols == 0:
            return
        buffer = into if into.flags.c_contiguous else np.empty(into.shape, into.dtype)
        until_complete(self._window.Rget([buffer, MPI.BYTE], source.rank, _place(source, MPI.BYTE)))
        if buffer is not into:
            into[...] = buffer

    def put(self, array: NDArray[Any], target: Block) -> None:
        """Copy a local array into a block."""
        if array.size:
            buffer = np.ascontiguousarray(array)
            until_complete(self._window.Rput([buffer, MPI.BYTE], target.rank, _place(target, MPI.BYTE)))

    def accumulate(self, array: NDArray[Any], target: Block) -> None:
        """Add a local array to a block, atomically for each element."""
        if array.size:
            buffer, kind = np.ascontiguousarray(array), from_numpy_dtype(target.dtype)
            place = _place(target, kind)
            until_complete(self._window.Raccumulate([buffer, kind], target.rank, place, MPI.SUM))

    def add_alone(self, array: NDArray[Any], target: Block) -> None:
        """Get a block, add to it, and put it back."""
        sums = np.empty(array.shape, array.dtype)
        self.get(target, sums)
        sums += array
        self.put(sums, target)
        self._window.Flush(target.rank)

    def quiet(self) -> None:
        """Complete this rank's operations at their targets, and see those that others have completed here."""
        self._window.Flush_all()
        self._window.Sync()

    def free(self) -> None:
        """Give the memory of all ranks back."""
        self._window.Unlock_all()
        self._window.Free()


def _place(block: Block, kind: MPI.Datatype) -> tuple[int, int, MPI.Datatype]:
    """Return a block as MPI's target: displacement, count and type."""
    units = block.dtype.itemsize if kind == MPI.BYTE else 1
    return block.offset, 1, _strided(block.rows, block.cols * units, block.stride * units, kind.handle)


@lru_cache(maxsize=4096)
def _strided(rows: int, cols: int, stride: int, kind: int) -> MPI.Datatype:
    """Return the type of a block of rows, as one element."""
    return MPI.Datatype.fromhandle(kind).Create_vector(rows, cols, stride).Commit()
