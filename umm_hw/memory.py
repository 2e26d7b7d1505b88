"""Whether the memory of a schedule is there, before it is taken."""

import os
from pathlib import Path

import numpy as np

from umm.errors import InfeasibleError
from umm.schedules.table import Schedule
from umm.units import format_bytes
from umm_hw import mpi_wait
from umm_hw.mpi_transport import MpiTransport

SHARED_FOLDER = Path("/dev/shm")  # where MPICH's shared windows are files
_CGROUP = Path("/sys/fs/cgroup")


def check_memory(transport: MpiTransport, schedule: Schedule, nbytes: int) -> None:
    """Refuse a schedule whose tiles and pools do not fit in what each host has free; collective.

    Args:
        transport: How this rank reaches the others.
        schedule: What is to be performed.
        nbytes: What this rank is going to allocate.

    Raises:
        InfeasibleError: on every rank, naming the shortfall of the host that lacks most.
    """
    mine = np.array([transport.first_of_host, nbytes, free_memory() + transport.reserved], dtype=np.int64)
    every = np.zeros((transport.size, len(mine)), dtype=np.int64)
    mpi_wait.wait(transport.comm.Iallgather(mine, every))
    hosts = [every[every[:, 0] == host] for host in np.unique(every[:, 0])]
    worst = max(hosts, key=lambda ranks: int(ranks[:, 1].sum() - ranks[0, 2]))
    needed, free = int(worst[:, 1].sum()), int(worst[0, 2])
    if needed > free:
        pool = format_bytes(int(schedule.pool_bytes.max()))
        raise InfeasibleError(
            f"{len(worst)} ranks on one host need {format_bytes(needed)} for tiles and pools (a pool has up "
            f"to {pool}), but {format_bytes(free)} is free: {format_bytes(needed - free)} short; fewer "
            "replicas, --granularity slice or a smaller --prefetch take less"
        )


def free_memory() -> int:
    """Return the bytes this host can give to shared windows: the least of memory, cgroup and /dev/shm."""
    return min(_available(), _within_cgroup(), _shared_folder())


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 1024 * kib


def _within_cgroup() -> int:
    try:
        most = (_CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        return np.iinfo(np.int64).max if most == "max" else max(0, int(most) - used)
    except (OSError, ValueError):
        return np.iinfo(np.int64).max


def _shared_folder() -> int:
    try:
        space = os.statvfs(SHARED_FOLDER)
    except OSError:
        return np.iinfo(np.int64).max
    return space.f_bavail * space.f_frsize
