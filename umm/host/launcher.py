"""Whether an mpiexec has started this process, known without MPI."""

import os
import socket
import stat
import sys
from contextlib import suppress

from umm.host.processes import die_with, is_proxy

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
    held = [name for name in names if not name.startswith("PMI_") or _managed()]
    return next((int(os.environ[name]) for name in held if os.environ.get(name, "").isdigit()), None)


def _managed() -> bool:
    """Whether the process manager of PMI can be asked: by an open socket, or in another way."""
    file = os.environ.get("PMI_FD")
    if file is None:
        return any(name in os.environ for name in _OTHER_WAYS)
    try:
        return stat.S_ISSOCK(os.fstat(int(file)).st_mode)
    except (ValueError, OSError):
        return False
