"""Nothing hangs: a thread in every rank ends the job when a rank dies or freezes or an action is stuck."""

import os
import select
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Thread
from time import perf_counter

import numpy as np
from mpi4py import MPI

from umm_hw.mpi.job.activity import ACTIVITY
from umm_hw.mpi.windows import RemoteWindow, SharedWindow
from umm_hw.transport import Block

PERIOD = 0.5  # seconds between two heartbeats
SILENCE = 10.0  # seconds without a heartbeat after which a rank counts as frozen
ABSENT = 3.0  # seconds this rank itself must have been away to judge nobody for a while
GRACE = 2.0  # seconds the first rank has to report before the others do
HEARD = 0.3  # seconds mpiexec has to pass the line on
ABORT_WITHIN = 2.0  # seconds MPI has to end the job


class Watchdog(Thread):
    """Beats, watches the heartbeats of all ranks and this rank's own actions; one line names a fault.

    The death of a rank is noticed at once by all on its host; the next one says so, because mpiexec often
    names the wrong process.

    Args:
        comm: All ranks; making one is collective.
        shared: Whether they are on one host.
        processes: Host and process of each rank.
    """

    def __init__(self, comm: MPI.Intracomm, shared: bool, processes: Sequence[tuple[str, int]]) -> None:
        super().__init__(name="umm-watchdog", daemon=True)
        self._comm = comm
        self._processes = processes
        self._bell, self._rope = os.pipe()  # what is written to the rope rings the bell
        self._watched = select.poll()
        self._watched.register(self._bell, select.POLLIN)
        self._life_of: dict[int, int] = {}  # the rank of each file that becomes readable when it dies
        here = processes[comm.rank][0]
        if hasattr(os, "pidfd_open"):
            for rank, (host, process) in enumerate(processes):
                if host == here and rank != comm.rank:
                    with suppress(OSError):  # in another container, or forbidden here: heartbeats remain
                        life = os.pidfd_open(process)
                        self._life_of[life] = rank
                        self._watched.register(life, select.POLLIN)
        self._window = (SharedWindow if shared else RemoteWindow)(comm, [64] * comm.size)
        self._beat = self._window.own.view(np.int64)
        self._beat[:] = 0

    def stop(self) -> None:
        """Stop watching; collective, before MPI ends."""
        os.write(self._rope, b"x")
        self.join()
        self._window.free()
        for file in (self._bell, self._rope, *self._life_of):
            os.close(file)

    def run(self) -> None:
        """Beat and look, until stopped."""
        peers = [rank for rank in range(self._comm.size) if rank != self._comm.rank]
        woke = perf_counter()
        seen = dict.fromkeys(peers, (-1, woke))
        while True:
            rung = {file for file, _ in self._watched.poll(1000 * PERIOD)}
            if self._bell in rung:
                return
            self._mourn([self._life_of[file] for file in rung])
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

    def _mourn(self, dead: list[int]) -> None:
        """End the job if a rank of this host has died, in the name of the next one that lives."""
        if not dead:
            return
        alive = sorted({*self._life_of.values(), self._comm.rank} - set(dead))
        if self._comm.rank != next((rank for rank in alive if rank > dead[0]), alive[0]):
            Event().wait(GRACE)
        host, process = self._processes[dead[0]]
        end_job(f"rank {dead[0]} (process {process} on {host}) was killed or ended early")

    def _beat_of(self, rank: int) -> int:
        beat = np.empty((1, 1), dtype=np.int64)
        self._window.get(Block(rank, 0, 0, 1, 1, 1, beat.dtype), beat)
        return int(beat[0, 0])

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


def end_job(why: str) -> None:
    """Print one line and end all ranks; if MPI is itself stuck, by the death of this one."""
    os.write(sys.stderr.fileno(), f"error: {why}\n".encode())
    Event().wait(HEARD)
    Thread(target=MPI.COMM_WORLD.Abort, args=(1,), daemon=True).start()
    Event().wait(ABORT_WITHIN)
    os.kill(os.getpid(), signal.SIGKILL)
