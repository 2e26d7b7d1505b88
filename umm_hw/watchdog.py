"""Nothing hangs: a thread in every rank that ends the job when a rank is frozen or an action is stuck."""

import os
import signal
import sys
from threading import Event, Thread
from time import perf_counter

import numpy as np
from mpi4py import MPI

from umm_hw.activity import ACTIVITY
from umm_hw.mpi_windows import RemoteWindow, SharedWindow
from umm_hw.transport import Block

PERIOD = 0.5  # seconds between two heartbeats
SILENCE = 10.0  # seconds without a heartbeat after which a rank counts as frozen
ABSENT = 3.0  # seconds this rank itself must have been away to judge nobody for a while
GRACE = 2.0  # seconds the first rank has to report before the others do
ABORT_WITHIN = 2.0  # seconds MPI has to end the job


class Watchdog(Thread):
    """Beats, watches the heartbeats of all ranks and this rank's own actions; one line names what is wrong.

    Args:
        comm: All ranks; making one is collective.
        shared: Whether they are on one host.
    """

    def __init__(self, comm: MPI.Intracomm, shared: bool) -> None:
        super().__init__(name="umm-watchdog", daemon=True)
        self._comm = comm
        self._window = (SharedWindow if shared else RemoteWindow)(comm, [64] * comm.size)
        self._beat = self._window.own.view(np.int64)
        self._beat[:] = 0
        self._stopping = Event()

    def stop(self) -> None:
        """Stop watching; collective, before MPI ends."""
        self._stopping.set()
        self.join()
        self._window.free()

    def run(self) -> None:
        """Beat and look, until told to stop."""
        peers = [rank for rank in range(self._comm.size) if rank != self._comm.rank]
        woke = perf_counter()
        seen = dict.fromkeys(peers, (-1, woke))
        while not self._stopping.wait(PERIOD):
            now = perf_counter()
            if now - woke > ABSENT:
                seen = dict.fromkeys(peers, (-1, now))
            woke = now
            self._beat[0] += 1
            self._window.quiet()
            for rank in peers:
                beat = self._beat_of(rank)
                if beat != seen[rank][0]:
                    seen[rank] = beat, now
            self._judge({rank: now - since for rank, (_, since) in seen.items()})

    def _beat_of(self, rank: int) -> int:
        found = np.empty((1, 1), dtype=np.int64)
        self._window.get(Block(rank, 0, 0, 1, 1, 1, found.dtype), found)
        return int(found[0, 0])

    def _judge(self, silent: dict[int, float]) -> None:
        """End the job if an own action is overdue or a rank has been silent for too long."""
        overdue = ACTIVITY.overdue()
        if overdue:
            end_job(f"rank {self._comm.rank} is stuck in {overdue}")
        frozen = [rank for rank, seconds in silent.items() if seconds > SILENCE]
        if frozen:
            first = min({*silent, self._comm.rank} - set(frozen)) == self._comm.rank
            if first or max(silent.values()) > SILENCE + GRACE:
                names = " and ".join(f"rank {rank}" for rank in frozen)
                end_job(
                    f"{names} gave no sign of life for {SILENCE:.0f} s (frozen, or its host is gone), while "
                    f"rank {self._comm.rank} waited for {ACTIVITY.waited_for()}"
                )


def end_job(why: str, code: int = 1) -> None:
    """Print one line and end all ranks; if MPI is itself stuck, by the death of this one."""
    os.write(sys.stderr.fileno(), f"error: {why}\n".encode())
    Thread(target=MPI.COMM_WORLD.Abort, args=(code,), daemon=True).start()
    Event().wait(ABORT_WITHIN)
    os.kill(os.getpid(), signal.SIGKILL)
