"""A lock for each rank's memory: by words in MPI windows, or by the system where ranks share a host."""

import fcntl
import os
import struct
from threading import Lock

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from umm_hw.cores.backoff import Backoff
from umm_hw.mpi import wait
from umm_hw.mpi.windows import bytes_of

_FREE, _TAKEN = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
_FLOCK = "hhqqi4x"  # type, whence, start, length, process, as Linux wants them


class Locks:
    """Locks by MPI's compare and swap; collective to make."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._words = MPI.Win.Allocate(8, 8, comm=comm)
        self._words.Lock_all(MPI.MODE_NOCHECK)
        bytes_of(self._words.tomemory())[:] = 0
        wait.barrier(comm)

    def take(self, rank: int) -> None:
        """Wait until nobody holds a rank's lock, and hold it."""
        pauses = Backoff(wait.USUAL_PAUSE)
        while not self._exchange(rank, _FREE, _TAKEN):
            pauses.sleep()

    def release(self, rank: int) -> None:
        """Let others hold a rank's lock."""
        self._exchange(rank, _TAKEN, _FREE)

    def free(self) -> None:
        """Give the words back; collective."""
        self._words.Unlock_all()
        self._words.Free()

    def _exchange(self, rank: int, old: NDArray[np.int64], new: NDArray[np.int64]) -> bool:
        """Set a rank's lock word if it is the old one; return whether it was."""
        before = np.empty(1, dtype=np.int64)
        self._words.Compare_and_swap(new, old, before, rank, 0)
        self._words.Flush(rank)
        return bool(before[0] == old[0])


class SharedLocks:
    """Locks of the bytes of a file, for ranks of one host.

    MPI yields the core inside a flush; a gemm on that core then takes its whole turn of 3 ms while the lock
    is held. Who waits for a byte sleeps, and is woken by its release.

    Args:
        file: Open in all ranks.
        ranks: How many there are.
    """

    def __init__(self, file: int, ranks: int) -> None:
        self._file = file
        self._threads = [Lock() for _ in range(ranks)]  # a byte is locked by a process, whichever its thread

    def take(self, rank: int) -> None:
        """Wait until nobody holds a rank's lock, and hold it."""
        self._threads[rank].acquire()
        self._set(fcntl.F_WRLCK, rank)

    def release(self, rank: int) -> None:
        """Let others hold a rank's lock."""
        self._set(fcntl.F_UNLCK, rank)
        self._threads[rank].release()

    def free(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _set(self, kind: int, rank: int) -> None:
        """Lock or unlock a byte for this process; locks of files opened know no deadlock of other threads."""
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, kind, os.SEEK_SET, rank, 1, 0))


def locks(comm: MPI.Intracomm, shared: bool) -> Locks | SharedLocks:
    """Return a lock for each rank's memory; collective.

    Args:
        shared: Whether they are on one host.
    """
    file = _common_file(comm) if shared else None
    return Locks(comm) if file is None else SharedLocks(file, comm.size)


def _common_file(comm: MPI.Intracomm) -> int | None:
    """Return a file without a name that all ranks of a host have open, None where one cannot; collective."""
    created = os.memfd_create("umm-locks") if comm.rank == 0 and hasattr(os, "memfd_create") else -1
    process, number = wait.broadcast(comm, (os.getpid(), created))
    try:
        path = f"/proc/{process}/fd/{number}"
        file = created if comm.rank == 0 else os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # in another container, or forbidden here
        file = -1
    return file if min(comm.allgather(file)) >= 0 else None
