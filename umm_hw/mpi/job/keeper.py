"""The process that owns an MPI job: it starts mpiexec, and leaves nothing of the job, whoever dies when.

``python -m umm_hw.mpi.job.keeper PARENT FOLDER COMMAND…``. It takes in the orphans of the job, so that it can
end them too. The job ends when mpiexec does, when the parent has gone or asks for it by SIGTERM, or when
something is wrong that mpiexec has not noticed: a rank has died while the others start and wait for it, or
all have ended and mpiexec has not.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, time

from umm.host import segments
from umm.host.processes import (
    adopt_orphans,
    children,
    descendants,
    die_with,
    has_lost_a_child,
    is_dead,
    is_proxy,
)

LOOK_UP = 0.1  # seconds between two looks at who is there
UNNOTICED = 1.0  # seconds mpiexec has to notice how a process ended
WHILE_STARTING = "was killed or ended while the ranks started"
END_WITHIN = 1.0  # seconds mpiexec has to end its ranks itself, on other hosts too
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def keep(parent: int, folder: Path, command: list[str]) -> int:
    """Run a job until it ends or nobody wants it any more; return mpiexec's exit code.

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
        watch = Watch(mpiexec.pid, folder)
        while mpiexec.poll() is None and os.getppid() == parent:
            got = signal.sigtimedwait(waits_for, LOOK_UP)
            if got is not None and got.si_signo in _ASKED_TO_END:
                break
            trouble = watch.trouble()
            if trouble:
                os.write(2, f"error: {trouble}\n".encode())
                break
        _end(mpiexec)
    finally:
        segments.sweep(since=began)
        shutil.rmtree(folder, ignore_errors=True)
    return mpiexec.returncode or 0


class Watch:
    """What mpiexec may not notice of the processes it has started.

    Args:
        mpiexec: Its process.
        folder: There until the ranks watch each other.
    """

    def __init__(self, mpiexec: int, folder: Path) -> None:
        self._mpiexec, self._folder = mpiexec, folder
        self._worked = False
        self._ranks: set[int] = set()
        self._since: dict[str, float] = {}

    def trouble(self) -> str | None:
        """Return in words what has been wrong for longer than it takes mpiexec to notice."""
        now = monotonic()
        self._since = {words: self._since.get(words, now) for words in self._wrong()}
        return next((words for words, since in self._since.items() if now - since > UNNOTICED), None)

    def _wrong(self) -> Iterator[str]:
        begun = children(self._mpiexec)
        self._worked = self._worked or bool(begun) or has_lost_a_child(self._mpiexec)
        if self._worked and all(map(is_dead, begun)):
            yield "all that mpiexec had started was killed or ended early"
        if self._folder.exists():
            started = descendants(self._mpiexec)
            proxies = list(filter(is_proxy, started))
            self._ranks.update(x for proxy in proxies for x in children(proxy))
            for process in filter(is_dead, {*started, *self._ranks}):
                yield f"process {process} {WHILE_STARTING}"
            if any(map(has_lost_a_child, proxies)):  # perhaps of one that was there between two looks
                yield f"a rank {WHILE_STARTING}"


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
