"""The process that owns an MPI job: it starts mpiexec, and leaves nothing of the job behind.

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

from umm.host import launcher as segments
from umm.host.launcher import (
    adopt_orphans,
    children,
    descendants,
    die_with,
    faults_of_lost_children,
    is_dead,
    is_proxy,
)

LOOK_UP = 0.1  # seconds between two looks at who is there
UNNOTICED = 1.0  # seconds mpiexec has to notice how a process ended
WHILE_STARTING = "was killed or ended while the ranks started"
END_WITHIN = 1.0  # seconds mpiexec has to end its ranks itself, on other hosts too
GONE_WITHIN = 20.0  # seconds for what was killed to be gone; a busy host takes some
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def keep(parent: int, folder: Path, command: list[str]) -> int:
    """Run a job until it ends or nobody wants it any more; return mpiexec's exit code.

    Args:
        folder: Where the ranks are met; the parent removes it when all are there, else this process does.
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
        watch = Watch(mpiexec.pid, folder, int(command[command.index("-n") + 1]))
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
    """Failures of the processes started by mpiexec that it may not notice.

    Args:
        mpiexec: Its process.
        folder: There until the ranks watch each other.
        size: How many ranks there shall be.
    """

    def __init__(self, mpiexec: int, folder: Path, size: int) -> None:
        self._mpiexec, self._folder, self._size = mpiexec, folder, size
        self._worked = False
        self._ranks: set[int] = set()
        self._faults: dict[int, int] = {}  # of a proxy when it was first seen
        self._since: dict[str, float] = {}

    def trouble(self) -> str | None:
        """Return in words a failure that has lasted longer than mpiexec takes to notice."""
        now = monotonic()
        self._since = {words: self._since.get(words, now) for words in self._wrong()}
        return next((words for words, since in self._since.items() if now - since > UNNOTICED), None)

    def _wrong(self) -> Iterator[str]:
        begun = children(self._mpiexec)
        self._worked = self._worked or bool(begun) or faults_of_lost_children(self._mpiexec) > 0
        if self._worked and all(map(is_dead, begun)):
            yield "all that mpiexec had started was killed or ended early"
        if self._folder.exists():
            started = descendants(self._mpiexec)
            proxies = list(filter(is_proxy, started))
            self._ranks.update(x for proxy in proxies for x in children(proxy))
            for process in filter(is_dead, {*started, *self._ranks}):
                yield f"process {process} {WHILE_STARTING}"
            if self._has_lost_a_rank(begun, proxies):
                yield f"a rank {WHILE_STARTING}"

    def _has_lost_a_rank(self, begun: list[int], proxies: list[int]) -> bool:
        """Whether a rank has ended between two looks, so that nobody lists it."""
        # A proxy that a launcher starts was a shell, whose children (a hostname, say) count as the proxy's:
        # so only what it loses after it is first seen is a rank. A rank lost before that is missing once all
        # that mpiexec has started are proxies with ranks.
        now = {proxy: faults_of_lost_children(proxy) for proxy in proxies}
        self._faults = now | self._faults
        if any(faults > self._faults[proxy] for proxy, faults in now.items()):
            return True
        ranks = [len(children(proxy)) for proxy in proxies]
        started = all(is_proxy(process) for process in begun) and all(ranks)
        return started and any(now.values()) and sum(ranks) < self._size


def _end(mpiexec: "subprocess.Popen[bytes]") -> None:
    """End mpiexec, and then all remaining processes that it has started."""
    if mpiexec.poll() is None:
        mpiexec.terminate()
        with suppress(subprocess.TimeoutExpired):
            mpiexec.wait(END_WITHIN)
    until = monotonic() + GONE_WITHIN
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
