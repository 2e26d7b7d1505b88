"""The process that owns an MPI job: it starts mpiexec, and leaves nothing of the job, whoever dies when.

``python -m umm_hw.mpi.job.keeper PARENT FOLDER COMMAND…``. It takes in the orphans of the job, so that it can
end them too. The job ends when mpiexec does, when the parent has gone or asks for it by SIGTERM, or when a
rank has died before the ranks watch each other: mpiexec may not notice, and the others wait for it.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, time

from umm.host import segments
from umm.host.processes import adopt_orphans, descendants, die_with, is_dead

LOOK_UP = 0.1  # seconds between two looks at who is there
UNNOTICED = 1.0  # seconds mpiexec has to ask how a process ended
END_WITHIN = 1.0  # seconds mpiexec has to end its ranks itself, on other hosts too
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def keep(parent: int, folder: Path, command: list[str]) -> int:
    """Run a job until it ends or nobody wants it any more; return mpiexec's exit code, 1 if there is none.

    Args:
        parent: The process that wants it.
        folder: Where the ranks are met; the parent removes it when all are there, else this process does.
        command: mpiexec with its arguments.
    """
    began = time()
    adopt_orphans()
    keeper = os.getpid()
    waits_for = {*_ASKED_TO_END, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waits_for)

    def unblocked() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waits_for)
        die_with(keeper)

    try:
        segments.sweep(since=began)
        mpiexec = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=unblocked)
        unnoticed: dict[int, float] = {}
        while mpiexec.poll() is None and os.getppid() == parent:
            got = signal.sigtimedwait(waits_for, LOOK_UP)
            if got is not None and got.si_signo in _ASKED_TO_END:
                break
            if folder.exists():
                dead = [x for x in descendants(keeper) if x != mpiexec.pid and is_dead(x)]
                unnoticed = {x: unnoticed.get(x, monotonic()) for x in dead}
                if any(monotonic() - since > UNNOTICED for since in unnoticed.values()):
                    os.write(
                        2, f"error: process {min(unnoticed)} was killed while the ranks started\n".encode()
                    )
                    break
        _end(mpiexec)
    finally:
        segments.sweep(since=began)
        shutil.rmtree(folder, ignore_errors=True)
    return mpiexec.returncode or 0


def _end(mpiexec: "subprocess.Popen[bytes]") -> None:
    """End mpiexec, and then all that is left of what it has started."""
    if mpiexec.poll() is None:
        mpiexec.terminate()
        with suppress(subprocess.TimeoutExpired):
            mpiexec.wait(END_WITHIN)
    until = monotonic() + END_WITHIN
    while (left := descendants(os.getpid())) and monotonic() < until:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in left:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_UP)
    mpiexec.poll()


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
