"""Child processes of this host, how ranks of MPI are launched, and the files they leave."""

import os
import signal
import stat
import sys
import time as clocks
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from time import sleep, time
from typing import Any

from umm.errors import InputError
from umm.numbers import parse_whole, whole_in

# What prctl calls PR_SET_PDEATHSIG, PR_SET_NAME and PR_SET_CHILD_SUBREAPER.
_PARENT_DEATH_SIGNAL, _NAME, _CHILD_SUBREAPER = 1, 15, 36
_PROC = Path("/proc")


@contextmanager
def handled(
    numbers: tuple[signal.Signals, ...],
    handler: Callable[[int, Any], None] | signal.Handlers,
    instead: Any = None,
) -> Iterator[None]:
    """Call a function on signals meanwhile, except those that are ignored or have a handler already.

    Args:
        instead: A handler that it may take the place of.
    """
    usual = {x: signal.getsignal(x) for x in numbers} if current_thread() is main_thread() else {}
    taken = [x for x, does in usual.items() if does in (signal.SIG_DFL, signal.default_int_handler, instead)]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, usual[number])


def ended_by_ctrl_c() -> AbstractContextManager[None]:
    """Have Ctrl-C end this rank at once while MPI starts, as it waits for ranks that are gone."""
    usual = signal.getsignal(signal.SIGINT)
    return handled((signal.SIGINT,), signal.SIG_DFL, None if usual == signal.SIG_IGN else usual)


def children(number: int) -> list[int]:
    """Return the children of a process; none where the system does not list them."""
    folder = _PROC / str(number)
    try:
        return [int(x) for tasks in folder.glob("task/*/children") for x in tasks.read_text().split()]
    except OSError:  # it has ended meanwhile
        return []


def descendants(ancestor: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    processes = children(ancestor)
    for number in processes:
        processes += children(number)
    return processes


def is_dead(number: int) -> bool:
    """Whether a process has ended; its parent may not have asked how."""
    return _stat(number)[0] in "ZX"


def is_stopped(number: int) -> bool:
    """Whether a process has been stopped by a signal, as by SIGSTOP; one in a debugger has not."""
    return _stat(number)[0] == "T"


def started(process: int) -> float:
    """Return when a process began, rounded down to a tick of the system's clock; infinity if it is gone."""
    with suppress(OSError, ValueError, IndexError):
        ticks = int(_stat(process)[19])
        if ticks:
            return time() - clocks.clock_gettime(clocks.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return float("inf")


def faults_of_lost_children(number: int) -> int:
    """Return the page faults of a process's children that have ended and whose exit it has asked for."""
    # Nobody lists such a child, but every program has some faults (proc(5): cminflt): where the number grows,
    # a child was lost. A process keeps the number when it becomes another program.
    return int(_stat(number)[8])


def is_proxy(number: int) -> bool:
    """Whether a process is the one of Hydra, MPICH's mpiexec, whose children are the ranks of a host."""
    try:
        return (_PROC / str(number) / "comm").read_text(errors="replace").startswith("hydra")
    except OSError:
        return False


def proxy_above(process: int) -> int:
    """Return the proxy of Hydra that a process descends from, 0 if there is none."""
    while process and not is_proxy(process):
        process = int(_stat(process)[1])
    return process


def die_with(parent: int) -> None:
    """Have the system kill this process when its parent dies."""
    _ask(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Have the system make this process the parent of its descendants whose parents have died."""
    _ask(_CHILD_SUBREAPER, 1)


def show_as(name: str) -> None:
    """Have the system list this process by another name, of at most 15 letters."""
    _ask(_NAME, name.encode())


def _stat(number: int) -> list[str]:
    """Return a process's fields of /proc/…/stat from its state on (proc(5)); one that is gone is dead."""
    try:
        return (_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["X", *["0"] * 50]


def _ask(what: int, value: int | bytes) -> None:
    import ctypes

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


_RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
_SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
_OTHER_WAYS = ("PMI_PORT", "PMI_CONTROL_PORT", "PALS_RANKID", "SLURM_PROCID")


def launched_rank() -> int | None:
    """Return this process's rank, None if no mpiexec has started it.

    A ``PMI_RANK`` counts only with a way to the process manager that gave it: a variable may be left over
    from a job that has ended, or be the one of a parent.
    """
    return _first(_RANK)


def launched_size() -> int | None:
    """Return the number of processes that mpiexec has started, None if that is unknown."""
    return _first(_SIZE)


def stay_on_loopback() -> None:
    """Where all ranks are on this host, let none of them be reached from another; before MPI begins.

    MPICH's transports then open no port at all, unless ``UCX_TLS`` says which to use. Hydra's mpiexec listens
    on every interface for those it has started; they inherit that port, and bind it to loopback.
    """
    import socket

    local = os.environ.get("MPI_LOCALNRANKS", "")
    if sys.platform != "linux" or not local or local != os.environ.get("PMI_SIZE"):
        return
    os.environ.setdefault("UCX_TLS", "self,posix")
    for file in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as port:
            if port.family != socket.AF_UNIX and port.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                port.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


def end_with_launcher() -> None:
    """Have the system end this process with Hydra's proxy, which mpiexec would not notice.

    The parents that other launchers give may be threads, which end while their processes go on.
    """
    proxy = os.getppid()
    if is_proxy(proxy):
        die_with(proxy)


def _first(names: tuple[str, ...]) -> int | None:
    # Whether the process manager of PMI can be asked: by an open socket, or in another way.
    file = os.environ.get("PMI_FD")
    managed = file is None and any(name in os.environ for name in _OTHER_WAYS)
    if file is not None:
        with suppress(InputError, OSError):
            managed = stat.S_ISSOCK(os.fstat(parse_whole(file, "PMI_FD", below=2**31)).st_mode)
    usable = [name for name in names if not name.startswith("PMI_") or managed]
    numbers = (whole_in(os.environ.get(name), below=2**31) for name in usable)
    return next((number for number in numbers if number is not None), None)


FOLDER = Path("/dev/shm")
OF_MPICH, OF_UCX = "mpich_", "ucx_shm_posix_"  # how the names begin
DESCRIPTIONS = Path("/tmp")  # wherever TMPDIR points
OF_HYDRA = "hydra_hwloc_xmlfile_"  # where a proxy describes its host to its ranks; killed, it leaves that
OLD = 60.0  # seconds after which no rank needs a name, or a description since its proxy began
TWICE = 0.05  # seconds between two looks: who makes a segment maps it at once
LAST_RANKS = 10.0  # seconds the other ranks of a host have to end after the first one
NAME = "umm-sweeper"  # of the process that sweeps
_FIRST_OF_HOST = os.environ.get("MPI_LOCALRANKID", "0") == "0"


def sweep(since: float) -> None:
    """Remove this user's segments and descriptions that no process needs, the new and the old ones.

    Args:
        since: Time from which on one may be of the job that has just ended. Others must be a minute old:
            they may be of a container that shares this memory, whose processes cannot be seen from here.
    """
    orphans = _orphans(since)
    if orphans:
        sleep(TWICE)
        for path in orphans & _orphans(since):
            Path(path).unlink(missing_ok=True)


def forget() -> None:
    """Remove the names of MPICH's segments that this process has mapped, once all ranks of its host have."""
    for path in _mapped_by("self", (OF_MPICH,)):
        Path(path).unlink(missing_ok=True)


def watch_over() -> None:
    """Have another process sweep when this one has ended, however it ends; once a host, before MPI begins."""
    # mpiexec kills its processes, but not this one: it is in a session of its own.
    if sys.platform != "linux" or not _FIRST_OF_HOST:
        return
    proxy = proxy_above(os.getpid())
    began = min(time(), started(proxy))  # it describes the host before it starts a rank
    end, _ = os.pipe()  # the system closes the other end when this process has ended
    name = (_PROC / "self" / "comm").read_text(errors="replace").strip()
    show_as(NAME)  # of whom a child has it: nobody who looks at processes sees it without
    if os.fork():
        show_as(name)
        os.close(end)
        return
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(end, 0)
    os.closerange(1, 1 << 16)  # mpiexec waits until nobody can write to it any more
    os.read(0, 1)
    sweep_last(began, proxy)
    os._exit(0)


def sweep_last(since: float, proxy: int) -> None:
    """Clean up after a job whose ranks are ending, and its proxy if not 0; wait some seconds for the last."""
    until = time() + LAST_RANKS
    ending = True
    while ending:
        # The proxy, or a process of no other proxy, has files that are new.
        segments = set(_named(since, False))
        ending = not is_dead(proxy) and any(_files(DESCRIPTIONS, OF_HYDRA, since, False))
        if segments and not ending:
            processes = {int(x.name) for x in _PROC.glob("[0-9]*")}
            for other in [x for x in processes if x != proxy and is_proxy(x)]:
                processes.difference_update(descendants(other))
            ending = any(not segments.isdisjoint(_mapped_by(str(x))) for x in processes)
        ending = ending and time() < until
        sweep(since)
        sleep(TWICE if ending else 0)


def _orphans(since: float) -> set[str]:
    segments = set(_named(since))
    described = dict(_files(DESCRIPTIONS, OF_HYDRA, since))
    if not segments and not described:
        return set()
    processes = [int(x.name) for x in _PROC.glob("[0-9]*")]
    segments = segments.difference(*(_mapped_by(str(process)) for process in processes if segments))
    proxies = [started(x) for x in processes if described and is_proxy(x) and not is_dead(x)]
    return segments | {path for path, at in described.items() if not any(at - OLD < x <= at for x in proxies)}


def _named(since: float, old: bool = True) -> Iterator[str]:
    """Yield this user's segments that are new, or old if these are wanted too."""
    return (path for name in (OF_MPICH, OF_UCX) for path, _ in _files(FOLDER, name, since, old))


def _files(folder: Path, name: str, since: float, old: bool = True) -> Iterator[tuple[str, float]]:
    """Yield this user's files whose names begin so and that are new, or old if these are wanted too.

    Each has the time of its last change.
    """
    for path in folder.glob(f"{name}*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            fits = status.st_ctime >= since or (old and status.st_ctime <= time() - OLD)
            if status.st_uid == os.getuid() and fits:
                yield str(path), status.st_ctime


def _mapped_by(process: str, names: tuple[str, ...] = (OF_MPICH, OF_UCX)) -> list[str]:
    """Return the segments that a process has mapped and that still have their names."""
    try:
        maps = Path(f"/proc/{process}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or is another user's
        return []
    paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines())
    known = tuple(f"{FOLDER}/{name}" for name in names)
    return [x for x in paths if x.startswith(known) and not x.endswith("(deleted)")]
