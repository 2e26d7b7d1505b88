"""A process between mpiexec and a rank, so that a rank's death can be named before mpiexec ends the job."""

import ctypes
import os
import signal
import sys
from functools import cache
from time import sleep

AMID_DEATH = 2.0  # seconds the watchdogs of other ranks have to say who died
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


@cache
def supervise() -> None:
    """Go on in a child process, once; this one waits for it and ends as it does. Before MPI and CUDA begin.

    mpiexec kills all ranks as soon as one of its own processes dies, and often names the wrong one. Its
    process is now this one, which outlives its rank by the time the other ranks need to tell.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        _die_with(supervisor)
        return
    forwarded = []

    def forward(number: int, _: object) -> None:
        forwarded.append(number)
        os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0 and -status not in forwarded:
        sleep(AMID_DEATH)
        os.write(2, f"error: process {child} was ended by {signal.Signals(-status).name}\n".encode())
    os._exit(status if status >= 0 else 128 - status)


def _die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
