"""A process between mpiexec and a rank, so that a rank's death can be named before mpiexec ends the job."""

import os
import signal
import sys
from contextlib import suppress
from functools import cache
from time import sleep

from umm.host.launcher import die_with, end_with_launcher, launched_rank, stay_on_loopback, watch_over

AMID_DEATH = 2.0  # seconds the watchdogs of other ranks have to say who died
ENDS = (signal.SIGINT, signal.SIGTERM)
OUTLIVED = 0.2  # seconds after which mpiexec's pipes close, so that it asks how this process has ended


@cache
def supervise() -> None:
    """Go on in a child process, once; this one waits for it and ends as it does. Before MPI and CUDA begin.

    mpiexec kills all ranks as soon as one of its own processes dies, and often names the wrong one. Its
    process is now this one, which outlives its rank by the time the other ranks need to report.
    """
    end_with_launcher()
    stay_on_loopback()
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # Python forgets those that come to a child amid its start
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        die_with(supervisor)
        watch_over()
        return
    forwarded = []

    def forward(number: int, _: object) -> None:
        forwarded.append(number)
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    for number in ENDS:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0 and -status not in forwarded:
        sleep(AMID_DEATH)
        name = signal.Signals(-status).name
        os.write(2, f"error: rank {launched_rank()} (process {child}) was ended by {name}\n".encode())
        _die_by(-status)
    if status == -signal.SIGINT and not launched_rank():
        os.write(2, b"error: interrupted\n")  # of all ranks the first says so
    os._exit(status if status >= 0 else 128 - status)


def _die_by(number: int) -> None:
    """End this process by a signal, which has mpiexec end the job, as a mere exit code may not."""
    # mpiexec looks how its processes are when one of their pipes closes, and once only: this process has to
    # be dead already.
    if os.fork() == 0:
        sleep(OUTLIVED)
        os._exit(0)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
