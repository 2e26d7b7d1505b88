"""One rank of a job that MpiJob started, as ``python -m mpi4py -m umm_hw.mpi.job.worker ADDRESS``."""

import os
import signal
import sys
from multiprocessing.connection import Client

from umm.host.launcher import launched_rank
from umm_hw.mpi.job.supervisor import supervise


def _interrupted(number: int, frame: object) -> None:
    """Say who was interrupted, for mpiexec ends before this process; Ctrl-C reaches another session."""
    os.write(2, f"error: rank {launched_rank()} (process {os.getpid()}) was interrupted\n".encode())
    raise KeyboardInterrupt


def serve(address: str) -> int:
    """Perform requests from the socket until it closes; return the exit code."""
    supervise()
    signal.signal(signal.SIGINT, _interrupted)
    from umm_hw.mpi import wait
    from umm_hw.mpi.job.team import Team

    team = Team()
    if team.rank > 0:
        sys.path[:] = wait.broadcast(team.world)
        return team.follow()
    with Client(address, family="AF_UNIX") as parent:
        sys.path[:] = parent.recv()  # programs are pickled by name
        wait.broadcast(team.world, sys.path)
        parent.send((team.processes, team.parents))
        try:
            while True:
                parent.send(team.lead(*parent.recv()))
        except (EOFError, ConnectionError):
            team.close()
    return 0


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
