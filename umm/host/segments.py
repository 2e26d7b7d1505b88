"""Shared memory that MPI names in /dev/shm, and what removes a name when nobody is left to do so.

MPICH removes the name of a segment once all ranks of a host have it, or at the very end. Ranks that are
killed before leave the name behind, and the memory with it. So do those that are killed in the instant in
which UCX, which carries messages between ranks, has named a segment and not yet mapped it.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep, time

from umm.host.launcher import show_as, shown_as

FOLDER = Path("/dev/shm")
OF_MPICH, OF_UCX = "mpich_", "ucx_shm_posix_"  # how the names begin
OLD = 60.0  # seconds after which a name is of no more use: ranks have found each other, or have given up
TWICE = 0.05  # seconds between two looks: who makes a segment maps it at once
LAST_RANKS = 10.0  # seconds the other ranks of a host have to end after the first one
NAME = "umm-sweeper"  # of the process that sweeps
_FIRST_OF_HOST = os.environ.get("MPI_LOCALRANKID", "0") == "0"


def sweep(since: float) -> None:
    """Remove this user's segments that no process has mapped, the new and the old ones.

    Args:
        since: Time from which on a segment may be of the job that has just ended. Others must be a minute
            old: they may be of a container that shares this memory, whose processes cannot be seen from here.
    """
    found = _orphans(since)
    if found:
        sleep(TWICE)
        for path in found & _orphans(since):
            Path(path).unlink(missing_ok=True)


def forget() -> None:
    """Remove the names of MPICH's segments that this process has mapped, once all ranks of its host have."""
    for path in _mapped_by("self", (OF_MPICH,)):
        Path(path).unlink(missing_ok=True)


def watch_over() -> None:
    """Have another process sweep when this one has ended, however it ends; once a host, before MPI begins.

    mpiexec kills its processes, but not this one: it is in a session of its own.
    """
    if sys.platform != "linux" or not _FIRST_OF_HOST:
        return
    began = time()
    end, _ = os.pipe()  # the system closes the other end when this process has ended
    own = shown_as()
    show_as(NAME)  # of whom a child has it: nobody who looks at processes sees it without
    if os.fork():
        show_as(own)
        os.close(end)
        return
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(end, 0)
    os.closerange(1, 1 << 16)  # mpiexec waits until nobody can write to it any more
    os.read(0, 1)
    until = time() + LAST_RANKS
    while any(_named(began)) and time() < until:
        sweep(began)
        sleep(TWICE)
    os._exit(0)


def _orphans(since: float) -> set[str]:
    named = set(_named(since))
    processes = Path("/proc").glob("[0-9]*") if named else ()
    return named.difference(*(_mapped_by(process.name) for process in processes))


def _named(since: float) -> Iterator[str]:
    """Yield this user's segments that are new or old."""
    for path in (x for name in (OF_MPICH, OF_UCX) for x in FOLDER.glob(f"{name}*")):
        with suppress(FileNotFoundError):
            found = path.stat()
            if found.st_uid == os.getuid() and not time() - OLD < found.st_ctime < since:
                yield str(path)


def _mapped_by(process: str, names: tuple[str, ...] = (OF_MPICH, OF_UCX)) -> list[str]:
    """Return the segments that a process has mapped and that still have their names."""
    try:
        maps = Path(f"/proc/{process}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or is another user's
        return []
    paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines())
    known = tuple(f"{FOLDER}/{name}" for name in names)
    return [x for x in paths if x.startswith(known) and not x.endswith("(deleted)")]
