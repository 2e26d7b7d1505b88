"""Whether the memory of a schedule is there, before it is taken."""

import os
from pathlib import Path

import numpy as np
from mpi4py import MPI

from umm.errors import InfeasibleError
from umm.schedules.table import Schedule
from umm.units import format_bytes
from umm_hw import mpi_wait

SHARED_FOLDER = Path("/dev/shm")  # where MPICH's shared windows are files
_CGROUP = Path("/sys/fs/cgroup")


def check_memory(comm: MPI.Intracomm, schedule: Schedule, nbytes: int) -> None:
    """Refuse a schedule whose tiles and pools do not fit in what each host has free; collective.

    Args:
        comm: The ranks.
        schedule: What is to be performed.
        nbytes: What this rank is going to allocate.

    Raises:
        InfeasibleError: on every rank, naming the host's shortfall.
    """
    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    needed = np.array([nbytes], dtype=np.int64)
    together = np.zeros(1, dtype=np.int64)
    mpi_wait.wait(here.Iallreduce(needed, together))
    free = np.array([free_memory()], dtype=np.int64)
    mpi_wait.wait(here.Ibcast(free))
    ranks = here.size
    here.Free()
    short = np.array([together[0] - free[0], together[0], ranks], dtype=np.int64)
    every = np.zeros((comm.size, 3), dtype=np.int64)
    mpi_wait.wait(comm.Iallgather(short, every))
    worst, need, ranks = every[np.argmax(every[:, 0])].tolist()
    if worst > 0:
        missing, needed_all, there = (format_bytes(x) for x in (worst, need, need - worst))
        raise InfeasibleError(
            f"{ranks} ranks on one host need {needed_all} for tiles and pools (a pool has up to "
            f"{format_bytes(int(schedule.pool_bytes.max()))}), but {there} is free: {missing} short; "
            "fewer replicas, --granularity slice or a smaller --prefetch take less"
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
