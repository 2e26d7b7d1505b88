"""Whether the memory of a schedule is there, before it is taken."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from umm.errors import InfeasibleError
from umm.host.hardware import UNKNOWN, free_memory
from umm.schedules.schedule import Schedule
from umm.units import format_bytes

if TYPE_CHECKING:
    from umm_hw.mpi.transport import MpiTransport

SHARED_FOLDER = Path("/dev/shm")  # where MPICH's shared windows are files


def check_memory(transport: "MpiTransport", schedule: Schedule, nbytes: int, gathered: int) -> None:
    """Refuse a schedule whose tiles, pools and gathered C exceed the free memory of a host; collective.

    InfeasibleError on every rank, naming the shortfall of the host that lacks most.

    Args:
        schedule: The schedule to perform.
        nbytes: Bytes that this rank is going to allocate.
        gathered: Bytes of the results, where this rank gathers them.
    """
    free = min(free_memory(), _shared_folder() + gathered)  # results are in ordinary memory
    mine = np.array([transport.first_of_host, nbytes + gathered, transport.reserved, free], dtype=np.int64)
    every = np.array(transport.broadcast(transport.gather(mine)))
    hosts = [every[every[:, 0] == host] for host in np.unique(every[:, 0])]
    worst = max(hosts, key=lambda ranks: int(ranks[:, 1].sum() - ranks[:, 2].sum() - ranks[0, 3]))
    needed, free = int(worst[:, 1].sum()), int(worst[:, 2].sum() + worst[0, 3])
    if needed > free:
        pool = format_bytes(int(schedule.pool_bytes.max()))
        raise InfeasibleError(
            f"{len(worst)} ranks on one host need {format_bytes(needed)} for tiles, pools (up to {pool} "
            f"each) and the gathered C, but {format_bytes(free)} is free: {format_bytes(needed - free)} "
            "short; fewer replicas, --granularity slice or a smaller --prefetch take less"
        )


def _shared_folder() -> int:
    """Return the bytes that shared windows can still have."""
    try:
        space = os.statvfs(SHARED_FOLDER)
    except OSError:
        return UNKNOWN
    return space.f_bavail * space.f_frsize
