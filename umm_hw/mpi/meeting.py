"""Where all ranks wait for each other, sleeping: by MPI, or by counters in shared memory."""

import numpy as np
from mpi4py import MPI

from umm_hw.cores.backoff import ROUND_SLACK, Backoff
from umm_hw.mpi import wait
from umm_hw.mpi.windows import SharedWindow


class Meeting:
    """A barrier by MPI. It takes several rounds, and each goes on only when every rank looks."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm

    def wait(self) -> None:
        """Wait until every rank has come here."""
        wait.barrier(self._comm)

    def free(self) -> None:
        """Hold nothing that must be given back."""


class SharedMeeting(Meeting):
    """A barrier of one round on one host: a rank counts its own, and waits until all counts have come up."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        super().__init__(comm)
        self._window = SharedWindow(comm, [8 * comm.size] * comm.size)  # the counts are in rank 0's part
        self._counts = self._window.part(0).view(np.int64)[: comm.size]
        self._counts[comm.rank] = 0
        wait.barrier(comm)

    def wait(self) -> None:
        """Wait until every rank has come here."""
        rank = self._comm.rank
        self._counts[rank] += 1
        self._window.quiet()
        pauses = Backoff(wait.USUAL_PAUSE, ROUND_SLACK)
        while self._counts.min() < self._counts[rank]:
            pauses.sleep()
            self._window.quiet()

    def free(self) -> None:
        """Give the counters back; collective."""
        self._window.free()
